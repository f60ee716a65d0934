"""Limits of concurrent runs, and of the length of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from greenroom.errors import SessionFull, TooManyRuns
from greenroom.records.session import Session, SessionKey
from greenroom.runs.fair_queue import Weights


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """None: no limit. A queued run counts, too. per_user: in all apps together."""

    per_user: int | None = None
    per_app: int | None = None
    per_server: int | None = None
    running: int | None = None
    """Runs that this server executes at a time."""
    weights: Weights = field(default_factory=Weights)
    """Shares of apps and users in these."""
    events_per_session: int | None = None

    def check_session(self, session: Session) -> None:
        """Raises SessionFull."""
        if self.events_per_session is not None and session.events.end >= self.events_per_session:
            raise SessionFull(session.id, self.events_per_session)


class RunCounter(NamedTuple):
    """A number of runs that has a limit."""

    kind: str
    """`user`, `app` or `server`."""

    owner: str
    """The user's id, or the app's name; empty for the server."""

    limit: int


class RunCounts(Protocol):
    """Counts the unfinished runs of users and apps."""

    async def acquire(self, counters: Sequence[RunCounter], *, may_exceed: bool) -> RunCounter | None:
        """Counts one more run, or returns the counter that has reached its limit. Raises StorageError."""
        ...

    def add(self, counters: Sequence[RunCounter]) -> None:
        """Counts one more run, whatever the limits are."""
        ...

    def release(self, counters: Sequence[RunCounter]) -> None:
        """Counts one run less."""
        ...


class LocalRunCounts:
    """Counts the runs of this process."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()

    async def acquire(self, counters: Sequence[RunCounter], *, may_exceed: bool) -> RunCounter | None:
        for counter in counters:
            if self._counts[counter[:2]] >= counter.limit and not may_exceed:
                return counter
        self.add(counters)
        return None

    def add(self, counters: Sequence[RunCounter]) -> None:
        for counter in counters:
            self._counts[counter[:2]] += 1

    def release(self, counters: Sequence[RunCounter]) -> None:
        for counter in counters:
            owner = counter[:2]
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]


class ConcurrencyLimiter:
    """Counts runs per user, app and server, where a limit is set."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._counts_runs = any(limit is not None for limit in (limits.per_user, limits.per_app, limits.per_server))
        self._local = LocalRunCounts()
        self._shared: RunCounts = self._local
        """Of users and apps, on all servers."""

    def share(self, counts: RunCounts) -> None:
        """Counts the runs of users and apps with those of other servers. Called before the first run is counted."""
        self._shared = counts

    async def acquire(self, key: SessionKey, *, may_exceed: bool = False) -> None:
        """Counts one more run; each call needs a `release`. may_exceed: the run replaces another run.

        Raises TooManyRuns, and StorageError.
        """
        if not self._counts_runs:
            return
        of_server = self._of_server()
        reached = await self._local.acquire(of_server, may_exceed=may_exceed) if of_server else None
        if reached is None and (shared := self._of_owners(key)):
            try:
                reached = await self._shared.acquire(shared, may_exceed=may_exceed)
            except BaseException:
                self._local.release(of_server)
                raise
            if reached is not None:
                self._local.release(of_server)
        if reached is not None:
            raise TooManyRuns(reached.kind, reached.limit)

    def add(self, key: SessionKey) -> None:
        """Counts a resumed run, whatever the limits are; each call needs a `release`."""
        if self._counts_runs:
            self._local.add(self._of_server())
            self._shared.add(self._of_owners(key))

    def release(self, key: SessionKey) -> None:
        if self._counts_runs:
            self._local.release(self._of_server())
            self._shared.release(self._of_owners(key))

    def _of_server(self) -> Sequence[RunCounter]:
        limit = self._limits.per_server
        return () if limit is None else (RunCounter("server", "", limit),)

    def _of_owners(self, key: SessionKey) -> Sequence[RunCounter]:
        limits = self._limits
        if limits.per_user is None and limits.per_app is None:
            return ()
        each = (("user", key.user_id, limits.per_user), ("app", key.app_name, limits.per_app))
        return [RunCounter(kind, owner, limit) for kind, owner, limit in each if limit is not None]
