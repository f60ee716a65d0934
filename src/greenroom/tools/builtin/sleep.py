"""Tools that let a run sleep: until a time, or until a signal comes. Meanwhile it takes no task and no memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject
from greenroom.records.wake_up import WakeUp
from greenroom.tools.functions.function_tool import LongRunningFunctionTool

_MAX_SECONDS = 100 * 366 * 86400.0
_SIGNAL_LENGTH = 256


def check_max_late(seconds: float | None) -> None:
    """Raises ValueError."""
    if seconds is not None and not seconds >= 0:  # NaN, too
        raise ValueError(f"max_late_seconds must be a number that is not negative, not {seconds}")


async def _wait(seconds: float | None = None, until: str | None = None) -> JsonObject | None:
    """Pauses the conversation for some time. Nothing else happens until then, even for days or weeks.

    Args:
        seconds: How long to wait. Give either this or `until`.
        until: The time to wait for, in ISO 8601, such as 2027-01-31T09:00:00+01:00; in UTC if it has no offset.
    """
    return _as_error(_problem_of_wait(seconds, until))


async def _wait_for(signal: str, timeout_seconds: float | None = None) -> JsonObject | None:
    """Pauses the conversation until another program sends a signal, whose value is the result.

    Args:
        signal: The name of the signal.
        timeout_seconds: How long to wait at most. Without it, there is no limit.
    """
    return _as_error(_problem_of_wait_for(signal, timeout_seconds))


class _SleepTool(LongRunningFunctionTool, ABC):
    """Its call stays open, unless its arguments are refused: then the response is an error."""

    def __init__(self, func: Callable[..., Coroutine[None, None, JsonObject | None]], *, name: str) -> None:
        super().__init__(func, name=name, on_interrupt="retry")

    def wake_up(self, args: JsonObject, *, now: float) -> WakeUp:
        values, refusal = self._read_arguments(args)
        if refusal is not None:
            raise ToolError(str(refusal["error"]))
        return self._wake_up(values, now)

    @abstractmethod
    def _wake_up(self, values: Mapping[str, Any], now: float) -> WakeUp:
        """values: by parameter, without those left out. Raises ToolError for those that the function refuses."""


class WaitTool(_SleepTool):
    """Waits for a time."""

    def __init__(self, *, max_late_seconds: float | None = None) -> None:
        """max_late_seconds: a run that can continue only that much later, since no server ran, is cancelled instead."""
        check_max_late(max_late_seconds)
        super().__init__(_wait, name="wait")
        self._max_late_seconds = max_late_seconds

    def _wake_up(self, values: Mapping[str, Any], now: float) -> WakeUp:
        seconds: float | None = values.get("seconds")
        until: str | None = values.get("until")
        _raise(_problem_of_wait(seconds, until))
        at = _seconds_of(until) if until is not None else now + (seconds or 0.0)
        return WakeUp(tool=self.name, at=at, max_late_seconds=self._max_late_seconds)


class WaitForTool(_SleepTool):
    """Waits for a signal."""

    def __init__(self) -> None:
        super().__init__(_wait_for, name="wait_for")

    def _wake_up(self, values: Mapping[str, Any], now: float) -> WakeUp:
        signal: str = values["signal"]
        timeout: float | None = values.get("timeout_seconds")
        _raise(_problem_of_wait_for(signal, timeout))
        return WakeUp(tool=self.name, at=None if timeout is None else now + timeout, signal=signal)


wait = WaitTool()
wait_for = WaitForTool()


def _raise(problem: str | None) -> None:
    if problem is not None:
        raise ToolError(problem)


def _as_error(problem: str | None) -> JsonObject | None:
    return None if problem is None else {"error": problem}


def _problem_of_wait(seconds: float | None, until: str | None) -> str | None:
    if (seconds is None) == (until is None):
        return "give either seconds or until"
    if until is None:
        return _problem_of_seconds("seconds", seconds)
    try:
        _seconds_of(until)
    except (ValueError, OverflowError):
        return f"until must be a time in ISO 8601, such as 2027-01-31T09:00:00+01:00, not {until[:100]!r}"
    return None


def _problem_of_wait_for(signal: str, timeout_seconds: float | None) -> str | None:
    if not 0 < len(signal) <= _SIGNAL_LENGTH:
        return f"signal must be a text of 1 to {_SIGNAL_LENGTH} characters"
    return _problem_of_seconds("timeout_seconds", timeout_seconds)


def _problem_of_seconds(name: str, value: float | None) -> str | None:
    if value is not None and not 0 <= value <= _MAX_SECONDS:  # NaN, too
        return f"{name} must be a number from 0 to {_MAX_SECONDS:.0f}"
    return None


def _seconds_of(until: str) -> float:
    """Unix seconds. Raises ValueError and OverflowError."""
    time = datetime.fromisoformat(until)
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
