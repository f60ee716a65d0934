"""Queries of Spanner's databases, each in a session of its own.

Source: `projects.instances.databases.sessions` and `ResultSet` of the Spanner API's reference, v1: most values are JSON
values, INT64 is text.

    {"metadata": {"rowType": {"fields": [{"name": "n", "type": {"code": "INT64"}}]}}, "rows": [["7"]]}
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, json_or_text, object_in, objects_in, path_of

_log = logging.getLogger("greenroom.tools")

_READ_ONLY: JsonObject = {"singleUse": {"readOnly": {"strong": True}}}
_DIALECT = "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"


@dataclass(frozen=True, kw_only=True)
class QueryResult:
    columns: list[str]
    rows: list[list[JsonValue]]

    def records(self) -> list[JsonObject]:
        """A map per row, by the names of the columns."""
        return [dict(zip(self.columns, row, strict=False)) for row in self.rows]


class SpannerSession:
    """name: `projects/…/instances/…/databases/…/sessions/…`."""

    def __init__(self, api: GoogleRestApi, credentials: Credentials | None, name: str) -> None:
        self._api = api
        self._credentials = credentials
        self._name = name

    async def query(
        self, sql: str, params: JsonObject | None = None, types: Mapping[str, str] | None = None
    ) -> QueryResult:
        """Reads in a read-only transaction, in which Spanner refuses every statement that writes.

        types: codes of parameters whose type does not follow from the statement. Raises ToolError, also for results of
        more than 10 MiB.
        """
        body: JsonObject = {"sql": sql, "transaction": _READ_ONLY}
        if params:
            body["params"] = params
        if types:
            body["paramTypes"] = {name: {"code": code} for name, code in types.items()}
        reply = await self._api.post(self._credentials, f"{quote(self._name)}:executeSql", body)

        fields = objects_in(reply, "metadata", "rowType", "fields")
        rows = cast("list[list[JsonValue]]", reply.get("rows") or [])
        return QueryResult(
            columns=[str(field.get("name") or "") for field in fields],
            rows=[_row(fields, row) for row in rows],
        )

    async def is_postgresql(self) -> bool:
        """Whether the database has the PostgreSQL dialect."""
        found = await self.query(_DIALECT)
        return found.rows == [["POSTGRESQL"]]


class SpannerSessions:
    """database_role: of all sessions, for fine-grained access control."""

    def __init__(self, api: GoogleRestApi, database_role: str | None) -> None:
        self._api = api
        self._database_role = database_role

    @asynccontextmanager
    async def open(
        self, credentials: Credentials | None, project_id: str, instance_id: str, database_id: str
    ) -> AsyncGenerator[SpannerSession]:
        """A session that is deleted afterwards. Raises ToolError."""
        database = path_of("projects", project_id, "instances", instance_id, "databases", database_id)
        session: JsonObject = {"creatorRole": self._database_role} if self._database_role else {}
        created = await self._api.post(credentials, f"{database}/sessions", {"session": session})
        name = str(created.get("name") or "")
        try:
            yield SpannerSession(self._api, credentials, name)
        finally:
            await self._delete(credentials, name)

    async def _delete(self, credentials: Credentials | None, name: str) -> None:
        """Spanner deletes a session that is left over after an hour."""
        try:
            await self._api.call("DELETE", credentials, quote(name))
        except ToolError as error:
            _log.warning("Spanner's session %s was not deleted: %s", name, error)


def _row(fields: list[JsonObject], row: list[JsonValue]) -> list[JsonValue]:
    return [_value(object_in(field, "type"), value) for field, value in zip(fields, row, strict=False)]


def _value(kind: JsonObject, value: JsonValue) -> JsonValue:
    if value is None:
        return None
    code = kind.get("code")
    if code == "ARRAY":
        item_kind = object_in(kind, "arrayElementType")
        return [_value(item_kind, item) for item in cast("list[JsonValue]", value)]
    if code == "STRUCT":
        return _row(objects_in(kind, "structType", "fields"), cast("list[JsonValue]", value))
    if code in ("INT64", "ENUM"):
        return int(cast("str", value))
    if code == "JSON":
        return json_or_text(str(value))
    return value
