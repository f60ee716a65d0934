"""Values of states that no holder can change: lists and maps as JSON, of which each caller decodes its own copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue


class FrozenJson(msgspec.Struct, frozen=True):
    """A list or map of a state as JSON: each caller decodes its own copy."""

    data: bytes


def to_frozen(values: Mapping[str, Any]) -> JsonObject:
    """Converts a state or delta so that no caller can change it. Raises TypeError for values that JSON can't hold."""
    return {
        key: value
        if value is None or isinstance(value, (str, int, float, FrozenJson))
        else FrozenJson(wire.encode(value))
        for key, value in values.items()
    }


def from_frozen(values: Mapping[str, Any]) -> JsonObject:
    """The caller's own copy of a frozen state or delta."""
    return {
        key: msgspec.json.decode(value.data) if type(value) is FrozenJson else value for key, value in values.items()
    }


def frozen_json(value: JsonValue) -> bytes:
    """Returns the stored JSON of a frozen value."""
    return value.data if type(value) is FrozenJson else wire.encode(value)


def frozen_from_json(json: bytes) -> JsonValue:
    return FrozenJson(json) if json[:1] in b"[{" else msgspec.json.decode(json)
