"""State of one run, as far as the log shows it."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.errors import RunCancelled
from greenroom.log.calls import CallState, is_within
from greenroom.log.progress import RunProgress
from greenroom.records.event import Event
from greenroom.records.human_requests import Request
from greenroom.records.run import RunStatus


class RunState:
    """One run, as far as the log shows it. Indexes are those of events in the session's log."""

    __slots__ = (
        "_calls",
        "indexes",
        "logins",
        "messages",
        "progress",
        "requests",
        "spoken_at",
        "transfers",
        "waiting",
    )

    def __init__(self) -> None:
        self.indexes: list[int] = []
        """Its events."""
        self.progress = RunProgress()
        self.messages: list[int] = []
        """The events in which the user says something."""
        self.transfers: list[tuple[int, Event]] = []
        """The events in which an agent transfers, outside of agent tools."""
        self.spoken_at: dict[str, int] = {}
        """By agent, its newest event with content, outside of agent tools."""
        self.waiting: dict[tuple[str, str | None], int] = {}
        """Open long-running calls, by id and branch, and tasks that wait for the user's next message, by scope and
        branch; each with the index of its event."""
        self.requests: dict[str, Request] = {}
        """Its requests to people, by id, answered ones too."""
        self.logins: dict[tuple[str, str | None], dict[str, str]] = {}
        """By agent and branch, the ids of the calls that wait for a credential, each with the credential's key."""
        self._calls: dict[str | None, dict[tuple[str, str | None], CallState]] = {}

    @property
    def status(self) -> RunStatus:
        """The status of a run that is not being executed, as its events show it."""
        error = self.progress.error
        if error is not None and error.code == RunCancelled.__name__:
            return RunStatus.CANCELLED
        if self.waiting and not self.progress.was_failed:
            return RunStatus.WAITING  # even if another branch failed
        return RunStatus.SUCCEEDED if error is None else RunStatus.FAILED

    def has_events(self, *, since: int) -> bool:
        """Whether the newest event is at that index or later."""
        return self.indexes[-1] >= since

    def requests_since(self, index: int) -> Iterable[Request]:
        return (request for request in self.requests.values() if request.index >= index)

    def unanswered_calls(self, *, since: int) -> list[CallState]:
        """The calls that were made at that index or later and have no response, oldest first."""
        unanswered = [
            call
            for by_maker in self._calls.values()
            for call in by_maker.values()
            if call.made_at >= since and not call.is_answered
        ]
        return sorted(unanswered, key=lambda call: call.made_at)

    def calls_with_id(self, call_id: str | None) -> Iterable[CallState]:
        """Calls of that id by any agent, in any branch."""
        return self._calls.get(call_id, {}).values()

    def call(self, call_id: str | None, author: str, branch: str | None) -> CallState | None:
        return self._calls.get(call_id, {}).get((author, branch))

    def record_of(self, call_id: str | None, event: Event) -> CallState:
        by_maker = self._calls.setdefault(call_id, {})
        record = by_maker.get((event.author, event.branch))
        if record is None:
            record = by_maker[event.author, event.branch] = CallState()
        return record

    def is_waiting(self, *, since: int = 0, branch: str | None = None) -> bool:
        """Whether a long-running call that was made at that index or later, in that branch or below it, is open."""
        return any(at >= since and is_within(of, branch) for (_, of), at in self.waiting.items())
