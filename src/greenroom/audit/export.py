"""Exports an audit trail as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence

from greenroom.audit.store import AuditRow, AuditStore
from greenroom.errors import TrailCut
from greenroom.records.audit import ChainHead, canonical


async def all_rows(store: AuditStore) -> AsyncGenerator[AuditRow]:
    """All rows of this moment, by chain and sequence number. Raises TrailCut if a cut begins meanwhile.

    Rows that are added meanwhile are left out: a head among them could name an entry of a chain that was read before.
    """
    starts = await store.starts()
    async for row in rows_up_to(store, await store.heads()):
        yield row
    if await store.starts() != starts:
        raise TrailCut


async def rows_up_to(store: AuditStore, ends: Sequence[ChainHead]) -> AsyncGenerator[AuditRow]:
    """The rows up to one entry of each chain, by chain and sequence number."""
    for end in sorted(ends, key=lambda end: end.chain):
        after = (end.chain, 0)
        while after[1] < end.sequence and (page := await store.rows(after=after)):
            for row in page:
                if row.chain == end.chain and row.sequence <= end.sequence:
                    yield row
            after = (end.chain, page[-1].sequence if page[-1].chain == end.chain else end.sequence)


def line_of(row: AuditRow) -> bytes:
    """The line of an entry: its canonical JSON with `hash` and `signature`. A row that was damaged stays as it is."""
    try:
        fields = json.loads(row.data)
        fields["hash"] = row.hash
        if row.signature is not None:
            fields["signature"] = row.signature
        return canonical(fields).encode() + b"\n"
    except (ValueError, TypeError):
        return row.data.encode() + b"\n"
