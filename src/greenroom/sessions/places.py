"""Places of stored values of sessions, to which encrypted ones are bound: see encryption/columns.py."""

from __future__ import annotations

from greenroom.encryption.codec import Codec
from greenroom.records.base import JsonValue
from greenroom.records.session import SessionKey
from greenroom.sessions.frozen import frozen_from_json, frozen_json


def encode_event(codec: Codec, key: SessionKey, event_id: str, json: bytes) -> str:
    return codec.encode(json, "events", key.app_name, key.user_id, event_id)


def decode_event(codec: Codec, key: SessionKey, event_id: str, data: str) -> bytes:
    return codec.decode(data, "events", key.app_name, key.user_id, event_id)


def encode_state(codec: Codec, key: SessionKey, scope: str, name: str, value: JsonValue) -> str:
    """Encodes a frozen value of a key of the state. scope: `session`, `user` or `app`."""
    return codec.encode(frozen_json(value), *_place(key.app_name, key.user_id, scope, name))


def decode_state(codec: Codec, app_name: str, user_id: str, scope: str, name: str, value: str) -> JsonValue:
    return frozen_from_json(codec.decode(value, *_place(app_name, user_id, scope, name)))


def _place(app_name: str, user_id: str, scope: str, name: str) -> tuple[str, ...]:
    if scope == "app":
        return "app_state", app_name, name
    return f"{scope}_state", app_name, user_id, name
