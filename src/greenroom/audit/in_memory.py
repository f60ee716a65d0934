"""An audit trail that lives as long as the process."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Sequence

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
from greenroom.records.audit import AuditAction, AuditEntry, AuditFilter, AuditState, ChainHead, ListAuditResponse


class InMemoryAuditStore(AuditStore):
    def __init__(self) -> None:
        self._rows: list[AuditRow] = []

    def append(self, entries: Sequence[AuditEntry], *, signer: HeadSigner | None = None) -> Future[None]:
        for entry in entries:
            self._append(entry)
        if signer is not None:
            self._append(head_entry(signer, ()), signer)
        done: Future[None] = get_running_loop().create_future()
        done.set_result(None)
        return done

    async def sign(self, signer: HeadSigner) -> AuditEntry | None:
        if not self._rows or self._rows[-1].action == "head.signed":
            return None
        return self._append(head_entry(signer, ()), signer)

    async def list_entries(
        self, where: AuditFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListAuditResponse:
        before = position_of(page_token)
        found: list[AuditEntry] = []
        for row in sorted(self._rows, key=_position, reverse=True):
            if (before is None or _position(row) < before) and _matches(row, where):
                found.append(row.entry)
                if len(found) > limit:
                    break
        return page_of(found, limit)

    async def state(self) -> AuditState:
        def newest(action: AuditAction) -> AuditEntry | None:
            rows = [row for row in self._rows if row.action == action]
            return rows[-1].entry if rows else None

        return AuditState(signed=newest("head.signed"), broken=newest("trail.broken"))

    async def heads(self) -> Sequence[ChainHead]:
        return [self._rows[-1].head] if self._rows else []

    async def starts(self) -> Sequence[ChainHead]:
        return [self._rows[0].head] if self._rows else []

    async def head_before(self, time: int) -> AuditEntry | None:
        heads = [row for row in self._rows if row.action == "head.signed" and row.time < time]
        return heads[-1].entry if heads else None

    async def cut(self, first: Sequence[ChainHead], entry: AuditEntry, *, signer: HeadSigner) -> None:
        present = {(row.chain, row.sequence, row.hash) for row in self._rows}
        if any((place.chain, place.sequence, place.hash) not in present for place in first):
            raise TrailCut
        entry.cuts = first_entries(await self.starts(), first)
        await self.append([entry], signer=signer)
        for place in entry.cuts:
            self._rows = [row for row in self._rows if row.sequence >= place.sequence]

    async def rows(self, *, after: tuple[int, int] = (0, 0), limit: int = 1000) -> Sequence[AuditRow]:
        return [row for row in self._rows if (row.chain, row.sequence) > after][:limit]

    def _append(self, entry: AuditEntry, signer: HeadSigner | None = None) -> AuditEntry:
        last = self._rows[-1].head if self._rows else empty_chain(1)
        self._rows.append(row_of(entry, last, signer))
        return entry


def _position(row: AuditRow) -> tuple[int, int, int]:
    return row.time, row.chain, row.sequence


def _matches(row: AuditRow, where: AuditFilter) -> bool:
    values = (
        (where.outcome, row.outcome),
        (where.subject, row.subject),
        (where.user_id, row.user_id),
        (where.session_id, row.session_id),
        (where.run_id, row.run_id),
    )
    return (
        all(wanted is None or wanted == value for wanted, value in values)
        and (where.actions is None or row.action in where.actions)
        and (where.app_names is None or row.app_name in where.app_names)
        and (where.time_from is None or row.time >= where.time_from)
        and (where.time_before is None or row.time < where.time_before)
    )
