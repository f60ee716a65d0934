"""The retention of sessions: those that would be deleted now."""

from __future__ import annotations

import msgspec

from greenroom.records.base import Record
from greenroom.records.session import SessionKey


class ExpiredSession(Record, kw_only=True, omit_defaults=False):
    """A session that has not been updated for longer than its app keeps sessions."""

    user_id: str
    """The user."""
    session_id: str
    """The session."""
    last_update_time: float
    """Unix seconds."""
    is_kept: bool
    """Whether it stays, since a run of it is unfinished."""

    def key(self, app_name: str) -> SessionKey:
        return SessionKey(app_name, self.user_id, self.session_id)


class RetentionPreview(Record, kw_only=True, omit_defaults=False):
    """The sessions of an app that would be deleted now."""

    app_name: str
    """The app."""
    session_ttl_seconds: float | None
    """The time without an update after which sessions are deleted, of the app or else of the server; None: never."""
    expired: int
    """The number of sessions that would be deleted."""
    kept: int
    """The number of sessions that are as old, and stay since a run of theirs is unfinished."""
    sessions: list[ExpiredSession] = msgspec.field(default_factory=list[ExpiredSession])
    """The first hundred of both, newest update first."""
