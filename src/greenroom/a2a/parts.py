"""Parts of contents as parts of A2A messages, and back.

Source: ADK's part converter. Calls, responses and code are data parts with the metadata key
`adk_type`; other data travels through a content as `text/plain` bytes between tags.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType, field

from greenroom.a2a.part_metadata import (
    A2A_DATA_PART_METADATA_IS_LONG_RUNNING_KEY,
    A2A_DATA_PART_METADATA_TYPE_CODE_EXECUTION_RESULT,
    A2A_DATA_PART_METADATA_TYPE_EXECUTABLE_CODE,
    A2A_DATA_PART_METADATA_TYPE_FUNCTION_CALL,
    A2A_DATA_PART_METADATA_TYPE_FUNCTION_RESPONSE,
    A2A_DATA_PART_METADATA_TYPE_KEY,
    A2A_DATA_PART_METADATA_TYPE_TOOL_CALL,
    A2A_DATA_PART_METADATA_TYPE_TOOL_RESPONSE,
)
from greenroom.errors import InvalidRequest, MissingExtra
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
    PartMediaResolution,
    ToolCall,
    ToolResponse,
    VideoMetadata,
)

try:
    import a2a.types as a2a
    from google.protobuf.json_format import ParseDict
except ImportError as error:
    raise MissingExtra("a2a", "a2a-sdk") from error

from greenroom.a2a.metadata import adk_key, from_struct, from_value, with_integers, without_internal

DATA_TAGS = b"<a2a_datapart_json>", b"</a2a_datapart_json>"
"""Around JSON in `text/plain` bytes that are a data part."""

TYPE = adk_key(A2A_DATA_PART_METADATA_TYPE_KEY)
LONG_RUNNING = adk_key(A2A_DATA_PART_METADATA_IS_LONG_RUNNING_KEY)
THOUGHT = adk_key("thought")
SIGNATURE = adk_key("thought_signature")

_DATA_TYPES: dict[str, type[Any]] = {
    A2A_DATA_PART_METADATA_TYPE_FUNCTION_CALL: FunctionCall,
    A2A_DATA_PART_METADATA_TYPE_FUNCTION_RESPONSE: FunctionResponse,
    A2A_DATA_PART_METADATA_TYPE_CODE_EXECUTION_RESULT: CodeExecutionResult,
    A2A_DATA_PART_METADATA_TYPE_EXECUTABLE_CODE: ExecutableCode,
    A2A_DATA_PART_METADATA_TYPE_TOOL_CALL: ToolCall,
    A2A_DATA_PART_METADATA_TYPE_TOOL_RESPONSE: ToolResponse,
}
_KINDS = ("text", "raw", "url", "data")
_MEDIA_TYPES: dict[str, type[Any]] = {"video_metadata": VideoMetadata, "media_resolution": PartMediaResolution}

_log = logging.getLogger("greenroom.a2a")


class A2aPart(Record, forbid_unknown_fields=True):
    """A part in the JSON of version 1.0. It has at most one of text, raw, url and data."""

    text: str | UnsetType = UNSET
    raw: bytes | UnsetType = UNSET
    url: str | UnsetType = UNSET
    data: JsonValue | UnsetType = UNSET
    metadata: JsonObject = field(default_factory=dict[str, Any])
    filename: str = ""
    media_type: str = ""

    def __post_init__(self) -> None:
        if [self.text, self.raw, self.url, self.data].count(UNSET) < len(_KINDS) - 1:
            raise ValueError("A part has one content")


def to_a2a_part(part: Part, *, is_long_running: bool = False) -> a2a.Part | None:
    """`to_json_part` as a message of protobuf."""
    made = to_json_part(part, is_long_running=is_long_running)
    return None if made is None else ParseDict(made, a2a.Part())


def to_json_part(part: Part, *, is_long_running: bool = False) -> JsonObject | None:
    """None, with a warning, for a part that A2A has no form for. is_long_running: marks a call
    whose response is awaited."""
    if part.text is not None and part == Part(text=part.text):
        return {"text": part.text}

    metadata = {key: entry for key, entry in (part.part_metadata or {}).items() if entry is not None}
    json_part: JsonObject | None = None
    if part.text is not None:
        json_part = {"text": part.text}
    elif part.file_data is not None:
        file = part.file_data
        json_part = _file("url", file.file_uri or "", file.mime_type, file.display_name)
    elif part.inline_data is not None:
        json_part = _from_blob(part.inline_data)
    else:
        for kind in _DATA_TYPES:
            if (record := getattr(part, kind)) is not None:
                metadata[TYPE] = kind
                plain = {key: entry for key, entry in wire.to_plain(record).items() if entry is not None}
                json_part = {"data": plain}
                break

    if json_part is None:
        _log.warning("a part without text, file, call or code was not sent by A2A")
        return None
    if part.thought:
        metadata[THOUGHT] = True
    if part.thought_signature is not None:
        metadata[SIGNATURE] = b64encode(part.thought_signature).decode()
    if is_long_running:
        metadata[LONG_RUNNING] = True
    for name in _MEDIA_TYPES:
        if (record := getattr(part, name)) is not None:
            metadata[adk_key(name)] = wire.to_plain(record)
    if metadata := without_internal(metadata):
        json_part["metadata"] = metadata
    return json_part


def _file(kind: str, content: str, media_type: str | None, name: str | None) -> JsonObject:
    return {kind: content} | {key: text for key, text in (("mediaType", media_type), ("filename", name)) if text}


def _from_blob(blob: Blob) -> JsonObject | None:
    data = blob.data
    if data is None:
        return None

    start, end = DATA_TAGS
    if blob.mime_type == "text/plain" and data.startswith(start) and data.endswith(end):
        try:
            return {"data": json.loads(data[len(start) : -len(end)])}
        except (ValueError, RecursionError):
            pass  # text that only looks like a data part

    return _file("raw", b64encode(data).decode(), blob.mime_type, blob.display_name)


def from_a2a_part(part: a2a.Part) -> Part | None:
    """`from_json_part` of a message of protobuf."""
    kind = part.WhichOneof("content")
    content = from_value(part.data) if kind == "data" else getattr(part, kind or "text")
    return _from_content(kind, content, from_struct(part.metadata), part.media_type or None, part.filename or None)


def from_json_part(part: A2aPart) -> Part | None:
    """None, with a warning, for a part without content. Raises InvalidRequest for data that its type doesn't fit."""
    kind = None
    content = None
    for name in _KINDS:
        if (value := getattr(part, name)) is not UNSET:
            kind = name
            content = with_integers(value)
            break
    metadata = without_internal(with_integers(part.metadata))
    return _from_content(kind, content, metadata, part.media_type or None, part.filename or None)


def _from_content(
    kind: str | None, content: Any, metadata: JsonObject, media_type: str | None, name: str | None
) -> Part | None:
    fields: JsonObject = {}
    if kind == "text":
        fields["text"] = content
    elif kind == "url":
        fields["file_data"] = FileData(file_uri=content, mime_type=media_type, display_name=name)
    elif kind == "raw":
        fields["inline_data"] = Blob(data=content, mime_type=media_type, display_name=name)
    elif kind == "data":
        data_type = metadata.pop(TYPE, None)
        record = _DATA_TYPES.get(data_type) if isinstance(data_type, str) else None
        if record is not None:
            fields[str(data_type)] = wire.from_plain(content, record)
        else:
            if data_type is not None:
                metadata[TYPE] = data_type
            fields["inline_data"] = Blob(mime_type="text/plain", data=wire.encode(content).join(DATA_TAGS))
    else:
        _log.warning("a part of an A2A message has no content")
        return None

    if metadata.pop(THOUGHT, None) is True:
        fields["thought"] = True
    metadata.pop(LONG_RUNNING, None)
    if isinstance(signature := metadata.pop(SIGNATURE, None), str):
        try:
            fields["thought_signature"] = b64decode(signature, validate=True)
        except Base64Error:
            raise InvalidRequest(f"The metadata {SIGNATURE} is not base64", location=("body",)) from None

    for name, record in _MEDIA_TYPES.items():
        if (value := metadata.pop(adk_key(name), None)) is not None:
            fields[name] = wire.from_plain(value, record)

    return Part(**fields, part_metadata=metadata or None)


def to_a2a_parts(content: Content | None, *, long_running: Sequence[str] = ()) -> list[a2a.Part]:
    """Converts the parts of a content; those that A2A can't express are left out.

    long_running: ids of the calls whose responses are awaited.
    """
    parts = (content.parts if content is not None else None) or ()
    converted = (
        to_a2a_part(part, is_long_running=part.function_call is not None and part.function_call.id in long_running)
        for part in parts
    )
    return [part for part in converted if part is not None]


def from_json_parts(parts: Sequence[A2aPart]) -> list[Part]:
    """Raises InvalidRequest."""
    made = (from_json_part(part) for part in parts)
    return [part for part in made if part is not None]
