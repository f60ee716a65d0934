"""`kill -9` at random moments, and at the worst ones: nothing is lost, nothing is done twice, every run ends.

GREENROOM_KILLS says how often, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from greenroom.records.event import Event
from greenroom.records.run import RunFilter
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.task import MAX_ATTEMPTS
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.statistics.store import StatisticsQuery
from tests.durability.invariants import (
    Json,
    calls_of,
    check_log,
    check_messages,
    check_seen,
    check_shared_state,
    check_state,
    check_tools,
    read_lines,
    responses_of,
    text_of,
)
from tests.durability.server_app import APP, KINDS, LAST_WORD
from tests.durability.server_process import ServerProcess, server_in
from tests.durability.sse_client import Frame, RunReader, SessionReader
from tests.seed import SEED
from tests.statistics.recomputed import check, facts_of

KILLS = int(os.environ.get("GREENROOM_KILLS", "7"))
SESSIONS = 6
WORTH_ALL_KINDS = 40
"""With so many kills, each kind of damage must have been seen, or the test shows less than it says."""


@dataclass
class Talk:
    """One session, and what its user asked and read."""

    where: Json
    http: httpx.AsyncClient
    on_frame: Callable[[Frame], None]
    random: random.Random
    runs: list[RunReader] = field(default_factory=list[RunReader])

    @property
    def path(self) -> str:
        return f"/apps/{APP}/users/{self.where['userId']}/sessions/{self.where['sessionId']}"

    async def go_on(self, stopping: asyncio.Event) -> None:
        """One message after the other, sometimes two at once."""
        while not stopping.is_set():
            async with asyncio.TaskGroup() as group:
                for _ in range(self.random.choice((1, 1, 2))):
                    group.create_task(self._ask().read_to_the_end())

    def _ask(self) -> RunReader:
        number = len(self.runs)
        run = RunReader(
            self.http,
            self.where,
            self.on_frame,
            message=str(number * KINDS + self.random.randrange(KINDS)),
            way=self.random.choice(("sse", "sse", "background")),
            streaming=self.random.random() < 0.8,
        )
        self.runs.append(run)
        return run


class Moments:
    """Ways to wait for the moment of the next kill."""

    def __init__(self, diary: Path, chance: random.Random) -> None:
        self._diary = diary
        self._chance = chance
        self._wanted: Callable[[Frame], bool] | None = None
        self._came = asyncio.Event()
        self.hit: Counter[str] = Counter()

    def on_frame(self, frame: Frame) -> None:
        if self._wanted is not None and self._wanted(frame):
            self._came.set()

    async def wait(self, number: int) -> None:
        kinds: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("in the middle of a text", lambda: self._frame(lambda frame: bool(frame.data.get("partial")))),
            ("behind the calls", lambda: self._frame(lambda frame: bool(frame.place and calls_of(frame.data)))),
            ("in a tool", self._tool),
            ("behind the answers", lambda: self._frame(lambda frame: bool(responses_of(frame.data)))),
            (
                "behind the last word",
                lambda: self._frame(lambda frame: bool(frame.place) and _is_last_word(frame.data)),
            ),
            ("behind any event", lambda: self._frame(lambda frame: frame.place is not None)),
            ("at any time", lambda: asyncio.sleep(self._chance.uniform(0, 1.0))),
        ]
        name, moment = kinds[number % len(kinds)]
        self.hit[name] += 1
        async with asyncio.timeout(60):
            await moment()
            # A little later, so that all that lies between two moments is met.
            await asyncio.sleep(self._chance.choice((0.0, self._chance.uniform(0, 0.06))))

    async def _frame(self, wanted: Callable[[Frame], bool]) -> None:
        self._came.clear()
        self._wanted = wanted
        for _ in range(self._chance.randint(1, 5)):
            self._came.clear()
            await self._came.wait()
        self._wanted = None

    async def _tool(self) -> None:
        before = len(read_lines(self._diary))
        while not any(line["phase"] == "begin" for line in read_lines(self._diary)[before:]):
            await asyncio.sleep(0.002)


@pytest.mark.kill
async def test_nothing_is_lost_or_done_twice_when_the_server_is_killed(tmp_path: Path) -> None:
    print(f"\n{KILLS} kills, GREENROOM_SEED={SEED}")
    chance = random.Random(SEED)
    moments = Moments(tmp_path / "tools.jsonl", chance)
    async with (
        server_in(tmp_path) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=None)) as http,
    ):
        await server.start()
        talks = [await _open_session(http, number, moments, chance) for number in range(SESSIONS)]
        watchers = [SessionReader(http, talk.where) for talk in talks]
        stopping = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(watcher.read_on()) for watcher in watchers]
            talking = [group.create_task(talk.go_on(stopping)) for talk in talks]
            await _kill_again_and_again(server, moments, chance)
            stopping.set()
            async with asyncio.timeout(120):
                await asyncio.gather(*talking)
                await _until_all_is_seen(http, talks, watchers)
            for task in watching:
                task.cancel()
        logs = {talk.where["sessionId"]: await _log(http, talk) for talk in talks}
        states = {talk.where["sessionId"]: (await http.get(talk.path)).json()["state"] for talk in talks}
        assert await server.stop(signal.SIGTERM) in (0, -signal.SIGTERM)
    await _check_records(tmp_path, talks)
    await _check_statistics(tmp_path, talks)
    for talk, watcher in zip(talks, watchers, strict=True):
        log = logs[talk.where["sessionId"]]
        check_log(log)
        check_messages(log, [run.message for run in talk.runs])
        check_state(log, states[talk.where["sessionId"]])
        check_seen(log, watcher.seen, run_id=None, with_user_events=True)
        for run in talk.runs:
            _check_end(run, log)
            check_seen(log, run.seen, run_id=run.run_id, with_user_events=run.way == "background")
    for state in states.values():
        check_shared_state("app:", logs.values(), state)
    for user in {talk.where["userId"] for talk in talks}:
        own = [talk.where["sessionId"] for talk in talks if talk.where["userId"] == user]
        for session in own:
            check_shared_state("user:", [logs[one] for one in own], states[session])
    counts = check_tools(read_lines(tmp_path / "tools.jsonl"), logs, restarts=server.restarts)
    counts["events"] = sum(map(len, logs.values()))
    runs = [run for talk in talks for run in talk.runs]
    counts["runs"] = len(runs)
    counts["runs read over several connections"] = sum(run.connections > 1 for run in runs)
    counts["runs begun anew, since the first was not yet stored"] = sum(run.lost for run in runs)
    counts["runs given up"] = sum(run.end is not None and run.end["status"] == "failed" for run in runs)
    print({**moments.hit, **counts})
    if KILLS >= WORTH_ALL_KINDS:
        rare = "charges reported as interrupted", "calls that were repeated", "runs read over several connections"
        assert all(counts[kind] > 0 for kind in rare), "the kills met too little to show anything"


async def _kill_again_and_again(server: ServerProcess, moments: Moments, chance: random.Random) -> None:
    for number in range(KILLS):
        if number % 10 == 9:
            # While it starts, or takes up what it finds.
            await server.kill()
            await server.start(wait=False)
            await asyncio.sleep(chance.uniform(0, 2.0))
            moments.hit["while starting"] += 1
        else:
            await moments.wait(number)
        await server.kill()
        await server.start()


async def _open_session(http: httpx.AsyncClient, number: int, moments: Moments, chance: random.Random) -> Talk:
    where = {"appName": APP, "userId": f"user-{number % 2}", "sessionId": f"s-{number}"}
    path = f"/apps/{APP}/users/{where['userId']}/sessions"
    reply = await http.post(path, json={"sessionId": where["sessionId"]})
    assert reply.status_code == 200, reply.text
    return Talk(where, http, moments.on_frame, chance)


async def _until_all_is_seen(http: httpx.AsyncClient, talks: list[Talk], watchers: list[SessionReader]) -> None:
    for talk, watcher in zip(talks, watchers, strict=True):
        length = len(await _log(http, talk))
        while not watcher.seen or watcher.seen[-1][0] < length:
            await asyncio.sleep(0.01)


async def _log(http: httpx.AsyncClient, talk: Talk) -> list[Json]:
    log: list[Json] = []
    while True:
        page = (await http.get(f"{talk.path}/events", params={"after": len(log)})).json()
        log += page["events"]
        if not page["events"]:
            return log


def _check_end(run: RunReader, log: list[Json]) -> None:
    """It was answered, once, with the last word as its last event, unless it was cut off too often."""
    assert run.end is not None
    said = [_is_last_word(event) for event in log if event["invocationId"] == run.run_id]
    if run.end["status"] == "failed":
        assert run.end["error"]["code"] == "RunGivenUp", run.end
        assert run.end["attempts"] > MAX_ATTEMPTS, run.end
        assert not any(said)
    else:
        assert run.end["status"] == "succeeded", run.end
        assert said == [False] * (len(said) - 1) + [True]


def _is_last_word(event: Json) -> bool:
    return not event.get("partial") and text_of(event).startswith(LAST_WORD.partition("{")[0])


async def _check_records(folder: Path, talks: list[Talk]) -> None:
    """Every run has ended, and there is one for each message."""
    store = SqliteRunStore(folder / "greenroom.db")
    try:
        assert await store.list_unfinished() == []
        for talk in talks:
            where = talk.where
            of_session = RunFilter(app_names=[APP], user_id=where["userId"], session_id=where["sessionId"])
            records = await store.list_runs(of_session, limit=None)
            assert sorted(record.id for record in records.runs) == sorted(run.run_id or "" for run in talk.runs)
    finally:
        await store.close()


async def _check_statistics(folder: Path, talks: list[Talk]) -> None:
    """The statistics have each run and each of its calls once."""
    sessions = SqliteSessionService(folder / "greenroom.db")
    store = SqliteRunStore(folder / "greenroom.db")
    try:
        records = (await store.list_runs(RunFilter(), limit=None)).runs
        logs: dict[str, list[Event]] = {}
        for talk in talks:
            session_id = talk.where["sessionId"]
            found = await sessions.list_events(app_name=APP, user_id=talk.where["userId"], session_id=session_id)
            logs[session_id] = found.events
        facts = facts_of(records, logs)
        for grouping in (None, "tool", "user"):
            query = StatisticsQuery(group_by=grouping, limit=50)
            check(await store.statistics.query(query, currency="USD"), query, facts)
    finally:
        await store.close()
        await sessions.close()
