"""A PostgreSQL database: one writing connection with group commit, and a pool of reading connections."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from greenroom.encryption.codec import PLAIN, Codec, EncryptingCodec
from greenroom.encryption.key_provider import KeyProvider
from greenroom.encryption.key_ring import KeyRing
from greenroom.errors import GreenroomError, InvalidRequest, KeyRefused, MissingExtra, StorageError
from greenroom.postgres.connection import Connection, Pool, connect, create_pool
from greenroom.postgres.key_store import PostgresKeyStore, has_keys
from greenroom.postgres.migrate import prepare
from greenroom.postgres.numbered import numbered
from greenroom.postgres.ownership import OwnedShards

T = TypeVar("T")

_BATCH = 512
"""Maximum number of operations per transaction."""

_FIRST_DELAY = 0.02
_LONGEST_DELAY = 1.0
_RETRIED_STATES = frozenset(("57P01", "57P02", "57P03", "25P03", "53300", "40001", "40P01", "23505", "25001"))
"""SQLSTATEs of a server that stops, starts, has no connection left or ended one that was idle, and of conflicts with
concurrent transactions.

unique_violation is one of those: statements look for existing rows in a snapshot that may be older than their locks.
active_sql_transaction (25001) comes of a query that was cancelled after it was prepared: asyncpg leaves its connection
in a transaction without saying so, and the refused BEGIN of the next user ends it.
"""

_REFUSED_STATES = {
    "22021": "PostgreSQL can't store the character NUL in ids, names and keys",
    "54000": "PostgreSQL can't store ids, names and keys of more than about 2,500 bytes",
}


@dataclass(slots=True)
class DatabaseStats:
    """Counted since the database was opened."""

    operations: int = 0
    commits: int = 0
    retried: int = 0
    """Groups that were sent again, whole or one by one."""

    reads: int = 0


class Batch(Protocol):
    """A statement that writes many rows in one round trip."""

    async def write(self, connection: Connection, rows: Sequence[Any]) -> Sequence[Any]:
        """Returns one result for each row; a result that is an exception is raised to the row's caller, who must find
        nothing written. Must be repeatable: after a lost connection nobody knows whether it was committed."""
        ...


class Transaction:
    """A connection for functions that use both databases: parameters are written `?`, or `?1`, `?2`, …"""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of a query, or of RETURNING."""
        return await self.connection.fetch(numbered(statement), *arguments)


@dataclass(slots=True, eq=False)
class _Operation:
    """A write by `apply`, or one of a row."""

    future: asyncio.Future[Any]
    give_up_at: float
    """Monotonic time after which it is not repeated any more."""

    apply: Callable[[Connection], Awaitable[Any]] | None = None
    batch: Batch | None = None
    row: Any = None

    then: Callable[[Any], None] | None = None
    """Called with the result after the commit."""

    result: Any = None


class Database:
    """A database by its URI. All users of a URI in this process share one object, and thus one order of writes.

    While the server restarts, or has no connection left, operations are repeated for `retry_seconds`, with increasing
    delays; then they raise StorageError.
    """

    _open: ClassVar[dict[tuple[int, str], Database]] = {}
    _open_lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def open(cls, uri: str, *, pool_size: int | None = None, holds_content: bool = True) -> Database:
        """The database of this URI, shared; each call needs a `close`. Connects on first use.

        uri: as libpq takes it, or with SQLAlchemy's driver (`postgresql+asyncpg://`). pool_size: reading connections of
        each event loop; without one, the value of an earlier call, else 10. Raises MissingExtra.
        """
        if find_spec("asyncpg") is None:
            raise MissingExtra("postgres", "asyncpg")
        key = os.getpid(), _for_asyncpg(uri)
        with cls._open_lock:
            database = cls._open.get(key)
            if database is None:
                database = cls._open[key] = cls(key)
            database._users += 1
        database.pool_size = pool_size or database.pool_size
        database.holds_content |= holds_content
        return database

    def __init__(self, key: tuple[int, str]) -> None:
        self.uri = key[1]
        self.stats = DatabaseStats()
        self.pool_size = 10
        self.retry_seconds = 10.0
        self.is_prepared = False
        self.holds_content = False
        """True if a user of the database reads or writes columns that may be encrypted."""

        self.owned_shards = OwnedShards()
        self.codec: Codec = PLAIN
        """Encrypts the columns that hold what users wrote, where the database was opened with keys."""

        self._key = key
        self._users = 0
        self._closed = False
        self._companions: dict[type, Any] = {}
        self._loops: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}

    @property
    def name(self) -> str:
        """Host and database, for messages; without user and password."""
        parts = urlsplit(self.uri)
        return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def encrypt(self, keys: KeyProvider) -> None:
        """Encrypts what is written from now on. Called before the database is first used."""
        if self.codec.is_plain:
            if self.is_prepared:
                raise KeyRefused(f"{self.name} was opened without encryption keys before")
            self.codec = EncryptingCodec(KeyRing(PostgresKeyStore(self.uri, self.name), keys))

    async def check_keys(self, connection: Connection) -> None:
        """Loads the data keys, or makes sure that the database needs none. Raises KeyRefused."""
        if isinstance(self.codec, EncryptingCodec):
            await self.codec.ring.load()
        elif self.holds_content and await has_keys(connection):
            raise KeyRefused(f"{self.name} is encrypted, and no keys are given: set encryption.keys")

    def companion(self, kind: type[T], make: Callable[[], T]) -> T:
        """The object of this type that all users of the database share, such as a cache of its rows."""
        with self._open_lock:
            if kind not in self._companions:
                self._companions[kind] = make()
            return cast("T", self._companions[kind])

    def submit(
        self, apply: Callable[[Connection], Awaitable[T]], *, then: Callable[[T], None] | None = None
    ) -> asyncio.Future[T]:
        """Queues a write; writes are carried out in the order of these calls, and many share one commit.

        apply: runs inside a transaction. An exception fails only this operation: the others of its group are run again,
        so `apply` must be repeatable, as it must after a lost connection. then: called with the result after the
        commit, before the future is done; also when the awaiting task was cancelled.
        The future raises StorageError for errors of the database, and other exceptions of `apply` as they are.
        """
        return self._queue_up(apply=apply, then=then)

    def submit_row(self, batch: Batch, row: Any, *, then: Callable[[Any], None] | None = None) -> asyncio.Future[Any]:
        """Like `submit`; rows of one group with the same `batch` are written together."""
        return self._queue_up(batch=batch, row=row, then=then)

    def _queue_up(self, **operation: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            future.set_exception(StorageError("Writing", "the database was closed"))
        else:
            give_up_at = time.monotonic() + self.retry_seconds
            self._of_loop(loop).queue_up(_Operation(future, give_up_at, **operation))
        return future

    async def execute(self, statement: str, *arguments: Any) -> None:
        """Queues one statement as `submit` does, and waits for it. Parameters are written `?`, as in SQLite."""
        translated = numbered(statement)
        await self.submit(lambda connection: connection.execute(translated, *arguments))

    async def execute_all(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Like `execute`, for statements with their arguments, in one transaction."""
        translated = [(numbered(statement), arguments) for statement, arguments in statements]

        async def apply(connection: Connection) -> None:
            for statement, arguments in translated:
                await connection.execute(statement, *arguments)

        await self.submit(apply)

    async def fetch(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows of one query. Parameters are written `?`, as in SQLite."""
        translated = numbered(query)
        return await self.read(lambda connection: connection.fetch(translated, *arguments))

    async def read(self, fetch: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs queries on a connection of the pool."""
        if self._closed:
            raise StorageError("Reading", "the database was closed")
        self.stats.reads += 1
        return await self._of_loop(asyncio.get_running_loop()).read(fetch)

    def transact(
        self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, then: Callable[[T], None] | None = None
    ) -> asyncio.Future[T]:
        """Like `submit`, for a function that both databases share."""
        return self.submit(lambda connection: work(Transaction(connection)), then=then)

    async def snapshot(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        """Like `read`, for a function that both databases share; all queries see one snapshot of the database."""

        async def in_transaction(connection: Connection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(Transaction(connection))

        return await self.read(in_transaction)

    def _of_loop(self, loop: asyncio.AbstractEventLoop) -> _LoopConnections:
        connections = self._loops.get(loop)
        if connections is None:
            for ended in [other for other in self._loops if other.is_closed()]:
                del self._loops[ended]
            connections = self._loops[loop] = _LoopConnections(self)
        return connections

    async def close(self) -> None:
        """Releases the database. The last user waits until all submitted writes are done."""
        with self._open_lock:
            self._users -= 1
            if self._users > 0 or self._closed:
                return
            self._closed = True
            if self._open.get(self._key) is self:
                del self._open[self._key]
        connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()
        if isinstance(self.codec, EncryptingCodec):
            await asyncio.to_thread(self.codec.ring.close)


class _LoopConnections:
    """The connections of one event loop, and its queue of writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: deque[_Operation] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._pool: Pool | None = None
        self._lock = asyncio.Lock()

    def queue_up(self, operation: _Operation) -> None:
        self._queue.append(operation)
        if self._writer is None:
            # Begins after the callbacks that are ready, so that their writes share the commit.
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def read(self, fetch: Callable[[Connection], Awaitable[T]]) -> T:
        give_up_at = time.monotonic() + self._database.retry_seconds
        for delay in _delays():
            try:
                pool = self._pool or await self._open_pool()
                async with pool.acquire(timeout=max(give_up_at - time.monotonic(), 0.01)) as connection:
                    return await fetch(connection)
            except connection_failures() as error:
                if not is_retried(error) or time.monotonic() + delay > give_up_at:
                    raise _our_error("Reading", error) from error
            await asyncio.sleep(delay)
        raise AssertionError("there is always another delay")

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        try:
            if self._connection is not None:
                await self._connection.close(timeout=5)
            if self._pool is not None:
                async with asyncio.timeout(5):
                    await self._pool.close()
        except connection_failures():  # the server is gone
            if self._pool is not None:
                self._pool.terminate()

    async def _open_pool(self) -> Pool:
        async with self._lock:
            if not self._database.is_prepared:
                await (await self._connect()).close()
            if self._pool is None:
                self._pool = await create_pool(self._database.uri, size=self._database.pool_size)
            return self._pool

    async def _connect(self) -> Connection:
        """Connects; the first time, it also applies the migrations."""
        connection = await connect(self._database.uri)
        if not self._database.is_prepared:
            try:
                await self._database.check_keys(connection)
                await prepare(connection)
            except BaseException:
                connection.terminate()
                raise
            self._database.is_prepared = True
        return connection

    async def _writing_connection(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def _forget_broken_connection(self, error: Exception) -> None:
        import asyncpg

        if isinstance(error, asyncpg.InternalClientError) and self._connection is not None:
            self._connection.terminate()  # the driver doesn't close it, and refuses further queries on it

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._write([self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))])
        finally:
            self._writer = None

    async def _write(self, batch: list[_Operation]) -> None:
        """Runs a group in one transaction; if that fails, each of its operations in its own."""
        for delay in _delays():
            try:
                connection = await self._writing_connection()
                await self._transact(connection, batch)
                break
            except Exception as error:  # Any exception belongs to an operation's caller; the writer must continue.
                if is_retried(error):
                    self._forget_broken_connection(error)
                    batch = _without_expired(batch, error, time.monotonic() + delay)
                elif len(batch) > 1:
                    self._database.stats.retried += 1
                    for operation in batch:
                        await self._write([operation])
                    return
                else:
                    is_ours = isinstance(error, connection_failures())
                    _fail(batch, _our_error("Writing", error) if is_ours else error)
                    return

            if not batch:
                return
            self._database.stats.retried += 1
            await asyncio.sleep(delay)

        self._database.stats.commits += 1
        self._database.stats.operations += len(batch)
        for operation in batch:
            _answer(operation)

    async def _transact(self, connection: Connection, batch: list[_Operation]) -> None:
        groups = list(_groups(batch))
        if len(groups) == 1 and groups[0][0].batch is not None:  # one statement is a transaction of its own
            await _run(connection, groups[0])
            return
        async with connection.transaction():
            for group in groups:
                await _run(connection, group)


async def _run(connection: Connection, group: list[_Operation]) -> None:
    first = group[0]
    if first.batch is not None:
        results = await first.batch.write(connection, [operation.row for operation in group])
        for operation, result in zip(group, results, strict=True):
            operation.result = result
    elif first.apply is not None:
        first.result = await first.apply(connection)


def _groups(batch: Sequence[_Operation]) -> Iterator[list[_Operation]]:
    """Groups operations with the same `batch`, unless an operation with `apply` is between them; others stay alone."""
    rows: dict[int, list[_Operation]] = {}
    for operation in batch:
        if operation.batch is not None:
            rows.setdefault(id(operation.batch), []).append(operation)
        else:
            yield from rows.values()
            rows = {}
            yield [operation]
    yield from rows.values()


def _answer(operation: _Operation) -> None:
    error = operation.result if isinstance(operation.result, Exception) else None
    if error is None and operation.then is not None:
        try:
            operation.then(operation.result)
        except Exception as raised:  # The write itself is committed.
            error = raised
    if operation.future.done():
        return  # Cancelled by its awaiter; the write keeps its outcome.
    if error is not None:
        operation.future.set_exception(error)
    else:
        operation.future.set_result(operation.result)


def _fail(operations: Sequence[_Operation], error: Exception) -> None:
    for operation in operations:
        if not operation.future.done():
            operation.future.set_exception(error)


def _without_expired(batch: list[_Operation], error: Exception, now: float) -> list[_Operation]:
    """The operations that may be retried; the others fail."""
    expired = [operation for operation in batch if operation.give_up_at < now]
    _fail(expired, _our_error("Writing", error))
    return [operation for operation in batch if operation.give_up_at >= now]


def _delays() -> Iterator[float]:
    delay = _FIRST_DELAY
    while True:
        yield delay
        delay = min(delay * 2, _LONGEST_DELAY)


def connection_failures() -> tuple[type[Exception], ...]:
    """Errors of the driver and of connections. Called after the driver was imported, or found missing."""
    import asyncpg

    return asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError


def is_retried(error: Exception) -> bool:
    """True when the operation may succeed later: after a lost connection, or a conflict with another transaction."""
    import asyncpg

    if isinstance(error, asyncpg.DataError | StorageError | asyncpg.ClientConfigurationError):
        return False
    # An InterfaceError is raised for a closed connection, too; an InternalClientError for one on which the server said
    # that it stops while a query was being prepared; TimeoutError is an OSError.
    lost = asyncpg.PostgresConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError | OSError
    return isinstance(error, lost) or getattr(error, "sqlstate", None) in _RETRIED_STATES


def _our_error(operation: str, error: Exception) -> GreenroomError:
    refused = _REFUSED_STATES.get(getattr(error, "sqlstate", None) or "")
    if refused is not None:
        return InvalidRequest(refused)
    return StorageError(operation, f"{error or 'no answer'} ({type(error).__name__})")


def _for_asyncpg(uri: str) -> str:
    """Removes SQLAlchemy's driver from the URI, and converts its option `ssl` to libpq's name."""
    return re.sub(r"([?&])ssl=", r"\1sslmode=", re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", uri))
