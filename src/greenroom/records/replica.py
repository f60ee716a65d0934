"""The servers that share a store, as `GET /replicas` and `greenroom replicas` list them."""

from __future__ import annotations

from greenroom.records.base import Record


class ReplicaStatus(Record, kw_only=True, omit_defaults=False):
    """A server, and the unfinished runs of the sessions that it owns."""

    id: str
    """The id of the process."""

    address: str | None = None
    """The URL at which other servers reach it; None for a server that shares its store with no other."""

    version: str
    """Its version of greenroom."""

    started_at: float
    """The time of its start, in Unix seconds."""

    heartbeat_age_seconds: float
    """The time since it has shown that it is alive, which it does every second."""

    is_draining: bool
    """True from its stop signal on: it hands its sessions over to other servers."""

    shards: int
    """The number of shards of sessions that it owns, of 256."""

    running: int
    """The number of runs that are executing."""

    queued: int
    """The number of runs that wait in their session's queue."""

    oldest_run_age_seconds: float | None = None
    """The time since the oldest of these runs was requested; None without one."""


class ListReplicasResponse(Record, kw_only=True, omit_defaults=False):
    """The servers that share a store."""

    replicas: list[ReplicaStatus]
    """In the order of their starts."""
