"""Gives the disk space of deleted rows back to the file system.

SQLite keeps the pages of deleted rows in the file and writes new rows into them, so a file never gets smaller by
itself. `PRAGMA auto_vacuum` would change that, but makes each write of a turn keep a map of all pages, and can't be
turned on for an existing file without the same rewrite.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from greenroom.errors import StorageError
from greenroom.sqlite.migrate import APPLICATION_ID

_OPERATION = "Compacting the database"


def free_bytes(path: str) -> int:
    """The size of the file's pages that hold no rows; 0 if the file doesn't exist."""
    if not Path(path).is_file():
        return 0
    with contextlib.closing(_connect(path, busy_timeout_seconds=5.0)) as connection:
        (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        return pages * page_size


def compact(path: str, *, busy_timeout_seconds: float = 5.0) -> None:
    """Rewrites the file without free pages, and truncates its write-ahead log.

    Blocks for about as long as copying the file takes; meanwhile other processes can read, but not write. Needs free
    disk space of twice the size of the remaining data: for a temporary copy, and for the log. Interrupted at any time,
    the file is as it was.

    Raises StorageError if the file isn't one of ours, another process is writing, or the disk is full.
    """
    try:
        with contextlib.closing(_connect(path, busy_timeout_seconds)) as connection:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            if application_id != APPLICATION_ID:
                raise StorageError(_OPERATION, f"{path} is not a database of greenroom")

            connection.execute("VACUUM")
            # The new pages are in the log until they are written back; only then does the file get smaller.
            (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        raise StorageError(_OPERATION, f"{error} ({error.sqlite_errorname})") from error

    if is_busy:
        raise StorageError(_OPERATION, "another process is reading the old pages; run this again when it has ended")


def _connect(path: str, busy_timeout_seconds: float) -> sqlite3.Connection:
    """Opens an existing file."""
    uri = f"{Path(path).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=busy_timeout_seconds, isolation_level=None)
