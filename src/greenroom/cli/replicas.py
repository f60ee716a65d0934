"""`greenroom replicas`: the servers that share a database."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir, SessionStore
from greenroom.cli.serving import session_service_of
from greenroom.cli.terminal import note, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.replica import ReplicaStatus


def replicas(agents_dir: AgentsDir = Path(), /, *, session_service: SessionStore = None) -> None:
    """List the servers that share a PostgreSQL database, with their shards of sessions and their unfinished runs.

    They are read from the database; no server is asked. A server that has ended without notice is listed for a minute.

        greenroom replicas --session-service postgresql://user:password@host/database
    """
    listed = asyncio.run(_listed(session_service_of(agents_dir, session_service)))
    if not listed:
        note("No server runs on this database.")
        return
    columns = ("id", "address", "version", "started", "state", "heartbeat", "shards", "running", "queued", "oldest run")
    print_table(columns, [_row(replica) for replica in listed])


async def _listed(uri: str) -> list[ReplicaStatus]:
    """Raises CallerError for a store that servers can't share."""
    if not uri.startswith("postgres"):
        raise CallerError(
            "Only servers on a PostgreSQL database share it. Name it with --session-service; any other store has one "
            "server, which lists itself at GET /replicas"
        )
    from greenroom.runs.postgres_store import PostgresRunStore

    store = PostgresRunStore(uri)
    store.use_without_keys()
    async with data_folder.closing(store):
        return await store.list_replicas(None)


def _row(replica: ReplicaStatus) -> tuple[str, ...]:
    oldest = replica.oldest_run_age_seconds
    return (
        replica.id,
        replica.address or "none",
        replica.version,
        datetime.fromtimestamp(replica.started_at).strftime("%Y-%m-%d %H:%M:%S"),
        _state(replica),
        f"{replica.heartbeat_age_seconds:.1f} s ago",
        str(replica.shards),
        str(replica.running),
        str(replica.queued),
        "" if oldest is None else f"{oldest:.1f} s",
    )


def _state(replica: ReplicaStatus) -> str:
    from greenroom.postgres.connection import LEASE_SECONDS

    if replica.heartbeat_age_seconds > LEASE_SECONDS:
        return "silent"
    return "draining" if replica.is_draining else "serving"
