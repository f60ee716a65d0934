"""Calling functions as tools."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pydantic
import pytest

from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.event import Event, ToolConfirmation
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from greenroom.tools.functions.thread_pool import ThreadPool
from tests.tools.functions.guide import get_weather, remember_city

REQUEST = contextvars.ContextVar[str]("REQUEST", default="none")


@dataclass
class Stay:
    city: str
    nights: int = 1


class Guest(pydantic.BaseModel):
    name: str
    born: date


def pay(amount: int) -> dict[str, Any]:
    """Pays an amount."""
    return {"status": "paid", "amount": amount}


async def test_the_functions_of_the_guide(tool_context: ToolContext):
    weather = await FunctionTool(get_weather).run_async(args={"city": "Oslo"}, tool_context=tool_context)
    assert weather == {"city": "Oslo", "temp": 18, "unit": "celsius"}
    noted = await FunctionTool(remember_city).run_async(args={"city": "Oslo"}, tool_context=tool_context)
    assert noted == "noted"
    assert tool_context.collect_actions().state_delta == {"user:home": "Oslo"}


async def test_arguments_become_what_the_function_takes(tool_context: ToolContext):
    def book(stay: Stay, guests: list[Guest], price: float, ids: set[int], /, note: str = "") -> list[Any]:
        return [stay, guests, price, ids, note]

    args: dict[str, Any] = {
        "stay": {"city": "Oslo", "nights": 2.0},
        "guests": [{"name": "Ada", "born": "1815-12-10"}],
        "price": "99.5",
        "ids": [1.0, 1],
        "invented": True,
    }
    result = await FunctionTool(book).run_async(args=args, tool_context=tool_context)
    assert result == [Stay("Oslo", 2), [Guest(name="Ada", born=date(1815, 12, 10))], 99.5, {1}, ""]


async def test_null_for_an_optional_argument_means_its_default(tool_context: ToolContext):
    def f(a: int = 7, b: int | None = 8, c: list[int] = pydantic.Field(default_factory=lambda: [9])):  # noqa: B008
        return [a, b, c]

    tool = FunctionTool(f)
    assert await tool.run_async(args={"a": None, "b": None, "c": None}, tool_context=tool_context) == [7, None, [9]]
    assert await tool.run_async(args={}, tool_context=tool_context) == [7, 8, [9]]


async def test_arguments_that_are_missing_or_do_not_fit_are_reported_to_the_model(tool_context: ToolContext):
    called: list[object] = []

    def book(city: str, nights: int, stay: Stay | None = None):
        called.append(city)

    tool = FunctionTool(book)
    assert await tool.run_async(args={"stay": None}, tool_context=tool_context) == {
        "error": "book was not called, because these mandatory arguments are missing:\n"
        "city\nnights\nCall it again with all of them."
    }
    args = {"city": 5, "nights": "two", "stay": {"city": "Oslo", "nights": "x"}}
    assert await tool.run_async(args=args, tool_context=tool_context) == {
        "error": "book was not called, because of these arguments:\n"
        "city: Expected str, got int (expected: string)\n"
        "nights: Expected int, got str (expected: integer)\n"
        "stay: nights: Expected int, got str\n"
        "Call it again with valid ones."
    }
    assert called == []


class Called:
    async def __call__(self, x: int) -> int:
        return x

    async def method(self, x: int) -> int:
        return x

    def sync_method(self, x: int) -> int:
        return x


async def plain(x: int) -> int:
    await asyncio.sleep(0)
    return x


async def stream(x: int):
    yield "first"
    yield x
    yield Event(author="tool")


def sync_stream(x: int):
    yield "first"
    yield x
    yield Event(author="tool")


def wrapper(x: int):
    return plain(x)


@pytest.mark.parametrize(
    "func",
    [
        plain,
        stream,
        sync_stream,
        wrapper,
        Called(),
        Called().method,
        Called().sync_method,
        functools.partial(plain),
        functools.partial(Called()),
        lambda x: x,  # pyright: ignore
    ],
)
async def test_every_kind_of_callable_gives_its_result(func: Callable[..., Any], tool_context: ToolContext):
    tool = FunctionTool(func, name="tool")
    assert await tool.run_async(args={"x": 5}, tool_context=tool_context) == 5


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no"), KeyError("no")])
async def test_exceptions_of_a_function_pass_through(error: Exception, tool_context: ToolContext):
    def sync():
        raise error

    async def asynchronous():
        raise error

    for func in (sync, asynchronous):
        expected = RuntimeError if isinstance(error, StopIteration) else type(error)
        with pytest.raises(expected, match="no" if expected is not RuntimeError else "StopIteration"):
            await FunctionTool(func).run_async(args={}, tool_context=tool_context)


async def test_synchronous_functions_run_in_a_thread_with_the_callers_context(tool_context: ToolContext):
    def where() -> tuple[bool, str]:
        return threading.current_thread() is threading.main_thread(), REQUEST.get()

    REQUEST.set("mine")
    assert await FunctionTool(where).run_async(args={}, tool_context=tool_context) == (False, "mine")


async def test_a_hundred_synchronous_tools_may_wait_for_one_another(tool_context: ToolContext):
    barrier = threading.Barrier(100)
    tool = FunctionTool(barrier.wait, name="meet")
    async with asyncio.timeout(10):
        places = await asyncio.gather(*(tool.run_async(args={}, tool_context=tool_context) for _ in range(100)))
    assert sorted(places) == list(range(100))


async def test_a_cancelled_call_does_not_wait_for_its_thread(tool_context: ToolContext):
    started, go_on, finished = threading.Event(), threading.Event(), threading.Event()

    def block():
        started.set()
        go_on.wait(10)
        finished.set()

    call = asyncio.create_task(FunctionTool(block).run_async(args={}, tool_context=tool_context))
    async with asyncio.timeout(5):
        while not started.is_set():
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not finished.is_set()
        go_on.set()
        while not finished.is_set():
            await asyncio.sleep(0.001)


async def test_a_full_pool_keeps_the_order_and_drops_what_was_cancelled(caplog: pytest.LogCaptureFixture):
    pool = ThreadPool(max_threads=1)
    started, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def block():
        started.set()
        go_on.wait(10)

    first = asyncio.create_task(pool.run(block))
    async with asyncio.timeout(5):
        while not started.is_set():
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(pool.run(lambda i=i: ran.append(i))) for i in range(4)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        go_on.set()
        await asyncio.gather(first, *waiting, return_exceptions=True)
    assert ran == [0, 2, 3]
    assert [record.message for record in caplog.records] == [
        "All 1 threads for synchronous tools are busy; calls are waiting"
    ]


async def test_idle_threads_end():
    pool = ThreadPool(idle_seconds=0.01)
    thread = await pool.run(threading.current_thread)
    async with asyncio.timeout(5):
        while thread.is_alive():
            await asyncio.sleep(0.005)
        assert await pool.run(lambda: 5) == 5


def test_a_stuck_tool_does_not_keep_the_interpreter_alive():
    code = (
        "import asyncio, threading\n"
        "from greenroom.tools.functions.thread_pool import ThreadPool\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.2):\n"
        "            await ThreadPool().run(threading.Event().wait)\n"
        "    except TimeoutError:\n"
        "        print('left')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=20,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "left\n"


async def test_approval_is_asked_for_and_obeyed(invocation: InvocationContext):
    tool = FunctionTool(pay, require_confirmation=True)
    args = {"amount": 5}

    asked = ToolContext(invocation, function_call_id="c")
    answer = await tool.run_async(args=args, tool_context=asked)
    assert answer == {"error": "pay has not run yet: the call needs approval or rejection by a person first."}
    assert asked.actions.skip_summarization
    assert list(asked.actions.requested_tool_confirmations) == ["c"]
    request = asked.actions.requested_tool_confirmations["c"]
    assert (bool(request.hint), request.confirmed, request.payload) == (True, False, None)

    rejected = ToolContext(invocation, function_call_id="c", tool_confirmation=ToolConfirmation(confirmed=False))
    answer = await tool.run_async(args=args, tool_context=rejected)
    assert answer == {"error": "pay has not run: a person rejected the call."}

    approved = ToolContext(invocation, function_call_id="c", tool_confirmation=ToolConfirmation(confirmed=True))
    assert await tool.run_async(args=args, tool_context=approved) == {"status": "paid", "amount": 5}
    assert approved.actions.requested_tool_confirmations == {}


async def over_ten(amount: int, tool_context: ToolContext) -> bool:
    return amount > 10 and tool_context.agent_name == "agent"


@pytest.mark.parametrize(
    "predicate",
    [
        lambda amount: amount > 10,  # pyright: ignore
        lambda args: args["amount"] > 10,  # pyright: ignore
        lambda **kwargs: kwargs["amount"] > 10,  # pyright: ignore
        over_ten,
    ],
)
async def test_a_predicate_decides_which_calls_need_approval(predicate: Callable[..., Any], tool_context: ToolContext):
    tool = FunctionTool(pay, require_confirmation=predicate)
    assert await tool.run_async(args={"amount": 10}, tool_context=tool_context) == {"status": "paid", "amount": 10}
    assert not tool_context.actions.requested_tool_confirmations
    assert "error" in await tool.run_async(args={"amount": "11"}, tool_context=tool_context)
    assert tool_context.actions.requested_tool_confirmations


async def test_missing_arguments_come_before_approval(tool_context: ToolContext):
    answer = await FunctionTool(pay, require_confirmation=True).run_async(args={}, tool_context=tool_context)
    assert "missing" in answer["error"]
    assert not tool_context.actions.requested_tool_confirmations


def test_settings_of_a_tool():
    tool = FunctionTool(
        pay,
        name="send",
        description="Sends.",
        on_interrupt="retry",
        custom_metadata={"team": "a"},
        is_long_running=True,
    )
    assert (tool.name, tool.description, tool.on_interrupt, tool.custom_metadata, tool.is_long_running) == (
        "send",
        "Sends.",
        "retry",
        {"team": "a"},
        True,
    )
    assert FunctionTool(pay)._get_declaration() == FunctionDeclaration(
        name="pay",
        description="Pays an amount.",
        parameters_json_schema={
            "type": "object",
            "properties": {"amount": {"type": "integer"}},
            "required": ["amount"],
        },
    )
    assert FunctionTool(lambda: 5, name="five")._get_declaration() == FunctionDeclaration(
        name="five", description="five"
    )


def test_the_description_of_a_long_running_tool_asks_the_model_to_wait():
    tool = LongRunningFunctionTool(pay)
    assert tool.is_long_running
    description = tool._get_declaration().description or ""
    assert description.startswith("Pays an amount.\n\n")
    assert "don't call it again" in description
