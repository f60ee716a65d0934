"""The client against real servers, which may be killed under it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import errors, types
from greenroom.client.async_client import AsyncClient
from greenroom.client.client import Client
from greenroom.records.access import CreateApiKeyRequest, RoleRequest, ServiceAccountRequest
from greenroom.records.budget import Budget
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.run import RunStatus, Webhook
from greenroom.records.schedule import Schedule
from greenroom.records.state import REMOVED
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.server_process import ServerProcess, server_in
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store
from tests.server.serving import run_body, until

OWNER: dict[str, Any] = {"app_name": "echo", "user_id": "ann/e"}
PLACE: dict[str, Any] = {**OWNER, "session_id": "s 1"}
AT_DESK: dict[str, Any] = {"app_name": "desk", "user_id": "ann", "session_id": "s-1"}


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[AsyncClient]:
    slow = scripted("slow", ["I will tell you this slowly"], delay=0.05)
    server = await serve(echo(), slow, scripted("bad", [errors.ModelError("on fire", model="m"), KeyError("bug")]))
    async with AsyncClient(server.url) as made:
        yield made


def texts(events: list[Event]) -> list[str]:
    return [event.content.text() for event in events if event.content is not None]


async def test_apps_and_sessions(client: AsyncClient) -> None:
    assert await client.list_apps() == ["bad", "echo", "slow"]
    assert (await client.get_app_info("echo")).root_agent_name == "echo"
    made = await client.create_session(**PLACE, state={"a": 1, "b": None})
    assert (made.id, made.user_id, made.state) == ("s 1", "ann/e", {"a": 1, "b": None})
    updated = await client.update_state(**PLACE, state_delta={"a": REMOVED, "c": [2]})
    assert updated.state == {"b": None, "c": [2]}
    exported = await client.get_session(**PLACE)
    again = await client.create_session(**OWNER, state=exported.state, events=exported.events)
    assert [event.id for event in again.events] == [event.id for event in exported.events]
    page = await client.list_sessions(**OWNER, limit=1)
    rest = await client.list_sessions(**OWNER, limit=5, page_token=page.next_page_token)
    assert {session.id for session in [*page.sessions, *rest.sessions]} == {"s 1", again.id}
    assert rest.next_page_token is None
    await client.delete_session(**PLACE)
    with pytest.raises(errors.SessionNotFound, match="s 1"):
        await client.get_session(**PLACE)


async def test_a_run_is_read_to_its_end(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    stream = await client.run(**PLACE, message="hello there")
    assert texts([event async for event in stream]) == ["You said hello there"]
    assert stream.last_seq == 2
    assert stream.run.status is RunStatus.SUCCEEDED
    assert (await client.get_run(stream.run.id)).status is RunStatus.SUCCEEDED
    whole = [event async for event in await client.follow(stream.run.id)]
    assert texts(whole) == ["hello there", "You said hello there"]
    assert texts([event async for event in await client.follow(stream.run.id, after=1)]) == ["You said hello there"]
    page = await client.list_events(**PLACE, after=1)
    assert (texts(page.events), page.last_seq) == (["You said hello there"], 2)


async def test_a_message_is_read_as_it_is_written(client: AsyncClient) -> None:
    slow: dict[str, Any] = {**PLACE, "app_name": "slow"}
    await client.create_session(**slow)
    events = [event async for event in await client.run(**slow, message="hello", streaming=True)]
    partial = texts([event for event in events if event.partial])
    assert "".join(partial) == "I will tell you this slowly"
    assert len(partial) > 1
    assert texts([event for event in events if not event.partial]) == ["I will tell you this slowly"]


async def test_a_stream_waits_for_a_run_that_starts_later(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    stream = await client.run(**PLACE, message="later", delay_seconds=0.2)
    assert stream.run.status is RunStatus.QUEUED
    start_at = stream.run.start_at
    assert start_at is not None
    assert texts([event async for event in stream]) == ["You said later"]
    assert stream.run.started_at is not None
    assert stream.run.started_at >= start_at
    assert (await client.run(**PLACE, message="later", start_at=start_at + 3600)).run.start_at == start_at + 3600


async def test_one_key_is_one_run(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    streams = [await client.run(**PLACE, message="once", idempotency_key="k") for _ in range(3)]
    assert {(await stream.wait()).id for stream in streams} == {streams[0].run.id}
    assert len((await client.get_session(**PLACE)).events) == 2
    with pytest.raises(errors.IdempotencyConflict):
        await client.run(**PLACE, message="else", idempotency_key="k")


async def test_errors_are_raised_as_what_they_were(client: AsyncClient) -> None:
    with pytest.raises(errors.SessionNotFound) as missing:
        await client.run(**PLACE, message="hi")
    assert missing.value.detail == "Session not found: 's 1' of user 'ann/e' in app 'echo'"
    with pytest.raises(errors.AppNotFound):
        await client.run(app_name="nope", user_id="ann", session_id="s-1", message="hi")
    with pytest.raises(errors.RunNotFound):
        await client.follow("nope")
    await client.create_session(**PLACE)
    with pytest.raises(errors.SessionExists):
        await client.create_session(**PLACE)
    with pytest.raises(errors.InvalidRequest) as wrong:
        await client.run(**PLACE, message="hi", deadline_seconds=-1)
    assert wrong.value.location == ("body", "deadlineSeconds")


async def test_what_a_run_fails_of_is_raised_after_its_events(client: AsyncClient) -> None:
    bad: dict[str, Any] = {**PLACE, "app_name": "bad"}
    await client.create_session(**bad)
    seen: list[Event] = []
    with pytest.raises(errors.ModelError, match="on fire"):
        async for event in await client.run(**bad, message="hi"):
            seen.append(event)
    assert [event.error_code for event in seen] == ["ModelError"]
    with pytest.raises(errors.RunFailed, match="KeyError: 'bug'"):
        await (await client.run(**bad, message="hi")).wait()


async def test_a_message_may_hold_any_character(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    said = "a\u2028b\x85c\r\nd\n\ne 🎭"
    stream = await client.run(**PLACE, message=said, streaming=True)
    assert texts([event async for event in stream if not event.partial]) == [f"You said {said}"]


async def test_a_run_that_another_cancels(client: AsyncClient) -> None:
    slow: dict[str, Any] = {**PLACE, "app_name": "slow"}
    await client.create_session(**slow)
    stream = await client.run(**slow, message="hello", streaming=True)
    await anext(aiter(stream))
    cancelled = await client.cancel_run(stream.run.id)
    assert cancelled.status is RunStatus.CANCELLED
    with pytest.raises(errors.RunCancelled):
        await stream.wait()
    assert stream.run.status is RunStatus.CANCELLED


async def test_a_reader_that_stops_continues_where_it_was(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    await (await client.run(**PLACE, message="one")).wait()
    stream = await client.follow((await client.list_events(**PLACE)).events[0].invocation_id)
    async for event in stream:
        assert texts([event]) == ["one"]
        break
    assert texts([event async for event in stream]) == ["You said one"]
    left = await client.follow(stream.run.id)
    await anext(aiter(left))
    await left.aclose()
    assert [event async for event in left] == []


async def test_the_key_of_a_run_that_was_continued_gives_all_of_it(serve: Serve) -> None:
    approved = FunctionTool(pay, require_confirmation=True)
    server = await serve(scripted("payer", [FunctionCall(name="pay", args={}), "Paid."], tools=[approved]))
    place: dict[str, Any] = {**PLACE, "app_name": "payer"}
    async with AsyncClient(server.url) as client:
        await client.create_session(**place)
        first = await client.run(**place, message="pay", idempotency_key="k")
        asked = [event.id async for event in first]
        (request,) = first.requests
        answer = {"functionResponse": {"id": request.id, "name": request.name, "response": {"confirmed": True}}}
        body = run_body(
            "payer", None, userId=place["user_id"], sessionId=place["session_id"], newMessage={"parts": [answer]}
        )
        answered = [event["id"] for event in (await server.client.post("/run", json=body)).json()]
        whole = [event.id async for event in await client.run(**place, message="pay", idempotency_key="k")]
        assert whole == asked + answered


def pay() -> str:
    """Pays."""
    return "paid"


async def test_artifacts_and_memory(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    part = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x00\xff"))
    saved = await client.save_artifact(**PLACE, filename="dir/a b.png", artifact=part)
    assert saved.version == 0
    assert await client.list_artifacts(**PLACE) == ["dir/a b.png"]
    assert await client.list_versions(**PLACE, filename="dir/a b.png") == [0]
    for version in (None, 0):
        loaded = await client.load_artifact(**PLACE, filename="dir/a b.png", version=version)
        assert loaded is not None
        assert loaded.inline_data is not None
        assert loaded.inline_data.data == b"\x00\xff"
    assert await client.load_artifact(**PLACE, filename="dir/a b.png", version=1) is None
    await client.delete_artifact(**PLACE, filename="dir/a b.png")
    assert await client.list_artifacts(**PLACE) == []
    await client.add_session_to_memory(**PLACE)
    with pytest.raises(errors.SessionNotFound):
        await client.add_session_to_memory(**OWNER, session_id="nope")


async def test_feedback(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    events = [event async for event in await client.run(**PLACE, message="hi")]
    answer = events[-1]
    event: dict[str, Any] = {**PLACE, "event_id": answer.id}
    given = await client.give_feedback("helpful", **event, score=False, comment="too short")
    assert (given.score, given.source, given.run_id) == (False, "user", answer.invocation_id)
    rated = await client.give_feedback("tone", **event, score=4, label="friendly")
    assert (await client.list_feedback(**PLACE)).feedback == [rated, given]
    assert (await client.list_feedback(app_name="echo", max_score=0)).feedback == [given]
    first = await client.list_feedback(**OWNER, limit=1)
    second = await client.list_feedback(**OWNER, page_token=first.next_page_token)
    assert [*first.feedback, *second.feedback] == [rated, given]

    with pytest.raises(ValueError, match="user_id"):
        await client.list_feedback(app_name="echo", session_id="s")
    with pytest.raises(errors.InvalidRequest):
        await client.give_feedback("helpful", **event)
    with pytest.raises(errors.NotFound):
        await client.give_feedback("helpful", **PLACE, event_id="nope", score=True)

    of_runs: dict[str, Any] = {"app_name": "echo", "feedback": "helpful"}
    assert [run.id for run in (await client.list_runs(**of_runs, max_score=0)).runs] == [given.run_id]
    assert (await client.list_runs(**of_runs, feedback_label="x")).runs == []
    assert (await client.list_runs(**of_runs, min_score=0.5)).runs == []

    made = await client.make_case("complaints", **event, expected_response="hello")
    assert [case.event_id for case in made.added] == [answer.id]
    again = await client.add_feedback_cases("complaints", app_name="echo", max_score=0, limit=10)
    assert ([case.event_id for case in again.skipped], again.added) == ([answer.id], [])
    [version] = await client.list_eval_set_versions("complaints", app_name="echo")
    assert (version.version, version.size, version.added) == (1, 1, [made.added[0].eval_id])

    await client.delete_feedback(**event, name="helpful")
    assert (await client.list_feedback(**PLACE)).feedback == [rated]


async def test_statistics(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    async for _ in await client.run(**PLACE, message="hi"):
        pass
    found = await client.get_statistics(group_by="app", step=60, app_name="echo", limit=3)
    assert [(group.key, group.total.runs) for group in found.groups] == [("echo", {"succeeded": 1})]
    assert (await client.get_load(step=3600)).step == 3600
    with pytest.raises(errors.InvalidRequest):
        await client.get_statistics(start=2, end=1)


async def test_schedules(client: AsyncClient) -> None:
    given = Schedule(id="daily", user_id="ann/e", cron="0 9 * * *")
    given.request.new_message = types.UserContent("hi")
    created = await client.create_schedule(given, app_name="echo")
    assert created.next_at is not None
    name: dict[str, Any] = {"app_name": "echo", "schedule_id": "daily"}
    assert await client.get_schedule(**name) == created
    with pytest.raises(errors.ScheduleConflict):
        await client.create_schedule(given, app_name="echo")

    times = await client.next_times(created, app_name="echo", limit=2)
    assert times == [created.next_at, created.next_at + 86400]
    assert len(await client.next_times(given, app_name="echo")) == 5

    assert (await client.pause_schedule(**name)).is_paused
    assert (await client.resume_schedule(**name)).next_at == created.next_at
    changed = await client.replace_schedule(Schedule(user_id="ann/e", every_seconds=60), **name)
    assert (changed.cron, changed.created_at) == (None, created.created_at)
    run = await client.run_schedule(**name)
    (entry,) = await client.list_schedule_runs(**name)
    assert (entry.run_id, entry.is_manual) == (run.id, True)

    other = await client.create_schedule(Schedule(user_id="ann/e", at=4e9), app_name="echo")
    first = await client.list_schedules(app_name="echo", limit=1)
    second = await client.list_schedules(app_name="echo", user_id="ann/e", page_token=first.next_page_token)
    assert [one.id for one in [*first.schedules, *second.schedules]] == [other.id, "daily"]
    await client.delete_schedule(**name)
    with pytest.raises(errors.ScheduleNotFound):
        await client.get_schedule(**name)


async def test_webhooks_of_a_run(client: AsyncClient) -> None:
    url = "https://receiver.invalid/"
    session = await client.create_session(app_name="echo", user_id="ann")
    given = Webhook(url=url, id="given", states=[RunStatus.FAILED])
    stream = await client.run(app_name="echo", user_id="ann", session_id=session.id, message="hi", webhooks=[given])
    run = await stream.wait()
    added = await client.add_webhook(run.id, Webhook(url=url, states=[RunStatus.FAILED]))
    assert [webhook.id for webhook in await client.list_webhooks(run.id)] == ["given", added.id]
    tested = await client.test_webhook(run.id, added.id)
    assert (tested.type, tested.status) == ("webhook.test", "failed")
    again = await client.redeliver(run.id, added.id, tested.id)
    assert len(again.attempts) == 2
    assert await client.list_deliveries(run.id, added.id, limit=5) == [again]
    await client.delete_webhook(run.id, added.id)
    with pytest.raises(errors.NotFound):
        await client.test_webhook(run.id, added.id)


async def test_webhooks_of_an_app(client: AsyncClient) -> None:
    webhook = Webhook(url="https://receiver.invalid/", id="pager", states=[RunStatus.FAILED])
    stored = await client.put_app_webhook(webhook, app_name="echo")
    assert (stored.id, stored.url, stored.states, stored.is_of_code) == ("pager", webhook.url, webhook.states, False)
    assert await client.list_app_webhooks(app_name="echo") == [stored]
    assert await client.get_app_webhook(app_name="echo", webhook_id="pager") == stored
    await client.delete_app_webhook(app_name="echo", webhook_id="pager")
    for missing in (client.get_app_webhook, client.delete_app_webhook):
        with pytest.raises(errors.NotFound):
            await missing(app_name="echo", webhook_id="pager")
    with pytest.raises(errors.InvalidRequest):
        await client.put_app_webhook(Webhook(url=webhook.url), app_name="echo")


async def test_a_key_lets_in_until_it_is_revoked(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    made, key = keys.create(name="test", subject=PLACE["user_id"], scopes=("run", "read"))
    server = await serve(echo(), auth=AuthSettings(keys=str(keys.path)))
    async with AsyncClient(server.url) as stranger, AsyncClient(server.url, api_key=key) as client:
        with pytest.raises(errors.Unauthenticated):
            await stranger.list_apps()
        await client.create_session(**PLACE)
        stream = await client.run(**PLACE, message="hi")
        assert texts([event async for event in stream]) == ["You said hi"]
        with pytest.raises(errors.Forbidden):
            await client.list_sessions(app_name="echo", user_id="bob")
        with pytest.raises(errors.Unauthenticated):
            await stranger.follow(stream.run.id)
        keys.revoke(made.id)

        async def is_refused() -> bool:
            try:
                await client.list_apps()
            except errors.Unauthenticated:
                return True
            return False

        await until(is_refused)


async def test_memories_and_settings(client: AsyncClient) -> None:
    await client.create_session(**PLACE)
    [_ async for _ in await client.run(**PLACE, message="I like tea")]
    await client.add_session_to_memory(**PLACE)
    listed = (await client.list_memories(**OWNER)).memories
    assert [memory.content.text() for memory in listed] == ["I like tea", "You said I like tea"]
    changed = await client.change_memory("I like coffee", **OWNER, memory_id=listed[0].id or "")
    assert (await client.list_memories(**OWNER, query="coffee")).memories == [changed]
    await client.delete_memory(**OWNER, memory_id=listed[1].id or "")
    assert (await client.list_memories(**OWNER)).memories == [changed]
    with pytest.raises(errors.NotFound):
        await client.change_memory("tea", **OWNER, memory_id="absent")
    grace = {setting.key: setting for setting in await client.list_settings()}["max_body_bytes"]
    assert (grace.value, grace.origin, grace.is_default) == ("67108864", "default", True)


async def test_budgets(client: AsyncClient) -> None:
    budget = Budget(per="user", user_id="ann/e", tokens=1000, warn_at=0.5)
    assert await client.put_budget(budget, app_name="echo") == budget
    [listed] = (await client.list_budgets(app_name="echo", user_id="ann/e")).budgets
    assert (listed.tokens, listed.source, listed.uses[0].tokens) == (1000, "stored", 0)
    await client.delete_budget(budget, app_name="echo")
    with pytest.raises(errors.NotFound):
        await client.delete_budget(budget, app_name="echo")
    assert (await client.list_budgets(app_name="echo")).budgets == []


async def test_keys_accounts_and_roles(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    made, key = keys.create(name="test", subject="root", scopes=("admin",))
    server = await serve(echo(), auth=AuthSettings(keys=str(keys.path)))
    async with AsyncClient(server.url, api_key=key) as root:
        assert (await root.get_me()).user_id == "root"
        role = await root.put_role("support", RoleRequest(scopes=["read"]))
        assert role in await root.list_roles()
        account = await root.put_service_account("ci", ServiceAccountRequest(roles=["support"]))
        assert await root.list_service_accounts() == [account] == [await root.get_service_account("ci")]
        created = await root.create_key(CreateApiKeyRequest(service_account="ci"))
        async with AsyncClient(server.url, api_key=created.key) as bot:
            assert (await bot.get_me()).scopes == ["read"]
            with pytest.raises(errors.Forbidden):
                await bot.list_keys()
        [listed] = (await root.list_keys(service_account="ci")).keys
        assert (await root.get_key(created.id)).id == listed.id == created.id
        assert (await root.revoke_key(created.id)).revoked_at is not None
        with pytest.raises(errors.AccessConflict):
            await root.delete_role("support")
        await root.delete_service_account("ci")
        await root.delete_role("support")
        with pytest.raises(errors.AccessConflict):
            await root.revoke_key(made.id)
        await root.revoke_key(made.id, force=True)
        with pytest.raises(errors.Unauthenticated):
            await root.get_me()


@pytest.mark.kill
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_server_killed_amid_a_stream_loses_and_repeats_nothing(tmp_path: Path, streaming: bool) -> None:
    # Slow enough that a busy machine kills it before it has ended; without streaming, a reply is one chunk.
    slow = {"CHUNK_SECONDS": "0.02" if streaming else "0.5", "TOOL_SECONDS": "0.5"}
    async with server_in(tmp_path, **slow) as server, AsyncClient(server.url) as client:
        await server.start()
        await client.create_session(**AT_DESK)
        # Kind 3 looks two orders up, charges twice and says a last word: five stored events and more.
        stream = await client.run(**AT_DESK, message="3", streaming=streaming)

        seen: list[Event] = []
        kills = 0
        async for event in stream:
            seen.append(event)
            stored = [one for one in seen if not one.partial]
            if kills < 3 and len(stored) > kills:
                kills += 1
                await again(server)

        assert stream.run.status is RunStatus.SUCCEEDED
        assert stream.run.attempts > 1
        log = (await client.get_session(**AT_DESK)).events
        mine = [event for event in log if event.author != "user"]
        assert [event.id for event in seen if not event.partial] == [event.id for event in mine]
        assert kills == 3
        assert len({event.invocation_id for event in log}) == 1
        if streaming:
            assert any(event.partial for event in seen)


@pytest.mark.kill
async def test_a_server_killed_while_a_run_is_started_starts_it_once(tmp_path: Path) -> None:
    async with server_in(tmp_path) as server, AsyncClient(server.url) as client:
        await server.start()
        await client.create_session(**AT_DESK)
        await server.kill()
        starting = asyncio.ensure_future(client.run(**AT_DESK, message="0"))
        await asyncio.sleep(0)
        await server.start()
        assert (await (await starting).wait()).status is RunStatus.SUCCEEDED
        users = [event for event in (await client.get_session(**AT_DESK)).events if event.author == "user"]
        assert len(users) == 1


@pytest.mark.kill
@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_waiting_run_is_answered_after_a_restart(tmp_path: Path, confirmed: bool) -> None:
    (tmp_path / "go on").touch()
    async with (
        server_in(tmp_path, module="tests.durability.approval_server") as server,
        AsyncClient(server.url) as client,
    ):
        await server.start()
        await client.create_session(**AT_DESK)
        asking = await client.run(**AT_DESK, message="pay")
        assert (await asking.wait()).status is RunStatus.WAITING
        (request,) = asking.requests
        assert request.args is not None
        assert request.args["originalFunctionCall"]["name"] == "pay"  # pyright: ignore
        await again(server)
        answered = await (client.approve if confirmed else client.refuse)(asking.run, request)
        events = [event async for event in answered]
        (response,) = [one for event in events for one in event.get_function_responses()]
        assert response.response == {"done": "pay"} if confirmed else "error" in (response.response or {})
        assert texts(events)[-1] == "That is all."
        assert answered.run.id == asking.run.id
        assert (answered.run.status, answered.requests) == (RunStatus.SUCCEEDED, [])
        with pytest.raises(errors.ApprovalRefused):
            await client.approve(asking.run, request)


async def again(server: ServerProcess) -> None:
    await server.kill()
    await server.start(wait=False)


# for code that waits


def test_the_waiting_client_has_all_that_the_asynchronous_one_has() -> None:
    def names(kind: type[Any]) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert names(Client) == names(AsyncClient)
    assert Client.run.__doc__ == AsyncClient.run.__doc__


async def test_the_waiting_client(serve: Serve) -> None:
    server = await serve(echo())

    def use() -> list[str]:
        with Client(server.url) as client:
            assert client.list_apps() == ["echo"]
            client.create_session(**PLACE)
            with pytest.raises(errors.SessionNotFound):
                client.get_session(**OWNER, session_id="nope")
            stream = client.run(**PLACE, message="hello")
            said = texts(list(stream))
            assert stream.run.status is RunStatus.SUCCEEDED
            assert client.run(**PLACE, message="more").wait().status is RunStatus.SUCCEEDED
            early = client.follow(stream.run.id)
            next(early)
            early.close()
            assert list(early) == []
        client.close()
        with pytest.raises(RuntimeError, match="The client is closed"):
            client.list_apps()
        return said

    before = threading.active_count()
    assert await asyncio.to_thread(use) == ["You said hello"]
    assert threading.active_count() <= before + 1  # that of to_thread stays
