"""The audit trail in a database, by statements that SQLite and PostgreSQL share."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from greenroom.audit.signing import HeadSigner
from greenroom.audit.store import (
    AuditRow,
    AuditStore,
    empty_chain,
    head_entry,
    page_of,
    position_of,
    row_of,
)
from greenroom.records.audit import AuditEntry, AuditFilter, ChainHead, ListAuditResponse

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_COLUMNS = ", ".join(AuditRow._fields)
_INSERT = f"INSERT INTO audit_entries ({_COLUMNS}) VALUES ({', '.join('?' * len(AuditRow._fields))})"
_LAST = f"SELECT {_COLUMNS} FROM audit_entries WHERE chain = ? ORDER BY sequence DESC LIMIT 1"
_ROWS = f"SELECT {_COLUMNS} FROM audit_entries WHERE (chain, sequence) > (?, ?) ORDER BY chain, sequence LIMIT ?"
_HEADS = """
    SELECT chain, sequence, hash FROM audit_entries
    WHERE (chain, sequence) IN (SELECT chain, max(sequence) FROM audit_entries GROUP BY chain)
"""
_LOCK_CHAIN = "SELECT pg_advisory_xact_lock(1735552609, ?)"
"""Until the end of the transaction. The first number is ours: 'gra' and a number."""

POSTGRES_CHAINS = 16
"""More servers than this share chains, and wait for each other's commits."""


class Transaction(Protocol):
    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]: ...


class SqlAuditStore(AuditStore):
    """In the database of the runs, which closes it.

    Nothing of a chain is kept in memory: an append reads the last entry in its transaction, under a lock, so that a
    transaction that is rolled back, or repeated, leaves no gap.
    """

    def __init__(self, database: SqliteDatabase | PostgresDatabase, *, chains: int) -> None:
        """chains: 1 where the database has one writer at a time anyway."""
        self._database = database
        self._chains = chains
        self._chain: int | None = 1 if chains == 1 else None

    def append(self, entries: Sequence[AuditEntry], *, signer: HeadSigner | None = None) -> Future[None]:
        return self._database.transact(lambda transaction: self.write(transaction, entries, signer=signer))

    async def write(
        self, transaction: Transaction, entries: Sequence[AuditEntry], *, signer: HeadSigner | None = None
    ) -> None:
        """Appends entries in a transaction that writes what they record. See `append`."""
        last = await self._lock_chain(transaction)
        head = last.head if isinstance(last, AuditRow) else last
        for entry in entries:
            head = await _insert(transaction, row_of(entry, head))
        if signer is not None:
            await self._write_head(transaction, head, signer)

    async def sign(self, signer: HeadSigner) -> AuditEntry | None:
        async def write(transaction: Transaction) -> AuditEntry | None:
            last = await self._lock_chain(transaction)
            if not isinstance(last, AuditRow) or last.action == "head.signed":
                return None
            return await self._write_head(transaction, last.head, signer)

        return await self._database.transact(write)

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

    async def heads(self) -> Sequence[ChainHead]:
        rows = await self._database.fetch(_HEADS)
        return [ChainHead(chain=chain, sequence=sequence, hash=head_hash) for chain, sequence, head_hash in rows]

    async def rows(self, *, after: tuple[int, int] = (0, 0), limit: int = 1000) -> Sequence[AuditRow]:
        return [AuditRow(*row) for row in await self._database.fetch(_ROWS, *after, limit)]

    async def _lock_chain(self, transaction: Transaction) -> AuditRow | ChainHead:
        """The last entry of this server's chain, after which nobody else appends until the transaction ends."""
        if self._chain is None:
            self._chain = await self._idle_chain(transaction)
        if self._chains > 1:
            await transaction.fetch(_LOCK_CHAIN, self._chain)
        return await _last(transaction, self._chain) or empty_chain(self._chain)

    async def _idle_chain(self, transaction: Transaction) -> int:
        """The chain to which nothing was appended for the longest time: probably no running server's."""
        times: list[tuple[int, int]] = []
        for chain in range(1, self._chains + 1):
            last = await _last(transaction, chain)
            times.append((last.time if last is not None else 0, chain))
        return min(times)[1]

    async def _write_head(self, transaction: Transaction, last: ChainHead, signer: HeadSigner) -> AuditEntry:
        others = [await _last(transaction, chain) for chain in range(1, self._chains + 1) if chain != last.chain]
        entry = head_entry(signer, [other.head for other in others if other is not None])
        await _insert(transaction, row_of(entry, last, signer))
        return entry


async def _last(transaction: Transaction, chain: int) -> AuditRow | None:
    rows = await transaction.fetch(_LAST, chain)
    return AuditRow(*rows[0]) if rows else None


async def _insert(transaction: Transaction, row: AuditRow) -> ChainHead:
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
