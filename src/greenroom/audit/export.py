"""Exports an audit trail as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from greenroom.audit.store import AuditRow, AuditStore
from greenroom.records.audit import canonical


async def all_rows(store: AuditStore) -> AsyncGenerator[AuditRow]:
    """All rows of this moment, by chain and sequence number.

    Rows that are added meanwhile are left out: a head among them could name an entry of a chain that was read before.
    """
    ends = {head.chain: head.sequence for head in await store.heads()}
    after = (0, 0)
    while page := await store.rows(after=after):
        for row in page:
            if row.sequence <= ends.get(row.chain, 0):
                yield row
        after = (page[-1].chain, page[-1].sequence)


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
