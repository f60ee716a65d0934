"""`python -m tests.statistics.week [--runs 200000]`: a week of runs of 50 users, all figures compared.

A process ends runs through the store, with a clock of its own, and is killed in the middle; another one continues. Then
every figure of answers is compared with one computed from the stored records and the events of each run. Prints how
long the answers took, and the number of rows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from greenroom.records import wire
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.run import Run, RunError, RunFilter, RunStatus
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.statistics.run_figures import RunFigures
from greenroom.statistics.store import StatisticsQuery
from greenroom.usage.prices import default_prices
from tests.statistics.recomputed import Fact, check, facts_of

WEEK = 7 * 86400
START = 1_767_571_200.0  # a Monday
USERS = 50
AT_ONCE = 200
MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-flash", "house-model")
TOOLS = ("search", "pay", "send", "look_up", "plan")
ERRORS = ("ModelError", "ToolError", "DeadlineExceeded", "RunGivenUp")


def run_of_week(number: int, runs: int) -> tuple[Run, list[Event]]:
    """The same for each number: a run with its events."""
    chance = random.Random(number)
    requested_at = START + number * WEEK / runs
    app = f"app-{chance.randrange(4)}"
    run = Run(
        id=f"r-{number}", app_name=app, user_id=f"user-{chance.randrange(USERS)}", session_id=f"s-{number}",
        status=RunStatus.SUCCEEDED, created_at=requested_at,
    )  # fmt: skip
    at = requested_at + 0.01
    events = [event(run, "user", at, Part(text="go"))]
    for call in range(chance.choice((0, 1, 1, 2))):
        at += chance.lognormvariate(0, 1)
        tool = chance.choice(TOOLS)
        events.append(event(run, app, at, Part(function_call=FunctionCall(id=f"c-{call}", name=tool)), chance))
        at += chance.lognormvariate(-2, 2)
        result = {"error": "closed"} if chance.random() < 0.1 else {"done": True}
        response = FunctionResponse(id=f"c-{call}", name=tool, response=result)
        events.append(event(run, app, at, Part(function_response=response)))
    at += chance.lognormvariate(0, 1)
    ending = chance.random()
    if ending < 0.08:
        run.status = RunStatus.FAILED
        run.error = RunError(code=chance.choice(ERRORS), message="no")
    elif ending < 0.1:
        run.status = RunStatus.CANCELLED
    else:
        run.first_text_at = max(at - chance.random() * 0.5, requested_at + 0.02)
        events.append(event(run, app, at, Part(text="done"), chance))
    run.ended_at = at + 0.01
    return run, events


def event(run: Run, author: str, at: float, part: Part, chance: random.Random | None = None) -> Event:
    """An event; of a model with `chance`."""
    made = Event(author=author, invocation_id=run.id, timestamp=at, content=Content(parts=[part]))
    if chance is not None:
        tokens = chance.randrange(50, 5000)
        made.model_version = chance.choice(MODELS)
        made.usage_metadata = GenerateContentResponseUsageMetadata(
            prompt_token_count=tokens,
            candidates_token_count=tokens // 7,
            cached_content_token_count=tokens // 3,
            total_token_count=tokens + tokens // 7,
        )
    return made


async def end_runs(path: str, runs: int) -> None:
    """Ends the runs that aren't stored yet."""
    store = SqliteRunStore(path)
    stored = {run.id for run in (await store.list_runs(RunFilter(), limit=None)).runs}
    left = [number for number in range(runs) if f"r-{number}" not in stored]
    for first in range(0, len(left), AT_ONCE):
        saving: list[asyncio.Future[None]] = []
        for number in left[first : first + AT_ONCE]:
            run, events = run_of_week(number, runs)
            figures = RunFigures(run, events, has_ended=True, prices=default_prices())
            saving.append(store.save(run, figures=(figures,)))
        await asyncio.gather(*saving)
        if first % (10 * AT_ONCE) == 0:
            await store.statistics.fold()
        print(first, flush=True)
    await store.close()


def facts_in(path: str, runs: int) -> Iterator[Fact]:
    """Facts of the stored records and of the events of their runs."""
    decode = wire.decoder(Run)
    with sqlite3.connect(path) as connection:
        for (data,) in connection.execute("SELECT data FROM runs"):
            run = decode(data)
            _, events = run_of_week(int(run.id.removeprefix("r-")), runs)
            yield from facts_of([run], {run.session_id: events})


def kill_in_the_middle(path: str, runs: int) -> None:
    """Lets a process end runs, and kills it when it has ended half of them."""
    command = [sys.executable, "-m", "tests.statistics.week", "--end-runs", path, "--runs", str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= runs // 2:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL


async def compare(path: str, runs: int) -> dict[str, Any]:
    """Compares the figures. Returns what is worth printing."""
    facts = list(facts_in(path, runs))
    store = SqliteRunStore(path)
    await store.statistics.fold()
    rows = await count_rows(store)
    queries: list[dict[str, Any]] = [
        {"step": 3600},
        {"step": 3600, "group_by": "app"},
        {"step": 3600, "group_by": "model"},
        {"step": 3600, "group_by": "tool"},
        {"step": 3600, "app_names": ["app-1"]},
        {"step": 86400, "group_by": "user", "limit": 50},
        {"user_id": "user-7"},
        {"step": 3600, "model": "gpt-4o", "group_by": "app"},
        {"step": 60, "start": START + 86400, "end": START + 2 * 86400},
        {"step": 300, "tool": "pay", "start": START + 86400, "end": START + 3 * 86400},
    ]
    slowest = 0.0
    points = 0
    for options in queries:
        asked: dict[str, Any] = {"start": START, "end": START + WEEK + 3600, **options}
        query = StatisticsQuery(**asked)
        began = time.perf_counter()
        answer = await store.statistics.query(query, currency="USD")
        slowest = max(slowest, time.perf_counter() - began)
        points += check(answer, query, facts)
    await store.close()
    return {"facts": len(facts), "points": points, "slowest_seconds": slowest, "rows": rows}


async def count_rows(store: SqliteRunStore) -> int:
    """The number of stored sums."""

    def count(cursor: sqlite3.Cursor) -> int:
        sums = cursor.execute("SELECT count(*) FROM statistics").fetchone()[0]
        return sums + cursor.execute("SELECT count(*) FROM statistics_journal").fetchone()[0]

    return await store._file.read(count)  # pyright: ignore[reportPrivateUsage]


async def main(runs: int, folder: Path) -> dict[str, Any]:
    path = str(folder / "week.db")
    await asyncio.to_thread(kill_in_the_middle, path, runs)
    await end_runs(path, runs)
    return await compare(path, runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.statistics.week", description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--end-runs", metavar="PATH", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.end_runs is not None:
        asyncio.run(end_runs(given.end_runs, given.runs))
        os._exit(0)
    with tempfile.TemporaryDirectory(prefix="greenroom-week-") as scratch:
        print(asyncio.run(main(given.runs, Path(scratch))))
