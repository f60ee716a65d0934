"""Handlers reach the services only through views that know their caller."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import greenroom.server.routes
from greenroom.apps.loader import StaticAppLoader
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.errors import AppNotFound, Forbidden, RunNotFound
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest
from greenroom.records.session import Session, SessionKey
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.server.access.identity import EVERYBODY, Access, Identity
from greenroom.server.addresses import Address
from greenroom.server.app_logs import AppLogs
from greenroom.server.endless_streams import EndlessStreams
from greenroom.server.readiness import Readiness
from greenroom.server.request_context import RequestContext
from greenroom.server.server_state import ServerState
from greenroom.server.settings import ServerSettings
from greenroom.server.signal_urls import SignalUrls
from greenroom.server.webhook_sender import WebhookSender
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.telemetry.span_record import SpanRecord
from greenroom.traces.store import InMemoryTraceStore
from tests.server.agents import echo

BOB: dict[str, Any] = {"app_name": "echo", "user_id": "bob"}
HERE: dict[str, Any] = {**BOB, "session_id": "s"}


@pytest.fixture
async def state() -> AsyncIterator[ServerState]:
    """Two apps; bob has a session in `echo`, with an artifact."""
    apps = StaticAppLoader([echo(), echo("other")])
    sessions = InMemorySessionService()
    artifacts = InMemoryArtifactService()
    traces = InMemoryTraceStore()
    engine = InProcessRunEngine(
        apps=apps, run_store=InMemoryRunStore(), session_service=sessions, trace_listeners=[traces]
    )
    await sessions.create_session(**HERE, events=[Event(id="e", author="user")])
    await artifacts.save_artifact(**HERE, filename="f", artifact=Part(text="x"))
    memory = InMemoryMemoryService()
    webhook_sender = WebhookSender(secrets=None, allows_private=False)
    yield ServerState(
        apps=apps,
        engine=engine,
        sessions=sessions,
        artifacts=artifacts,
        memory=memory,
        credentials=InMemoryCredentialService(),
        traces=traces,
        logs=AppLogs(with_content=True),
        metrics=None,
        webhook_sender=webhook_sender,
        signal_urls=SignalUrls(None, webhook_sender.signers),
        settings=ServerSettings(),
        readiness=Readiness(sessions, artifacts, memory),
        interface=bytes,
        endless_streams=EndlessStreams(),
    )
    apps.close()


def a_call(state: ServerState, identity: Identity, access: Access) -> RequestContext:
    async def receive() -> Any:
        raise AssertionError

    return RequestContext(
        server=state,
        identity=identity,
        access=access,
        path={},
        query={},
        headers={},
        body=None,
        receive=receive,
        find_address=Address,
    )


def who(subject: str = "ann", *scopes: str, apps: set[str] | None = None) -> Identity:
    return Identity(subject=subject, scopes=frozenset(scopes), apps=None if apps is None else frozenset(apps))


def request(app_name: str = "echo", user_id: str = "bob") -> AgentRunRequest:
    message = Content(parts=[Part(text="hi")])
    return AgentRunRequest(app_name=app_name, user_id=user_id, session_id="s", new_message=message)


Operation: TypeAlias = Callable[[RequestContext, Session], Any]

READING: dict[str, Operation] = {
    "get_session": lambda call, _: call.sessions.get_session(**HERE),
    "list_sessions": lambda call, _: call.sessions.list_sessions(**BOB),
    "list_events": lambda call, _: call.sessions.list_events(**HERE),
    "load_artifact": lambda call, _: call.artifacts.load_artifact(**HERE, filename="f"),
    "list_artifact_keys": lambda call, _: call.artifacts.list_artifact_keys(**HERE),
    "list_versions": lambda call, _: call.artifacts.list_versions(**HERE, filename="f"),
    "get_artifact_version": lambda call, _: call.artifacts.get_artifact_version(**HERE, filename="f"),
    "seq_of_event": lambda call, _: call.sessions.seq_of_event(**HERE, event_id="e"),
    "export_user": lambda call, _: call.user_data.export(app_name="echo", user_id="bob"),
    "search_memory": lambda call, _: call.memory.search_memory(**BOB, query="x"),
    "attach_to_session": lambda call, _: call.engine.attach_to_session(SessionKey("echo", "bob", "s"), after=0).close(),
}
WRITING: dict[str, Operation] = {
    "create_session": lambda call, _: call.sessions.create_session(**BOB, session_id="new"),
    "append": lambda call, session: call.sessions.append(session, Event(author="user")),
    "publish": lambda call, session: call.engine.append(session, Event(author="user")),
    "start": lambda call, _: call.engine.start(request(), attach=False),
    "save_artifact": lambda call, _: call.artifacts.save_artifact(**HERE, filename="g", artifact=Part(text="y")),
    "delete_artifact": lambda call, _: call.artifacts.delete_artifact(**HERE, filename="f"),
    "add_session_to_memory": lambda call, session: call.memory.add_session_to_memory(session),
    "delete_session": lambda call, _: call.sessions.delete_session(**HERE),
    "fork_session": lambda call, _: call.sessions.fork_session(**HERE),
    "erase_user": lambda call, _: call.user_data.erase(app_name="echo", user_id="bob"),
    "forget_traces": lambda call, _: call.traces.forget(SessionKey("echo", "bob", "s")),
}


async def done(state: ServerState, identity: Identity, access: Access, operation: Operation) -> None:
    session = await state.sessions.get_session(**HERE) or Session(id="s", app_name="echo", user_id="bob")
    found = operation(a_call(state, identity, access), session)
    if found is not None:
        await found


@pytest.mark.parametrize("operation", [*READING.values(), *WRITING.values()], ids=[*READING, *WRITING])
async def test_operations_are_for_those_who_act_for_the_user(state: ServerState, operation: Operation) -> None:
    for identity in (
        who("ann", "run"),
        who("ann", "app:other"),
        who("ann", "admin", apps={"other"}),
        who("bob", "run", apps={"other"}),
        who("bob", "run", "app:echo", apps=set()),
        who("BOB", "run"),
        who("", "run"),
    ):
        with pytest.raises(Forbidden):
            await done(state, identity, "run", operation)
    await done(state, EVERYBODY, "run", operation)


@pytest.mark.parametrize("operation", [*READING.values(), *WRITING.values()], ids=[*READING, *WRITING])
@pytest.mark.parametrize(
    "identity",
    [
        who("bob"),
        who("bob", apps={"echo"}),
        who("ann", "app:echo"),
        who("ann", "admin"),
        who("ann", "admin", apps={"echo"}),
    ],
    ids=["bob", "bob in echo", "the app's", "an admin", "an admin in echo"],
)
async def test_who_acts_for_the_user_is_let_through(
    state: ServerState, operation: Operation, identity: Identity
) -> None:
    await done(state, identity, "run", operation)


@pytest.mark.parametrize("operation", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("access", ["open", "read", "debug"])
async def test_an_endpoint_for_reading_can_not_write(state: ServerState, operation: Operation, access: Access) -> None:
    with pytest.raises(Forbidden):
        await done(state, EVERYBODY, access, operation)


@pytest.mark.parametrize("operation", READING.values(), ids=READING)
async def test_an_open_endpoint_can_not_read(state: ServerState, operation: Operation) -> None:
    with pytest.raises(Forbidden):
        await done(state, EVERYBODY, "open", operation)
    await done(state, EVERYBODY, "read", operation)


async def test_all_users_sessions_are_for_the_apps_scope(state: ServerState) -> None:
    with pytest.raises(Forbidden):
        await a_call(state, who("bob", "read"), "read").sessions.list_sessions(app_name="echo")
    for identity in (who("ann", "app:echo"), who("ann", "admin")):
        assert len((await a_call(state, identity, "read").sessions.list_sessions(app_name="echo")).sessions) == 1


async def test_anothers_run_is_as_good_as_absent(state: ServerState) -> None:
    run, _ = await state.engine.start(request(), attach=False)
    foreign = a_call(state, who("ann", "run"), "run").engine
    for run_id in (run.id, "nowhere"):
        for asked in (foreign.get(run_id), foreign.attach(run_id), foreign.cancel(run_id, reason="test")):
            with pytest.raises(RunNotFound) as caught:
                await asked
            assert caught.value.detail == RunNotFound(run_id).detail
    own = a_call(state, who("bob", "run"), "run").engine
    assert (await own.get(run.id)).id == run.id
    (await own.attach(run.id)).close()
    with pytest.raises(Forbidden):
        await a_call(state, who("bob", "run"), "read").engine.cancel(run.id, reason="test")
    assert (await own.cancel(run.id, reason="test")).id == run.id


async def test_apps_out_of_reach_are_not_named(state: ServerState) -> None:
    limited = a_call(state, who("bob", "run", apps={"echo", "gone"}), "run")
    assert await limited.apps.list_apps() == ["echo"]
    assert (await limited.apps.load("echo")).name == "echo"
    for name in ("other", "nowhere"):
        with pytest.raises(Forbidden):
            await limited.apps.load(name)
        with pytest.raises(Forbidden):
            limited.apps.language(name)
    for asked in (
        lambda: limited.engine.start(request("gone"), attach=False),
        lambda: limited.apps.load("gone"),
    ):
        with pytest.raises(AppNotFound) as caught:
            found: Any = asked()
            await found
        assert "other" not in caught.value.detail


ROUTES = sorted(Path(greenroom.server.routes.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("file", ROUTES, ids=lambda file: file.stem)
def test_a_route_reaches_no_service_around_its_call(file: Path) -> None:
    hidden = ("ServerState", "SessionService", "ArtifactService", "MemoryService", "RunEngine", "AppLoader")
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute):
            is_private = node.attr.startswith("_") and not node.attr.endswith("__") and node.attr != "_asdict"
            assert not is_private, f"{file.name}:{node.lineno} uses {node.attr}"
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                assert not name.name.endswith(hidden), f"{file.name}:{node.lineno} imports {name.name}"


async def test_traces_of_others_are_as_if_they_were_not_there(state: ServerState) -> None:
    run, attachment = await state.engine.start(request())
    assert attachment is not None
    events = [item for batch in [await attachment.next_batch()] for item in batch]
    attachment.close()
    await state.engine.close()
    assert run.status == "succeeded", events
    [event_id] = [span.event_id for span in await everything(state) if span.event_id]

    for identity, app, is_seen in (
        (EVERYBODY, "echo", True),
        (EVERYBODY, None, True),
        (who("bob", "debug"), "echo", True),
        (who("bob", "debug"), None, True),
        (who("ann", "debug", "app:echo"), "echo", True),
        (who("ann", "admin", apps={"echo"}), None, True),
        (who("ann", "debug"), "echo", False),
        (who("ann", "debug"), None, False),
        (who("ann", "debug", "app:echo"), None, False),
        (who("ann", "admin", apps={"other"}), None, False),
        (EVERYBODY, "other", False),
    ):
        traces = a_call(state, identity, "debug").traces
        assert bool(await traces.of_session("s", app_name=app)) is is_seen, (identity, app)
        assert (await traces.of_event(event_id, app_name=app) is not None) is is_seen, (identity, app)

    closed = a_call(state, who("ann", "admin", apps={"other"}), "debug").traces
    with pytest.raises(Forbidden):
        await closed.of_session("s", app_name="echo")
    with pytest.raises(Forbidden):
        await closed.of_event(event_id, app_name="echo")


async def everything(state: ServerState) -> list[SpanRecord]:
    return await state.traces.of_session("s", app_name=None, user_id=None)
