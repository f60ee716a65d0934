"""A database file: a writer thread that commits in groups, and a few reading threads."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar, cast

from greenroom.encryption.codec import PLAIN, Codec, EncryptingCodec
from greenroom.encryption.key_provider import KeyProvider
from greenroom.encryption.key_ring import KeyRing
from greenroom.errors import KeyRefused, StorageError
from greenroom.sqlite.key_store import SqliteKeyStore, has_keys
from greenroom.sqlite.migrate import prepare
from greenroom.sqlite.row_insert import RowWriter
from greenroom.sqlite.transaction import Transaction, completed

T = TypeVar("T")

_BATCH = 512
"""Maximum number of operations per transaction, so that other processes get their turn at the write lock."""

_READERS = 3
_CHECKPOINT_PAGES = 4000
_PAGE_CACHE_KIB = 8_000
"""The writer's. The operating system holds the file's pages too: on 82 MB, four times as much saves one read in twenty.
"""


@dataclass(slots=True)
class DatabaseStats:
    """Counted since the file was opened."""

    operations: int = 0
    commits: int = 0
    retried: int = 0
    """Operations that were run again alone, because their group failed."""

    reads: int = 0


@dataclass(slots=True, eq=False)
class _Operation:
    """A write by `apply`, or one of a row, or, with neither, a check for external writes."""

    loop: asyncio.AbstractEventLoop
    """The event loop of `future`."""

    future: asyncio.Future[Any]

    apply: Callable[[sqlite3.Cursor], Any] | None = None
    then: Callable[[Any], None] | None = None
    """Called with the result after the commit."""

    after_rows: bool = False
    """Rows that were queued before are written before `apply` runs."""

    insert: RowWriter | None = None
    row: Any = None

    result: Any = None
    error: Exception | None = None


class Database:
    """A SQLite file. All users of a file in this process share one object, and thus one order of writes."""

    _open: ClassVar[dict[tuple[int, str], Database]] = {}
    _open_lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, holds_content: bool = True) -> Database:
        """The database of this path, shared; each call needs a `close`. The file is created or opened on first use.

        holds_content: False for who neither reads nor writes columns that may be encrypted.
        """
        real = os.path.realpath(path)
        # The process id: after a fork the parent's threads are not there.
        key = (os.getpid(), real)
        with cls._open_lock:
            database = cls._open.get(key)
            if database is None:
                database = cls._open[key] = cls(real, key)
            database._users += 1
            database.holds_content |= holds_content
            return database

    def __init__(self, path: str, key: tuple[int, str]) -> None:
        self.path = path
        self.stats = DatabaseStats()
        self.busy_timeout_seconds = 5.0
        self.reclaim_seconds = 1.0
        """Interval between two tries on a full disk: writing the WAL back needs space, too."""
        self.refreshed_at = -1e9
        """Monotonic time of the last check for external writes."""

        self.holds_content = False
        """True if a user of the file reads or writes columns that may be encrypted."""

        self.codec: Codec = PLAIN
        """Encrypts the columns that hold what users wrote, where the file was opened with keys."""

        self._key = key
        self._users = 0
        """Calls of `open` without a `close` yet."""

        self._closed = False
        self._companions: dict[type, Any] = {}
        self._external_write_listeners: list[Callable[[], None]] = []

        self._queue: deque[_Operation] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        """An item wakes the writer when it is idle."""

        self._is_idle = True
        self._waker: asyncio.AbstractEventLoop | None = None
        """The event loop that will wake the writer after its ready callbacks."""

        self._stopping = False
        self._start_lock = threading.Lock()
        self._writer: threading.Thread | None = None

        # The writer thread's own:
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._data_version = 0
        """SQLite's number of the file's version, which changes with writes of other processes."""

        self._is_full = False
        """A write failed for lack of disk space, and no checkpoint has succeeded since."""

        self._reclaimed_at = -1e9
        """Monotonic time of the last try to free space."""

        self._readers: ThreadPoolExecutor | None = None
        self._reader = threading.local()
        self._reader_connections: list[sqlite3.Connection] = []

    def encrypt(self, keys: KeyProvider) -> None:
        """Encrypts what is written from now on. Called before the file is first used."""
        if self.codec.is_plain:
            if self._connection is not None:
                raise KeyRefused(f"{self.path} was opened without encryption keys before")
            self.codec = EncryptingCodec(KeyRing(SqliteKeyStore(self.path), keys))

    def companion(self, kind: type[T], make: Callable[[], T]) -> T:
        """The object of this type that all users of the file share, such as a cache of its rows."""
        with self._start_lock:
            if kind not in self._companions:
                self._companions[kind] = make()
            return cast("T", self._companions[kind])

    def on_external_write(self, listener: Callable[[], None]) -> None:
        """Calls `listener`, in the writer thread, after another process has written."""
        self._external_write_listeners.append(listener)

    def submit(
        self, apply: Callable[[sqlite3.Cursor], T], *, then: Callable[[T], None] | None = None, after_rows: bool = False
    ) -> asyncio.Future[T]:
        """Queue a write; writes are carried out in the order of these calls, and many share one commit.

        apply: runs in the writer thread inside a transaction. An exception fails only this operation: the others
        of its group are run again, so `apply` must be repeatable. then: called in that thread with the result, after
        the commit and before the future is done; it also runs when the awaiting task was cancelled. after_rows: the
        rows of earlier calls of `submit_row` are written before it.
        The future raises StorageError for errors of SQLite, and other exceptions of `apply` as they are.
        """
        return self._queue_up(apply=apply, then=then, after_rows=after_rows)

    def submit_row(self, insert: RowWriter, row: Any) -> asyncio.Future[None]:
        """Like `submit`; the rows of one group are written together, after its operations without `after_rows`."""
        return self._queue_up(insert=insert, row=row)

    async def execute(self, statement: str, *arguments: Any) -> None:
        """Queues one statement as `submit` does, and waits for it."""
        await self.submit(lambda cursor: cursor.execute(statement, arguments) and None)

    async def execute_all(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Like `execute`, for statements with their arguments, in one transaction."""

        def apply(cursor: sqlite3.Cursor) -> None:
            for statement, arguments in statements:
                cursor.execute(statement, arguments)

        await self.submit(apply)

    async def fetch(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows of one query."""
        return await self.read(lambda cursor: cursor.execute(query, arguments).fetchall())

    def transact(
        self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, then: Callable[[T], None] | None = None
    ) -> asyncio.Future[T]:
        """Like `submit`, for a function that both databases share."""
        return self.submit(lambda cursor: completed(work(Transaction(cursor))), then=then)

    async def snapshot(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        """Like `read`, for a function that both databases share."""
        return await self.read(lambda cursor: completed(work(Transaction(cursor))))

    def refresh(self) -> asyncio.Future[None]:
        """Checks, in order with the writes, whether other processes wrote before this call. Takes no file lock."""
        return self._queue_up()

    def _queue_up(self, **operation: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            future.set_exception(StorageError("Writing", "the database was closed"))
            return future
        self._queue.append(_Operation(loop, future, **operation))
        if self._is_idle and self._waker is not loop:
            # Wakes the writer after the ready callbacks have run, so that their writes share the commit.
            self._waker = loop
            loop.call_soon(self._wake_writer)
        return future

    async def read(self, fetch: Callable[[sqlite3.Cursor], T]) -> T:
        """Runs queries in a reading thread, all on one snapshot of the database."""
        if self._closed:
            raise StorageError("Reading", "the database was closed")
        if self._connection is None:
            await self.refresh()  # opens the file; a write would wait for the write lock
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READERS, "greenroom-sqlite-reader")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, fetch)

    async def close(self) -> None:
        """Releases the database. The last user waits until all submitted writes are done and the file is closed."""
        with self._open_lock:
            self._users -= 1
            if self._users > 0 or self._closed:
                return
            self._closed = True
            if self._open.get(self._key) is self:
                del self._open[self._key]
        await asyncio.get_running_loop().run_in_executor(None, self._shut_down)

    def _shut_down(self) -> None:
        if self._readers is not None:
            self._readers.shutdown()
            for connection in self._reader_connections:
                connection.close()
        if self._queue:
            self._start()
        if self._writer is not None:
            self._stopping = True
            self._wake.put(None)
            self._writer.join()
        if isinstance(self.codec, EncryptingCodec):
            self.codec.ring.close()

    def _wake_writer(self) -> None:
        self._waker = None
        if self._writer is None:
            self._start()
        self._wake.put(None)

    def _start(self) -> None:
        with self._start_lock:
            if self._writer is None:
                # A daemon, so that a program that never closes the database can end; awaited writes are on disk.
                self._writer = threading.Thread(target=self._write_forever, name="greenroom-sqlite-writer", daemon=True)
                self._writer.start()

    def _read(self, fetch: Callable[[sqlite3.Cursor], T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._reader, "connection", None)
            if connection is None:
                connection = self._reader.connection = self._connect()
                connection.execute("PRAGMA query_only = ON")
                self._reader_connections.append(connection)

            self.stats.reads += 1
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            try:
                return fetch(cursor)
            finally:
                if connection.in_transaction:
                    cursor.execute("ROLLBACK")
                cursor.close()
        except sqlite3.Error as error:
            raise _storage_error("Reading", error) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            timeout=self.busy_timeout_seconds,
            isolation_level=None,
            cached_statements=256,
            check_same_thread=False,
        )

    # From here on: the writer thread.

    def _write_forever(self) -> None:
        while self._wait():
            self._write_next()
        self._disconnect()

    def _wait(self) -> bool:
        """Blocks until there are writes; False when the database is closed."""
        while not self._queue:
            if self._stopping:
                return False
            self._is_idle = True
            # A caller that queued before it saw the line above did not wake the writer.
            if not self._queue:
                self._wake.get()
        self._is_idle = False
        return True

    def _write_next(self) -> None:
        queue = self._queue
        batch = [queue.popleft() for _ in range(min(len(queue), _BATCH))]
        writes = [operation for operation in batch if operation.apply is not None or operation.insert is not None]
        if len(writes) < len(batch):
            self._refresh([operation for operation in batch if operation.apply is None and operation.insert is None])
        if writes:
            self._write(writes)
        self._answer(batch)

    def _refresh(self, batch: list[_Operation]) -> None:
        try:
            self._check_external_writes(self._cursor or self._open_file())
        except (sqlite3.Error, OSError, StorageError) as error:
            _fail(batch, error)

    def _check_external_writes(self, cursor: sqlite3.Cursor) -> None:
        """Notifies the listeners if another process has written."""
        started = time.monotonic()
        (data_version,) = cursor.execute("PRAGMA data_version").fetchone()
        if data_version != self._data_version:
            self._data_version = data_version
            for listener in self._external_write_listeners:
                listener()
        self.refreshed_at = started

    def _write(self, batch: list[_Operation], *, may_reclaim: bool = True) -> bool:
        """Runs a group in one transaction; if that fails, each of its operations in its own.

        False if not even a transaction could be begun.
        """
        cursor = self._begin(batch)
        if cursor is None:
            return False

        try:
            rows: dict[RowWriter, list[Any]] = {}
            for operation in batch:
                if operation.after_rows:
                    for insert in list(rows):
                        insert.write(cursor, rows.pop(insert))
                if operation.insert is not None:
                    rows.setdefault(operation.insert, []).append(operation.row)
                elif operation.apply is not None:
                    operation.result = operation.apply(cursor)

            for insert, together in rows.items():
                insert.write(cursor, together)
            cursor.execute("COMMIT")
        except Exception as error:  # Any exception belongs to the operation's caller; the thread must continue.
            self._roll_back()
            return self._write_again(batch, error, may_reclaim=may_reclaim)

        self.stats.commits += 1
        self.stats.operations += len(batch)
        if self._is_full:  # there is space again, which the WAL would use up
            self._reclaimed_at = -1e9
            self._reclaim()

        for operation in batch:
            if operation.then is not None:
                try:
                    operation.then(operation.result)
                except Exception as error:  # As above; the write itself is committed.
                    operation.error = error
        return True

    def _write_again(self, batch: list[_Operation], error: Exception, *, may_reclaim: bool) -> bool:
        """Like `_write`, after the group was rolled back for this error, which is the result of a group of one
        operation.
        """
        if _is_disk_full(error):
            self._is_full = True
            if may_reclaim and self._reclaim():
                return self._write(batch, may_reclaim=False)

        if len(batch) == 1:
            batch[0].error = _storage_error("Writing", error) if isinstance(error, sqlite3.Error) else error
            return True

        self.stats.retried += len(batch)
        for number, operation in enumerate(batch):
            if not self._write([operation]):
                # Waiting for the busy timeout once per operation would take too long.
                _fail(batch[number + 1 :], operation.error or StorageError("Writing", "no transaction could be begun"))
                break
        return True

    def _begin(self, batch: list[_Operation]) -> sqlite3.Cursor | None:
        """A cursor in a transaction, or None after the whole group was failed."""
        try:
            cursor = self._cursor or self._open_file()
            if self._is_full:
                self._reclaim()
            cursor.execute("BEGIN IMMEDIATE")
            self._check_external_writes(cursor)
        except (sqlite3.Error, OSError, StorageError) as error:
            self._roll_back()
            _fail(batch, error)
            return None
        return cursor

    def _reclaim(self) -> bool:
        """Writes the WAL back into the database file and truncates it, after the disk was full; True when it did.

        The WAL may hold most of a small disk, and is otherwise written back only when it has thousands of pages.
        """
        cursor = self._cursor
        if cursor is None or time.monotonic() - self._reclaimed_at < self.reclaim_seconds:
            return False
        self._reclaimed_at = time.monotonic()
        try:
            cursor.execute("PRAGMA busy_timeout = 100")
            self._is_full = bool(cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            cursor.execute(f"PRAGMA busy_timeout = {int(self.busy_timeout_seconds * 1000)}")
        except sqlite3.Error:
            return False  # there is still no space
        return not self._is_full

    def _open_file(self) -> sqlite3.Cursor:
        if isinstance(self.codec, EncryptingCodec):
            self.codec.ring.load_now()
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        connection = self._connect()
        try:
            if self.holds_content and self.codec.is_plain and has_keys(connection):
                raise KeyRefused(f"{self.path} is encrypted, and no keys are given: set encryption.keys")
            prepare(connection, patience_seconds=self.busy_timeout_seconds)
            connection.execute("PRAGMA synchronous = FULL")
            # Written-back pages are what checkpoints cost; a longer WAL writes each busy page back less often.
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._cursor = connection.cursor()
        return self._cursor

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            # A connection in an unknown state is of no use; the next group opens the file again.
            self._disconnect()

    def _disconnect(self) -> None:
        connection = self._connection
        self._connection = None
        self._cursor = None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass

    def _answer(self, batch: list[_Operation]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Operation]] = {}
        for operation in batch:
            by_loop.setdefault(operation.loop, []).append(operation)
        for loop, operations in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, operations)
            except RuntimeError:
                pass  # The loop was closed: no task awaits the result.


def _resolve(operations: list[_Operation]) -> None:
    for operation in operations:
        future = operation.future
        if future.done():
            continue  # Cancelled by its awaiter; the write keeps its outcome.
        if operation.error is not None:
            future.set_exception(operation.error)
        else:
            future.set_result(operation.result)


def _is_disk_full(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _fail(operations: list[_Operation], error: Exception) -> None:
    for operation in operations:
        operation.error = error if isinstance(error, KeyRefused) else StorageError("Writing", _reason(error))


def _storage_error(operation: str, error: sqlite3.Error) -> StorageError:
    return StorageError(operation, _reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, StorageError):
        return error.reason
    return f"{error} ({getattr(error, 'sqlite_errorname', None) or type(error).__name__})"
