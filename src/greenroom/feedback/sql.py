"""Feedback in a database, by statements that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from greenroom.encryption.codec import Codec
from greenroom.errors import TooMuchFeedback
from greenroom.feedback.store import MAX_PER_EVENT, MAX_SEARCHED, FeedbackStore, page_of, position_after
from greenroom.records import wire
from greenroom.records.feedback import Feedback, FeedbackFilter, ListFeedbackResponse
from greenroom.records.run import RunFilter
from greenroom.records.session import SessionKey

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

DELETE_FEEDBACK_OF_SESSION = "DELETE FROM feedback WHERE app_name = ? AND user_id = ? AND session_id = ?"

_OF_EVENT = "app_name = ? AND user_id = ? AND session_id = ? AND event_id = ?"
_COUNT_OTHERS = f"SELECT count(*) FROM feedback WHERE {_OF_EVENT} AND id <> ?"
_SAVE = """
    INSERT INTO feedback (
        id, app_name, user_id, session_id, event_id, run_id, name, source, subject, label, score, created_at, data
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET source = excluded.source, label = excluded.label, score = excluded.score,
        created_at = excluded.created_at, data = excluded.data
"""
_DELETE = f"DELETE FROM feedback WHERE {_OF_EVENT} AND subject = ?"
_DELETE_SUBJECT = "DELETE FROM feedback WHERE app_name = ? AND subject = ?"
_LIST = "SELECT id, data FROM feedback WHERE {terms} ORDER BY created_at DESC, id DESC LIMIT ?"

_TERMS = {
    "app_name": "app_name = ?",
    "user_id": "user_id = ?",
    "session_id": "session_id = ?",
    "event_id": "event_id = ?",
    "name": "name = ?",
    "label": "label = ?",
    "source": "source = ?",
    "subject": "subject = ?",
    "min_score": "score >= ?",
    "max_score": "score <= ?",
    "created_from": "created_at >= ?",
    "created_before": "created_at < ?",
}
"""By field of the filter."""

_NEWEST_OF_NAME = f"""
    SELECT run_id, label, score FROM feedback WHERE app_name = ? AND name = ? ORDER BY created_at DESC, id DESC
    LIMIT {MAX_SEARCHED}
"""

_decode = wire.decoder(Feedback)


def judged_runs(app_name: str, where: RunFilter) -> tuple[str, list[str | float]]:
    """A query for the ids of the runs with the feedback of a filter, once each, and its arguments.

    It reads the newest feedback of the name by an index, whatever its scores. A label is given by `label_of`.
    """
    assert where.feedback is not None
    arguments: list[str | float] = [app_name, where.feedback]
    terms = ["run_id <> ''"]
    for term, value in (
        ("label = ?", where.feedback_label),
        ("score >= ?", where.min_score),
        ("score <= ?", where.max_score),
    ):
        if value is not None:
            terms.append(term)
            arguments.append(value)
    return f"SELECT DISTINCT run_id FROM ({_NEWEST_OF_NAME}) AS newest WHERE {' AND '.join(terms)}", arguments


class Transaction(Protocol):
    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]: ...


class SqlFeedbackStore(FeedbackStore):
    """In the database of the runs, which closes it."""

    def __init__(self, database: SqliteDatabase | PostgresDatabase) -> None:
        self._database = database

    async def save(self, feedback: Feedback) -> None:
        event = *feedback.session_key, feedback.event_id

        async def write(transaction: Transaction) -> None:
            [(others,)] = await transaction.fetch(_COUNT_OTHERS, *event, feedback.id)
            if others >= MAX_PER_EVENT:
                raise TooMuchFeedback(feedback.event_id, MAX_PER_EVENT)
            await transaction.fetch(_SAVE, *_row(self._database.codec, feedback))

        await self._write(feedback.session_key, write)

    async def delete(self, key: SessionKey, event_id: str, *, subject: str, name: str | None = None) -> None:
        async def write(transaction: Transaction) -> None:
            if name is None:
                await transaction.fetch(_DELETE, *key, event_id, subject)
            else:
                await transaction.fetch(f"{_DELETE} AND name = ?", *key, event_id, subject, name)

        await self._write(key, write)

    async def delete_subject(self, *, app_name: str, subject: str) -> None:
        await self._database.execute(_DELETE_SUBJECT, app_name, subject)

    async def list(
        self, where: FeedbackFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListFeedbackResponse:
        terms: list[str] = []
        arguments: list[str | float] = []
        for field, term in _TERMS.items():
            wanted = getattr(where, field)
            if field == "label" and wanted is not None:
                wanted = label_of(self._database.codec, wanted)
            if wanted is not None:
                terms.append(term)
                arguments.append(wanted)

        before = position_after(page_token)
        if before is not None:
            terms.append("(created_at, id) < (?, ?)")
            arguments += before

        query = _LIST.format(terms=" AND ".join(terms))
        rows = await self._database.fetch(query, *arguments, limit + 1)
        decode = self._database.codec.decode
        return page_of([_decode(decode(data, "feedback", feedback_id)) for feedback_id, data in rows], limit)

    async def _write(self, key: SessionKey, write: Callable[[Transaction], Coroutine[Any, Any, None]]) -> None:
        """Runs `write` in a transaction of the session's owner."""
        del key  # one process owns all sessions of a file
        await self._database.transact(write)


def label_of(codec: Codec, label: str) -> str:
    """Returns the value of the column of the label, by which queries select."""
    return codec.digest(label, "feedback.label")


def _row(codec: Codec, feedback: Feedback) -> tuple[str | float | None, ...]:
    return (
        feedback.id,
        *feedback.session_key,
        feedback.event_id,
        feedback.run_id,
        feedback.name,
        feedback.source,
        feedback.subject,
        label_of(codec, feedback.label) if feedback.label is not None else None,
        feedback.score_number,
        feedback.created_at,
        codec.encode(wire.encode(feedback), "feedback", feedback.id),
    )
