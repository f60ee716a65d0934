"""Session state: its four scopes, and a view that records changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from greenroom.records.base import JsonObject

APP_PREFIX = "app:"
USER_PREFIX = "user:"
TEMP_PREFIX = "temp:"

REMOVED = "__ADK_SENTINEL_REMOVED__"
"""In a delta, in place of a value: the key is removed. Source: ADK for Java; in ADK for Python none can be removed."""

GROUNDING_METADATA = "temp:_adk_grounding_metadata"
"""The key under which an agent that runs as a tool passes the sources of its answer to its caller. Source: ADK."""

_snapshot = msgspec.json.Encoder(enc_hook=repr).encode


class ScopedDelta(NamedTuple):
    """A state delta by owner, `app:` and `user:` prefixes stripped; `temp:` keys are dropped."""

    app: JsonObject
    user: JsonObject
    session: JsonObject


def split_by_scope(delta: Mapping[str, Any]) -> ScopedDelta:
    app: JsonObject = {}
    user: JsonObject = {}
    session: JsonObject = {}
    for key, value in delta.items():
        if key.startswith(APP_PREFIX):
            app[key.removeprefix(APP_PREFIX)] = value
        elif key.startswith(USER_PREFIX):
            user[key.removeprefix(USER_PREFIX)] = value
        elif not key.startswith(TEMP_PREFIX):
            session[key] = value

    return ScopedDelta(app, user, session)


def apply_delta(state: JsonObject, delta: Mapping[str, Any]) -> None:
    """Applies a delta to a map in place."""
    for key, value in delta.items():
        if isinstance(value, str) and value == REMOVED:
            state.pop(key, None)
        else:
            state[key] = value


def merge_scopes(*, app: Mapping[str, Any], user: Mapping[str, Any], session: Mapping[str, Any]) -> JsonObject:
    merged = dict(session)
    for prefix, scope in ((APP_PREFIX, app), (USER_PREFIX, user)):
        for key, value in scope.items():
            merged[prefix + key] = value
    return merged


class State(MutableMapping[str, Any]):
    """A writable view of a session's state: a write is seen at once by all of this run, and recorded in the delta.

    Lists and maps that were read and then changed in place are detected by `has_delta` and `collect`. None is a value.
    """

    APP_PREFIX = APP_PREFIX
    USER_PREFIX = USER_PREFIX
    TEMP_PREFIX = TEMP_PREFIX

    __slots__ = ("_delta", "_snapshots", "_value")

    def __init__(self, value: JsonObject, delta: JsonObject) -> None:
        self._value = value
        self._delta = delta
        self._snapshots: dict[str, bytes] = {}

    def __getitem__(self, key: str) -> Any:
        value: Any = self._value[key]
        if isinstance(value, (dict, list)) and key not in self._snapshots:
            self._snapshots[key] = _snapshot(value)
        return value  # pyright: ignore[reportUnknownVariableType]

    def __setitem__(self, key: str, value: Any) -> None:
        self._snapshots.pop(key, None)
        self._delta[key] = value
        if isinstance(value, str) and value == REMOVED:
            self._value.pop(key, None)
        else:
            self._value[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self._value:
            raise KeyError(key)
        self[key] = REMOVED

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, key: object) -> bool:
        return key in self._value

    def __repr__(self) -> str:
        return f"State({self._value!r}, delta={self._delta!r})"

    def remove(self, key: str) -> Any:
        """Removes a key and returns its value, or None."""
        return self.pop(key, None)

    def to_dict(self) -> JsonObject:
        return dict(self._value)

    def has_delta(self) -> bool:
        self.collect()
        return bool(self._delta)

    def collect(self) -> None:
        """Moves in-place changes of values read through this view into the delta."""
        for key, before in self._snapshots.items():
            if key in self._value:
                now = _snapshot(self._value[key])
                if now != before:
                    self._snapshots[key] = now
                    self._delta[key] = self._value[key]
