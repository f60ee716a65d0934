"""Numbers of unfinished runs of users and apps, over all servers on a PostgreSQL database.

Each server writes how many runs of a user or an app it has, in a row of its own, and reads the rows of the others. It
locks the user or the app from reading to writing, so that two servers can't take the last place at the same time:

    server 1 has 2 runs of ann; the limit is 4
    server 2 locks ann, reads 2, has 1 itself, writes 2 for the next run, and commits: the lock ends
    servers 1 and 2 want to start one more: server 1 locks ann first, reads 2, writes 3
    server 2 locks ann, and reads 3: together with its 2, the limit is reached

Requests that arrive while a transaction is under way share the next one. Rows of servers that own no shards any more
don't count: their runs are resumed, and counted, by the next owners. Nothing is read or written where no limit is set.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from greenroom.errors import GreenroomError
from greenroom.postgres.connection import LEASE_SECONDS, Connection
from greenroom.postgres.database import Database
from greenroom.runs.limits import RunCounter

LOOK_AGAIN_SECONDS = 0.1
"""Time after which a request is checked again that other servers' runs keep from starting: a client that has read the
end of a run may start the next one before the server of the first has written that it has one less."""

RETRY_SECONDS = 1.0
_OWNER_LOCKS = 0x67726E6C
"""First key of the advisory locks of users and apps; the second is of their digest."""

_FORGET = "DELETE FROM run_counts WHERE replica NOT IN (SELECT id FROM replicas)"
_LOCK = f"""
    SELECT set_config('idle_in_transaction_session_timeout', '{LEASE_SECONDS}s', true),
        pg_advisory_xact_lock({_OWNER_LOCKS}, lock)
    FROM unnest($1::int[]) AS lock
"""
"""A server that is paused here keeps others waiting for the lease at most. All lock in the same order."""

_OTHERS = """
    SELECT owner, sum(count) FROM run_counts
    WHERE owner = ANY ($1::text[]) AND replica <> $2 AND replica IN (SELECT owner FROM shards)
    GROUP BY owner
"""
_WRITE = """
    INSERT INTO run_counts (owner, replica, count)
    SELECT owner, $3, count FROM unnest($1::text[], $2::int[]) AS own (owner, count)
    ON CONFLICT (owner, replica) DO UPDATE SET count = excluded.count
"""
_DELETE = "DELETE FROM run_counts WHERE owner = ANY ($1::text[]) AND replica = $2"


class _Request:
    """A run to count."""

    def __init__(self, counters: Sequence[RunCounter], *, may_exceed: bool) -> None:
        self.counters = {_owner_of(counter): counter for counter in counters}
        self.may_exceed = may_exceed
        self.is_counted = False
        self.future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()


class _Answer(NamedTuple):
    """Whether a run may start."""

    reached: RunCounter | None = None
    """The counter that has reached its limit."""

    is_by_others: bool = False
    """Whether this server alone has not reached it."""


class PostgresRunCounts:
    """The counts of one server, which writes its own."""

    def __init__(self, database: Database, *, replica_id: str) -> None:
        self._database = database
        self._replica_id = replica_id
        self._own = Counter[str]()
        self._unwritten: set[str] = set()
        self._requests: list[_Request] = []
        self._task: asyncio.Task[None] | None = None
        self._is_first = True

    async def acquire(self, counters: Sequence[RunCounter], *, may_exceed: bool) -> RunCounter | None:
        answer = await self._request(counters, may_exceed=may_exceed)
        if answer.is_by_others:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            answer = await self._request(counters, may_exceed=may_exceed)
        return answer.reached

    def add(self, counters: Sequence[RunCounter]) -> None:
        self._change(map(_owner_of, counters), 1)

    def release(self, counters: Sequence[RunCounter]) -> None:
        self._change(map(_owner_of, counters), -1)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _request(self, counters: Sequence[RunCounter], *, may_exceed: bool) -> _Answer:
        request = _Request(counters, may_exceed=may_exceed)
        self._requests.append(request)
        self._write_soon()
        try:
            return await request.future
        except asyncio.CancelledError:
            if request.is_counted:
                self._change(request.counters, -1)
            raise

    def _change(self, owners: Iterable[str], by: int) -> None:
        for owner in owners:
            self._own[owner] += by
            if not self._own[owner]:
                del self._own[owner]
            self._unwritten.add(owner)
        if self._unwritten:
            self._write_soon()

    def _write_soon(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._requests or self._unwritten:
                await self._write_next()
        finally:
            self._task = None

    async def _write_next(self) -> None:
        """Answers the requests that wait, and writes the counts that have changed."""
        requests = self._requests
        unwritten = self._unwritten
        self._requests = []
        self._unwritten = set()
        try:
            answers = await self._transact(requests, unwritten)
        except BaseException as error:
            self._unwritten |= unwritten
            for request in requests:
                if request.future.done():
                    continue
                if isinstance(error, Exception):
                    request.future.set_exception(error)
                else:
                    request.future.cancel()
            if not isinstance(error, GreenroomError):
                raise
            if not self._requests:
                await asyncio.sleep(RETRY_SECONDS)
            return

        for request, answer in zip(requests, answers, strict=True):
            if request.future.done():  # it was cancelled, and the count was written with it
                self._unwritten |= request.counters.keys()
                continue
            if answer.reached is None:
                request.is_counted = True
                self._own.update(request.counters.keys())
            request.future.set_result(answer)

    async def _transact(self, requests: Sequence[_Request], unwritten: Collection[str]) -> Sequence[_Answer]:
        """Raises StorageError."""
        requested = {owner for request in requests for owner in request.counters}

        async def check_and_write(connection: Connection) -> Sequence[_Answer]:
            counts = Counter({owner: self._own[owner] for owner in requested.union(unwritten)})
            async with connection.transaction():
                if self._is_first:
                    await connection.execute(_FORGET)
                others: Mapping[str, int] = {}
                if requested:
                    await connection.fetch(_LOCK, sorted({_lock_of(owner) for owner in requested}))
                    others = dict(await connection.fetch(_OTHERS, list(requested), self._replica_id))
                answers = [_decide(request, counts, others) for request in requests]
                await self._save(connection, counts)
            return answers

        # Not on the writing connection, whose other writes would wait for the locks.
        answers = await self._database.read(check_and_write)
        self._is_first = False
        return answers

    async def _save(self, connection: Connection, counts: Mapping[str, int]) -> None:
        present = {owner: count for owner, count in counts.items() if count > 0}
        absent = [owner for owner, count in counts.items() if count <= 0]
        if present:
            await connection.execute(_WRITE, list(present), list(present.values()), self._replica_id)
        if absent:
            await connection.execute(_DELETE, absent, self._replica_id)


def _decide(request: _Request, counts: Counter[str], others: Mapping[str, int]) -> _Answer:
    """Checks a run, and adds it to this server's counts if it may start."""
    if not request.may_exceed:
        for owner, counter in request.counters.items():
            if counts[owner] + others.get(owner, 0) >= counter.limit:
                return _Answer(counter, is_by_others=counts[owner] < counter.limit)
    counts.update(request.counters.keys())
    return _Answer()


def _owner_of(counter: RunCounter) -> str:
    """A digest, since ids can have characters and a length that PostgreSQL doesn't take."""
    return f"{counter.kind} {hashlib.sha256(counter.owner.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _lock_of(owner: str) -> int:
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:4], signed=True)
