"""Waiting in an agent's own code. A small log of an agent that sleeps twice, and the decision:

1  user  "Remind me twice."
2  nag   "I will."
3  nag   call …:1 wait(seconds=60)      `ctx.sleep` has stored the call, and the run has ended as waiting
4  user  response …:1 {"waited": true}  the agent runs again from its start
5  nag   "First."                       what it yields before the end of its first `sleep` is in the log, and is
                                        dropped; the first `sleep` returns at once, the second one makes a call
6  nag   call …:2 wait(seconds=60)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing
from typing import cast

from greenroom.errors import ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.sleep import WAIT, wait_id
from greenroom.log.calls import CallState
from greenroom.log.state import log_state_of
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.wake_up import note_wake_up


class CodeWaiting(BaseException):
    """Unwinds an agent's code that waits. Not an Exception, so that the code lets it pass."""


def wait_event(call_id: str, tool: str, args: JsonObject, *, max_late_seconds: float | None) -> Event:
    """The event with the call. Raises ValueError for invalid arguments."""
    # Loads all that tools need, which most agents of an app's own do without.
    from greenroom.tools.builtin.sleep import check_max_late, wait, wait_for

    check_max_late(max_late_seconds)
    call = FunctionCall(id=call_id, name=tool, args=args)
    content = Content(role="model", parts=[Part(function_call=call)])
    event = Event(author="", content=content, long_running_tool_ids=[call_id])
    try:
        wake_up = (wait if tool == WAIT else wait_for).wake_up(args, now=event.timestamp)
    except ToolError as error:
        raise ValueError(str(error)) from None

    wake_up.max_late_seconds = max_late_seconds
    note_wake_up(event, call, wake_up)
    return event


async def run_waiting(
    ctx: InvocationContext, work: Callable[[InvocationContext], AsyncIterator[Event]], *, below: Collection[str]
) -> AsyncGenerator[Event]:
    """The events of an agent's own work, which may wait.

    below: the names of the agents below it, which find their own place in the log.
    """
    waits = _Waits(ctx)
    ctx.waiter = waits
    try:
        async with aclosing(cast("AsyncGenerator[Event]", work(ctx))) as events:
            async for event in events:
                if not waits.is_replaying or event.author in below:
                    yield event
    except CodeWaiting:
        if waits.made is not None:
            yield waits.made


class _Waits:
    """The waits of one execution of an agent."""

    def __init__(self, ctx: InvocationContext) -> None:
        self._ctx = ctx
        self._place = f"{ctx.agent.name}@{ctx.branch or ''}"
        self.made: Event | None = None
        """The call to store."""

        self._first = 1
        self._last = 0
        while (call := self._call(self._last + 1)) is not None:
            self._last += 1
            if ctx.resumed_from is None or call.made_at < ctx.resumed_from:  # of an earlier execution in this run
                self._first += 1
        self._next = self._first

    @property
    def is_replaying(self) -> bool:
        """Whether the log has events after the place that the code has reached."""
        return self._next <= self._last

    @property
    def place(self) -> str:
        return f"{self._place}:{self._next}"

    async def wait(self, tool: str, args: JsonObject, *, max_late_seconds: float | None = None) -> JsonObject:
        if self.made is not None:
            raise CodeWaiting
        call = self._call(self._next)
        if call is None:
            call_id = wait_id(self._ctx.invocation_id, self._place, self._next)
            self.made = wait_event(call_id, tool, args, max_late_seconds=max_late_seconds)
            self.made.invocation_id = self._ctx.invocation_id
            self.made.author = self._ctx.agent.name
            self.made.branch = self._ctx.branch
            self.made.isolation_scope = self._ctx.isolation_scope
            raise CodeWaiting

        if call.answered_at < call.made_at:
            raise CodeWaiting
        self._next += 1
        answer = self._ctx.session.events[call.answered_at]
        responses = {response.id: response.response for response in answer.get_function_responses()}
        return responses.get(call.call.id if call.call is not None else None) or {}

    def _call(self, number: int) -> CallState | None:
        run = log_state_of(self._ctx.session.events).find_run(self._ctx.invocation_id)
        if run is None:
            return None
        call_id = wait_id(self._ctx.invocation_id, self._place, number)
        return run.call(call_id, self._ctx.agent.name, self._ctx.branch)
