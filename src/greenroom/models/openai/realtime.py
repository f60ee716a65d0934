"""A connection to OpenAI's Realtime API.

The service sends each output once, and a response's audio arrives faster than it is played, so an interruption also
cuts off audio that the user has not heard yet. There are no handles to resume a session: a new connection gets the
history.

Source: https://platform.openai.com/docs/api-reference/realtime
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import msgspec

from greenroom.errors import ModelError, ModelErrorCategory
from greenroom.models.conversion import (
    base64_bytes,
    base64_of,
    code_as_text,
    data_uri,
    is_model,
    json_text,
    refused,
    unsupported_media,
)
from greenroom.models.live import LiveConnection, heard, spoken
from greenroom.models.model import RealtimeInput
from greenroom.models.model_errors import category_of_type, new_model_error
from greenroom.models.openai.realtime_session import PCM, RATE, Resampler, rate_of, session_settings
from greenroom.records.answer_metadata import FinishReason, GenerateContentResponseUsageMetadata, ModalityTokenCount
from greenroom.records.base import JsonObject
from greenroom.records.content import ActivityEnd, ActivityStart, Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_log = logging.getLogger("greenroom.models")

OUTPUT = f"audio/pcm;rate={RATE}"
_BYTES_PER_MS = RATE * 2 // 1000
_TELEPHONE = ("audio/pcmu", "audio/pcma")
_SILENCE = bytes(RATE * 2)
"""A second, after which the service takes the user's turn as finished."""

_PASSING = frozenset({
    "conversation_already_has_active_response", "response_cancel_not_active", "input_audio_buffer_commit_empty"
})  # fmt: skip
"""Errors that come of two sides acting at once."""


class CallIds:
    """Ids for calls that have none, and for each response the id of the call it answers.

    allowed: the format of valid ids; each other id is replaced by a valid one, always the same.
    """

    def __init__(self, allowed: str = r".+", *, prefix: str = "call_") -> None:
        self._allowed = re.compile(allowed)
        self._prefix = prefix
        self._made = 0
        self._replaced: dict[str, str] = {}
        self._unanswered: defaultdict[str, deque[str]] = defaultdict(deque)

    def of_call(self, call: FunctionCall) -> str:
        call_id = self._valid(call.id) if call.id else self._new()
        self._unanswered[call.name or ""].append(call_id)
        return call_id

    def of_response(self, response: FunctionResponse) -> str:
        waiting = self._unanswered[response.name or ""]
        if response.id:
            call_id = self._valid(response.id)
            if call_id in waiting:
                waiting.remove(call_id)
            return call_id

        if waiting:
            return waiting.popleft()

        return f"{self._prefix}{response.name}"

    def _new(self) -> str:
        self._made += 1
        return f"{self._prefix}{self._made}"

    def _valid(self, call_id: str) -> str:
        if self._allowed.fullmatch(call_id):
            return call_id
        if call_id not in self._replaced:
            self._replaced[call_id] = self._new()
        return self._replaced[call_id]


class RealtimeConnection(LiveConnection):
    """A connection to OpenAI's Realtime API.

    connection: an `AsyncRealtimeConnection` of the SDK, whose session is still to be configured
    by `begin`.
    """

    def __init__(self, connection: Any, *, model: str, secrets: Sequence[str | None]) -> None:
        super().__init__(model=model, secrets=secrets)
        self._connection = connection
        self._detects_turns = True
        self._tells_activity = False
        self._tells_transcript = True
        self._format: str = "audio/pcm"
        self._resampler = Resampler()
        self._ids = CallIds(r"[\w-]{1,64}")
        self._answered = set[str]()
        self._heard = heard()
        self._spoken = spoken()
        self._calls: list[Part] = []
        self._is_answering = False
        self._wants_answer = False
        self._response: str | None = None
        self._cut_off: str | None = None  # the response that was interrupted
        self._was_told = True  # of the interruption
        self._playing: JsonObject | None = None  # the item that the user hears
        self._played_from = 0.0
        self._bytes = 0

    async def begin(self, request: LlmRequest) -> None:
        """Configures the session. Raises ModelError if the service refuses."""
        settings = session_settings(request, model=self._model)
        live = request.live_connect_config or LiveConnectConfig()
        self._detects_turns = settings["audio"]["input"]["turn_detection"] is not None
        self._tells_activity = bool(live.explicit_vad_signal)
        self._tells_transcript = live.output_audio_transcription is not None
        await self._send("session.update", session=settings)

        while (event := await self._next())["type"] != "session.updated":
            if event["type"] == "error":
                raise self._failure(event["error"])

    async def send_history(self, history: Sequence[Content]) -> None:
        for content in self.fitted(history):
            await self._add(content, is_new=False)
        if history and not is_model(history[-1]):
            await self._answer()

    async def send_partial_content(self, content: Content) -> bool:
        await self._add(content, is_new=True)
        return True

    async def send_content(self, content: Content) -> None:
        responses = [part.function_response for part in content.parts or () if part.function_response is not None]
        if not responses:
            await self._interrupt()

        await self._add(content, is_new=True)

        if not responses or any(one.scheduling != "SILENT" for one in responses):
            if any(one.scheduling == "INTERRUPT" for one in responses):
                await self._interrupt()
            await self._answer()

    async def send_realtime(self, data: RealtimeInput) -> None:
        if isinstance(data, Blob):
            await self._hear(data)
        elif isinstance(data, ActivityStart):
            if not self._detects_turns:
                await self._interrupt()
        elif isinstance(data, ActivityEnd):
            if not self._detects_turns:
                await self._send("input_audio_buffer.commit")
                await self._answer()
        elif self._detects_turns:
            await self._send("input_audio_buffer.append", audio=base64_of(Blob(data=_SILENCE)))

    async def replies(self) -> AsyncGenerator[LlmResponse]:
        while True:
            event = await self._next()
            replies: list[LlmResponse] = []
            if event["type"] == "input_audio_buffer.speech_started" and await self._truncate():
                replies += self._interrupted()

            replies += self._replies_to(event)

            if event["type"] == "response.done" and self._wants_answer:
                self._wants_answer = False
                await self._answer()

            for reply in replies:
                yield reply

    async def close_socket(self) -> None:
        await self._connection.close()

    async def _next(self) -> JsonObject:
        return msgspec.json.decode(await self._connection.recv_bytes())

    async def _send(self, kind: str, **fields: Any) -> None:
        await self.sent(self._connection.send({"type": kind, **fields}))

    async def _answer(self) -> None:
        """Asks for a response, when the one in progress is over."""
        if self._is_answering:
            self._wants_answer = True
        else:
            self._is_answering = True
            await self._send("response.create")

    async def _interrupt(self) -> None:
        if self._is_answering:
            await self._send("response.cancel")
        await self._truncate()

    async def _truncate(self) -> bool:
        """Makes the service forget the audio that the user has not heard; False if nothing is being played."""
        item = self._playing
        self._playing = None
        heard_ms = int((time.monotonic() - self._played_from) * 1000)
        is_playing = item is not None and heard_ms < self._bytes // _BYTES_PER_MS
        if item is not None and is_playing:
            await self._send("conversation.item.truncate", **item, audio_end_ms=heard_ms)

        self._cut_off = self._response if self._is_answering else None
        self._was_told = not is_playing and self._cut_off is None

        return not self._was_told

    async def _hear(self, blob: Blob) -> None:
        mime_type = blob.mime_type or ""

        kind = mime_type.partition(";")[0]
        if kind.startswith("image/"):
            content = [{"type": "input_image", "image_url": data_uri(blob)}]
            await self._create({"type": "message", "role": "user", "content": content})
            return

        if kind != "audio/pcm" and kind not in _TELEPHONE:
            raise refused(f"{self._model} takes no {mime_type} while it is live", model=self._model)

        if kind != self._format:
            self._format = kind
            form = PCM if kind == "audio/pcm" else {"type": kind}
            await self._send(
                "session.update",
                session={"type": "realtime", "audio": {"input": {"format": form}}},
            )

        data = blob.data or b""
        if kind == "audio/pcm":
            data = self._resampler.convert(data, rate_of(mime_type))

        await self._send("input_audio_buffer.append", audio=base64_of(Blob(data=data)))

    async def _add(self, content: Content, *, is_new: bool) -> None:
        content_items: list[JsonObject] = []
        kind = "output_text" if is_model(content) else "input_text"
        for part in content.parts or ():
            if part.function_call is not None:
                call = part.function_call
                item = {
                    "name": call.name,
                    "arguments": json_text(call.args or {}),
                    "call_id": self._ids.of_call(call),
                }
                await self._create({"type": "function_call", **item})
            elif part.function_response is not None:
                content_items += await self._add_response(part.function_response, is_new=is_new)
            elif part.inline_data is not None and (part.inline_data.mime_type or "").startswith("image/"):
                if not is_model(content):
                    content_items.append({"type": "input_image", "image_url": data_uri(part.inline_data)})
            elif part.inline_data is not None or part.file_data is not None:
                name = unsupported_media(
                    part.inline_data,
                    part.file_data,
                    is_new=is_new,
                    model=self._model,
                )
                content_items.append({"type": kind, "text": name})
            elif (text := (part.text if not part.thought else None) or code_as_text(part)) is not None:
                content_items.append({"type": kind, "text": text})

        if content_items:
            role = "assistant" if is_model(content) else "user"
            await self._create({"type": "message", "role": role, "content": content_items})

    async def _add_response(self, response: FunctionResponse, *, is_new: bool) -> list[JsonObject]:
        """Sends the response, and returns its images, which an output can't hold. A call has one output: later
        responses are sent as text.
        """
        call_id = self._ids.of_response(response)
        output = json_text(response.response or {})
        if call_id not in self._answered:
            self._answered.add(call_id)
            await self._create({"type": "function_call_output", "call_id": call_id, "output": output})
        else:
            text = f"The function {response.name} has returned more: {output}"
            content = [{"type": "input_text", "text": text}]
            await self._create({"type": "message", "role": "system", "content": content})

        media: list[JsonObject] = []
        for part in response.parts or ():
            blob = part.inline_data
            if blob is not None and (blob.mime_type or "").startswith("image/"):
                media.append({"type": "input_image", "image_url": data_uri(blob)})
            else:
                text = unsupported_media(blob, part.file_data, is_new=is_new, model=self._model)
                media.append({"type": "input_text", "text": text})

        return media

    async def _create(self, item: JsonObject) -> None:
        await self._send("conversation.item.create", item=item)

    def _replies_to(self, event: JsonObject) -> Iterator[LlmResponse]:
        kind: str = event["type"]
        if kind.startswith("response."):
            if self._cut_off is None or event.get("response_id") != self._cut_off:
                yield from self._response_event(kind.removeprefix("response."), event)
        elif kind == "conversation.item.input_audio_transcription.delta":
            yield from self._heard.add(event.get("delta") or "")
        elif kind == "conversation.item.input_audio_transcription.completed":
            yield from self._heard.end(event["transcript"])
        elif kind == "conversation.item.input_audio_transcription.failed":
            _log.warning(
                "%s: the user's words could not be transcribed: %s",
                self._model,
                event.get("error"),
            )
        elif kind == "input_audio_buffer.speech_started":
            yield from self._activity("ACTIVITY_START", event.get("audio_start_ms"))
        elif kind == "input_audio_buffer.speech_stopped":
            yield from self._activity("ACTIVITY_END", event.get("audio_end_ms"))
        elif kind == "conversation.item.truncated":
            yield from self._interrupted()
        elif kind == "error":
            yield from self._error(event["error"])

    def _interrupted(self) -> Iterator[LlmResponse]:
        if not self._was_told:
            self._was_told = True
            yield from self._spoken.end()
            yield LlmResponse(interrupted=True)

    def _response_event(self, kind: str, event: JsonObject) -> Iterator[LlmResponse]:
        if kind == "created":
            self._is_answering = True
            self._response = event["response"].get("id")
            self._calls = []
        elif kind == "output_audio.delta":
            data = base64_bytes(event["delta"])
            self._note_audio(event, len(data))
            yield LlmResponse(content=_model_content(Part(inline_data=Blob(data=data, mime_type=OUTPUT))))
        elif kind == "output_audio_transcript.delta" and self._tells_transcript:
            yield from self._spoken.add(event["delta"])
        elif kind == "output_audio_transcript.done" and self._tells_transcript:
            yield from self._spoken.end(event["transcript"])
        elif kind == "output_text.delta":
            yield LlmResponse(content=_model_content(Part(text=event["delta"])), partial=True)
        elif kind == "output_text.done":
            yield LlmResponse(content=_model_content(Part(text=event["text"])))
        elif kind == "output_item.done" and event["item"]["type"] == "function_call":
            if event["item"].get("status") != "incomplete":
                self._calls.append(Part(function_call=self._call(event["item"])))
        elif kind == "done":
            self._is_answering = False
            yield from self._done(event["response"])

    def _call(self, item: JsonObject) -> FunctionCall:
        try:
            args = msgspec.json.decode(item["arguments"] or "{}", type=JsonObject)
        except msgspec.DecodeError:
            raise new_model_error(
                f"{self._model}: {item['name']!r} was called with arguments that aren't a JSON object",
                model=self._model,
                category=ModelErrorCategory.MODEL_ERROR,
            ) from None

        return FunctionCall(id=item["call_id"], name=item["name"], args=args)

    def _note_audio(self, event: JsonObject, size: int) -> None:
        item: JsonObject = {"item_id": event["item_id"], "content_index": event["content_index"]}
        if self._playing != item:
            self._playing = item
            self._played_from = time.monotonic()
            self._bytes = 0
        self._bytes += size

    def _activity(self, kind: str, offset_ms: int | None) -> Iterator[LlmResponse]:
        if self._tells_activity:
            yield LlmResponse(
                voice_activity={"voiceActivityType": kind, "audioOffset": f"{(offset_ms or 0) / 1000:g}s"}
            )

    def _done(self, response: JsonObject) -> Iterator[LlmResponse]:
        status: str | None = response.get("status")
        details: JsonObject = response.get("status_details") or {}
        usage = _usage(response.get("usage"))
        calls = self._calls
        self._calls = []

        if calls and status == "completed":
            yield LlmResponse(content=_model_content(*calls), usage_metadata=usage)
            return

        end = LlmResponse(turn_complete=True, usage_metadata=usage)
        if status == "cancelled":
            yield from self._interrupted()
        elif status == "incomplete":
            is_safety = details.get("reason") == "content_filter"
            end.finish_reason = end.error_code = FinishReason.SAFETY if is_safety else FinishReason.MAX_TOKENS
            end.error_message = f"The model stopped with {end.finish_reason}"
        elif status == "failed":
            failure = self._failure(details.get("error") or {})
            end.error_code = failure.category
            end.error_message = failure.detail

        yield end

    def _error(self, error: JsonObject) -> Iterator[LlmResponse]:
        """Most errors leave the session open."""
        code = error.get("code")
        if code == "session_expired":
            raise new_model_error(
                f"{self._model}: {error.get('message')}",
                model=self._model,
                category=ModelErrorCategory.NETWORK_ERROR,
            )

        if code == "conversation_already_has_active_response":
            self._wants_answer = True
        else:
            self._is_answering = False

        if code in _PASSING:
            _log.debug("%s: %s", self._model, error.get("message"))
        else:
            failure = self._failure(error)
            yield LlmResponse(error_code=failure.category, error_message=failure.detail)

    def _failure(self, error: JsonObject) -> ModelError:
        code = error.get("code")
        kind = error.get("type")
        category = category_of_type(code) or category_of_type(kind) or ModelErrorCategory.MODEL_ERROR
        return new_model_error(
            f"{self._model}: {error.get('message') or code or kind}", model=self._model, category=category
        )


def _model_content(*parts: Part) -> Content:
    return Content(role="model", parts=list(parts))


def _usage(usage: JsonObject | None) -> GenerateContentResponseUsageMetadata | None:
    if not usage:
        return None

    details: JsonObject = usage.get("input_token_details") or {}
    return GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.get("input_tokens"),
        candidates_token_count=usage.get("output_tokens"),
        total_token_count=usage.get("total_tokens"),
        cached_content_token_count=details.get("cached_tokens") or None,
        prompt_tokens_details=_by_modality(details),
        candidates_tokens_details=_by_modality(usage.get("output_token_details")),
    )


def _by_modality(details: JsonObject | None) -> list[ModalityTokenCount] | None:
    counts = {name: (details or {}).get(f"{name}_tokens") for name in ("text", "audio", "image")}
    return [ModalityTokenCount(modality=name.upper(), token_count=n) for name, n in counts.items() if n] or None
