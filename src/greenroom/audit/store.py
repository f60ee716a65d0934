"""The contract of a store of the audit trail, and how entries are linked.

Each server writes a chain of its own, so that servers don't wait for each other:

    chain 3   1 server.started    2 head.signed       3 run.started    4 request.answered   5 head.signed
    chain 8   1 server.started    2 head.signed       3 session.deleted

Entry 5 of chain 3 is signed. It contains the hash of entry 4, which contains that of entry 3, and so on: a
change of one of these needs a new signature. It also names entry 3 of chain 8, as the newest one of that chain.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Sequence
from typing import NamedTuple

from greenroom.audit.signing import HeadSigner
from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.audit import (
    FIRST_PREVIOUS,
    AuditEntry,
    AuditFilter,
    AuditState,
    ChainHead,
    ListAuditResponse,
    canonical_body,
    hash_of,
    new_entry,
)

_decode = wire.decoder(AuditEntry)

_NUMBER = re.compile(r"[0-9]{1,9}")
_MOST = 2**53


class AuditRow(NamedTuple):
    """An entry as it is stored: the columns that queries use repeat what `data` has."""

    chain: int
    sequence: int
    time: int
    action: str
    outcome: str
    subject: str | None
    app_name: str | None
    user_id: str | None
    session_id: str | None
    run_id: str | None
    data: str
    """The canonical JSON, without `hash` and `signature`."""
    hash: str
    signature: str | None

    @property
    def head(self) -> ChainHead:
        return ChainHead(chain=self.chain, sequence=self.sequence, hash=self.hash)

    @property
    def entry(self) -> AuditEntry:
        entry = _decode(self.data.encode())
        entry.hash = self.hash
        entry.signature = self.signature
        return entry


class AuditStore(ABC):
    """Stores the audit trail, beside the runs. Entries are only added, never changed."""

    @abstractmethod
    def append(self, entries: Sequence[AuditEntry], *, signer: HeadSigner | None = None) -> Future[None]:
        """Appends entries to this server's chain, and a signed head after them with `signer`.

        Queued at once, in order with the writes of runs; the future is done when they are on disk.
        """

    @abstractmethod
    async def sign(self, signer: HeadSigner) -> AuditEntry | None:
        """Appends a signed head to this server's chain; returns it, or None if nothing was appended since the last.

        If the chain doesn't continue what is known of it, an entry `trail.broken` before the head says so.
        """

    @abstractmethod
    async def list_entries(
        self, where: AuditFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListAuditResponse:
        """Entries, newest first. Raises InvalidRequest."""

    @abstractmethod
    async def state(self) -> AuditState:
        """Returns the newest entries about the trail as a whole."""

    @abstractmethod
    async def heads(self) -> Sequence[ChainHead]:
        """Returns the last entries of all chains at one moment."""

    @abstractmethod
    async def starts(self) -> Sequence[ChainHead]:
        """Returns the first entries of all chains at one moment."""

    @abstractmethod
    async def head_before(self, time: int) -> AuditEntry | None:
        """Returns the newest signed head before a time in Unix milliseconds. It and the entries that it names were the
        newest of their chains at one moment.
        """

    @abstractmethod
    async def cut(self, first: Sequence[ChainHead], entry: AuditEntry, *, signer: HeadSigner) -> None:
        """Removes the entries before the given ones, after `entry`, which gets the places of the cut, is signed.

        first: the first entry of each chain that is kept. Raises TrailCut if one of them isn't there any more. A cut
        that ends early leaves some of the removed entries; a further one removes them.
        """

    @abstractmethod
    async def rows(self, *, after: tuple[int, int] = (0, 0), limit: int = 1000) -> Sequence[AuditRow]:
        """Returns the rows after a chain and sequence number, in this order, for exports and checks."""


def row_of(entry: AuditEntry, last: ChainHead, signer: HeadSigner | None = None) -> AuditRow:
    """Links an entry to the last one of its chain. signer: signs it."""
    entry.chain = last.chain
    entry.sequence = last.sequence + 1
    entry.previous = last.hash
    data = canonical_body(entry)
    entry.hash = hash_of(data)
    if signer is not None:
        entry.signature = signer.sign(entry.hash)
    return AuditRow(
        chain=entry.chain,
        sequence=entry.sequence,
        time=entry.time,
        action=entry.action,
        outcome=entry.outcome,
        subject=entry.subject,
        app_name=entry.app_name,
        user_id=entry.user_id,
        session_id=entry.session_id,
        run_id=entry.run_id,
        data=data,
        hash=entry.hash,
        signature=entry.signature,
    )


def first_entries(starts: Sequence[ChainHead], kept: Sequence[ChainHead]) -> list[ChainHead]:
    """The first entries of all chains that have lost others, once those before `kept` are removed."""
    places = {start.chain: start for start in starts if start.sequence > 1}
    for head in kept:
        if head.sequence > 1 and (head.chain not in places or places[head.chain].sequence < head.sequence):
            places[head.chain] = head
    return [places[chain] for chain in sorted(places)]


def empty_chain(number: int) -> ChainHead:
    return ChainHead(chain=number, sequence=0, hash=FIRST_PREVIOUS)


def head_entry(signer: HeadSigner, others: Sequence[ChainHead]) -> AuditEntry:
    """The entry of a signed head. others: the newest entries of the other chains."""
    return new_entry("head.signed", heads=list(others) or None, signed_by=signer.signed_by)


def position_of(page_token: str | None) -> tuple[int, int, int] | None:
    """Time, chain and sequence number of the last entry of the previous page. Raises InvalidRequest."""
    if not page_token:
        return None
    time, keys = wire.read_page_token(page_token, keys=2)
    is_position = all(_NUMBER.fullmatch(key) for key in keys) and abs(time) < _MOST
    if not is_position:
        raise InvalidRequest("The page token is not one of ours", location=("query", "page_token"))
    return int(time), int(keys[0]), int(keys[1])


def page_of(entries: list[AuditEntry], limit: int) -> ListAuditResponse:
    """A page of `limit` entries, of which one more may be given."""
    page = entries[:limit]
    token: str | None = None
    if len(page) < len(entries):
        last = page[-1]
        token = wire.write_page_token(float(last.time), str(last.chain), str(last.sequence))
    return ListAuditResponse(entries=page, next_page_token=token)
