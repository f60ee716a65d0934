"""Sleeping runs of a server whose clock is set: the server runs under libfaketime, so that only it sees another time.

A machine that was asleep for a day is the same to a server: its clock is a day ahead, and nothing else has happened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.durability.server_process import server_in
from tests.durability.sleeping_server import APP

HOUR = 3600.0
DAY = 24 * HOUR
_FAKETIME = os.environ.get("GREENROOM_FAKETIME") or next(
    (str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None
)

pytestmark = pytest.mark.skipif(_FAKETIME is None, reason="no libfaketime")


class ClockServer:
    def __init__(self, http: httpx.AsyncClient, clock: Path) -> None:
        self._http = http
        self._clock = clock
        self._count = 0

    def set(self, offset_seconds: float) -> None:
        """Sets the server's clock, by its difference from the machine's."""
        written = self._clock.with_suffix(".new")
        written.write_text(f"{offset_seconds:+.0f}\n")
        written.rename(self._clock)

    async def sleep(self, seconds: float) -> str:
        """Starts a run that sleeps. Returns its path when it waits."""
        self._count += 1
        session = f"/apps/{APP}/users/ann/sessions/s-{self._count}"
        await self._http.post(session)
        message = {"parts": [{"text": f'wait {{"seconds": {seconds}}}'}]}
        started = await self._http.post(f"{session}/runs", json={"newMessage": message})
        run = f"/runs/{started.json()['id']}"
        await self.reaches(run, "waiting")
        return run

    async def status(self, run: str) -> str:
        return (await self._http.get(run)).json()["status"]

    async def reaches(self, run: str, status: str) -> None:
        async with asyncio.timeout(15):
            while await self.status(run) != status:
                await asyncio.sleep(0.05)

    async def answer(self, run: str) -> tuple[float, dict[str, Any]]:
        """By how much later than its time the run has been answered, by the server's clock, and the response."""
        await self.reaches(run, "succeeded")
        events = (await self._http.get(f"{run}/events")).json()["events"]
        (wake_up,) = events[1]["customMetadata"]["greenroom_wake_ups"].values()
        response = events[2]["content"]["parts"][0]["functionResponse"]["response"]
        return events[2]["timestamp"] - wake_up["at"], response


@asynccontextmanager
async def clock_server(folder: Path) -> AsyncGenerator[ClockServer]:
    clock = folder / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": _FAKETIME or "",
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    async with server_in(folder, module="tests.durability.sleeping_server", **fake) as server:
        await server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            yield ClockServer(http, clock)


async def test_a_clock_that_is_set_forward_wakes_what_is_due_by_it_and_nothing_else(tmp_path: Path) -> None:
    """By an hour, and then by a day, as after a machine was asleep."""
    async with clock_server(tmp_path) as server:
        runs = {hours: await server.sleep(HOUR * hours) for hours in (0.5, 2, 12, 25)}
        for offset, due in ((HOUR, [0.5]), (DAY, [2, 12])):
            server.set(offset)
            for hours in due:
                late, response = await server.answer(runs.pop(hours))
                assert abs(late - (offset - HOUR * hours)) < 60
                assert abs(response["late_seconds"] - late) < 5
            for run in runs.values():
                assert await server.status(run) == "waiting"

        late, _ = await server.answer(await server.sleep(0.5))
        assert 0 <= late < 5


async def test_a_clock_that_is_set_back_wakes_nothing_early(tmp_path: Path) -> None:
    async with clock_server(tmp_path) as server:
        asleep = await server.sleep(2.0)
        server.set(-HOUR)
        late, _ = await server.answer(await server.sleep(2.0))
        assert 0 <= late < 5
        assert await server.status(asleep) == "waiting"  # though two seconds have passed

        server.set(0)
        late, _ = await server.answer(asleep)
        assert 0 <= late < 15
