"""`sleep` and `wait_for` of the code of workflow nodes and agents: calls in the log that a time or a signal answers.

The run ends as waiting. When it continues, the code runs again from its start, and the calls that have been answered
return at once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from greenroom.records.base import JsonObject, JsonValue

WAIT = "wait"
WAIT_FOR = "wait_for"
_PREFIX = "greenroom_wait:"


def wait_id(invocation_id: str, place: str, number: int) -> str:
    """The id of the call of a node's or an agent's code.

    place: the node's path, or the agent's name and branch. number: of the call in that place, from 1.
    """
    return f"{_PREFIX}{invocation_id}:{place}:{number}"


def is_wait_id(call_id: str) -> bool:
    return call_id.startswith(_PREFIX)


class Waiter(Protocol):
    """The node or agent whose code waits."""

    @property
    def place(self) -> str:
        """The same each time that the code runs to this place in it, and in no other place of the run."""
        ...

    async def wait(self, tool: str, args: JsonObject, *, max_late_seconds: float | None = None) -> JsonObject:
        """Returns the response to the call that this place in the code has made; makes it, and ends the run as waiting,
        while there is none.

        tool: `wait` or `wait_for`. max_late_seconds: see `WakeUp`. Raises ValueError for invalid arguments.
        """
        ...


class SignalUrlMaker(Protocol):
    """Makes signed URLs, each of which sends one signal to a run."""

    def make(
        self, *, app_name: str, run_id: str, signal: str, value: JsonValue, place: str, expires_seconds: float
    ) -> str:
        """Raises NotOffered, and ValueError."""
        ...


async def sleep(
    waiter: Waiter, seconds: float | None, until: datetime | str | None, max_late_seconds: float | None
) -> float:
    """Returns the seconds by which it is late."""
    args: JsonObject = {}
    if seconds is not None:
        args["seconds"] = seconds
    if until is not None:
        args["until"] = until.isoformat() if isinstance(until, datetime) else until
    response = await waiter.wait(WAIT, args, max_late_seconds=max_late_seconds)

    late: JsonValue = response.get("late_seconds")
    return float(late) if isinstance(late, int | float) else 0.0


async def wait_for(waiter: Waiter, signal: str, timeout: float | None) -> JsonValue:
    """Returns the value of the signal, or another response that somebody sent. Raises TimeoutError."""
    args: JsonObject = {"signal": signal}
    if timeout is not None:
        args["timeout_seconds"] = timeout
    response = await waiter.wait(WAIT_FOR, args)

    if response.get("timed_out") is True:
        raise TimeoutError(f"The signal {signal!r} did not come in time")
    return response.get("value", response)
