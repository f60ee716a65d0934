"""Removes the oldest entries of an audit trail, which are exported first.

The trail is cut at a signed head: the head and the entries that it names are the first ones that remain. They are the
last ones of the exported file, too, so that it verifies by itself, and together with what remains:

    chain 3   1  2  3 head.signed   |   4  5 head.signed      cut at entry 3, which names entry 2 of chain 8
    chain 8   1  2  |  3  4 head.signed
    file      3.1  3.2  3.3  8.1  8.2
    remain    3.3  3.4  3.5  8.2  8.3  8.4, and an entry `trail.cut` with the places 3.3 and 8.2, which is signed
"""

from __future__ import annotations

import os
from typing import BinaryIO

from greenroom.audit.continuity import place_of
from greenroom.audit.export import all_rows, line_of, rows_up_to
from greenroom.audit.signing import HeadSigner, HeadVerifier
from greenroom.audit.store import AuditStore
from greenroom.audit.verify import verify_rows
from greenroom.errors import CallerError
from greenroom.records.audit import new_entry


async def cut_trail(
    store: AuditStore,
    *,
    before: int,
    out: BinaryIO,
    subject: str | None,
    target: str,
    signer: HeadSigner,
    keys: HeadVerifier,
    force: bool = False,
) -> int:
    """Moves the entries up to the newest signed head before a time to a file. Returns how many were removed.

    before: Unix time in milliseconds. out: gets them as lines. subject, target: who cuts, and what the entry about it
    says of the file. keys: those that signed the trail. force: also cuts a trail that isn't as it was written.
    Raises CallerError for such a trail without `force`, and where there is nothing to remove; OSError if the
    file can't be written, and TrailCut. The trail is unchanged then.
    """
    head = await store.head_before(before)
    starts = {start.chain: start.sequence for start in await store.starts()}
    named = [] if head is None else [place_of(head), *(head.heads or ())]
    ends = [place for place in named if place.sequence > starts.get(place.chain, place.sequence)]
    if not ends:
        raise CallerError("There is no signed head before this time, after which the trail could begin")

    report = await verify_rows(all_rows(store), keys=keys)
    if report.faults and not force:
        place, problem = report.faults[0]
        raise CallerError(f"The trail is not as it was written, and is only cut with --force: {place}: {problem}")
    if report.faults:
        target = f"{target}; the trail was not as it was written, with faults: {report.fault_count}"

    async for row in rows_up_to(store, named):
        out.write(line_of(row))
    out.flush()
    os.fsync(out.fileno())
    await store.cut(ends, new_entry("trail.cut", subject=subject, target=target), signer=signer)
    return sum(place.sequence - starts[place.chain] for place in ends)
