"""A session store by its address."""

from __future__ import annotations

from greenroom.errors import InvalidRequest
from greenroom.sessions.service import BaseSessionService

_KNOWN = "memory://, sqlite:///relative.db, sqlite:////absolute.db"


def session_service_from_uri(uri: str) -> BaseSessionService:
    """The store at an address; opens on its first call.

    Known: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`. As SQLAlchemy and ADK write it, a driver
    (`sqlite+aiosqlite://`) and options (`?timeout=5`) may be there and have no effect, and `sqlite://` without a file,
    or with `:memory:`, is in memory. Raises InvalidRequest.
    """
    scheme, separator, rest = uri.partition("://")
    kind = scheme.partition("+")[0].lower()
    if separator and kind == "memory":
        from greenroom.sessions.in_memory import InMemorySessionService

        return InMemorySessionService()
    if separator and kind == "sqlite":
        host, _, path = rest.partition("?")[0].partition("/")
        if host:
            raise InvalidRequest(f"{uri!r} names a host; write three slashes: sqlite:///{host}", location=("uri",))
        if path in ("", ":memory:"):
            from greenroom.sessions.in_memory import InMemorySessionService

            return InMemorySessionService()
        from greenroom.sessions.sqlite import SqliteSessionService

        return SqliteSessionService(path)
    raise InvalidRequest(f"No session store knows {uri!r}. Known: {_KNOWN}", location=("uri",))
