"""Spanner's REST API, v1, as far as sessions and queries go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse, Response

from tests.tools.google_api.server import GoogleServer, Json, Seen, refusal

DATABASE = "projects/p-1/instances/i-1/databases/d-1"


@dataclass
class Spanner:
    """results: of statements, by a part of their text. A statement that writes is refused in a read-only transaction.

    queries: the bodies of queries, the one for the dialect left out. open_sessions: those not deleted yet.
    """

    google: GoogleServer
    dialect: str = "GOOGLE_STANDARD_SQL"
    results: dict[str, Json] = field(default_factory=dict[str, Json])
    queries: list[Json] = field(default_factory=list[Json])
    sessions: list[Json] = field(default_factory=list[Json])
    open_sessions: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.google.answers[f"POST /v1/{DATABASE}/sessions"] = self.create

    def create(self, seen: Seen) -> Response:
        self.sessions.append(seen.body["session"])
        name = f"{DATABASE}/sessions/s-{len(self.sessions)}"
        self.open_sessions.add(name)
        self.google.answers[f"POST /v1/{name}:executeSql"] = self.execute
        self.google.answers[f"DELETE /v1/{name}"] = self.delete
        return JSONResponse({"name": name, "createTime": "2024-01-01T00:00:00Z"})

    def delete(self, seen: Seen) -> Response:
        self.open_sessions.remove(seen.path.removeprefix("/v1/"))
        return JSONResponse({})

    def execute(self, seen: Seen) -> Response:
        if seen.path.removeprefix("/v1/").removesuffix(":executeSql") not in self.open_sessions:
            return refusal(404, "NOT_FOUND", "Session not found")
        body: Json = seen.body
        sql: str = body["sql"]
        if "database_dialect" in sql:
            return JSONResponse(result([("option_value", "STRING")], [self.dialect]))
        self.queries.append(body)
        is_read_only = "readOnly" in body["transaction"].get("singleUse", {})
        if is_read_only and not sql.upper().startswith(("SELECT", "WITH", "GRAPH")):
            return refusal(400, "INVALID_ARGUMENT", "DML statements can only be performed in a read-write transaction.")
        for part, answer in self.results.items():
            if part in sql:
                return JSONResponse(answer)
        return refusal(400, "INVALID_ARGUMENT", f"Table not found in: {sql}")


def result(columns: list[tuple[str, str | Json]], *rows: list[Any]) -> Json:
    """columns: with the code of their type, or the type."""
    fields = [{"name": name, "type": {"code": kind} if isinstance(kind, str) else kind} for name, kind in columns]
    reply: Json = {"metadata": {"rowType": {"fields": fields}}}
    if rows:
        reply["rows"] = list(rows)
    return reply
