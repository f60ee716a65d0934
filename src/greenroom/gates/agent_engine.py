"""Vertex AI Agent Engine's endpoints: methods of ADK's `AdkApp` by name, for the server's default app.

Methods whose names begin with `async_` do the same as those without it. Source: google-adk 2.13,
`cli/fast_api.py` and the class methods of `cli/cli_deploy.py`; bodies of
`streaming_agent_run_with_events` as in google-cloud-aiplatform 2.2.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    AppNotNamed,
    CallerError,
    Conflict,
    GreenroomError,
    InvalidRequest,
    NotFound,
    SessionNotFound,
    StorageError,
    TooManyRuns,
    Unavailable,
)
from greenroom.event_streams.stream import RunEnded
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.listings import ArtifactVersion
from greenroom.records.run import AgentRunRequest, RunConfig, StreamingMode
from greenroom.records.session import Session, SessionKey
from greenroom.records.state import TEMP_PREFIX
from greenroom.runs.engine import Attachment
from greenroom.server.endpoint import Endpoint
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_body import decode_limited
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import RUN_ID_HEADER, when_client_leaves
from greenroom.server.routes.sessions import imported_events

TRACEPARENT = "google-agent-engine-traceparent"
UPSTREAM_SESSION_ID = "agent_engine:upstream_session_id"
DEFAULT_USER = "default-user-id"
_SUPPORTED = ("streaming_mode", "max_llm_calls", "custom_metadata", "service_tier")


class QueryRequest(Record, kw_only=True):
    """Body of a call of a method."""

    class_method: str | None = None
    """The method's name."""
    input: JsonObject | None = None
    """The method's arguments by name."""


class UserInput(Record, kw_only=True):
    user_id: str


class SessionIdInput(UserInput, kw_only=True):
    session_id: str


class NewSessionInput(UserInput, kw_only=True):
    session_id: str | None = None
    state: JsonObject | None = None
    ttl: str | None = None
    expire_time: str | None = None


class SessionToRemember(Record, kw_only=True):
    session: Session


class SearchInput(UserInput, kw_only=True):
    query: str


class KeysInput(UserInput, kw_only=True):
    session_id: str | None = None


class ArtifactInput(KeysInput, kw_only=True):
    filename: str
    version: int | None = None


class SaveArtifactInput(ArtifactInput, kw_only=True):
    artifact: str | Part
    custom_metadata: JsonObject | None = None


class MessageInput(UserInput, kw_only=True):
    message: str | Content
    session_id: str | None = None
    session_events: list[Event] | None = None
    run_config: RunConfig | None = None


class ArtifactVersionInput(Record, kw_only=True):
    version: int | str = 0
    data: Part


class ArtifactVersions(Record, kw_only=True):
    file_name: str
    versions: list[ArtifactVersionInput]


class Authorization(Record, kw_only=True):
    access_token: str


class StreamRunRequest(Record, kw_only=True):
    """Request of `streaming_agent_run_with_events`, which comes as JSON text. Labels of model
    requests are not passed on."""

    message: Content
    events: list[Event] | None = None
    artifacts: list[ArtifactVersions] | None = None
    authorizations: dict[str, Authorization] = msgspec.field(default_factory=dict[str, Authorization])
    user_id: str = DEFAULT_USER
    session_id: str | None = None
    labels: dict[str, str] | None = None


class JsonRequest(Record, kw_only=True):
    request_json: str


class _MethodCall(NamedTuple):
    context: RequestContext
    app_name: str

    def key(self, user_id: str, session_id: str) -> SessionKey:
        return SessionKey(self.app_name, user_id, session_id)

    async def create_session(
        self, user_id: str, *, session_id: str | None = None, state: JsonObject | None = None, events: Any = ()
    ) -> Session:
        found = imported_events(events, self.context.settings.limits.events_per_session)
        return await self.context.sessions.create_session(
            app_name=self.app_name, user_id=user_id, session_id=session_id, state=state, events=found
        )


async def _get_session(call: _MethodCall, given: SessionIdInput) -> Session:
    return await call.context.find_session(call.key(given.user_id, given.session_id))


async def _list_sessions(call: _MethodCall, given: UserInput) -> object:
    listed = await call.context.sessions.list_sessions(app_name=call.app_name, user_id=given.user_id)
    return {"sessions": listed.sessions}


async def _create_session(call: _MethodCall, session_input: NewSessionInput) -> object:
    if session_input.ttl or session_input.expire_time:
        raise CallerError("Sessions expire by the app's `session_ttl_seconds`, not by `ttl` or `expire_time`")
    session = await call.create_session(
        session_input.user_id, session_id=session_input.session_id, state=session_input.state
    )
    return _snake(session)


async def _delete_session(call: _MethodCall, given: SessionIdInput) -> None:
    await call.context.engine.delete_session(call.key(given.user_id, given.session_id))


async def _add_session_to_memory(call: _MethodCall, given: SessionToRemember) -> None:
    session = msgspec.structs.replace(given.session, app_name=call.app_name)
    await call.context.memory.add_session_to_memory(
        session if session.events else await call.context.find_session(session.key)
    )


async def _search_memory(call: _MethodCall, given: SearchInput) -> object:
    memory = call.context.memory
    return await memory.search_memory(app_name=call.app_name, user_id=given.user_id, query=given.query)


def _artifact_key(call: _MethodCall, artifact_input: ArtifactInput) -> JsonObject:
    if artifact_input.session_id is None and not artifact_input.filename.startswith("user:"):
        raise InvalidRequest("Artifacts of a session need its session_id", location=("body", "input", "session_id"))
    return {
        **call.key(artifact_input.user_id, artifact_input.session_id or "")._asdict(),
        "filename": artifact_input.filename,
    }


async def _save_artifact(call: _MethodCall, artifact_input: SaveArtifactInput) -> int:
    part = Part(text=artifact_input.artifact) if isinstance(artifact_input.artifact, str) else artifact_input.artifact
    return await call.context.artifacts.save_artifact(
        **_artifact_key(call, artifact_input), artifact=part, custom_metadata=artifact_input.custom_metadata
    )


async def _load_artifact(call: _MethodCall, given: ArtifactInput) -> Part | None:
    return await call.context.artifacts.load_artifact(**_artifact_key(call, given), version=given.version)


async def _list_artifact_keys(call: _MethodCall, given: KeysInput) -> list[str]:
    key = call.key(given.user_id, given.session_id or "")
    return await call.context.artifacts.list_artifact_keys(**key._asdict())


async def _delete_artifact(call: _MethodCall, given: ArtifactInput) -> None:
    await call.context.artifacts.delete_artifact(**_artifact_key(call, given))


async def _list_versions(call: _MethodCall, given: ArtifactInput) -> list[int]:
    return await call.context.artifacts.list_versions(**_artifact_key(call, given))


async def _list_artifact_versions(call: _MethodCall, given: ArtifactInput) -> list[ArtifactVersion]:
    return await call.context.artifacts.list_artifact_versions(**_artifact_key(call, given))


async def _get_artifact_version(call: _MethodCall, given: ArtifactInput) -> ArtifactVersion | None:
    return await call.context.artifacts.get_artifact_version(**_artifact_key(call, given), version=given.version)


_METHODS: dict[str, tuple[type[Record], Callable[[_MethodCall, Any], Awaitable[object]]]] = {
    "get_session": (SessionIdInput, _get_session),
    "list_sessions": (UserInput, _list_sessions),
    "create_session": (NewSessionInput, _create_session),
    "delete_session": (SessionIdInput, _delete_session),
    "add_session_to_memory": (SessionToRemember, _add_session_to_memory),
    "search_memory": (SearchInput, _search_memory),
    "save_artifact": (SaveArtifactInput, _save_artifact),
    "load_artifact": (ArtifactInput, _load_artifact),
    "list_artifact_keys": (KeysInput, _list_artifact_keys),
    "delete_artifact": (ArtifactInput, _delete_artifact),
    "list_versions": (ArtifactInput, _list_versions),
    "list_artifact_versions": (ArtifactInput, _list_artifact_versions),
    "get_artifact_version": (ArtifactInput, _get_artifact_version),
}


async def query(context: RequestContext) -> AnyReply:
    name = _method(context)
    if name not in _METHODS:
        raise _unknown(context)
    kind, method = _METHODS[name]
    given = wire.from_plain(context.body.input or {}, kind)
    return Reply(value={"output": await method(_MethodCall(context, await context.default_app()), given)})


async def stream_query(context: RequestContext) -> AnyReply:
    call = _MethodCall(context, await context.default_app())
    name = _method(context)
    query: JsonObject = context.body.input or {}
    if name == "stream_query":
        return await _stream_message(call, wire.from_plain(query, MessageInput))
    if name == "streaming_agent_run_with_events":
        text = wire.from_plain(query, JsonRequest).request_json
        decode = wire.client_decoder(StreamRunRequest)
        return await _stream_with_artifacts(call, decode_limited(text.encode(), decode, context.settings.limits))

    raise _unknown(context)


def _method(context: RequestContext) -> str:
    return (context.body.class_method or "").removeprefix("async_")


def _unknown(context: RequestContext) -> CallerError:
    return CallerError(f"class_method {context.body.class_method} is not allowed")


async def _stream_message(call: _MethodCall, message_input: MessageInput) -> AnyReply:
    if message_input.session_id and message_input.session_events:
        raise CallerError("Only one of session_id and session_events may be given")

    config = message_input.run_config or RunConfig()
    default = RunConfig()
    others = [
        name
        for name in RunConfig.__struct_fields__
        if name not in _SUPPORTED and getattr(config, name) != getattr(default, name)
    ]
    if others:
        raise InvalidRequest(f"Not supported in run_config: {', '.join(others)}", location=("body", "input"))

    message = message_input.message
    if isinstance(message, str):
        message = Content(role="user", parts=[Part(text=message)])
    max_llm_calls: int | None = None
    if config.max_llm_calls != default.max_llm_calls:
        max_llm_calls = config.max_llm_calls
    session_id = message_input.session_id
    if not session_id:
        session = await call.create_session(message_input.user_id, events=message_input.session_events or ())
        session_id = session.id

    request = AgentRunRequest(
        app_name=call.app_name,
        user_id=message_input.user_id,
        session_id=session_id,
        new_message=message,
        streaming=config.streaming_mode is StreamingMode.SSE,
        max_llm_calls=max_llm_calls,
        custom_metadata=config.custom_metadata,
        service_tier=config.service_tier,
    )
    is_temporary = message_input.session_events is not None

    async def line(event: Event) -> JsonObject:
        return _snake(event)

    return await _stream(call, request, line, is_temporary=is_temporary)


async def _stream_with_artifacts(call: _MethodCall, run_request: StreamRunRequest) -> AnyReply:
    session = None
    if run_request.session_id is not None:
        with suppress(SessionNotFound):
            session = await call.context.find_session(call.key(run_request.user_id, run_request.session_id))
    if session is None:
        state = None if run_request.session_id is None else {UPSTREAM_SESSION_ID: run_request.session_id}
        session = await call.create_session(run_request.user_id, state=state, events=run_request.events or ())

    key = session.key._asdict()
    for artifact in run_request.artifacts or ():
        for version in sorted(artifact.versions, key=lambda entry: str(entry.version).zfill(20)):
            await call.context.artifacts.save_artifact(**key, filename=artifact.file_name, artifact=version.data)

    tokens = {f"{TEMP_PREFIX}{name}": login.access_token for name, login in run_request.authorizations.items()}
    request = AgentRunRequest(**key, new_message=run_request.message, state_delta=tokens or None)

    async def line(event: Event) -> JsonObject:
        out: JsonObject = {"events": [_snake(event)], "session_id": session.id}
        artifacts = [
            {"file_name": name, "versions": [{"version": version, "data": part}]}
            for name, version in event.actions.artifact_delta.items()
            if (part := await call.context.artifacts.load_artifact(**key, filename=name, version=version)) is not None
        ]
        return {**out, "artifacts": artifacts} if artifacts else out

    return await _stream(call, request, line, is_temporary=run_request.session_id is None)


async def _stream(
    call: _MethodCall,
    request: AgentRunRequest,
    line: Callable[[Event], Awaitable[JsonObject]],
    *,
    is_temporary: bool,
) -> AnyReply:
    """A line for each event. is_temporary: whether the session is deleted at the end, since nobody knows its id."""
    context = call.context
    traceparent = context.headers.get(TRACEPARENT) or context.headers.get("traceparent")
    try:
        run, attachment = await context.engine.start(request, traceparent=traceparent)
    except GreenroomError:
        if is_temporary:
            await context.engine.delete_session(call.key(request.user_id, request.session_id))
        raise

    assert attachment is not None

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            async for document in _documents(attachment, line):
                yield wire.encode(document) + b"\n"
        finally:
            if is_temporary:
                with suppress(GreenroomError):
                    await context.engine.delete_session(call.key(request.user_id, request.session_id))

    return StreamReply(
        pieces=pieces(),
        close=attachment.close,
        when_client_leaves=when_client_leaves(context, run.id),
        media_type="application/json",
        headers={RUN_ID_HEADER: run.id},
    )


async def _documents(
    attachment: Attachment, line: Callable[[Event], Awaitable[JsonObject]]
) -> AsyncGenerator[JsonObject]:
    """Yields the run's events as documents, and the error of a run that fails outside of its model's answer."""
    while True:
        for item in await attachment.next_batch():
            if isinstance(item, RunEnded):
                if (error := item.run.error) is not None and error.status is not None:
                    yield {"error_code": error.code, "error_message": error.message}
                return
            if not item.event.is_internal():
                yield await line(item.event)


def _snake(record: Record) -> JsonObject:
    """ADK's `AdkApp` dumps events and new sessions with snake_case names."""
    return record.model_dump(mode="json", exclude_none=True)


_ERRORS = (AppNotNamed, AppNotFound, AppLoadError, NotFound, Conflict, StorageError, TooManyRuns, Unavailable)

ENDPOINTS = (
    Endpoint("POST", "/api/reasoning_engine", query, "Agent Engine", "run", "Call a method of the default app",
        body=QueryRequest, replies=JsonObject, errors=_ERRORS),
    Endpoint("POST", "/api/stream_reasoning_engine", stream_query, "Agent Engine", "run",
        "Run the default app; the reply is a JSON object per line", body=QueryRequest, replies=JsonObject,
        errors=_ERRORS),
)  # fmt: skip
