"""The metadata of A2A messages, artifacts and tasks that carries what ADK's events have beside their parts.

Source of the keys: ADK's A2A converters. Keys with the prefix `__adk_internal_` are removed in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event

PREFIX = "adk_"
INTERNAL_PREFIX = "__adk_internal_"

EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""The extension by which ADK's clients name the newer converters; the task's metadata then has EXECUTOR_V2."""

EXECUTOR_V2 = f"{PREFIX}agent_executor_v2"

_COPIED = (
    "invocation_id",
    "author",
    "branch",
    "custom_metadata",
    "usage_metadata",
    "grounding_metadata",
    "citation_metadata",
    "error_code",
)
_EXACT = 2.0**53


def adk_key(name: str) -> str:
    return PREFIX + name


def without_internal(value: JsonObject) -> JsonObject:
    """The map and the maps in it without internal keys."""
    return {
        key: without_internal(cast("JsonObject", entry)) if isinstance(entry, dict) else entry
        for key, entry in value.items()
        if not key.startswith(INTERNAL_PREFIX)
    }


def to_struct(value: Mapping[str, Any]) -> struct_pb2.Struct:
    """Metadata as protobuf's Struct, without internal keys and nulls."""
    plain = without_internal({key: entry for key, entry in value.items() if entry is not None})
    return ParseDict(plain, struct_pb2.Struct())


def from_struct(value: struct_pb2.Struct) -> JsonObject:
    """A Struct as metadata, without internal keys. Numbers without a fraction are integers again."""
    return without_internal(cast("JsonObject", with_integers(MessageToDict(value))))


def to_value(value: JsonValue) -> struct_pb2.Value:
    return ParseDict(value, struct_pb2.Value())


def from_value(value: struct_pb2.Value) -> JsonValue:
    return with_integers(MessageToDict(value))


def with_integers(value: JsonValue) -> JsonValue:
    """Restores integers: protobuf's Value knows floats only."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: with_integers(entry) for key, entry in cast("JsonObject", value).items()}
    if isinstance(value, list):
        return [with_integers(entry) for entry in cast("list[JsonValue]", value)]
    return value


def event_metadata(event: Event, *, app_name: str, user_id: str, session_id: str) -> JsonObject:
    """The metadata of a status message or an artifact: ids, and the event's fields beside its content."""
    fields: JsonObject = {
        "app_name": app_name,
        "user_id": user_id,
        "session_id": session_id,
        "event_id": event.id,
        **{name: getattr(event, name) for name in _COPIED},
    }
    actions = wire.to_plain(event.actions)
    fields["actions"] = {key: entry for key, entry in actions.items() if entry not in (None, {}, [])} or None
    return {adk_key(name): wire.to_plain(entry) for name, entry in fields.items() if entry is not None and entry != ""}
