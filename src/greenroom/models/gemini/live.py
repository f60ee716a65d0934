"""A connection to Gemini's Live API.

Source: https://ai.google.dev/api/live
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from greenroom.models.conversion import check_settings, refused, warn_once
from greenroom.models.gemini.contents import gemini_version, system_and_tools, turns
from greenroom.models.gemini.reply import ContentReply, plain, to_record
from greenroom.models.gemini.rules import OWN_IDS
from greenroom.models.live import LiveConnection, heard, spoken
from greenroom.models.model import RealtimeInput
from greenroom.models.requests.turns import CONTINUE
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata, GroundingMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import ActivityEnd, ActivityStart, Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_FROM_REQUEST = {
    "temperature", "top_p", "top_k", "max_output_tokens", "media_resolution", "seed", "speech_config",
    "thinking_config", "safety_settings",
}  # fmt: skip
_TAKEN = frozenset({
    *_FROM_REQUEST, "system_instruction", "tools", "http_options", "labels", "response_modalities", "tool_config"
})  # fmt: skip
_ONLY_ON_VERTEX = ("explicit_vad_signal", "labels")
_MORE = frozenset({"urlContextMetadata", "waitingForInput", "interimInputTranscription"})
"""The server's fields about a turn that have none of their own in a response."""


def takes_text_as_speech(model: str) -> bool:
    """True for Gemini 3, which takes typed text as realtime input; earlier models take it as a turn."""
    return (gemini_version(model) or 0) >= 3


def live_config(
    request: LlmRequest,
    *,
    model: str,
    is_vertex: bool,
    api_version: str | None,
) -> JsonObject:
    """The settings of `live.connect`, of plain dicts."""
    check_settings(request.config, taken=_TAKEN, model=model)
    live = request.live_connect_config or LiveConnectConfig()
    config = request.config.model_dump(include=_FROM_REQUEST, exclude_none=True) | live.model_dump(exclude_none=True)
    config |= system_and_tools(request.config, is_vertex=is_vertex)
    options: JsonObject = config.pop("http_options", None) or {}
    headers = options.get("headers") or (request.config.http_options or {}).get("headers")
    # Affective dialog and proactive audio exist in this version only.
    version = options.get("api_version") or api_version or (None if is_vertex else "v1alpha")
    http = {name: value for name, value in (("headers", headers), ("api_version", version)) if value}
    if http:
        config["http_options"] = http

    if not is_vertex:
        for name in _ONLY_ON_VERTEX:
            if config.pop(name, None):
                warn_once(model, name)

    if request.contents and takes_text_as_speech(model) and not config.get("session_resumption", {}).get("handle"):
        config.setdefault("history_config", {"initial_history_in_client_content": True})

    return config


class GeminiLiveConnection(LiveConnection):
    """A connection to Gemini's Live API.

    session: an `AsyncSession` of the SDK.
    """

    def __init__(
        self,
        session: Any,
        *,
        model: str,
        is_vertex: bool,
        secrets: Sequence[str | None],
    ) -> None:
        super().__init__(model=model, secrets=secrets)
        self._session = session
        self._is_vertex = is_vertex
        self._takes_text_as_speech = takes_text_as_speech(model)
        self._unfinished: list[Part] = []
        self._cancelled = set[str]()
        self._text = ContentReply()
        self._heard = heard()
        self._spoken = spoken()
        self._grounding: GroundingMetadata | None = None
        self._more: JsonObject = {}

    async def send_history(self, history: Sequence[Content]) -> None:
        contents = [_without_media(content) for content in self.fitted(history)]
        asks = bool(history) and history[-1].role == "user"
        last = contents[-1].text() if asks else ""
        is_text = asks and all(part.text for part in contents[-1].parts or ())
        if self._takes_text_as_speech and is_text:  # history is silent there, so text to answer is sent separately
            contents.pop()

        sent = turns(contents, model=self._model, is_vertex=self._is_vertex)
        if sent:
            complete = asks or self._takes_text_as_speech
            await self.sent(self._session.send_client_content(turns=sent, turn_complete=complete))

        if self._takes_text_as_speech and asks:
            await self._send_realtime(text=last if is_text and last else CONTINUE)

    async def send_content(self, content: Content) -> None:
        await self._send_turn(content, partial=False)

    async def send_partial_content(self, content: Content) -> bool:
        await self._send_turn(content, partial=True)
        return True

    async def _send_turn(self, content: Content, *, partial: bool) -> None:
        parts = content.parts or []
        responses = [part.function_response for part in parts if part.function_response is not None]
        if responses and len(responses) == len(parts):
            await self._respond([one for one in responses if one.id not in self._cancelled])
        elif self._takes_text_as_speech:
            await self._say(parts, partial=partial)
        else:
            sent = turns([content], model=self._model, is_vertex=self._is_vertex)
            await self.sent(self._session.send_client_content(turns=sent, turn_complete=not partial))

    async def _respond(self, responses: Sequence[FunctionResponse]) -> None:
        if not responses:
            return

        plain_responses = [response.model_dump(exclude_none=True) for response in responses]
        if self._names is not None:
            for response in plain_responses:
                response["name"] = self._names.sent(response.get("name") or "")

        for response in plain_responses:
            if self._is_vertex and str(response.get("id") or "").startswith(OWN_IDS):
                del response["id"]

        await self.sent(self._session.send_tool_response(function_responses=plain_responses))

    async def _say(self, parts: Sequence[Part], *, partial: bool) -> None:
        """Media as they come, and then the text, which Gemini answers at once."""
        self._unfinished += parts
        if partial:
            return

        unfinished = self._unfinished
        self._unfinished = []

        for part in unfinished:
            if part.inline_data is not None:
                await self.send_realtime(part.inline_data)
            elif part.text is None:
                raise refused(f"{self._model} takes text and inline media while it is live", model=self._model)

        text = "".join(part.text or "" for part in unfinished)
        if text:
            await self._send_realtime(text=text)

    async def send_realtime(self, data: RealtimeInput) -> None:
        if isinstance(data, Blob):
            kind = (data.mime_type or "").partition("/")[0]
            name = {"audio": "audio", "image": "video"}.get(kind, "media")
            await self._send_realtime(**{name: {"data": data.data, "mime_type": data.mime_type}})
        elif isinstance(data, ActivityStart):
            await self._send_realtime(activity_start={})
        elif isinstance(data, ActivityEnd):
            await self._send_realtime(activity_end={})
        else:
            await self._send_realtime(audio_stream_end=True)

    async def _send_realtime(self, **data: Any) -> None:
        await self.sent(self._session.send_realtime_input(**data))

    async def replies(self) -> AsyncGenerator[LlmResponse]:
        while True:
            async with aclosing(self._session.receive()) as turn:
                async for message in turn:
                    for reply in self._replies_of(message):
                        yield reply

    async def close_socket(self) -> None:
        await self._session.close()

    def _replies_of(self, message: Any) -> Iterator[LlmResponse]:
        if message.usage_metadata is not None:
            usage = _usage(message.usage_metadata)
        else:
            usage = None

        if message.server_content is not None:
            for reply in self._content(message.server_content):
                if reply.turn_complete:
                    reply.usage_metadata = usage
                    usage = None
                yield reply

        if message.tool_call is not None:
            yield from self._complete_pieces()
            calls = [to_record(call, FunctionCall) for call in message.tool_call.function_calls or ()]
            content = Content(role="model", parts=[Part(function_call=call) for call in calls])
            yield LlmResponse(content=content, usage_metadata=usage)
            usage = None

        if message.tool_call_cancellation is not None:
            self._cancelled.update(message.tool_call_cancellation.ids or ())
            cancelled = {"toolCallCancellation": plain(message.tool_call_cancellation)}
            yield LlmResponse(custom_metadata={"gemini": cancelled})

        if message.session_resumption_update is not None:
            yield LlmResponse(live_session_resumption_update=plain(message.session_resumption_update))

        activity = message.voice_activity or message.voice_activity_detection_signal
        if activity is not None:
            yield LlmResponse(voice_activity=plain(activity))

        if usage is not None:
            yield LlmResponse(usage_metadata=usage)

        if message.go_away is not None:
            yield LlmResponse(go_away=plain(message.go_away))

    def _content(self, content: Any) -> Iterator[LlmResponse]:
        if content.grounding_metadata is not None:
            self._grounding = GroundingMetadata(plain(content.grounding_metadata))

        self._more |= {name: value for name, value in plain(content).items() if name in _MORE}

        if content.input_transcription is not None:
            transcription = content.input_transcription
            yield from self._heard.add(transcription.text or "", language_code=transcription.language_code)
            if transcription.finished:
                yield from self._heard.end(language_code=transcription.language_code)

        for part in (content.model_turn.parts if content.model_turn is not None else None) or ():
            if part.inline_data is not None:
                yield LlmResponse(content=Content(role="model", parts=[to_record(part, Part)]))
            elif (shown := self._text.take_part(plain(part))) is not None:
                yield shown

        if content.output_transcription is not None:
            transcription = content.output_transcription
            yield from self._spoken.add(transcription.text or "", language_code=transcription.language_code)
            if transcription.finished:
                yield from self._spoken.end(language_code=transcription.language_code)

        if content.generation_complete or content.interrupted or content.turn_complete:
            yield from self._complete_pieces()

        if content.interrupted or content.turn_complete:
            reason = content.turn_complete_reason
            status = content.interaction_status
            yield LlmResponse(
                interrupted=content.interrupted or None,
                turn_complete=content.turn_complete or None,
                turn_complete_reason=str(reason.value) if reason is not None else None,
                interaction_status=str(status.value) if status is not None else None,
                grounding_metadata=self._grounding,
                custom_metadata={"gemini": self._more} if self._more else None,
                live_session_id=self._session.session_id,
            )
            self._grounding = None
            self._more = {}

    def _complete_pieces(self) -> Iterator[LlmResponse]:
        """Transcripts and text that have arrived in pieces."""
        yield from self._heard.end()
        yield from self._spoken.end()
        if not self._text.is_empty:
            reply = self._text
            self._text = ContentReply()
            yield reply.whole()


def _is_media(part: Part) -> bool:
    return part.inline_data is not None or part.file_data is not None


def _usage(given: Any) -> GenerateContentResponseUsageMetadata:
    counts = plain(given)
    counts["candidatesTokenCount"] = counts.pop("responseTokenCount", None)
    counts["candidatesTokensDetails"] = counts.pop("responseTokensDetails", None)
    return msgspec.convert(counts, GenerateContentResponseUsageMetadata)


def _without_media(content: Content) -> Content:
    parts = [part for part in content.parts or () if not _is_media(part)]
    return msgspec.structs.replace(content, parts=parts)
