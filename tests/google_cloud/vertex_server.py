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
    memories: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    rag_files: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
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
            if path.endswith("/ragFiles:upload"):
                reply = await self._upload(request, path.removesuffix(":upload"))
            else:
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
        if "/ragCorpora/" in path or path.endswith(":retrieveContexts"):
            return self._rag(method, path, given, query)
        if "/memories" in path:
            return self._memory(method, path, given)
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

    def _memory(self, method: str, path: str, given: dict[str, Any]) -> Any:
        """A fact is what the user said, word by word; two are alike if they share words."""
        path, _, verb = path.partition(":")
        engine, _, memory_id = path.partition("/memories")
        if (method, verb) == ("POST", "retrieve"):
            found = [one for one in self.memories.values() if one["scope"] == given["scope"]]
            if (similar := given.get("similaritySearchParams")) is not None:
                words = set(re.findall(r"\w+", similar["searchQuery"].lower()))
                ranks = {one["name"]: len(words & set(re.findall(r"\w+", one["fact"].lower()))) for one in found}
                found = sorted((one for one in found if ranks[one["name"]]), key=lambda one: -ranks[one["name"]])
                found = found[: similar["topK"]]
            else:
                found = found[: given["simpleRetrievalParams"]["pageSize"]]
            return {"retrievedMemories": [{"memory": one} for one in found]} if found else {}
        if (method, verb) == ("POST", "generate"):
            known = [one["fact"] for one in self.memories.values() if one["scope"] == given["scope"]]
            for event in given["directContentsSource"]["events"]:
                fact = " ".join(part["text"] for part in event["content"]["parts"] if "text" in part)
                if fact not in known:
                    self._remember(engine, {"fact": fact, "scope": given["scope"]})
            return self._operation(engine, {})
        if method == "POST":
            if given.keys() - {"fact", "scope", "metadata"}:
                raise Refused("INVALID_ARGUMENT", str(given))
            self._remember(engine, given)
            return self._operation(engine, {})
        if path not in self.memories or not memory_id:
            raise Refused("NOT_FOUND", path)
        return self.memories[path] if method == "GET" else self._operation(self.memories.pop(path)["name"], {})

    def _remember(self, engine: str, memory: dict[str, Any]) -> None:
        self.count += 1
        name = f"{engine}/memories/{self.count}"
        self.memories[name] = {"name": name, "createTime": iso(), "updateTime": iso(), **memory}

    async def _upload(self, request: Request, path: str) -> Any:
        assert request.headers["x-goog-upload-protocol"] == "multipart"
        async with request.form() as form:
            given, file = form["metadata"], form["file"]
            described = given if isinstance(given, str) else (await given.read()).decode()
            assert not isinstance(file, str)
            self.count += 1
            display_name = json.loads(described)["rag_file"]["display_name"]
            self.rag_files[f"{path}/{self.count}"] = display_name, (await file.read()).decode()
        return {"ragFile": {"name": f"{path}/{self.count}", "displayName": display_name}}

    def _rag(self, method: str, path: str, given: dict[str, Any], query: dict[str, str]) -> Any:
        """Every line of a file is a text, which is near if it shares a word."""
        if path.endswith(":retrieveContexts"):
            (resource,) = given["vertexRagStore"]["ragResources"]
            words = set(re.findall(r"\w+", given["query"]["text"].lower()))
            texts = [
                {"sourceDisplayName": display_name, "text": line}
                for name, (display_name, content) in self.rag_files.items()
                if name.startswith(f"{resource['ragCorpus']}/")
                for line in content.split("\n")
                if words & set(re.findall(r"\w+", json.loads(line)["text"].lower()))
            ]
            return {"contexts": {"contexts": texts[: given["query"]["ragRetrievalConfig"].get("topK", 10)]}}
        if method == "DELETE":
            if self.rag_files.pop(path, None) is None:
                raise Refused("NOT_FOUND", path)
            return self._operation(path, {})
        files = [{"name": name, "displayName": shown} for name, (shown, _) in self.rag_files.items()]
        return self._page("ragFiles", files, query)

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
        paths = ("/v1beta1/{path:path}", "/upload/v1beta1/{path:path}")
        async with serving_routes(*(Route(path, server.answer, methods=methods) for path in paths)) as server.url:
            yield server


class Token:
    """Credentials in the form of `google.auth`."""

    def __init__(self, token: str = "t-1") -> None:
        self.token, self.valid = token, True

    def refresh(self, _: Any) -> None:
        self.token = "t-2"
