"""The rules by which an app redacts what it stores."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FunctionResponse, Part, Transcription
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import SessionRunRequest
from greenroom.records.state import APP_PREFIX, REMOVED, TEMP_PREFIX, USER_PREFIX
from greenroom.redaction.contents import redact_json, redact_parts
from greenroom.redaction.findings import Finding, merged, redacted, replacement
from greenroom.redaction.patterns import TextPattern

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=SessionRunRequest)

_TEXTS = ("error_message",)
_TRANSCRIPTS = ("input_transcription", "output_transcription")
_RECORDS = ("grounding_metadata", "citation_metadata", "logprobs_result")
_VALUES_OF_ACTIONS = ("render_ui_widgets", "set_model_response", "transfer_reason")

_CHECKPOINT = {"nodes"}
"""The keys of a workflow's checkpoint, which holds names and states of nodes only."""

_OWN_METADATA = ("greenroom:", "__adk_internal")
"""Prefixes of keys of custom metadata whose values are this project's or ADK's."""
_OWN_CALL = "adk_"
"""Prefix of the names of calls with which a run asks people; their arguments name calls and logins."""
_LOGIN = "adk_request_credential"
"""Its secrets are removed elsewhere: see `records/login_secrets.py`."""
_ORIGINAL_CALL = "originalFunctionCall"

_KNOWN_TEXTS = 1000
"""Texts whose findings are kept for an app with finders: traces repeat what events have."""

_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/x-ndjson", "application/yaml")
_STATE_PREFIXES = (USER_PREFIX, APP_PREFIX)


class Redaction:
    """The rules of an app for text that is replaced by `[redacted: …]` before it is stored.

    fields: keys of JSON in the arguments and results of tools, in the state and in outputs of nodes. Their whole value
        is replaced, at any depth. With dots, the last keys of a path: `customer.address` is the key `address` of an
        object `customer`. Lists on the way don't count.
    patterns: names of ready-made patterns, and `TextPattern`s, for all texts and for numbers of six digits or more.
    finders: functions that get a text and return what they find, such as a detector of personal data. They are called
        in threads.

    Raises AgentConfigError.
    """

    def __init__(
        self,
        *,
        fields: Iterable[str] = (),
        patterns: Iterable[str | TextPattern] = (),
        finders: Iterable[Callable[[str], Iterable[Finding]]] = (),
    ) -> None:
        self.fields = tuple(fields)
        self.patterns = tuple(TextPattern(one) if isinstance(one, str) else one for one in patterns)
        self.finders = tuple(finders)

        paths = [tuple(field.split(".")) for field in self.fields]
        if not all(all(path) for path in paths):
            raise AgentConfigError(f"A field of Redaction is keys with dots between them, not {self.fields!r}")
        if not (self.fields or self.patterns or self.finders):
            raise AgentConfigError("Redaction needs fields, patterns or finders")

        self._find = lru_cache(_KNOWN_TEXTS)(self._found) if self.finders else self._found
        self._paths: dict[str, list[tuple[str, ...]]] = {}
        for path in paths:
            self._paths.setdefault(path[-1], []).append(path)

    async def redact_event(self, event: Event) -> None:
        """Replaces what the rules find in an event, in place."""
        await self._do(self._redact_event, event)

    async def redact_request(self, request: RequestT) -> RequestT:
        """A request to run, with the message, the state and the metadata as they may be stored."""
        return await self._do(self._request, request)

    async def redact_content(self, content: Content) -> Content:
        return await self._do(self._content, content)

    async def redact_part(self, part: Part) -> Part:
        return (await self._do(self._parts, [part]))[0]

    async def redact_json(self, value: JsonValue) -> Any:
        return await self._do(self._json, value)

    async def redact_state(self, state: JsonObject) -> JsonObject:
        """A state or a delta of it. `temp:` keys, which aren't stored, are left as they are."""
        return await self._do(self._state, state)

    async def redact_text(self, text: str) -> str:
        return await self._do(self.text, text)

    def text(self, text: str) -> str:
        """Replaces what the rules find. May take as long as the finders do."""
        return redacted(text, self._find(text))

    def traced(self, value: Any) -> Any:
        """The content of a span: a message, a reply of a model, an event, arguments or a result. May take as long as
        the finders do.
        """
        if isinstance(value, Content):
            return self._content(value)
        if isinstance(value, Event):
            event = copy.copy(value)
            event.actions = copy.copy(event.actions)
            self._redact_event(event)
            return event
        if isinstance(value, LlmResponse):
            content = self._content(value.content) if value.content is not None else None
            message = self.text(value.error_message) if value.error_message else None
            return msgspec.structs.replace(value, content=content, error_message=message)
        if isinstance(value, list) and any(isinstance(item, Content) for item in cast("list[Any]", value)):
            return [self.traced(item) for item in cast("list[Any]", value)]
        return self._json(value)

    async def _do(self, redact: Callable[[T], Any], value: T) -> Any:
        if self.finders:
            return await asyncio.to_thread(redact, value)
        return redact(value)

    def _found(self, text: str) -> Sequence[Finding]:
        found = [finding for pattern in self.patterns for finding in pattern.find(text)]
        for find in self.finders:
            found += find(text)
        return merged(found) if found else ()

    async def _find_now(self, text: str) -> Sequence[Finding]:
        return self._find(text)

    def _redact_event(self, event: Event) -> None:
        if event.content is not None:
            event.content = self._content(event.content)
        for name in _TEXTS:
            if text := getattr(event, name):
                setattr(event, name, self.text(text))
        for name in _TRANSCRIPTS:
            if (transcript := getattr(event, name)) is not None:
                setattr(event, name, self._transcription(transcript))
        for name in _RECORDS:
            if (record := getattr(event, name)) is not None:
                setattr(event, name, self._record(record))
        if event.output is not None:
            event.output = self._json(event.output)
        if event.custom_metadata:
            event.custom_metadata = self._metadata(event.custom_metadata)
        self._redact_actions(event.actions)

    def _redact_actions(self, actions: EventActions) -> None:
        if actions.state_delta:
            actions.state_delta = self._state(actions.state_delta)
        state = actions.agent_state
        if state is not None and state.keys() != _CHECKPOINT:
            actions.agent_state = self._json(state)
        for name in _VALUES_OF_ACTIONS:
            if (value := getattr(actions, name)) is not None:
                setattr(actions, name, self._json(value))
        if actions.compaction is not None:
            summary = self._content(actions.compaction.compacted_content)
            actions.compaction = msgspec.structs.replace(actions.compaction, compacted_content=summary)
        for call_id, asked in list(actions.requested_tool_confirmations.items()):
            actions.requested_tool_confirmations[call_id] = msgspec.structs.replace(
                asked, hint=self.text(asked.hint), payload=self._json(asked.payload)
            )

    def _request(self, request: RequestT) -> RequestT:
        message = request.new_message
        state_delta = request.state_delta
        metadata = request.custom_metadata
        return msgspec.structs.replace(
            request,
            new_message=self._content(message) if message is not None else None,
            state_delta=self._state(state_delta) if state_delta is not None else None,
            custom_metadata=self._metadata(metadata) if metadata is not None else None,
        )

    def _content(self, content: Content) -> Content:
        return msgspec.structs.replace(content, parts=self._parts(content.parts)) if content.parts else content

    def _parts(self, parts: Sequence[Part]) -> list[Part]:
        texts = _completed(redact_parts(parts, self._find_now))
        return [self._part(part) for part in (parts if texts is None else texts)]

    def _part(self, part: Part) -> Part:
        """The part, with all but its texts and its code redacted."""
        changed: dict[str, Any] = {}
        call = part.function_call
        if call is not None and call.args and call.name != _LOGIN:
            changed["function_call"] = msgspec.structs.replace(call, args=self._arguments(call.name, call.args))
        response = part.function_response
        if response is not None and response.response is not None and response.name != _LOGIN:
            changed["function_response"] = self._response(response)
        if part.tool_call is not None and part.tool_call.args:
            changed["tool_call"] = msgspec.structs.replace(part.tool_call, args=self._json(part.tool_call.args))
        if part.tool_response is not None and part.tool_response.response:
            result = self._json(part.tool_response.response)
            changed["tool_response"] = msgspec.structs.replace(part.tool_response, response=result)
        if part.audio_transcription is not None:
            changed["audio_transcription"] = self._transcription(part.audio_transcription)
        if part.inline_data is not None:
            changed["inline_data"] = self._blob(part.inline_data)
        for name in ("part_metadata", "speech_metadata"):
            if value := getattr(part, name):
                changed[name] = self._json(value)
        return msgspec.structs.replace(part, **changed) if changed else part

    def _response(self, response: FunctionResponse) -> FunctionResponse:
        parts = response.parts
        if parts:
            parts = [
                msgspec.structs.replace(one, inline_data=self._blob(one.inline_data)) if one.inline_data else one
                for one in parts
            ]
        result = self._arguments(response.name, response.response or {})
        return msgspec.structs.replace(response, response=result, parts=parts)

    def _arguments(self, name: str | None, value: JsonObject) -> JsonObject:
        """The arguments of a call, or its response. The keys of those that ask people are no fields."""
        if not (name or "").startswith(_OWN_CALL):
            return self._json(value)

        asked: JsonObject = {}
        for key, item in value.items():
            if key == _ORIGINAL_CALL and isinstance(item, dict):
                original = cast("JsonObject", item)
                asked[key] = {**original, "args": self._json(original.get("args"))}
            else:
                asked[key] = self._json(item)
        return asked

    def _blob(self, blob: Blob) -> Blob:
        """A file with text in UTF-8 is read as text."""
        if blob.data is None or not (blob.mime_type or "").startswith(_TEXT_TYPES):
            return blob
        try:
            text = blob.data.decode()
        except UnicodeDecodeError:
            return blob
        findings = self._find(text)
        return msgspec.structs.replace(blob, data=redacted(text, findings).encode()) if findings else blob

    def _transcription(self, transcript: Transcription) -> Transcription:
        """Without the single words if something is found: they have no spaces, in which some patterns match."""
        findings = self._find(transcript.text) if transcript.text else ()
        if not findings:
            return transcript
        return msgspec.structs.replace(transcript, text=redacted(transcript.text or "", findings), words=None)

    def _record(self, record: T) -> T | None:
        """A record of the model's provider. It is left out if it doesn't hold what replaces its values."""
        plain = wire.to_plain(record)
        clean = _completed(redact_json(plain, self._find_now))
        if clean is plain:
            return record
        try:
            return wire.from_plain(clean, type(record))
        except InvalidRequest:
            return None

    def _metadata(self, metadata: JsonObject) -> JsonObject:
        own = {key: value for key, value in metadata.items() if key.startswith(_OWN_METADATA)}
        given = {key: value for key, value in metadata.items() if key not in own}
        return {**self._json(given), **own}

    def _state(self, state: Mapping[str, JsonValue]) -> JsonObject:
        clean: JsonObject = {}
        for key, value in state.items():
            if key.startswith(TEMP_PREFIX) or value == REMOVED:
                clean[key] = value
                continue
            prefix = next((prefix for prefix in _STATE_PREFIXES if key.startswith(prefix)), "")
            for name, item in self._json({key.removeprefix(prefix): value}).items():
                clean[prefix + name] = item
        return clean

    def _json(self, value: JsonValue) -> Any:
        plain = wire.to_plain(value)
        without_fields = self._without_fields(plain, ()) if self._paths else plain
        return _completed(redact_json(without_fields, self._find_now))

    def _without_fields(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [self._without_fields(item, path) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value

        clean: JsonObject = {}
        for key, item in cast("JsonObject", value).items():
            inner = (*path, key)
            field = self._field_at(inner) if item is not None else None
            clean[key] = self._without_fields(item, inner) if field is None else replacement(field)
        return clean

    def _field_at(self, path: tuple[str, ...]) -> str | None:
        """The field that a path ends with."""
        for wanted in self._paths.get(path[-1], ()):
            if path[-len(wanted) :] == wanted:
                return ".".join(wanted)
        return None


def _completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose `find` never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the coroutine waits")
