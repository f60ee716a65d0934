"""Checks a chain before it is signed, so that a server doesn't sign what somebody else has changed."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.audit.signing import HeadSigner
from greenroom.audit.store import AuditRow
from greenroom.audit.verify import AuditVerifier
from greenroom.errors import GreenroomError
from greenroom.records.audit import AuditEntry, ChainHead

_MOST = 10_000


class Continuity:
    """The knowledge of a process about its chain: how far it has checked it, and what it has appended since.

    A chain with a signed head is checked from this head on. What other programs have appended since can't be told from
    what somebody has inserted with right hashes.
    """

    def __init__(self) -> None:
        self.checked: ChainHead | None = None
        """The last entry that was checked; None before the first check."""
        self.problem: str | None = None
        """Found, and not recorded yet."""
        self._appended: list[ChainHead] = []
        """The last entry of each unbroken series of entries of this process. The hash of an entry vouches for those
        before it, so that there is one, unless another program appends to the same chain.
        """

    def note_appended(self, entries: Sequence[AuditEntry]) -> None:
        """Called after the commit."""
        if self._appended and self._appended[-1].hash == entries[0].previous:
            self._appended.pop()
        self._appended = [*self._appended[-_MOST:], place_of(entries[-1])]

    def note_signed(self, entry: AuditEntry) -> None:
        """Called after the commit of a signed head, up to which the chain was checked."""
        self.checked = place_of(entry)
        self.problem = None
        self._appended = [self.checked]

    @property
    def newest_known(self) -> int:
        """The sequence number that the chain must have reached."""
        checked = self.checked.sequence if self.checked is not None else 0
        return max((place.sequence for place in self._appended), default=checked)

    def problem_in(self, rows: Sequence[AuditRow], after: ChainHead) -> str | None:
        """The first problem in rows that must follow an entry; None if there is none."""
        verifier = AuditVerifier(after=after)
        for row in rows:
            verifier.add_row(row)
            for own in self._appended:
                if row.sequence == own.sequence and row.hash != own.hash:
                    return f"chain {row.chain}, entry {row.sequence}: isn't the one that this server has written"
        faults = verifier.report.faults
        return f"{faults[0].place}: {faults[0].problem}" if faults else None


def problem_of_head(head: AuditRow, signer: HeadSigner) -> str | None:
    """The problem with a chain's last signed head; None if there is none, and for one signed with another key."""
    is_own = f'"signedBy":"{signer.signed_by}"' in head.data
    verifier = AuditVerifier(keys=signer.verifier() if is_own else None, after=before(head))
    verifier.add_row(head)
    faults = verifier.report.faults
    return f"{faults[0].place}: {faults[0].problem}" if faults else None


def before(row: AuditRow) -> ChainHead:
    """The entry that a row names as the one before it."""
    try:
        previous = row.entry.previous
    except GreenroomError:  # it was damaged, which a check of the row shows
        previous = ""
    return ChainHead(chain=row.chain, sequence=row.sequence - 1, hash=previous)


def place_of(entry: AuditEntry) -> ChainHead:
    return ChainHead(chain=entry.chain, sequence=entry.sequence, hash=entry.hash)
