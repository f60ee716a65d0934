"""Reads the databases of google-adk's `DatabaseSessionService` and `SqliteSessionService`, to migrate their sessions.

Schema version 1 holds an event as JSON in `event_data`. Version 0 (google-adk before 1.22) has a column per field, and
the actions as a pickle. Source: google-adk 2.13, sessions/schemas.
"""

from __future__ import annotations

import base64
import io
import pickle
import re
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from greenroom.errors import InvalidRequest, NotFound
from greenroom.records import wire
from greenroom.records.auth import AuthConfig
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.exported_session import ExportedSession
from greenroom.records.session import SessionKey
from greenroom.records.state import merge_scopes, split_by_scope

Fetch: TypeAlias = Callable[..., Awaitable[list[Any]]]
Close: TypeAlias = Callable[[], Awaitable[None]]

_OWN = "app_name = ? AND user_id = ? AND {} = ?"
_EVENTS = f"SELECT * FROM events WHERE {_OWN.format('session_id')} ORDER BY timestamp, id"
_SESSION = f"SELECT state, update_time FROM sessions WHERE {_OWN.format('id')}"
_SCOPES = (
    "SELECT state FROM app_states WHERE app_name = ?",
    "SELECT state FROM user_states WHERE app_name = ? AND user_id = ?",
)
_JSON_FIELDS = (
    "content",
    "grounding_metadata",
    "custom_metadata",
    "usage_metadata",
    "citation_metadata",
    "input_transcription",
    "output_transcription",
)
_OPEN_FIELDS = (
    "grounding_metadata",
    "citation_metadata",
    "logprobs_result",
    "cache_metadata",
    "live_session_resumption_update",
    "go_away",
    "voice_activity",
    "node_info",
)
"""Records of ADK that are open here. ADK stores names of their fields in snake_case, and sends them in camelCase."""

_FIELDS = ("author", "branch", "partial", "turn_complete", "error_code", "error_message", "interrupted")


class AdkDatabase:
    """A database of ADK.

    fetch: returns the rows of a query with parameters `?`; each row can be converted to a dict.
    """

    def __init__(self, fetch: Fetch, close: Close) -> None:
        self._fetch = fetch
        self._close = close

    async def close(self) -> None:
        await self._close()

    async def keys(self) -> list[SessionKey]:
        rows = await self._fetch(
            "SELECT app_name, user_id, id FROM sessions ORDER BY app_name, update_time, user_id, id"
        )
        return [SessionKey(*row) for row in rows]

    async def read(self, key: SessionKey) -> ExportedSession | None:
        """A session as ADK would return it.

        Raises InvalidRequest for an event that isn't ADK's.
        """
        rows = await self._fetch(_SESSION, *key)
        if not rows:
            return None
        events = [self._event(key, dict(row)) for row in await self._fetch(_EVENTS, *key)]

        states = [rows]
        for query in _SCOPES:
            states.append(await self._fetch(query, *key[: query.count("?")]))
        own, app, user = (_state(found[0][0]) if found else {} for found in states)

        changed = {name for event in events for name in split_by_scope(event.actions.state_delta).session}
        return ExportedSession(
            id=key.session_id,
            app_name=key.app_name,
            user_id=key.user_id,
            state=merge_scopes(app=app, user=user, session=own),
            events=events,  # pyright: ignore[reportArgumentType] - any iterable is taken
            last_update_time=events[-1].timestamp if events else _seconds(rows[0][1]),
            initial_state={name: value for name, value in own.items() if name not in changed},
        )

    def _event(self, key: SessionKey, row: JsonObject) -> Event:
        try:
            if "event_data" in row:
                fields: JsonObject = _json(row["event_data"]) or {}
            else:
                fields = {name: _json(row.get(name)) for name in _JSON_FIELDS}
                fields |= {name: row.get(name) for name in _FIELDS}
                fields["long_running_tool_ids"] = _json(row.get("long_running_tool_ids_json"))
                fields["actions"] = _unpickled(row["actions"])

            fields |= {"id": row["id"], "invocation_id": row["invocation_id"]}
            if fields.get("timestamp") is None:
                fields["timestamp"] = _seconds(row["timestamp"])
            _respell(fields)

            return wire.from_plain({name: value for name, value in fields.items() if value is not None}, Event)
        except ValueError as error:  # InvalidRequest is one, too
            raise InvalidRequest(f"Event {row['id']} of session {key.session_id}: {error}") from error


async def open_adk_database(uri: str) -> AdkDatabase | None:
    """The database at a `sqlite:` or `postgresql:` URI if its tables are ADK's, only to be read; else None.

    Raises NotFound for a missing file.
    """
    scheme, _, rest = uri.partition("://")
    if scheme.startswith("sqlite"):
        fetch, close = _sqlite(Path(rest.partition("?")[0].removeprefix("/")))
        columns = "SELECT name FROM pragma_table_info('events')"
    elif scheme.startswith("postgres"):
        from greenroom.postgres.database import Database

        database = Database.open(uri)
        database.is_prepared = True  # so that no migration is applied
        fetch = database.fetch
        close = database.close
        columns = (
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = 'events' AND table_schema = ANY (current_schemas(false))"
        )
    else:
        return None
    columns_found = {name for (name,) in await fetch(columns)}
    if "session_id" in columns_found and columns_found & {"event_data", "actions"}:
        return AdkDatabase(fetch, close)
    await close()
    return None


def _sqlite(path: Path) -> tuple[Fetch, Close]:
    if not path.is_file():
        raise NotFound(f"There is no file {path}")
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row

    async def fetch(query: str, *arguments: str) -> list[Any]:
        return connection.execute(query, arguments).fetchall()

    async def close() -> None:
        connection.close()

    return fetch, close


def _json(text: str | bytes | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _state(text: str) -> JsonObject:
    return _json(text)


def _seconds(value: datetime | str | float) -> float:
    """Unix seconds of a time in UTC: `DatabaseSessionService` stores no zone, `SqliteSessionService` a number."""
    if isinstance(value, (int, float)):
        return value
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


def _respell(event: JsonObject) -> None:
    """Spells names as ADK sends them, where `wire` takes a map as it is."""
    actions: JsonObject = event.get("actions") or {}
    configs: JsonObject = actions.get("requested_auth_configs") or {}
    for call_id, config in configs.items():
        configs[call_id] = wire.to_plain(wire.from_plain(config, AuthConfig))
    for name in _OPEN_FIELDS:
        if event.get(name) is not None:
            event[name] = _camel(event[name])


def _camel(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        fields = cast("JsonObject", value).items()
        return {re.sub("_([a-z])", lambda found: found[1].upper(), name): _camel(item) for name, item in fields}
    return [_camel(item) for item in cast("list[JsonValue]", value)] if isinstance(value, list) else value


class _Unpickled:
    """Replaces a class of ADK: keeps the pickled data, and runs nothing.

    arguments: of an enum, its value.
    """

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.fields: JsonObject = {}

    def __setstate__(self, state: JsonObject) -> None:
        self.arguments = ()
        self.fields = state["__dict__"]


class _Unpickler(pickle.Unpickler):
    """Imports nothing: a pickle with other classes than those of ADK's records is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == "builtins" and global_name in ("set", "frozenset"):
            return set
        if module_name.startswith(("google.adk.", "google.genai.", "fastapi.openapi.models")):
            return _Unpickled
        raise InvalidRequest(f"its pickled actions hold a {module_name}.{global_name}, which is not read")


def _unpickled(data: bytes | None) -> JsonObject:
    try:
        return {} if data is None else _plain(_Unpickler(io.BytesIO(data)).load())
    except InvalidRequest:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise InvalidRequest(f"its pickled actions are damaged ({type(error).__name__})") from error


def _plain(value: Any) -> Any:
    if isinstance(value, _Unpickled):
        value = value.arguments[0] if value.arguments else {k: v for k, v in value.fields.items() if v is not None}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item) for item in cast("list[Any]", value)]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
