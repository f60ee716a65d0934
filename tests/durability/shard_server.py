"""A server that writes to the sessions that it owns, all the time. It shares its database with others, or with none.

Each event and each record says by whom it was written, in which epoch of the session's shard. Commands are lines of
stdin, answers are lines of stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

from greenroom.errors import OwnershipLost, StorageError
from greenroom.postgres.database import Database
from greenroom.postgres.shard_owner import ShardOwner
from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.sessions.postgres import PostgresSessionService

SESSIONS = [SessionKey("a", "u", f"s-{number}") for number in range(40)]


class Writer:
    """Writes to all sessions that the process owns, and counts what became of it."""

    def __init__(self, uri: str, *, is_exclusive: bool) -> None:
        self.sessions = PostgresSessionService(uri)
        self.runs = PostgresRunStore(uri)
        self.database = Database.open(uri)
        self.owner = self.database.companion(ShardOwner, lambda: ShardOwner(self.database, is_exclusive=is_exclusive))
        self.stored: list[str] = []
        self.refused: list[str] = []
        self.failed: list[str] = []

    async def write_for_ever(self) -> None:
        while True:
            epochs = self.runs.ownership.epochs or {}
            owned = [key for key in SESSIONS if shard_of(key) in epochs]
            await asyncio.gather(*(self._write(key, epochs) for key in owned))
            await asyncio.sleep(0.01)

    async def _write(self, key: SessionKey, epochs: Mapping[int, int]) -> None:
        """An event, and a run's record."""
        event = Event(author=f"{epochs[shard_of(key)]} {self.owner.replica_id}")
        run = Run(
            id=f"e-{key.session_id}",
            **key._asdict(),
            status=RunStatus.RUNNING,
            created_at=1.0,
            traceparent=event.author,
        )
        saving = self.runs.save(run)
        try:
            session = await self.sessions.get_session(**key._asdict())
            assert session is not None
            await self.sessions.append(session, event)
            self.stored.append(event.id)
            await saving
        except OwnershipLost:
            self.refused.append(event.id)
        except StorageError:
            self.failed.append(event.id)


async def main(uri: str, kind: str) -> None:
    writer = Writer(uri, is_exclusive=kind == "exclusive")
    await writer.runs.lock(wait_seconds=20)
    print(writer.owner.replica_id, flush=True)
    writing = asyncio.create_task(writer.write_for_ever())
    while await asyncio.to_thread(sys.stdin.readline) == "owned\n":
        print(len(writer.runs.ownership.epochs or ()), flush=True)
    await writer.runs.close()
    print("released", flush=True)
    writing.cancel()
    await asyncio.wait([writing])
    print(json.dumps({"stored": writer.stored, "refused": writer.refused, "failed": writer.failed}), flush=True)
    await writer.sessions.close()
    await writer.database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
