"""The audit trail in a database, by statements that SQLite and PostgreSQL share."""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from greenroom.audit.continuity import Continuity, before, problem_of_head
from greenroom.audit.signing import HeadSigner
from greenroom.audit.store import (
    AuditRow,
    AuditStore,
    empty_chain,
    first_entries,
    head_entry,
    page_of,
    position_of,
    row_of,
)
from greenroom.errors import TrailCut
from greenroom.records.audit import AuditEntry, AuditFilter, AuditState, ChainHead, ListAuditResponse, new_entry

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_log = logging.getLogger("greenroom.audit")

_COLUMNS = ", ".join(AuditRow._fields)
_INSERT = f"INSERT INTO audit_entries ({_COLUMNS}) VALUES ({', '.join('?' * len(AuditRow._fields))})"
_ROW = f"SELECT {_COLUMNS} FROM audit_entries WHERE chain = ? AND sequence = ?"
_LAST = f"SELECT {_COLUMNS} FROM audit_entries WHERE chain = ? ORDER BY sequence DESC LIMIT 1"
_FIRST = f"SELECT {_COLUMNS} FROM audit_entries WHERE chain = ? ORDER BY sequence LIMIT 1"
_LAST_HEAD = f"""
    SELECT {_COLUMNS} FROM audit_entries WHERE chain = ? AND action = 'head.signed' ORDER BY sequence DESC LIMIT 1
"""
_HEAD_BEFORE = f"""
    SELECT {_COLUMNS} FROM audit_entries WHERE action = 'head.signed' AND time < ?
    ORDER BY time DESC, chain DESC, sequence DESC LIMIT 1
"""
_NEWEST_FINDING = f"""
    SELECT {_COLUMNS} FROM audit_entries WHERE action = 'trail.broken'
    ORDER BY time DESC, chain DESC, sequence DESC LIMIT 1
"""
_ROWS = f"SELECT {_COLUMNS} FROM audit_entries WHERE (chain, sequence) > (?, ?) ORDER BY chain, sequence LIMIT ?"
_ROWS_OF_CHAIN = f"SELECT {_COLUMNS} FROM audit_entries WHERE chain = ? AND sequence > ? ORDER BY sequence LIMIT ?"
_DELETE = """
    DELETE FROM audit_entries WHERE chain = ?1 AND sequence < ?2 AND sequence <= ?3 + (
        SELECT min(sequence) FROM audit_entries WHERE chain = ?1
    )
    RETURNING 1
"""
_LOCK_CHAIN = "SELECT pg_advisory_xact_lock(1735552609, ?)"
"""Until the end of the transaction. The first number is ours: 'gra' and a number."""

POSTGRES_CHAINS = 16
"""More servers than this share chains, and wait for each other's commits."""

_END_OF_TIME = 2**53
_CHECKED_AT_ONCE = 200
_DELETED_AT_ONCE = 5000


class Fetches(Protocol):
    """A database, or a transaction."""

    async def fetch(self, statement: str, /, *arguments: Any) -> Sequence[Any]: ...


class SqlAuditStore(AuditStore):
    """In the database of the runs, which closes it.

    An append reads the last entry in its transaction, under a lock, so that a transaction that is rolled back, or
    repeated, leaves no gap. What was appended is remembered to check the chain before it is signed.
    """

    def __init__(self, database: SqliteDatabase | PostgresDatabase, *, chains: int) -> None:
        """chains: 1 where the database has one writer at a time anyway."""
        self._database = database
        self._chains = chains
        self._chain: int | None = 1 if chains == 1 else None
        self._continuity = Continuity()

    def append(self, entries: Sequence[AuditEntry], *, signer: HeadSigner | None = None) -> Future[None]:
        if signer is None:
            return self._database.transact(
                lambda transaction: self.write(transaction, entries), then=self.confirming(entries)
            )
        heads: list[AuditEntry] = []

        async def write(transaction: Fetches) -> None:
            heads.append(await self._append_signed(transaction, entries, signer))

        return self._database.transact(write, then=lambda _: self._note_signed(heads[-1]))

    async def write(self, transaction: Fetches, entries: Sequence[AuditEntry]) -> None:
        """Appends entries in a transaction that writes what they record. `confirming` is to be called after it."""
        last = await self._lock_chain(transaction)
        await _insert_all(transaction, _place_of(last), entries)

    def confirming(self, entries: Sequence[AuditEntry]) -> Callable[[object], None] | None:
        """A function to call once the transaction with these entries is committed; None if there are none."""
        if not entries:
            return None
        return lambda _: self._continuity.note_appended(entries)

    async def sign(self, signer: HeadSigner) -> AuditEntry | None:
        if self._chain is not None:  # most of it before the chain is locked
            await self._check(self._database, self._chain, signer)

        async def write(transaction: Fetches) -> AuditEntry | None:
            last = await self._lock_chain(transaction)
            is_signed = not isinstance(last, AuditRow) or last.action == "head.signed"
            if is_signed and last.sequence >= self._continuity.newest_known:
                return None
            return await self._append_head(transaction, _place_of(last), (), signer)

        return await self._database.transact(write, then=self._note_signed)

    async def list_entries(
        self, where: AuditFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListAuditResponse:
        terms, arguments = _conditions(where)
        before = position_of(page_token)
        if before is not None:
            terms.append("(time, chain, sequence) < (?, ?, ?)")
            arguments += before
        chosen = f"WHERE {' AND '.join(terms)}" if terms else ""
        query = f"""
            SELECT {_COLUMNS} FROM audit_entries {chosen} ORDER BY time DESC, chain DESC, sequence DESC LIMIT ?
        """
        rows = await self._database.fetch(query, *arguments, limit + 1)
        return page_of([AuditRow(*row).entry for row in rows], limit)

    async def state(self) -> AuditState:
        signed = await self.head_before(_END_OF_TIME)
        rows = await self._database.fetch(_NEWEST_FINDING)
        return AuditState(signed=signed, broken=AuditRow(*rows[0]).entry if rows else None)

    async def heads(self) -> Sequence[ChainHead]:
        return await self._ends(self._database, "DESC")

    async def starts(self) -> Sequence[ChainHead]:
        return await self._ends(self._database, "ASC")

    async def head_before(self, time: int) -> AuditEntry | None:
        rows = await self._database.fetch(_HEAD_BEFORE, time)
        return AuditRow(*rows[0]).entry if rows else None

    async def rows(self, *, after: tuple[int, int] = (0, 0), limit: int = 1000) -> Sequence[AuditRow]:
        return [AuditRow(*row) for row in await self._database.fetch(_ROWS, *after, limit)]

    async def cut(self, first: Sequence[ChainHead], entry: AuditEntry, *, signer: HeadSigner) -> None:
        async def write(transaction: Fetches) -> AuditEntry:
            for place in first:
                rows = await transaction.fetch(_ROW, place.chain, place.sequence)
                if not rows or AuditRow(*rows[0]).hash != place.hash:
                    raise TrailCut
            entry.cuts = first_entries(await self._ends(transaction, "ASC"), first)
            return await self._append_signed(transaction, [entry], signer)

        await self._database.transact(write, then=self._note_signed)
        for place in entry.cuts or ():
            await self._delete_before(place)

    async def _delete_before(self, place: ChainHead) -> None:
        """Deletes some thousand entries at a time, the oldest ones first: others write meanwhile."""

        async def delete(transaction: Fetches) -> bool:
            return bool(await transaction.fetch(_DELETE, place.chain, place.sequence, _DELETED_AT_ONCE))

        while await self._database.transact(delete):
            pass

    async def _lock_chain(self, transaction: Fetches) -> AuditRow | ChainHead:
        """The last entry of this server's chain, after which nobody else appends until the transaction ends."""
        if self._chain is None:
            self._chain = await self._idle_chain(transaction)
        if self._chains > 1:
            await transaction.fetch(_LOCK_CHAIN, self._chain)
        return await _row(transaction, _LAST, self._chain) or empty_chain(self._chain)

    async def _idle_chain(self, transaction: Fetches) -> int:
        """The chain to which nothing was appended for the longest time: probably no running server's."""
        times: list[tuple[int, int]] = []
        for chain in range(1, self._chains + 1):
            last = await _row(transaction, _LAST, chain)
            times.append((last.time if last is not None else 0, chain))
        return min(times)[1]

    async def _append_signed(
        self, transaction: Fetches, entries: Sequence[AuditEntry], signer: HeadSigner
    ) -> AuditEntry:
        last = await self._lock_chain(transaction)
        return await self._append_head(transaction, _place_of(last), entries, signer)

    async def _append_head(
        self, transaction: Fetches, last: ChainHead, entries: Sequence[AuditEntry], signer: HeadSigner
    ) -> AuditEntry:
        """Checks the chain up to its last entry, and appends entries and a signed head."""
        _, problem = await self._checked_to_end(transaction, last.chain, signer)
        if problem is None and last.sequence < self._continuity.newest_known:
            number = self._continuity.newest_known
            problem = f"chain {last.chain}: entry {number}, which was the newest one, is missing"
        if problem is not None:
            _log.error("the audit trail was changed: %s", problem)
            entries = [new_entry("trail.broken", outcome="refused", target=problem), *entries]

        last = await _insert_all(transaction, last, entries)
        newest = await self._ends(transaction, "DESC")
        head = head_entry(signer, [other for other in newest if other.chain != last.chain])
        await _insert(transaction, row_of(head, last, signer))
        return head

    async def _check(self, database: Fetches, chain: int, signer: HeadSigner) -> None:
        """Checks the committed entries of this server's chain."""
        checked, problem = await self._checked_to_end(database, chain, signer)
        self._continuity.checked = checked
        self._continuity.problem = problem

    async def _checked_to_end(self, database: Fetches, chain: int, signer: HeadSigner) -> tuple[ChainHead, str | None]:
        """Checks the entries after those that were checked; returns the last one, and the first problem."""
        problem = self._continuity.problem
        place = self._continuity.checked
        if place is None:
            head = await _row(database, _LAST_HEAD, chain)
            place = empty_chain(chain)
            if head is not None:
                place = head.head
                problem = problem_of_head(head, signer)

        while page := await database.fetch(_ROWS_OF_CHAIN, chain, place.sequence, _CHECKED_AT_ONCE):
            rows = [AuditRow(*row) for row in page]
            if rows[0].sequence > place.sequence + 1:
                first = await _row(database, _FIRST, chain)
                if first is not None and first == rows[0]:  # the trail was cut; verifying it checks where it begins
                    place = before(first)
            problem = problem or self._continuity.problem_in(rows, place)
            place = rows[-1].head
        return place, problem

    def _note_signed(self, head: AuditEntry | None) -> None:
        if head is not None:
            self._continuity.note_signed(head)

    async def _ends(self, database: Fetches, order: Literal["ASC", "DESC"]) -> list[ChainHead]:
        """The first or the last entries of all chains, by one statement, which sees one moment."""
        ends = (
            f"SELECT * FROM (SELECT chain, sequence, hash FROM audit_entries WHERE chain = {chain} "
            f"ORDER BY sequence {order} LIMIT 1) AS chain_{chain}"
            for chain in range(1, self._chains + 1)
        )
        rows = await database.fetch(" UNION ALL ".join(ends))
        return [ChainHead(chain=chain, sequence=sequence, hash=entry_hash) for chain, sequence, entry_hash in rows]


def _place_of(last: AuditRow | ChainHead) -> ChainHead:
    return last.head if isinstance(last, AuditRow) else last


async def _row(database: Fetches, query: str, chain: int) -> AuditRow | None:
    rows = await database.fetch(query, chain)
    return AuditRow(*rows[0]) if rows else None


async def _insert_all(transaction: Fetches, last: ChainHead, entries: Sequence[AuditEntry]) -> ChainHead:
    """Links entries to the last one of their chain, and returns the new last one."""
    for entry in entries:
        last = await _insert(transaction, row_of(entry, last))
    return last


async def _insert(transaction: Fetches, row: AuditRow) -> ChainHead:
    await transaction.fetch(_INSERT, *row)
    return row.head


def _conditions(where: AuditFilter) -> tuple[list[str], list[str | int]]:
    """The terms of a WHERE clause, and their arguments."""
    terms: list[str] = []
    arguments: list[str | int] = []
    for term, value in (
        ("outcome = ?", where.outcome),
        ("subject = ?", where.subject),
        ("user_id = ?", where.user_id),
        ("session_id = ?", where.session_id),
        ("run_id = ?", where.run_id),
        ("time >= ?", where.time_from),
        ("time < ?", where.time_before),
    ):
        if value is not None:
            terms.append(term)
            arguments.append(value)
    for column, values in (("action", where.actions), ("app_name", where.app_names)):
        if values is not None:
            terms.append(f"{column} IN ({', '.join('?' * len(values)) or 'NULL'})")
            arguments += values
    return terms, arguments
