"""Services written for ADK, with a runner and with the server. Part of the contract of session stores holds for them."""

# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import Any

import pytest

from greenroom import App, InMemorySessionService, LlmAgent, MemoryPolicy, Runner, ToolContext, types
from greenroom.errors import NotOffered
from greenroom.records.content import UserContent
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionFilter
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service import (
    test_a_blank_id_is_replaced_by_a_new_one,  # noqa: F401
    test_a_filtered_holder_gets_only_what_it_appends,  # noqa: F401
    test_a_new_session_has_state_and_no_events,  # noqa: F401
    test_a_page_of_the_log_is_listed,  # noqa: F401
    test_a_page_token_that_is_not_ours_is_refused,  # noqa: F401
    test_a_value_changed_after_the_append_is_not_stored,  # noqa: F401
    test_deleting_what_is_not_there_does_nothing,  # noqa: F401
    test_events_are_filtered_by_number_and_time,  # noqa: F401
    test_ids_may_hold_any_characters,  # noqa: F401
    test_pages_hold_every_session_once_newest_update_first,  # noqa: F401
    test_temp_keys_reach_the_holder_and_are_not_stored,  # noqa: F401
    test_the_newest_are_taken_before_the_time_is_looked_at,  # noqa: F401
    test_users_and_apps_have_their_own_sessions,  # noqa: F401
    test_what_a_holder_does_to_its_copy_stays_there,  # noqa: F401
)
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.credentials.authorization_server import AuthorizationServer
from tests.credentials.conftest import provider as provider
from tests.credentials.desk import Desk, consent, login, requests_of, responses_of, say
from tests.server.adk_services import AdkArtifacts, AdkCredentials, AdkMemory, AdkSessions
from tests.server.conftest import Serve
from tests.server.serving import until

WHERE: dict[str, Any] = {"app_name": "shop", "user_id": "ann", "session_id": "s-1"}


@pytest.fixture
def session_service() -> BaseSessionService:
    return AdkSessions()


async def note(text: str, tool_context: ToolContext) -> str:
    """Takes a note."""
    tool_context.state["noted"] = text
    tool_context.state["temp:draft"] = text
    version = await tool_context.save_artifact("note.txt", types.Part(text=text))
    return f"version {version}"


def shop(*turns: Any) -> App:
    agent = LlmAgent(name="shop", model=ScriptedModel(turns), tools=[note])
    return App(name="shop", root_agent=agent, memory_policy=MemoryPolicy())


async def test_a_runner_runs_on_them() -> None:
    sessions = AdkSessions()
    artifacts = AdkArtifacts()
    memory = AdkMemory()
    runner = Runner(
        app=shop(call("note", text="milk"), "Noted.", "Milk."),
        session_service=sessions,
        artifact_service=artifacts,
        memory_service=memory,
        credential_service=AdkCredentials(),
    )
    await sessions.create_session(**WHERE)
    for text in ("buy milk", "what shall I buy?"):
        run = runner.run_async(user_id="ann", session_id="s-1", new_message=UserContent(text))
        events = [event async for event in run]
        assert events[-1].is_final_response()

    stored = sessions.sessions["shop", "ann", "s-1"]
    assert [event.author for event in stored.events] == ["user", "shop", "shop", "shop", "user", "shop"]
    assert stored.state == {"noted": "milk"}
    assert await artifacts.load_artifact(**WHERE, filename="note.txt") == types.Part(text="milk")


async def test_the_server_serves_from_them(serve: Serve) -> None:
    sessions = AdkSessions()
    artifacts = AdkArtifacts()
    memory = AdkMemory()
    services = {"session_service": sessions, "artifact_service": artifacts, "memory_service": memory}
    server = await serve(shop(call("note", text="milk"), "Noted.", "Milk."), services=services)
    path = await server.new_session("shop")
    events = (await server.run("shop", "buy milk")).json()
    assert events[-1]["content"]["parts"] == [{"text": "Noted."}]

    session = (await server.client.get(path)).json()
    assert session["state"] == {"noted": "milk"}
    assert [event["id"] for event in session["events"][1:]] == [event["id"] for event in events]
    frames = await server.sse("shop", "what shall I buy?", user="ann")
    assert [frame.id for frame in frames] == [6]

    listed = (await server.client.get("/apps/shop/users/ann/sessions?limit=1")).json()
    assert [one["id"] for one in listed] == ["s-1"]
    log = (await server.client.get(f"{path}/events?after=4")).json()
    assert [event["author"] for event in log["events"]] == ["user", "shop"]
    names = (await server.client.get(f"{path}/artifacts")).json()
    assert names == ["note.txt"]
    versions = (await server.client.get(f"{path}/artifacts/note.txt/versions/metadata")).json()
    assert [one["canonicalUri"] for one in versions] == ["mine://note.txt/0"]
    assert (await server.client.get("/readyz")).status_code == 200

    fork = await server.client.post(f"{path}/fork", json={})
    assert (fork.status_code, fork.json()["code"]) == (501, "NotOffered")
    past = await server.client.get(f"{path}?until_seq=1")
    assert (past.status_code, past.json()["code"]) == (501, "NotOffered")
    assert (await server.client.delete(path)).status_code == 200
    assert sessions.sessions == {}
    assert artifacts.parts == {}


async def test_ended_runs_are_remembered_as_whole_sessions(serve: Serve) -> None:
    memory = AdkMemory()
    server = await serve(shop("Noted."), services={"session_service": AdkSessions(), "memory_service": memory})
    await server.new_session("shop")
    await server.run("shop", "buy milk")
    await until(lambda: memory.sessions)
    found = await memory.search_memory(app_name="shop", user_id="ann", query="milk")
    assert [entry.content.text() for entry in found.memories] == ["buy milk"]


async def test_a_login_is_kept_in_a_credential_service_of_adk(serve: Serve, provider: AuthorizationServer) -> None:
    desk = Desk(login(provider), provider)
    credentials = AdkCredentials()
    server = await serve(desk.agent(), services={"credential_service": credentials})
    await server.new_session("desk")
    (request,) = requests_of(await say(server, "Who am I?"))
    after = await say(server, await consent(request))
    assert responses_of(after) == [{"name": "Ada"}]
    assert desk.calls == [None, provider.seen[0]]
    [(key, stored)] = credentials.credentials.items()
    assert key == ("desk", "ann", desk.config.credential_key)
    assert stored is not None
    assert stored.bearer_token() == provider.seen[0]

    listed = await server.client.get("/apps/desk/users/ann/credentials")
    assert (listed.status_code, listed.json()["code"]) == (501, "NotOffered")


async def test_a_credential_service_of_adk_may_still_be_called_as_in_adk() -> None:
    desk = Desk(login(AuthorizationServer()))
    credentials = AdkCredentials()
    seen: list[Any] = []

    async def keep(tool_context: ToolContext) -> str:
        """Keeps a login."""
        config = desk.config.model_copy()
        config.exchanged_auth_credential = config.raw_auth_credential
        await credentials.save_credential(config, tool_context)
        seen.append(await credentials.load_credential(auth_config=config, callback_context=tool_context))
        seen.append(await tool_context.load_credential(desk.config))
        return "kept"

    runner = Runner(
        agent=LlmAgent(name="desk", model=ScriptedModel([call("keep"), "Kept."]), tools=[keep]),
        app_name="desk",
        session_service=InMemorySessionService(),
        credential_service=credentials,
    )
    await runner.run_debug("keep it", quiet=True)
    assert seen == [desk.config.raw_auth_credential] * 2


async def test_what_a_store_of_adk_lacks_is_said_or_done_with_its_methods() -> None:
    sessions = AdkSessions()
    events = [Event(author="ann", timestamp=float(n)) for n in range(1, 4)]
    session = await sessions.create_session(app_name="shop", user_id="ann", session_id="s-1", events=events)  # type: ignore[call-arg]
    assert list(session.events) == events
    listed = await sessions.list_events(app_name="shop", user_id="ann", session_id="s-1", after=1, limit=1)
    assert (listed.events, listed.last_seq) == (events[1:2], 3)
    assert await sessions.seq_of_event(**WHERE, event_id=events[2].id) == 3

    part = await sessions.get_session(**WHERE, config=GetSessionConfig(num_recent_events=1))
    assert part is not None
    [stored] = await sessions.append(part, Event(author="ann"))
    assert stored.seq == 4

    with pytest.raises(NotOffered):
        await sessions.list_sessions(app_name="shop", where=SessionFilter(text="milk"))  # type: ignore[call-arg]
    with pytest.raises(NotOffered):
        await sessions.fork_session(**WHERE)
    for add in (AdkMemory().add_memory, AdkMemory().add_memories):
        with pytest.raises(NotOffered):
            await add(app_name="shop", user_id="ann", memories=[])
