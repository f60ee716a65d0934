"""The stored state at the end: logs, records of runs, and the tools' ledger."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from greenroom.postgres.database import Database
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.session import SessionKey
from tests.durability.invariants import read_lines
from tests.replicas.chaos.client import Json, path_of

_UNFINISHED = "SELECT id, status FROM runs WHERE status IN ('queued', 'running')"
_RUNS = "SELECT app_name, user_id, session_id, id, status, data FROM runs ORDER BY number"
_SESSIONS = """
    SELECT app_name, user_id, sessions.id, last_seq, count(seq), coalesce(min(seq), 1), coalesce(max(seq), 0)
    FROM sessions LEFT JOIN events ON events.session = sessions.number GROUP BY sessions.number
"""
_READERS = 8


@dataclass
class StoredSession:
    key: SessionKey
    last_seq: int
    """As the session's row has it."""

    events_in_database: int
    first_seq: int
    newest_seq: int
    log: list[Json] = field(default_factory=list[Json])
    state: Json = field(default_factory=dict[str, "object"])
    runs: dict[str, Json] = field(default_factory=dict[str, Json])
    """Records by id, with the status."""

    ledger: list[Json] = field(default_factory=list[Json])
    """Lines of tools that were called in the session."""

    def events_of(self, run_id: str) -> list[tuple[int, Json]]:
        return [(seq, event) for seq, event in enumerate(self.log, 1) if event["invocationId"] == run_id]


def is_internal(event: Json) -> bool:
    """True for events that /run, /run_sse and /run_live leave out."""
    return wire.from_plain(event, Event).is_internal()


async def wait_for_runs(database: Database, *, seconds: float) -> dict[str, str]:
    """Waits until no run is queued or running. Returns the status of those that are in spite of that, by id."""
    left: dict[str, str] = {}
    try:
        async with asyncio.timeout(seconds):
            while left := dict(await database.fetch(_UNFINISHED)):
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass
    return left


async def stored_sessions(database: Database, http: httpx.AsyncClient, ledger: Path) -> dict[SessionKey, StoredSession]:
    """All sessions, as a replica serves them."""
    sessions: dict[SessionKey, StoredSession] = {}
    for app_name, user_id, session_id, *numbers in await database.fetch(_SESSIONS):
        key = SessionKey(app_name, user_id, session_id)
        sessions[key] = StoredSession(key, *numbers)
    for app_name, user_id, session_id, run_id, status, data in await database.fetch(_RUNS):
        session = sessions.get(SessionKey(app_name, user_id, session_id))
        if session is not None:
            session.runs[run_id] = {**json.loads(data), "status": status.removesuffix(" unremembered")}

    lines: dict[str, list[Json]] = defaultdict(list)
    for line in read_lines(ledger):
        lines[line["session"]].append(line)

    limit = asyncio.Semaphore(_READERS)

    async def read(session: StoredSession) -> None:
        session.ledger = lines[session.key.session_id]
        async with limit:
            response = await http.get(path_of(session.key), params={"events": "all"})
            response.raise_for_status()
            stored = response.json()
            session.log = stored["events"]
            session.state = stored["state"]

    await asyncio.gather(*map(read, sessions.values()))
    return sessions
