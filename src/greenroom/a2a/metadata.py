"""The metadata of A2A messages, artifacts and tasks that carries what ADK's events have beside their parts.

Source of the keys: ADK's A2A converters. Keys with the prefix `__adk_internal_` are removed in both directions.
"""

from __future__ import annotations

from typing import cast

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict

from greenroom.a2a.part_metadata import ADK_METADATA_KEY_PREFIX
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event, EventActions

INTERNAL_PREFIX = "__adk_internal_"

EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""The extension by which ADK's clients name the newer converters; the task's metadata then has EXECUTOR_V2."""

EXECUTOR_V2 = f"{ADK_METADATA_KEY_PREFIX}agent_executor_v2"


def adk_key(name: str) -> str:
    return ADK_METADATA_KEY_PREFIX + name


ACTIONS = adk_key("actions")
EVENT_ID = adk_key("event_id")
NO_ACTIONS = EventActions()

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
_COPIED_KEYS = {name: adk_key(name) for name in _COPIED}
_EXACT = 2.0**53


def without_internal(value: JsonObject) -> JsonObject:
    """The map and the maps in it without internal keys."""
    return {
        key: without_internal(cast("JsonObject", entry)) if isinstance(entry, dict) else entry
        for key, entry in value.items()
        if not key.startswith(INTERNAL_PREFIX)
    }


def from_struct(value: struct_pb2.Struct) -> JsonObject:
    """A Struct as metadata, without internal keys. Numbers without a fraction are integers again."""
    return without_internal(cast("JsonObject", with_integers(MessageToDict(value))))


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


def event_metadata(event: Event, ids: JsonObject) -> JsonObject:
    """The metadata of a status message or an artifact: ids, and the event's fields beside its content,
    without internal keys; records are left as they are. ids: of the session, with their prefix."""
    metadata: JsonObject = {**ids, EVENT_ID: event.id}
    for name, key in _COPIED_KEYS.items():
        entry = getattr(event, name)
        if entry is not None and entry != "":
            if isinstance(entry, dict):
                metadata[key] = without_internal(cast("JsonObject", entry))
            else:
                metadata[key] = entry

    if event.actions != NO_ACTIONS:
        actions = wire.to_plain(event.actions)
        if changes := {key: entry for key, entry in actions.items() if entry not in (None, {}, [])}:
            metadata[ACTIONS] = without_internal(changes)

    return metadata
