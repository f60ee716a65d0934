"""Limits of concurrent runs, and of the length of a session."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from greenroom.errors import SessionFull, TooManyRuns
from greenroom.records.session import Session, SessionKey


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """None: no limit. A queued run counts, too. per_user: in all apps together."""

    per_user: int | None = None
    per_app: int | None = None
    per_server: int | None = None
    events_per_session: int | None = None

    def check_session(self, session: Session) -> None:
        """Raises SessionFull."""
        if self.events_per_session is not None and session.events.end >= self.events_per_session:
            raise SessionFull(session.id, self.events_per_session)


class ConcurrencyLimiter:
    """Counts the runs of this process per user, app and server, where a limit is set."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._is_unlimited = limits.per_user is None and limits.per_app is None and limits.per_server is None
        self._counts = Counter[tuple[str, str]]()

    def _counted(self, key: SessionKey) -> list[tuple[tuple[str, str], int]]:
        """The limited counters of a run, with their limits."""
        if self._is_unlimited:
            return []
        limits = self._limits
        each = (
            (("user", key.user_id), limits.per_user),
            (("app", key.app_name), limits.per_app),
            (("server", ""), limits.per_server),
        )
        return [(counted, limit) for counted, limit in each if limit is not None]

    def acquire(self, key: SessionKey, *, may_exceed: bool = False) -> None:
        """Counts one more run; each call needs a `release`. may_exceed: the run replaces another run.

        Raises TooManyRuns.
        """
        counted = self._counted(key)
        for owner, limit in counted:
            if self._counts[owner] >= limit and not may_exceed:
                raise TooManyRuns(owner[0], limit)
        for owner, _ in counted:
            self._counts[owner] += 1

    def release(self, key: SessionKey) -> None:
        for owner, _ in self._counted(key):
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
