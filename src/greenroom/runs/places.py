"""How many runs there may be at once, and how long a session may grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from greenroom.errors import SessionFull, TooManyRuns
from greenroom.records.session import Session, SessionKey


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """None: no limit. What waits for its turn counts as a run. per_user: in all apps together."""

    per_user: int | None = None
    per_app: int | None = None
    per_server: int | None = None
    events_per_session: int | None = None

    def check_session(self, session: Session) -> None:
        """Raises SessionFull."""
        if self.events_per_session is not None and len(session.events) >= self.events_per_session:
            raise SessionFull(session.id, self.events_per_session)


class RunPlaces:
    """Counts the runs of this process. Without limits it counts nothing."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._is_counting = (limits.per_user, limits.per_app, limits.per_server) != (None, None, None)
        self._users = Counter[str]()
        self._apps = Counter[str]()
        self._all = 0

    def check(self, key: SessionKey) -> None:
        """Raises TooManyRuns when a further run has no place."""
        if not self._is_counting:
            return
        limits = self._limits
        for whose, count, limit in (
            ("user", self._users[key.user_id], limits.per_user),
            ("app", self._apps[key.app_name], limits.per_app),
            ("server", self._all, limits.per_server),
        ):
            if limit is not None and count >= limit:
                raise TooManyRuns(whose, limit)

    def take(self, key: SessionKey) -> None:
        if self._is_counting:
            self._users[key.user_id] += 1
            self._apps[key.app_name] += 1
            self._all += 1

    def give_back(self, key: SessionKey) -> None:
        if self._is_counting:
            for counter, name in ((self._users, key.user_id), (self._apps, key.app_name)):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
            self._all -= 1
