"""The columns of databases that hold what users wrote, and the place to which each value is bound.

A place is the table and what identifies the row, in the terms that both the writer and the reader of a row know. Events
and states are bound to their app and user, and not to their session: forks share the rows of their ancestors, which may
have been deleted.
"""

from __future__ import annotations

from typing import NamedTuple


class EncryptedColumn(NamedTuple):
    """A column, for those who encrypt its values again."""

    table: str
    column: str

    key: tuple[str, ...]
    """The columns of the primary key, in whose order rows are read."""

    place: tuple[str, ...]
    """SQL for each part of the place after its name."""

    name: str = ""
    """The name that begins the place; by default the table's."""

    is_binary: bool = False

    is_of_session: bool = False
    """True if the place begins with the app and the user of a session, found by its number."""

    @property
    def place_name(self) -> str:
        return self.name or self.table


def _of_session(column: str, session: str) -> str:
    """SQL for a column of the session with a number, or of a fork of it, where the session itself was deleted."""
    return f"""coalesce(
        (SELECT {column} FROM sessions WHERE number = {session}),
        (SELECT {column} FROM session_ancestors JOIN sessions ON number = session_ancestors.session
            WHERE ancestor = {session} LIMIT 1))"""


def _owner(session: str) -> tuple[str, str]:
    return _of_session("app_name", session), _of_session("user_id", session)


_MEMORY_OWNER = (
    "(SELECT app_name FROM memory_owners WHERE number = memories.owner)",
    "(SELECT user_id FROM memory_owners WHERE number = memories.owner)",
)

COLUMNS = (
    EncryptedColumn("events", "data", ("session", "seq"), (*_owner("events.session"), "id"), is_of_session=True),
    EncryptedColumn(
        "session_state", "value", ("session", "key"), (*_owner("session_state.session"), "key"), is_of_session=True
    ),
    EncryptedColumn(
        "state_changes",
        "value",
        ("session", "key", "seq"),
        (*_owner("state_changes.session"), "key"),
        name="session_state",
        is_of_session=True,
    ),
    EncryptedColumn("user_state", "value", ("app_name", "user_id", "key"), ("app_name", "user_id", "key")),
    EncryptedColumn("app_state", "value", ("app_name", "key"), ("app_name", "key")),
    EncryptedColumn("runs", "data", ("id",), ("id",)),
    EncryptedColumn("runs", "request", ("id",), ("id",), name="runs.request"),
    EncryptedColumn("idempotency_keys", "digest", ("app_name", "user_id", "key"), ("app_name", "user_id", "key")),
    EncryptedColumn("webhooks", "data", ("run_id", "id"), ("run_id", "id")),
    EncryptedColumn("webhook_deliveries", "data", ("id",), ("id",)),
    EncryptedColumn("app_webhooks", "data", ("app_name", "id"), ("app_name", "id")),
    EncryptedColumn("requests", "data", ("id",), ("id",)),
    EncryptedColumn("schedules", "data", ("app_name", "id"), ("app_name", "id")),
    EncryptedColumn(
        "schedule_runs",
        "data",
        ("app_name", "schedule_id", "number"),
        ("app_name", "schedule_id", "number"),
    ),
    EncryptedColumn(
        "credentials", "data", ("app_name", "user_id", "credential_key"), ("app_name", "user_id", "credential_key")
    ),
    EncryptedColumn("credential_requests", "data", ("app_name", "user_id", "id"), ("app_name", "user_id", "id")),
    EncryptedColumn("feedback", "data", ("id",), ("id",)),
    EncryptedColumn("spans", "data", ("number",), ("app_name", "user_id", "session_id", "event_id")),
    EncryptedColumn("memories", "data", ("number",), (*_MEMORY_OWNER, "source", "id")),
)

_VECTOR_PLACE = (
    "(SELECT app_name FROM memory_owners WHERE number = memory_vectors.owner)",
    "(SELECT user_id FROM memory_owners WHERE number = memory_vectors.owner)",
    "model",
)

SQLITE_COLUMNS = (
    *COLUMNS,
    EncryptedColumn("blobs", "data", ("number",), ("lower(hex(sha256))",), is_binary=True),
    EncryptedColumn("memory_vectors", "signature", ("entry",), _VECTOR_PLACE, is_binary=True),
    EncryptedColumn("memory_vectors", "vector", ("entry",), _VECTOR_PLACE, is_binary=True),
)
POSTGRES_COLUMNS = (
    *COLUMNS,
    EncryptedColumn("blobs", "data", ("number",), ("encode(sha256, 'hex')",), is_binary=True),
)

TABLES = ("blobs", *dict.fromkeys(column.table for column in COLUMNS))
"""The tables in which either database has encrypted columns."""
