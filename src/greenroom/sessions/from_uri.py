"""A session store by its address."""

from __future__ import annotations

from greenroom.encryption.from_uri import not_encrypted
from greenroom.encryption.key_provider import KeyProvider
from greenroom.errors import InvalidRequest
from greenroom.records.service_uri import contributed_service, without_password
from greenroom.sessions.service import BaseSessionService

_KNOWN = (
    "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host/database, "
    "firestore://project/database, agentengine://ID"
)


def session_service_from_uri(
    uri: str, *, pool_size: int | None = None, keys: KeyProvider | None = None
) -> BaseSessionService:
    """The store at an address; opens on its first call.

    Known: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user:password@host/database`,
    `firestore://project/database`, `agentengine://ID` or `vertexai://ID` (of a reasoning engine on Vertex AI, or its
    resource name). As SQLAlchemy and ADK write it, a driver (`sqlite+aiosqlite://`,
    `postgresql+asyncpg://`) may be there, and `sqlite://` without a file, or with `:memory:`, is in memory. Options of
    SQLite (`?timeout=5`) have no effect; those of PostgreSQL are libpq's. Installed packages add schemes: see
    `contributed_service`.

    pool_size: see `PostgresSessionService`. keys: encrypt what is stored, in SQLite and PostgreSQL; other stores are
    refused with them. Raises InvalidRequest, MissingExtra, KeyRefused.
    """
    scheme, separator, rest = uri.partition("://")
    kind = scheme.partition("+")[0].lower()
    if separator and kind == "memory":
        from greenroom.sessions.in_memory import InMemorySessionService

        return InMemorySessionService()
    if separator and kind == "sqlite":
        host, _, path = rest.partition("?")[0].partition("/")
        if host:
            shown = without_password(uri)
            raise InvalidRequest(f"{shown!r} names a host; write three slashes: sqlite:///FILE", location=("uri",))
        if path in ("", ":memory:"):
            from greenroom.sessions.in_memory import InMemorySessionService

            return InMemorySessionService()
        from greenroom.sessions.sqlite import SqliteSessionService

        return SqliteSessionService(path, keys=keys)
    if separator and kind in ("postgresql", "postgres"):
        from greenroom.sessions.postgres import PostgresSessionService

        return PostgresSessionService(uri, pool_size=pool_size, keys=keys)
    if keys is not None:
        raise not_encrypted(uri)
    if separator and kind == "firestore":
        from greenroom.google_cloud.firestore import FirestoreDatabase
        from greenroom.sessions.firestore import FirestoreSessionService

        return FirestoreSessionService(database=FirestoreDatabase.from_uri(uri))
    if separator and kind in ("agentengine", "vertexai"):
        from greenroom.google_cloud.vertex import resource_of_uri
        from greenroom.sessions.vertex import VertexAiSessionService

        return VertexAiSessionService(agent_engine_id=resource_of_uri(uri))
    return contributed_service(uri, "session", known=_KNOWN)


class DatabaseSessionService:
    """ADK's name for the store at a database's URL."""

    def __new__(cls, db_url: str, *, pool_size: int | None = None) -> BaseSessionService:  # pyright: ignore[reportInconsistentConstructor]
        """Opens the store of a URI of `session_service_from_uri`. `pool_size` is the number of reading connections to
        PostgreSQL.
        """
        return session_service_from_uri(db_url, pool_size=pool_size)
