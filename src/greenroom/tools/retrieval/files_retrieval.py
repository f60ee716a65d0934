"""Retrieves passages of local files by their words (a full-text index, SQLite FTS5) and by their meaning
(embeddings), from an index in memory or in a database file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path

from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.errors import AgentConfigError, InvalidRequest, ModelError
from greenroom.invocation.user_context import ToolContext
from greenroom.memory.entries import fused
from greenroom.memory.signatures import check_numpy
from greenroom.memory.words import words_of_query, words_of_text
from greenroom.models.embeddings_by_name import embeddings_from_name
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.retrieval.file_passages import READABLE, passages
from greenroom.tools.retrieval.tool import NO_QUERY, BaseRetrievalTool, nothing_found, query_in

_log = logging.getLogger("greenroom.tools")

_VERSION = 2
_PASSAGES_PER_FILE = 1 << 20
_WEAK = 0.1
"""Passages with less than this share of the best score match common words only, and are left out."""
_FEW = 20
"""Indexes with fewer passages keep weak matches, since a word in half of them may still be relevant."""
_RANKED = 20
"""Number of passages of each ranking that are merged, unless more are requested."""
_EMBEDDED_AT_ONCE = 256

_TABLES = """
CREATE TABLE root (path TEXT NOT NULL, length INTEGER NOT NULL, overlap INTEGER NOT NULL);
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE VIRTUAL TABLE passage USING fts5(
    words, name, file UNINDEXED, position UNINDEXED, text UNINDEXED,
    tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TABLE vector (passage INTEGER PRIMARY KEY, model TEXT NOT NULL, data BLOB NOT NULL);
"""


class FilesRetrieval(BaseRetrievalTool):
    """Finds passages by their words, ranked by BM25; with embeddings also by their meaning, and both rankings are
    merged (reciprocal rank fusion). Reads text, Markdown, HTML, CSV and JSON.

    input_dir: a folder or a file; each search indexes changes first.
    embeddings: the model or its name, as `openai/text-embedding-3-small` or `local/smollm2-135m`; closed with the tool.
        When it fails, a search is by words only, with a warning in the log.
    index_path: a database file for the index, which then survives restarts; without it the index is
        in memory.
    passage_length, passage_overlap: in characters. Files larger than max_file_bytes, and those
        beyond max_files, are skipped with a warning.

    Raises AgentConfigError, and MissingExtra for embeddings without numpy.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str,
        input_dir: str | Path,
        embeddings: BaseEmbeddings | str | None = None,
        index_path: str | Path | None = None,
        max_passages: int = 5,
        passage_length: int = 1200,
        passage_overlap: int = 200,
        max_file_bytes: int = 10 * 1024 * 1024,
        max_files: int = 10_000,
    ) -> None:
        super().__init__(name=name, description=description)
        self.input_dir = Path(input_dir).expanduser()
        self.max_passages = max_passages

        if not self.input_dir.exists():
            raise AgentConfigError(f"Tool {name!r}: input_dir {str(self.input_dir)!r} does not exist")
        if not 0 <= passage_overlap <= passage_length // 2 or passage_length < 2:
            raise AgentConfigError(f"Tool {name!r}: passage_overlap must be at most half of passage_length")

        if embeddings is not None:
            check_numpy()

        if isinstance(embeddings, str):
            try:
                embeddings = embeddings_from_name(embeddings)
            except InvalidRequest as error:
                raise AgentConfigError(f"Tool {name!r}: {error.detail}") from error

        self._embeddings = embeddings
        self._embedding = asyncio.Lock()
        self._root = self.input_dir.resolve()

        if index_path is not None:
            self._database = Path(index_path).expanduser()
        else:
            self._database = None

        self._length = passage_length
        self._overlap = passage_overlap
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Returns `{"passages": [{"file", "position", "text"}]}`, best first, or a text when
        nothing was found.
        """
        query = query_in(args)
        if not query:
            return NO_QUERY

        await asyncio.to_thread(self._refresh)
        vector = await self._vector_of(query)
        hits = await asyncio.to_thread(self._search, query, vector)
        if hits:
            return {"passages": hits}
        return nothing_found(query, "the files")

    async def close(self) -> None:
        if self._embeddings is not None:
            await self._embeddings.close()

    async def _vector_of(self, query: str) -> array[float] | None:
        """Embeds passages that have no vector yet, then the query. None without embeddings, or when they fail."""
        embeddings = self._embeddings
        if embeddings is None:
            return None

        try:
            async with self._embedding:
                while passages := await asyncio.to_thread(self._without_vector, embeddings.model):
                    vectors = await embeddings.embed([text for _, text in passages])
                    await asyncio.to_thread(self._store_vectors, embeddings.model, passages, vectors)

            [vector] = await embeddings.embed([query], is_query=True)
        except ModelError as error:
            _log.warning("%s is searched by words only: %s", self._root, error)
            return None

        return vector

    def _without_vector(self, model: str) -> list[tuple[int, str]]:
        with self._lock:
            return (
                self._connected()
                .execute(
                    "SELECT rowid, text FROM passage WHERE rowid NOT IN (SELECT passage FROM vector WHERE model = ?) "
                    "LIMIT ?",
                    (model, _EMBEDDED_AT_ONCE),
                )
                .fetchall()
            )

    def _store_vectors(self, model: str, passages: list[tuple[int, str]], vectors: list[array[float]]) -> None:
        """Stores the vectors of passages that haven't changed meanwhile."""
        with self._lock, self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT OR REPLACE INTO vector (passage, model, data) "
                "SELECT rowid, ?, ? FROM passage WHERE rowid = ? AND text = ?",
                (
                    (model, vector.tobytes(), number, text)
                    for (number, text), vector in zip(passages, vectors, strict=True)
                ),
            )

    def _search(self, query: str, vector: array[float] | None) -> list[JsonObject]:
        """Blocks; best first."""
        with self._lock:
            connection = self._connected()
            limit = self.max_passages
            if vector is None:
                numbers = _by_words(connection, query, limit)
            else:
                ranked = max(limit, _RANKED)
                nearest = _by_meaning(connection, self._embeddings.model if self._embeddings else "", vector, ranked)
                numbers = fused(_by_words(connection, query, ranked), nearest)[:limit]

            return [_passage(connection, number) for number in numbers]

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection

        if self._database is not None:
            self._database.parent.mkdir(parents=True, exist_ok=True)

        # isolation_level=None: transactions are explicit. The lock replaces the check of threads.
        connection = sqlite3.connect(
            self._database or ":memory:", isolation_level=None, check_same_thread=False, timeout=30
        )
        weakref.finalize(self, connection.close)
        self._connection = connection

        if self._database is not None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")  # the index can be rebuilt from the files

        with connection:
            connection.execute("BEGIN IMMEDIATE")

            wanted = (str(self._root), self._length, self._overlap)
            is_current = connection.execute("PRAGMA user_version").fetchone()[0] == _VERSION
            if not is_current or connection.execute("SELECT * FROM root").fetchone() != wanted:
                for table in ("root", "file", "passage", "vector"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
                connection.execute("INSERT INTO root VALUES (?, ?, ?)", wanted)
                connection.execute(f"PRAGMA user_version={_VERSION}")

        return connection

    def _refresh(self) -> None:
        """Brings the index up to date, by modification time and size of the files. Blocks.

        Skips hidden files and folders, links out of the folder, and unsupported types.
        """
        with self._lock:
            connection = self._connected()
            present = dict(self._files())
            if _stored_stamps(connection) == present:
                return

            with connection:
                connection.execute("BEGIN IMMEDIATE")
                stamps = _stored_stamps(connection)
                for path in stamps.keys() - present.keys():
                    _remove(connection, path)

                for path, stamp in present.items():
                    if stamps.get(path) != stamp:
                        _remove(connection, path)
                        self._add(connection, path, stamp)

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Paths relative to the root, with slashes, and their modification time and size."""
        count = 0
        below = len(os.path.join(self._root.parent if self._root.is_file() else self._root, ""))
        for path in sorted(self._walk()):
            try:
                if os.path.islink(path) and not Path(path).resolve().is_relative_to(self._root):
                    continue
                stat = os.stat(path)
            except OSError:
                continue  # deleted meanwhile, or a broken link

            if count == self._max_files:
                _log.warning(
                    "%s has more than %d files; the others are not searched",
                    self._root,
                    count,
                )
                return

            count += 1
            name = path[below:].replace(os.sep, "/")
            yield name, (stat.st_mtime_ns, stat.st_size)

    def _walk(self) -> Iterator[str]:
        if self._root.is_file():
            yield str(self._root)
            return

        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if not name.startswith(".") and os.path.splitext(name)[1].lower() in READABLE:
                    yield os.path.join(folder, name)

    def _add(self, connection: sqlite3.Connection, name: str, stamp: tuple[int, int]) -> None:
        path = self._root if self._root.is_file() else self._root / name
        data = b""
        if stamp[1] > self._max_file_bytes:
            _log.warning(
                "%s is not searched: it has more than %d bytes",
                path,
                self._max_file_bytes,
            )
        else:
            try:
                with path.open("rb") as file:
                    data = file.read(self._max_file_bytes)
            except OSError as error:
                _log.warning("%s is not searched: %s", path, error)

        cursor = connection.execute(
            "INSERT INTO file (path, mtime_ns, size) VALUES (?, ?, ?)",
            (name, *stamp),
        )
        first = (cursor.lastrowid or 0) * _PASSAGES_PER_FILE
        connection.executemany(
            "INSERT INTO passage (rowid, words, name, file, position, text) VALUES (?, ?, ?, ?, ?, ?)",
            (
                (first + number, _searchable(text), _searchable(name), name, position, text)
                for number, (position, text) in enumerate(
                    passages(name, data, length=self._length, overlap=self._overlap)
                )
            ),
        )


def _by_words(connection: sqlite3.Connection, query: str, limit: int) -> list[int]:
    """Numbers of passages, best first."""
    words = words_of_query(query)
    if not words:
        return []

    rows = connection.execute(
        "SELECT rowid, -bm25(passage, 1.0, 0.5) AS score FROM passage WHERE passage MATCH ? "
        "ORDER BY score DESC, rowid LIMIT ?",
        (" OR ".join(f'"{word}"' for word in words), limit),
    ).fetchall()
    few = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM passage LIMIT {_FEW})").fetchone()[0] < _FEW
    return [number for number, score in rows if few or score >= rows[0][1] * _WEAK]


def _by_meaning(connection: sqlite3.Connection, model: str, query: array[float], limit: int) -> list[int]:
    """Numbers of passages, nearest first."""
    import numpy

    stored = connection.execute("SELECT passage, data FROM vector WHERE model = ?", (model,)).fetchall()
    if not stored:
        return []

    vectors = numpy.frombuffer(b"".join(data for _, data in stored), "f4").reshape(-1, len(query))
    cosines = vectors @ numpy.frombuffer(query, "f4")
    return [stored[at][0] for at in numpy.argsort(-cosines)[:limit]]


def _passage(connection: sqlite3.Connection, number: int) -> JsonObject:
    file, position, text = connection.execute(
        "SELECT file, position, text FROM passage WHERE rowid = ?", (number,)
    ).fetchone()
    return {"file": file, "position": position, "text": text}


def _searchable(text: str) -> str:
    """The text, followed by the words of scripts without spaces, since FTS5 splits at spaces and
    signs only.
    """
    if text.isascii():
        return text
    return f"{text}\n{' '.join(sorted(words_of_text(text)))}"


def _stored_stamps(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    return {path: (mtime, size) for path, mtime, size in connection.execute("SELECT path, mtime_ns, size FROM file")}


def _remove(connection: sqlite3.Connection, path: str) -> None:
    row = connection.execute("DELETE FROM file WHERE path = ? RETURNING id", (path,)).fetchone()
    if row is not None:
        first = row[0] * _PASSAGES_PER_FILE
        span = (first, first + _PASSAGES_PER_FILE - 1)
        connection.execute("DELETE FROM passage WHERE rowid BETWEEN ? AND ?", span)
        connection.execute("DELETE FROM vector WHERE passage BETWEEN ? AND ?", span)
