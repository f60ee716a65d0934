"""Schedules of one engine: missed times, clocks that are set, runs that overlap, and what apps declare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError, OwnershipLost, ScheduleConflict, TooManyRuns
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, Caller, Run, RunFilter, RunStatus, SessionRunRequest
from greenroom.records.schedule import Schedule, ScheduleRun, StoredSchedule
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.schedules import MAX_CAUGHT_UP, MISSED_SECONDS
from greenroom.schedules.store import ScheduleLimits
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import Stores, engine_over
from tests.server.agents import HeldModel

NOW = 1_790_000_000.0
MESSAGE = Content(role="user", parts=[Part(text="go")])


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def desk(**fields: Any) -> App:
    agent = LlmAgent(name="desk", model=ScriptedModel(lambda _: "done"))
    return App(name="desk", root_agent=agent, **fields)


def schedule(**fields: Any) -> Schedule:
    return Schedule(user_id="ann", request=SessionRunRequest(new_message=MESSAGE), **fields)


@asynccontextmanager
async def engine_at(
    stores: Stores, app: App | None = None, clock: Callable[[], float] = time.time
) -> AsyncGenerator[InProcessRunEngine]:
    async with engine_over(stores, app or desk()) as engine:
        engine.schedules.clock = clock
        engine.schedules._timer.clock = clock
        await engine.recover()
        yield engine


async def create(engine: InProcessRunEngine, **fields: Any) -> Schedule:
    return await engine.schedules.create(schedule(**fields), app_name="desk", caller=None)


async def history(engine: InProcessRunEngine, schedule_id: str) -> list[ScheduleRun]:
    return (await engine.schedules.list_runs("desk", schedule_id, limit=1000)).runs


async def entries(engine: InProcessRunEngine, schedule_id: str, count: int) -> list[ScheduleRun]:
    """The history, oldest first, when it has so many entries."""
    async with asyncio.timeout(10):
        while len(listed := await history(engine, schedule_id)) < count:
            await asyncio.sleep(0.01)
    assert len(listed) == count
    return listed[::-1]


async def runs_of(engine: InProcessRunEngine) -> list[Run]:
    return (await engine.list_runs(RunFilter(app_names=["desk"]), limit=None)).runs


def outcomes(listed: list[ScheduleRun]) -> list[tuple[str, float | None, float]]:
    return [
        (one.outcome, None if one.first_due_at is None else one.first_due_at - NOW, one.due_at - NOW) for one in listed
    ]


@pytest.mark.parametrize("is_restarted", [False, True], ids=["asleep", "down"])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", [("missed", 3600.0, 82800.0), ("started", None, 86400.0)]),
        ("once", [("missed", 3600.0, 82800.0), ("started", None, 86400.0)]),
        ("all", [("started", None, 3600.0 * number) for number in range(1, 25)]),
    ],
)
async def test_after_a_day_asleep_the_policy_for_missed_times_applies(
    stores: Stores, policy: str, expected: list[Any], is_restarted: bool
) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, every_seconds=3600, start_at=NOW + 3600, missed=policy)
        assert created.next_at == NOW + 3600
        if not is_restarted:
            clock.now = NOW + 86400 + 30
            await check_missed(engine, created.id, expected)
    if is_restarted:
        clock.now = NOW + 86400 + 30
        async with engine_at(stores, clock=clock) as engine:
            await check_missed(engine, created.id, expected)


async def check_missed(engine: InProcessRunEngine, schedule_id: str, expected: list[Any]) -> None:
    listed = await entries(engine, schedule_id, len(expected))
    assert outcomes(listed) == expected
    assert len(await runs_of(engine)) == sum(outcome == "started" for outcome, *_ in expected)
    assert (await engine.schedules.get("desk", schedule_id)).next_at == NOW + 90000


async def test_a_single_time_is_missed_after_a_minute(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        in_time = await create(engine, at=NOW + 100, missed="skip")
        clock.now = NOW + 100 + MISSED_SECONDS - 1
        assert outcomes(await entries(engine, in_time.id, 1)) == [("started", None, 100.0)]
        late = await create(engine, at=NOW + 1000, missed="skip")
        run_all_the_same = await create(engine, at=NOW + 1000)
        clock.now = NOW + 1000 + MISSED_SECONDS + 1
        assert outcomes(await entries(engine, late.id, 1)) == [("missed", None, 1000.0)]
        assert outcomes(await entries(engine, run_all_the_same.id, 1)) == [("started", None, 1000.0)]
        assert (await engine.schedules.get("desk", late.id)).next_at is None


async def test_of_many_missed_times_the_last_hundred_get_runs(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, cron="* * * * *", missed="all", overlap="allow")
        assert created.next_at is not None
        clock.now = created.next_at + 60 * (MAX_CAUGHT_UP + 49) + 1
        listed = await entries(engine, created.id, MAX_CAUGHT_UP + 1)
        assert listed[0].outcome == "missed"
        assert listed[0].first_due_at == created.next_at
        assert listed[0].due_at == created.next_at + 60 * 49
        assert [one.due_at for one in listed[1:]] == [created.next_at + 60 * n for n in range(50, MAX_CAUGHT_UP + 50)]
        assert len(await runs_of(engine)) == MAX_CAUGHT_UP


async def test_a_clock_that_is_put_back_repeats_nothing(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, every_seconds=60, start_at=NOW + 60)
        clock.now = NOW + 60
        await entries(engine, created.id, 1)
        clock.now = NOW - 3600
        await asyncio.sleep(1.2)  # the timer reads the clock each second
        assert (await engine.schedules.get("desk", created.id)).next_at == NOW + 120
        clock.now = NOW + 120
        assert outcomes(await entries(engine, created.id, 2)) == [("started", None, 60.0), ("started", None, 120.0)]


async def test_nothing_starts_early(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        await create(engine, at=NOW + 60)
        jittered = await create(engine, at=NOW + 60, jitter_seconds=1000)
        clock.now = NOW + 59.999
        await asyncio.sleep(1.2)  # as above
        assert await runs_of(engine) == []
        clock.now = NOW + 61
        async with asyncio.timeout(5):
            while not await runs_of(engine):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert await history(engine, jittered.id) == []
        clock.now = NOW + 1061
        assert outcomes(await entries(engine, jittered.id, 1)) == [("started", None, 60.0)]


async def die_after_start(stores: Stores, engine: InProcessRunEngine, patch: pytest.MonkeyPatch) -> Run:
    """Ends an engine that has started a run before it can move the time of the schedule, and returns the run."""
    update = stores.runs.schedules.update
    never = asyncio.Event()

    async def hang(schedule: StoredSchedule, entries: Sequence[ScheduleRun] = ()) -> bool:
        if any(entry.outcome == "started" for entry in entries):
            await never.wait()
        return await update(schedule, entries)

    with patch.context() as patched:
        patched.setattr(stores.runs.schedules, "update", hang)
        async with asyncio.timeout(5):
            while not (runs := await runs_of(engine)):
                await asyncio.sleep(0.01)
        await engine.close()
    (run,) = runs
    return run


async def test_a_crash_before_the_time_is_moved_starts_no_second_run(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, at=NOW + 10, missed="skip")
        clock.now = NOW + 10
        run = await die_after_start(stores, engine, monkeypatch)
    clock.now = NOW + 86400
    async with engine_at(stores, clock=clock) as engine:
        (entry,) = await entries(engine, created.id, 1)
        assert (entry.outcome, entry.run_id) == ("started", run.id)
        assert [one.id for one in await runs_of(engine)] == [run.id]


async def test_a_run_after_missed_times_is_in_the_history_after_a_crash(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, every_seconds=60, start_at=NOW + 60)
        clock.now = NOW + 180
        run = await die_after_start(stores, engine, monkeypatch)
    clock.now = NOW + 300
    async with engine_at(stores, clock=clock) as engine:
        listed = await entries(engine, created.id, 4)
        assert outcomes(listed) == [
            ("missed", 60.0, 120.0),
            ("started", None, 180.0),
            ("missed", None, 240.0),
            ("started", None, 300.0),
        ]
        assert listed[1].run_id == run.id
        assert len(await runs_of(engine)) == 2


async def test_a_server_that_owns_the_session_again_starts_the_run(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        start = engine.schedules.start
        refused: list[AgentRunRequest] = []

        async def refuse_once(request: AgentRunRequest, **options: Any) -> tuple[Run, object]:
            if not refused:
                refused.append(request)
                raise OwnershipLost(request.app_name, request.user_id, request.session_id)
            return await start(request, **options)

        monkeypatch.setattr(engine.schedules, "start", refuse_once)
        created = await create(engine, at=NOW + 10)
        clock.now = NOW + 10
        async with asyncio.timeout(5):
            while not refused:
                await asyncio.sleep(0.01)
        clock.now = NOW + 12
        assert outcomes(await entries(engine, created.id, 1)) == [("started", None, 10.0)]


def held_app(model: HeldModel) -> App:
    return App(name="desk", root_agent=LlmAgent(name="desk", model=model))


@pytest.mark.parametrize("session_id", [None, "s-1"], ids=["new sessions", "one session"])
async def test_runs_that_overlap(stores: Stores, session_id: str | None) -> None:
    model = HeldModel("slow")
    clock = Clock()
    async with engine_at(stores, held_app(model), clock=clock) as engine:
        for policy in ("skip", "cancel", "enqueue" if session_id else "allow"):
            created = await create(
                engine, every_seconds=60, start_at=clock.now + 60, session_id=session_id, overlap=policy
            )
            clock.now += 60
            (first,) = await entries(engine, created.id, 1)
            clock.now += 60
            (_, second) = await entries(engine, created.id, 2)
            run = await engine.get(first.run_id or "")
            if policy == "skip":
                assert (second.outcome, second.run_id) == ("unfinished", first.run_id)
                assert not run.status.is_over
            elif policy == "cancel":
                assert second.outcome == "started"
                assert run.status is RunStatus.CANCELLED
            else:
                assert second.outcome == "started"
                other = await engine.get(second.run_id or "")
                expected = RunStatus.QUEUED if session_id else RunStatus.RUNNING
                async with asyncio.timeout(5):
                    while other.status is not expected:
                        await asyncio.sleep(0.01)
                assert not run.status.is_over
            await engine.schedules.delete("desk", created.id)
            for one in await runs_of(engine):
                await engine.cancel(one.id, reason="the test is over")


async def test_a_refused_run_is_in_the_history_and_leaves_no_session(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        lost = await create(engine, every_seconds=60, start_at=NOW + 60, session_id="absent")
        clock.now = NOW + 60
        (entry,) = await entries(engine, lost.id, 1)
        assert (entry.outcome, entry.error_code, entry.run_id) == ("refused", "SessionNotFound", None)
        assert "absent" in (entry.error_message or "")
        clock.now = NOW + 120
        await entries(engine, lost.id, 2)

    other = App(name="other", root_agent=LlmAgent(name="other", model=ScriptedModel(["x"])))
    async with engine_at(stores, other, clock=clock) as engine:
        gone = await create(engine, at=NOW + 200)
        clock.now = NOW + 200
        (entry,) = await entries(engine, gone.id, 1)
        assert entry.error_code == "AppNotFound"
        listed = await stores.sessions.list_sessions(app_name="desk", user_id="ann")
        assert [session.id for session in listed.sessions] == ["s-1"]


async def test_a_limit_of_runs_is_waited_for(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        start = engine.start
        tries = 0

        async def limited(*args: Any, **options: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise TooManyRuns("app 'desk'", 1)
            return await start(*args, **options)

        monkeypatch.setattr(engine.schedules, "start", limited)
        created = await create(engine, at=NOW + 60)
        clock.now = NOW + 60
        async with asyncio.timeout(5):
            while (await engine.schedules.get("desk", created.id)).next_at == NOW + 60:
                await asyncio.sleep(0.01)
        clock.now = NOW + 70
        assert outcomes(await entries(engine, created.id, 1)) == [("started", None, 60.0)]
        assert tries == 2


async def test_apps_declare_schedules(stores: Stores) -> None:
    clock = Clock()
    daily = Schedule(id="daily", user_id="ann", cron="0 9 * * *", request=SessionRunRequest(new_message=MESSAGE))
    unnamed = schedule(every_seconds=60)
    async with engine_at(stores, desk(schedules=[daily, unnamed]), clock=clock) as engine:
        listed = (await engine.schedules.list(app_name="desk")).schedules
        assert all(one.is_of_app and one.next_at is not None for one in listed)
        first = await engine.schedules.get("desk", "daily")
        assert first.created_at > 0
        with pytest.raises(ScheduleConflict, match="declared by its app"):
            await engine.schedules.replace(daily, app_name="desk", schedule_id="daily", caller=None)
        with pytest.raises(ScheduleConflict, match="declared by its app"):
            await engine.schedules.delete("desk", "daily")
        await engine.schedules.set_paused("desk", "daily", is_paused=True)
        await engine.schedules.delete_user(app_name="desk", user_id="ann")

    async with engine_at(stores, desk(schedules=[daily, schedule(every_seconds=60)]), clock=clock) as engine:
        again = (await engine.schedules.list(app_name="desk")).schedules
        assert {one.id for one in again} == {one.id for one in listed}
        kept = await engine.schedules.get("desk", "daily")
        assert kept.is_paused
        assert kept.created_at == first.created_at

    changed = Schedule(id="daily", user_id="ann", cron="0 10 * * *", request=SessionRunRequest(new_message=MESSAGE))
    async with engine_at(stores, desk(schedules=[changed]), clock=clock) as engine:
        (only,) = (await engine.schedules.list(app_name="desk")).schedules
        assert (only.id, only.cron, only.is_paused) == ("daily", "0 10 * * *", True)
        resumed = await engine.schedules.set_paused("desk", "daily", is_paused=False)
        assert resumed.next_at is not None
        mine = await create(engine, cron="0 9 * * *")
    async with engine_at(stores, clock=clock) as engine:
        assert [one.id for one in (await engine.schedules.list(app_name="desk")).schedules] == [mine.id]


def test_a_wrong_schedule_of_an_app_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="five fields"):
        desk(schedules=[schedule(cron="daily")])
    with pytest.raises(AgentConfigError, match="same id"):
        desk(schedules=[schedule(id="a", at=1.0), schedule(id="a", at=2.0)])


async def test_a_run_has_the_caller_of_the_schedule(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        caller = Caller(user_id="ann", key_id="k-1", scopes=["run"])
        created = await engine.schedules.create(schedule(at=NOW + 60), app_name="desk", caller=caller)
        assert not hasattr(created, "caller")
        clock.now = NOW + 60
        (entry,) = await entries(engine, created.id, 1)
        assert (await engine.get(entry.run_id or "")).caller == caller


async def test_a_change_while_a_run_starts_keeps_both(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, every_seconds=60, start_at=NOW + 60)
        start = engine.start

        async def slow(*args: Any, **options: Any) -> Any:
            await engine.schedules.set_paused("desk", created.id, is_paused=True)
            return await start(*args, **options)

        monkeypatch.setattr(engine.schedules, "start", slow)
        clock.now = NOW + 60
        (entry,) = await entries(engine, created.id, 1)
        stored = await engine.schedules.get("desk", created.id)
        assert stored.is_paused
        assert stored.next_at is None
        assert stored.last_run_id == entry.run_id


async def test_many_that_are_due_at_once_all_start(stores: Stores) -> None:
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        engine.schedules.limits = ScheduleLimits(per_user=1000)
        await asyncio.gather(*(create(engine, at=NOW + 60) for _ in range(300)))
        clock.now = NOW + 60
        async with asyncio.timeout(20):
            while len(await runs_of(engine)) < 300:
                await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            while await stores.runs.schedules.list_due(NOW + 60, limit=1):
                await asyncio.sleep(0.05)
        assert len(await runs_of(engine)) == 300


async def test_two_servers_that_start_a_run_note_it_once(stores: Stores) -> None:
    """Also if the other one has started the next run before this one notes the first."""
    clock = Clock()
    async with engine_at(stores, clock=clock) as engine:
        created = await create(engine, every_seconds=60, start_at=NOW + 60)
        stale = await stores.runs.schedules.get("desk", created.id)
        assert stale is not None
        for number in (1, 2):
            clock.now = NOW + 60 * number
            engine.schedules.look()
            listed = await entries(engine, created.id, number)
        await engine.schedules._move(stale, NOW + 60, [listed[0]])
        assert await history(engine, created.id) == listed[::-1]
