"""A small Vertex AI for tests: managed sessions, the memory bank and RAG corpora, as its REST interface documents them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from greenroom.google_cloud import vertex as client
from tests.server.quick_server import serving_routes

_CODES = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
_RPC_CODES = {"INVALID_ARGUMENT": 3, "NOT_FOUND": 5, "ALREADY_EXISTS": 6}
_EVENT_FIELDS = {
    "author", "invocationId", "timestamp", "content", "errorCode", "errorMessage", "actions", "eventMetadata", "rawEvent",
}  # fmt: skip
_ACTIONS = {
    "skipSummarization", "stateDelta", "artifactDelta", "transferAgent", "escalate", "requestedAuthConfigs",
}  # fmt: skip
_METADATA = {
    "partial", "turnComplete", "interrupted", "branch", "longRunningToolIds", "groundingMetadata", "customMetadata",
}  # fmt: skip


class Refused(Exception):
    def __init__(self, status: str, message: str = "refused") -> None:
        self.status, self.message = status, message


def iso(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).isoformat().replace("+00:00", "Z")


@dataclass
class Session:
    """number: of its creation; of two with one update time the later created one comes first."""

    name: str
    user: str
    number: int
    state: dict[str, Any]
    created: str = field(default_factory=iso)
    updated: str = field(default_factory=iso)
    events: list[dict[str, Any]] = field(default_factory=list[Any])


@dataclass
class VertexServer:
    """failures: statuses of the next calls by method of the interface, such as `appendEvent`; `+UNAVAILABLE`: after the
    work was done. calls: all so far, as `METHOD path`. Every operation is done at the second look."""

    url: str = ""
    tokens: list[str] = field(default_factory=lambda: ["t-1"])
    failures: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    calls: list[str] = field(default_factory=list[str])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    app_state: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    user_state: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    operations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    count: int = 0

    async def answer(self, request: Request) -> Response:
        path = request.path_params["path"]
        self.calls.append(f"{request.method} {path}")
        try:
            if request.headers.get("authorization") not in [f"Bearer {token}" for token in self.tokens]:
                return JSONResponse({"error": {"code": 401, "message": "no token", "status": "UNAUTHENTICATED"}}, 401)
            failing = self.failures.get(path.rpartition(":")[2] if ":" in path else request.method) or [""]
            failure = failing.pop(0)
            if failure and failure[0] != "+":
                raise Refused(failure)
            reply = self._dispatch(request.method, path, await request.body(), dict(request.query_params))
            if failure:
                raise Refused(failure[1:])
            return JSONResponse(reply)
        except Refused as error:
            code = _CODES[error.status]
            return JSONResponse({"error": {"code": code, "message": error.message, "status": error.status}}, code)

    def _dispatch(self, method: str, path: str, body: bytes, query: dict[str, str]) -> Any:
        given = json.loads(body) if body else {}
        if (found := re.fullmatch(r".+/operations/\d+", path)) and method == "GET":
            return self.operations[found[0]]
        engine, _, rest = path.partition("/sessions")
        if not re.fullmatch(r"projects/p/locations/l/reasoningEngines/\d+", engine):
            raise Refused("NOT_FOUND", path)
        session_id, _, sub = rest.removeprefix("/").partition("/")
        if not rest:
            return self._create(engine, given, query) if method == "POST" else self._list(engine, query)
        session_id, _, verb = session_id.partition(":")
        session = self.sessions.get(f"{engine}/sessions/{session_id}")
        if session is None:
            raise Refused("NOT_FOUND", path)
        if (method, verb) == ("POST", "appendEvent"):
            return self._append(engine, session, given)
        if (method, sub) == ("GET", "events"):
            wanted = re.fullmatch(r'timestamp>="(.+)"', query["filter"]) if "filter" in query else None
            events = [
                one for one in session.events
                if wanted is None or datetime.fromisoformat(one["timestamp"]) >= datetime.fromisoformat(wanted[1])
            ]  # fmt: skip
            return self._page("sessionEvents", events, query)
        if method == "DELETE":
            del self.sessions[session.name]
            return self._operation(session.name, {})
        return self._shown(engine, session)

    def _create(self, engine: str, given: dict[str, Any], query: dict[str, str]) -> Any:
        if given.keys() - {"userId", "sessionState"} or "userId" not in given:
            raise Refused("INVALID_ARGUMENT", str(given))
        self.count += 1
        name = f"{engine}/sessions/{query.get('sessionId', str(self.count))}"
        if name in self.sessions:
            return self._operation(name, error="ALREADY_EXISTS")
        session = self.sessions[name] = Session(name, given["userId"], self.count, {})
        self._merge(engine, session, given.get("sessionState") or {})
        return self._operation(name, {"name": name})

    def _append(self, engine: str, session: Session, event: dict[str, Any]) -> Any:
        unknown = [
            *(event.keys() - _EVENT_FIELDS),
            *(event.get("actions", {}).keys() - _ACTIONS),
            *(event.get("eventMetadata", {}).keys() - _METADATA),
        ]
        if unknown or not (event.get("author") and event.get("invocationId") and event.get("timestamp")):
            raise Refused("INVALID_ARGUMENT", f"Unknown or missing: {unknown}")
        self.count += 1
        session.events.append({"name": f"{session.name}/events/{self.count}", **event})
        session.updated = event["timestamp"]
        self._merge(engine, session, event.get("actions", {}).get("stateDelta") or {})
        return {}

    def _merge(self, engine: str, session: Session, delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            scope = session.state
            if key.startswith("app:"):
                scope = self.app_state.setdefault(engine, {})
            elif key.startswith("user:"):
                scope = self.user_state.setdefault((engine, session.user), {})
            scope[key] = value
            if value is None:
                del scope[key]

    def _list(self, engine: str, query: dict[str, str]) -> Any:
        user = None
        if "filter" in query:
            wanted = re.fullmatch(r"user_id=(\".*\")", query["filter"], re.DOTALL)
            if wanted is None:
                raise Refused("INVALID_ARGUMENT", query["filter"])
            user = json.loads(wanted[1])
        found = [
            session for session in self.sessions.values()
            if session.name.startswith(f"{engine}/") and user in (None, session.user)
        ]  # fmt: skip
        if query.get("orderBy") == "update_time desc":
            found.sort(key=lambda one: (datetime.fromisoformat(one.updated), one.number), reverse=True)
        return self._page("sessions", [self._shown(engine, one) for one in found], query)

    def _shown(self, engine: str, session: Session) -> dict[str, Any]:
        state = {**session.state, **self.app_state.get(engine, {}), **self.user_state.get((engine, session.user), {})}
        times = {"createTime": session.created, "updateTime": session.updated}
        return {"name": session.name, "userId": session.user, "sessionState": state, **times}

    def _page(self, name: str, items: list[Any], query: dict[str, str]) -> Any:
        token = query.get("pageToken", "at-0")
        if not re.fullmatch(r"at-\d+", token):
            raise Refused("INVALID_ARGUMENT", "The page token is invalid.")
        first, size = int(token[3:]), int(query.get("pageSize", 100))
        page: dict[str, Any] = {name: items[first : first + size]} if items[first : first + size] else {}
        return page | ({"nextPageToken": f"at-{first + size}"} if first + size < len(items) else {})

    def _operation(self, name: str, response: Any = None, *, error: str | None = None) -> Any:
        """Done at the first look."""
        self.count += 1
        operation = f"{name}/operations/{self.count}"
        result = {"error": {"code": _RPC_CODES[error], "message": name}} if error else {"response": response}
        self.operations[operation] = {"name": operation, "done": True, **result}
        return {"name": operation}


@asynccontextmanager
async def running_vertex() -> AsyncGenerator[VertexServer]:
    """Waits of the client are short meanwhile."""
    server = VertexServer()
    methods = ["GET", "POST", "DELETE"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_FIRST_WAIT_SECONDS", 0.001)
        async with serving_routes(Route("/v1beta1/{path:path}", server.answer, methods=methods)) as server.url:
            yield server


class Token:
    """Credentials in the form of `google.auth`."""

    def __init__(self, token: str = "t-1") -> None:
        self.token, self.valid = token, True

    def refresh(self, _: Any) -> None:
        self.token = "t-2"
