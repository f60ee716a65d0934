"""Requests to people in a database, by the statements that SQLite and PostgreSQL share.

The table `request_approvers` names those whom open requests concern, so that a person's list is read by an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from greenroom.encryption.codec import Codec
from greenroom.records import wire
from greenroom.records.human_requests import EXPIRES_AFTER_SECONDS
from greenroom.records.inbox import (
    HumanRequest,
    Reader,
    RequestChanges,
    RequestFilter,
    RequestKind,
    RequestStatus,
    answerers_of,
    names_of,
)

_decode = wire.decoder(HumanRequest)

_COLUMNS = "id, run_id, app_name, user_id, kind, tool, created_at, status, data"
_ADD = f"""
    INSERT INTO requests ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING id
"""
_SAVE = f"""
    INSERT INTO requests ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, data = excluded.data
"""
_CANCEL = "UPDATE requests SET status = 'cancelled' WHERE id = ? AND status = 'open'"
_ADD_ANSWERER = "INSERT INTO request_approvers (approver, request_id, may_answer) VALUES (?, ?, ?)"
_DELETE_ANSWERERS = "DELETE FROM request_approvers WHERE request_id = ?"

GET_REQUEST = "SELECT id, status, data FROM requests WHERE id = ?"
COUNT_REQUESTS = f"""
    SELECT app_name, count(*) FROM requests
    WHERE status = 'open' AND (kind = '{RequestKind.INPUT}' OR created_at >= ?) GROUP BY app_name
"""
DELETE_ANSWERERS_OF_SESSION = """
    DELETE FROM request_approvers WHERE request_id IN (
        SELECT requests.id FROM requests JOIN runs ON runs.id = run_id
        WHERE runs.app_name = ? AND runs.user_id = ? AND runs.session_id = ?
    )
"""


class Fetches(Protocol):
    """A transaction of either database."""

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]: ...


async def write_changes(transaction: Fetches, codec: Codec, changes: RequestChanges) -> None:
    for request in changes.added:
        if await transaction.fetch(_ADD, *_row(codec, request)):
            await _write_answerers(transaction, request)
    for request in changes.answered:
        await write_request(transaction, codec, request)
    for request_id in changes.cancelled:
        await transaction.fetch(_CANCEL, request_id)
        await transaction.fetch(_DELETE_ANSWERERS, request_id)


async def write_request(transaction: Fetches, codec: Codec, request: HumanRequest) -> None:
    await transaction.fetch(_SAVE, *_row(codec, request))
    await transaction.fetch(_DELETE_ANSWERERS, request.id)
    await _write_answerers(transaction, request)


async def _write_answerers(transaction: Fetches, request: HumanRequest) -> None:
    for name, may_answer in answerers_of(request).items():
        await transaction.fetch(_ADD_ANSWERER, name, request.id, may_answer)


def list_query(
    where: RequestFilter, after: tuple[float, str] | None, limit: int | None
) -> tuple[str, *tuple[str | float, ...]]:
    """Returns a query for requests after a position, newest first, one more than `limit`; and its arguments."""
    terms = ["1 = 1" if where.with_closed else "status = 'open'"]
    arguments: list[str | float] = []

    def require(term: str, *values: str | float) -> None:
        terms.append(term)
        arguments.extend(values)

    for column, values in (("app_name", where.app_names), ("kind", where.kinds), ("run_id", where.run_ids)):
        if values is not None:
            require(_is_one_of(column, values), *values)
    if where.user_id is not None:
        require("user_id = ?", where.user_id)
    if where.tool is not None:
        require("tool = ?", where.tool)
    if where.open_at is not None:
        require(f"(kind = '{RequestKind.INPUT}' OR created_at >= ?)", where.open_at - EXPIRES_AFTER_SECONDS)
    if where.seen_by is not None:
        names = names_of(where.seen_by)
        apps = where.seen_by.all_users_of
        require(f"({_is_one_of('app_name', apps)} OR {_concerns(names)})", *apps, *names)
    if where.answered_by is not None:
        require(*_may_answer(where.answered_by))
    if after is not None:
        require("(created_at, id) < (?, ?)", *after)

    query = f"SELECT id, status, data FROM requests WHERE {' AND '.join(terms)} ORDER BY created_at DESC, id DESC"
    if limit is not None:
        query += f" LIMIT {limit + 1}"
    return query, *arguments


def read_request(codec: Codec, request_id: str, status: str, data: str) -> HumanRequest:
    request = _decode(codec.decode(data, "requests", request_id))
    request.status = RequestStatus(status)
    return request


def _row(codec: Codec, request: HumanRequest) -> tuple[Any, ...]:
    return (
        request.id,
        request.run_id,
        request.app_name,
        request.user_id,
        request.kind.value,
        request.tool,
        request.created_at,
        request.status.value,
        codec.encode(wire.encode(request), "requests", request.id),
    )


def _is_one_of(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join('?' * len(values)) or 'NULL'})"


def _concerns(names: Sequence[str], condition: str = "") -> str:
    """True for requests that concern somebody with one of the names."""
    return f"id IN (SELECT request_id FROM request_approvers WHERE {_is_one_of('approver', names)}{condition})"


def _may_answer(reader: Reader) -> tuple[str, *tuple[str, ...]]:
    names = names_of(reader)
    itself = names[:1]
    term = f"{_concerns(names, ' AND may_answer = 1')} AND NOT {_concerns(itself, ' AND may_answer = -1')}"
    return term, *names, *itself
