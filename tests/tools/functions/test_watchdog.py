"""Blocked event loops are noticed, and nobody is blamed wrongly."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

import pytest

from greenroom.invocation.user_context import ToolContext
from greenroom.tools.functions import function_tool
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.functions.watchdog import Watchdog

pytestmark = pytest.mark.slow

THRESHOLD = 0.2


@pytest.fixture
def watchdog(monkeypatch: pytest.MonkeyPatch) -> Watchdog:
    quick = Watchdog(threshold_seconds=THRESHOLD, idle_seconds=0.1)
    monkeypatch.setattr(function_tool, "_watchdog", quick)
    return quick


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def block_until(caplog: pytest.LogCaptureFixture, warnings: int) -> None:
    """Holds the thread until so many warnings are there, and a little longer, in which there should be no more."""
    give_up_at = time.monotonic() + 10
    while len(warnings_of(caplog)) < warnings and time.monotonic() < give_up_at:
        time.sleep(0.01)
    time.sleep(2 * THRESHOLD)


@pytest.mark.usefixtures("watchdog")
async def test_a_tool_that_blocks_the_loop_is_named_once(tool_context: ToolContext, caplog: pytest.LogCaptureFixture):
    async def helper():
        block_until(caplog, 1)

    async def nap():
        await helper()

    async def patient():
        await asyncio.sleep(2 * THRESHOLD)

    await asyncio.gather(
        *(FunctionTool(f).run_async(args={}, tool_context=tool_context) for f in (patient, nap, patient))
    )
    (warning,) = warnings_of(caplog)
    assert "Tool 'nap' has been blocking the event loop" in warning
    assert "test_watchdog.py" in warning
    assert "in nap: await helper()" in warning


@pytest.mark.usefixtures("watchdog")
async def test_a_tool_is_named_once_if_the_process_stops_meanwhile(
    tool_context: ToolContext, caplog: pytest.LogCaptureFixture
):
    def stop_all_threads() -> None:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(10)
        until = time.monotonic() + 2 * THRESHOLD
        while time.monotonic() < until:
            pass
        sys.setswitchinterval(usual)

    async def nap():
        block_until(caplog, 1)
        stop_all_threads()
        time.sleep(2 * THRESHOLD)  # noqa: ASYNC251

    await FunctionTool(nap).run_async(args={}, tool_context=tool_context)
    assert len(warnings_of(caplog)) == 1


@pytest.mark.usefixtures("watchdog")
async def test_a_stream_and_a_loop_that_computes_are_noticed_too(
    tool_context: ToolContext, caplog: pytest.LogCaptureFixture
):
    async def compute():
        give_up_at = time.monotonic() + 10
        while not warnings_of(caplog) and time.monotonic() < give_up_at:
            pass

    async def stream():
        yield 1
        block_until(caplog, 2)
        yield 2

    for func in (compute, stream):
        await FunctionTool(func).run_async(args={}, tool_context=tool_context)
    first, second = warnings_of(caplog)
    assert "Tool 'compute' has" in first
    assert "Tool 'stream' has" in second
    assert "in stream: block_until(caplog, 2)" in second


@pytest.mark.usefixtures("watchdog")
async def test_waiting_tools_synchronous_tools_and_other_code_raise_no_alarm(
    tool_context: ToolContext, caplog: pytest.LogCaptureFixture
):
    async def patient():
        await asyncio.sleep(6 * THRESHOLD)

    def blocks_its_own_thread():
        time.sleep(4 * THRESHOLD)

    waiting = [
        asyncio.create_task(FunctionTool(f).run_async(args={}, tool_context=tool_context))
        for f in (patient, blocks_its_own_thread)
    ]
    await asyncio.sleep(THRESHOLD)
    time.sleep(4 * THRESHOLD)  # noqa: ASYNC251 - blocks the loop, but isn't a tool's doing
    await asyncio.gather(*waiting)
    assert warnings_of(caplog) == []


async def test_the_thread_ends_when_nothing_is_left_to_watch(watchdog: Watchdog):
    def patrols() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "greenroom-watchdog"]

    before = patrols()
    for _ in range(2):
        assert await watchdog.watch("tool", asyncio.sleep(0, 5)) == 5
        (mine,) = set(patrols()) - set(before)
        async with asyncio.timeout(5):
            while mine.is_alive():
                await asyncio.sleep(0.01)
