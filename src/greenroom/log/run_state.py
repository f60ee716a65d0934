"""State of one run, as far as the log shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.errors import RunCancelled
from greenroom.log.calls import CallState, is_within
from greenroom.log.progress import RunProgress
from greenroom.records.approval_policy import deadline_of, policy_of
from greenroom.records.event import Event
from greenroom.records.human_requests import Request
from greenroom.records.run import RunStatus
from greenroom.records.wake_up import WakeUp, wake_ups_in


class RunCalls:
    """The function calls of a run, the requests about them, and the open ones."""

    __slots__ = ("by_id", "logins", "requests", "waiting")

    def __init__(self) -> None:
        self.by_id: dict[str | None, dict[tuple[str, str | None], CallState]] = {}
        """The calls by id, then by agent and branch."""
        self.waiting: dict[tuple[str, str | None], int] = {}
        """Open long-running calls, by id and branch, and tasks that wait for the user's next message, by scope and
        branch; each with the index of its event."""
        self.requests: dict[str, Request] = {}
        """The run's requests to people, by id, answered ones too."""
        self.logins: dict[tuple[str, str | None], dict[str, str]] = {}
        """By agent and branch, the ids of the calls that wait for a credential, each with the credential's key."""


_NO_CALLS = RunCalls()
"""Of all runs without any, which most are: a session in memory has a state for each of its runs. Always empty."""


class RunState:
    """A run, as the log shows it. Indexes are those of events in the session's log."""

    __slots__ = ("calls", "indexes", "messages", "progress", "spoken_at", "transfers")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        """Its events."""
        self.progress = RunProgress()
        self.messages: tuple[int, ...] = ()
        """The events in which the user says something, without messages that were read within a turn."""
        self.transfers: tuple[tuple[int, Event], ...] = ()
        """The events in which an agent transfers, outside of agent tools."""
        self.spoken_at: dict[str, int] = {}
        """By agent, its newest event with content since the first transfer, outside of agent tools."""
        self.calls = _NO_CALLS
        """To read; `own_calls` are to be changed."""

    @property
    def status(self) -> RunStatus:
        """The status of a run that is not being executed, as its events show it."""
        error = self.progress.error
        if error is not None and error.code == RunCancelled.__name__:
            return RunStatus.CANCELLED
        if self.calls.waiting and not self.progress.was_failed:
            return RunStatus.WAITING  # even if another branch failed
        return RunStatus.SUCCEEDED if error is None else RunStatus.FAILED

    def has_events(self, *, since: int) -> bool:
        """Whether the newest event is at that index or later."""
        return self.indexes[-1] >= since

    def requests_since(self, index: int) -> Iterable[Request]:
        return (request for request in self.calls.requests.values() if request.index >= index)

    def unanswered_calls(self, *, since: int) -> list[CallState]:
        """Returns the calls made at that index or later that have no response, oldest first."""
        unanswered = [
            call
            for by_maker in self.calls.by_id.values()
            for call in by_maker.values()
            if call.made_at >= since and not call.is_answered
        ]
        return sorted(unanswered, key=lambda call: call.made_at)

    def calls_with_id(self, call_id: str | None) -> Iterable[CallState]:
        """Calls of that id by any agent, in any branch."""
        return self.calls.by_id.get(call_id, {}).values()

    def call(self, call_id: str | None, author: str, branch: str | None) -> CallState | None:
        return self.calls.by_id.get(call_id, {}).get((author, branch))

    def own_calls(self) -> RunCalls:
        if self.calls is _NO_CALLS:
            self.calls = RunCalls()
        return self.calls

    def record_of(self, call_id: str | None, event: Event) -> CallState:
        by_maker = self.own_calls().by_id.setdefault(call_id, {})
        record = by_maker.get((event.author, event.branch))
        if record is None:
            record = by_maker[event.author, event.branch] = CallState()
        return record

    def wake_ups(self, events: Sequence[Event]) -> dict[str, WakeUp]:
        """Causes that continue the run while it waits, by id of the open call. events: the session's."""
        found: dict[str, WakeUp] = {}
        for (call_id, _), index in self.calls.waiting.items():
            wake_up = wake_ups_in(events[index]).get(call_id)
            if wake_up is None and (request := self.calls.requests.get(call_id)) is not None:
                wake_up = _deadline_of(request)
            if wake_up is not None:
                found[call_id] = wake_up
        return found

    def is_waiting(self, *, since: int = 0, branch: str | None = None) -> bool:
        """True if a long-running call is open that was made at that index or later, in that branch or below it."""
        return any(at >= since and is_within(of, branch) for (_, of), at in self.calls.waiting.items())


def _deadline_of(request: Request) -> WakeUp | None:
    """The time at which the policy of a request gives the default answer."""
    policy = policy_of(request.call)
    at = deadline_of(policy, request.event.timestamp) if policy is not None else None
    return WakeUp(tool=request.call.name or "", at=at) if at is not None else None
