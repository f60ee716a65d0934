"""Checks an audit trail: an exported file, or the rows of a database.

Each entry must follow the one before it in its chain, by sequence number and hash; each signed head must have a valid
signature, and the entries of other chains that it names must be there. A chain begins with its first entry, or at most
with that which a signed cut names. Deleting the newest entries together with the
heads that cover them leaves a shorter, valid trail: only a signed head that was kept elsewhere (`anchors`) shows that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from greenroom.audit.signing import HeadVerifier
from greenroom.audit.store import AuditRow
from greenroom.records.audit import FIRST_PREVIOUS, ChainHead, canonical

MAX_FAULTS = 100
"""Later ones are counted, not listed: after a change, an attacker may have changed everything that follows."""

_HASH_BYTES = 32
_QUERIED = ("time", "action", "outcome", "subject", "app_name", "user_id", "session_id", "run_id")
_CAMEL = {"app_name": "appName", "user_id": "userId", "session_id": "sessionId", "run_id": "runId"}


class Fault(NamedTuple):
    """Something in a trail that can't be as it was written."""

    place: str
    """A line of a file, or a chain and an entry."""
    problem: str


@dataclass(kw_only=True)
class AuditReport:
    """The result of a check."""

    entries: int = 0
    chains: int = 0
    signed_heads: int = 0
    """Heads whose signatures were checked."""
    uncovered: int = 0
    """Entries that no signed head covers: they can be changed without the key."""
    cut_before: int | None = None
    """Unix time in milliseconds of the first entry after a cut, of several chains the latest: older entries may be
    missing.
    """
    faults: list[Fault] = field(default_factory=list[Fault])
    """In the order of the trail, the first MAX_FAULTS."""
    fault_count: int = 0


@dataclass(kw_only=True)
class _Chain:
    """A chain, as far as it was read."""

    number: int
    start: int = 0
    """The sequence number of the entry before the first one."""
    first_place: str = ""
    first_time: int = 0
    sequence: int = 0
    hash: str = FIRST_PREVIOUS
    hashes: bytearray = field(default_factory=bytearray)
    """The hashes of its entries, in their order."""
    covered: int = 0
    """The last sequence number that a signed head covers."""


class _Claim(NamedTuple):
    """A signed head, or a cut, names an entry."""

    place: str
    chain: int
    sequence: int
    hash: str


class _Cut(NamedTuple):
    """An entry about a cut, which a later head of its chain covers if it is genuine."""

    chain: int
    sequence: int
    kept: list[_Claim]
    """The first entries that were kept."""


class AuditVerifier:
    """Checks entries in the order of their chains and sequence numbers. Call `finish` after the last one."""

    def __init__(
        self, *, keys: HeadVerifier | None = None, anchors: Sequence[bytes] = (), after: ChainHead | None = None
    ) -> None:
        """keys: without them, signatures aren't checked. anchors: signed heads that were kept elsewhere, as lines.
        after: an entry that the first one must follow, where only a part of a chain is checked.
        """
        self.report = AuditReport()
        self._cuts: list[_Cut] = []
        self._source = ""
        self._keys = keys
        self._chains: dict[int, _Chain] = {}
        self._chain: _Chain | None = None
        self._claims: list[_Claim] = []
        for number, anchor in enumerate(anchors, start=1):
            self._add_anchor(f"kept head {number}", anchor)
        if after is not None:
            chain = _Chain(number=after.chain, start=after.sequence, sequence=after.sequence, hash=after.hash)
            self._chains[after.chain] = chain

    def begin_source(self, name: str) -> None:
        """Continues with another file, whose chains continue those of the files before it. The first entry of a chain
        may be the last one of the file before.
        """
        self._source = f"{name}, "
        self._chain = None

    def add_line(self, line: bytes, number: int) -> None:
        """Checks a line of an exported file, with its line break."""
        place = f"{self._source}line {number}"
        if not line.endswith(b"\n"):
            self._fault(place, "the line has no end")
        fields = self._parse(place, line.removesuffix(b"\n"))
        if fields is not None:
            self._add(place, fields)

    def add_row(self, row: AuditRow) -> None:
        """Checks a row of a database."""
        place = f"{self._source}chain {row.chain}, entry {row.sequence}"
        fields = self._parse(place, row.data.encode())
        if fields is None:
            return
        for name in ("chain", "sequence", *_QUERIED):
            if fields.get(_CAMEL.get(name, name)) != getattr(row, name):
                self._fault(place, f"the column {name} differs from the entry")
        fields["hash"] = row.hash
        if row.signature is not None:
            fields["signature"] = row.signature
        self._add(place, fields)

    def finish(self) -> AuditReport:
        """Checks what needs the whole trail, and returns the report."""
        report = self.report
        self._check_starts()
        for claim in self._claims:
            self._check_claim(claim)

        report.chains = len(self._chains)
        for chain in self._chains.values():
            report.uncovered += chain.sequence - max(chain.covered, chain.start)
            if self._keys is not None and chain.covered <= chain.start:
                self._fault(f"chain {chain.number}", "has no entry that a signed head covers")
        if not report.entries:
            self._fault("the trail", "has no entries")
        return report

    def _check_starts(self) -> None:
        """Checks that chains which don't begin with their first entry were cut."""
        cuts = [cut for cut in self._cuts if self._keys is None or cut.sequence <= self._chains[cut.chain].covered]
        for chain in self._chains.values():
            if not chain.start or not chain.first_place:
                continue
            kept = [one.sequence for cut in cuts for one in cut.kept if one.chain == chain.number]
            if chain.start >= max(kept, default=0):
                problem = f"is entry {chain.start + 1} of chain {chain.number}; no signed cut explains where it begins"
                self._fault(chain.first_place, problem)
            self.report.cut_before = max(self.report.cut_before or 0, chain.first_time)
        for cut in cuts:
            self._claims += cut.kept

    def _check_claim(self, claim: _Claim) -> None:
        chain = self._chains.get(claim.chain)
        if chain is not None and claim.sequence <= chain.start:
            return  # it was removed by a cut
        if chain is None or claim.sequence > chain.sequence:
            self._fault(claim.place, f"names entry {claim.sequence} of chain {claim.chain}, which is missing")
        elif _hash_at(chain, claim.sequence) != claim.hash:
            self._fault(claim.place, f"names entry {claim.sequence} of chain {claim.chain}, which has another hash")
        else:
            chain.covered = max(chain.covered, claim.sequence)

    def _add(self, place: str, fields: dict[str, Any]) -> None:
        self.report.entries += 1
        given_hash = fields.pop("hash", None)
        signature = fields.pop("signature", None)
        number = fields.get("chain")
        sequence = fields.get("sequence")
        if not _is_number(number) or not _is_number(sequence):
            self._fault(place, "has no chain or no sequence number")
            return

        entry_hash = hashlib.sha256(canonical(fields).encode()).hexdigest()
        chain, is_repeated = self._chain_of(place, fields, entry_hash)
        if is_repeated:
            self.report.entries -= 1
        else:
            self._link(place, chain, fields, entry_hash)
        if given_hash != entry_hash:
            self._fault(place, "was changed: its hash is another one")

        action = fields.get("action")
        if action == "head.signed":
            self._check_head(place, fields, entry_hash, signature)
            chain.covered = chain.sequence
        elif signature is not None:
            self._fault(place, "has a signature, but is no signed head")
        if action == "trail.cut":
            kept = list(_claims_of(place, fields.get("cuts")))
            self._cuts.append(_Cut(chain.number, chain.sequence, kept))
        elif action == "trail.broken":
            self._fault(place, f"a server has found that the trail was changed: {fields.get('target')}")

    def _link(self, place: str, chain: _Chain, fields: dict[str, Any], entry_hash: str) -> None:
        """Checks that an entry continues its chain."""
        sequence = cast("int", fields["sequence"])
        expected = chain.sequence + 1
        if sequence != expected:
            self._fault(place, f"is entry {sequence} of chain {chain.number}, where entry {expected} must be")
        elif fields.get("previous") != chain.hash:
            self._fault(place, "doesn't continue the entry before it: `previous` is another hash")

        chain.sequence = sequence
        chain.hash = entry_hash
        if chain.sequence - chain.start == len(chain.hashes) // _HASH_BYTES + 1:
            chain.hashes += bytes.fromhex(entry_hash)

    def _chain_of(self, place: str, fields: dict[str, Any], entry_hash: str) -> tuple[_Chain, bool]:
        """The chain of an entry, and whether the entry is the last one of the file before."""
        number = cast("int", fields["chain"])
        if self._chain is not None and self._chain.number == number:
            return self._chain, False

        if self._chain is not None and number < self._chain.number:
            self._fault(place, f"is of chain {number}, after chain {self._chain.number}")
        known = self._chains.get(number)
        is_repeated = bool(self._source) and known is not None and known.hash == entry_hash
        if known is None:
            known = self._chains[number] = _new_chain(number, place, fields)
        self._chain = known
        return known, is_repeated

    def _check_head(self, place: str, fields: dict[str, Any], head_hash: str, signature: Any) -> None:
        if self._keys is not None:
            signed_by = fields.get("signedBy")
            if not isinstance(signed_by, str) or not self._keys.knows(signed_by):
                self._fault(place, f"is signed with another key: {signed_by}")
            elif not isinstance(signature, str) or not self._keys.is_valid(signed_by, head_hash, signature):
                self._fault(place, "has a signature that is not valid")
            self.report.signed_heads += 1
        self._claims += _claims_of(place, fields.get("heads"))

    def _add_anchor(self, place: str, line: bytes) -> None:
        fields = self._parse(place, line.strip())
        if fields is None:
            return
        given_hash = fields.pop("hash", None)
        signature = fields.pop("signature", None)
        entry_hash = hashlib.sha256(canonical(fields).encode()).hexdigest()
        chain, sequence = fields.get("chain"), fields.get("sequence")
        if given_hash != entry_hash or fields.get("action") != "head.signed":
            self._fault(place, "is not a signed head")
        elif _is_number(chain) and _is_number(sequence):
            self._claims.append(_Claim(place, cast("int", chain), cast("int", sequence), entry_hash))
            self._check_head(place, fields, entry_hash, signature)

    def _parse(self, place: str, text: bytes) -> dict[str, Any] | None:
        """The fields of an entry; None if it isn't canonical JSON of an object."""
        try:
            value = json.loads(text)
            is_canonical = isinstance(value, dict) and canonical(cast("dict[str, Any]", value)).encode() == text
        except (ValueError, RecursionError):
            is_canonical = False
            value = None
        if not is_canonical:
            self._fault(place, "was changed: it is not an entry in canonical JSON")
            return None
        return cast("dict[str, Any]", value)

    def _fault(self, place: str, problem: str) -> None:
        self.report.fault_count += 1
        if len(self.report.faults) < MAX_FAULTS:
            self.report.faults.append(Fault(place, problem))


def verify_lines(
    lines: Iterable[bytes], *, keys: HeadVerifier | None = None, anchors: Sequence[bytes] = ()
) -> AuditReport:
    """Checks the lines of an exported file."""
    verifier = AuditVerifier(keys=keys, anchors=anchors)
    for number, line in enumerate(lines, start=1):
        verifier.add_line(line, number)
    return verifier.finish()


async def verify_rows(
    rows: AsyncIterable[AuditRow], *, keys: HeadVerifier | None = None, anchors: Sequence[bytes] = ()
) -> AuditReport:
    """Checks the rows of a database."""
    verifier = AuditVerifier(keys=keys, anchors=anchors)
    async for row in rows:
        verifier.add_row(row)
    return verifier.finish()


def _new_chain(number: int, place: str, fields: dict[str, Any]) -> _Chain:
    """A chain that begins with this entry. Where it isn't the first one, `finish` checks that there was a cut."""
    start = max(cast("int", fields["sequence"]) - 1, 0)
    previous = fields.get("previous")
    time = fields.get("time")
    return _Chain(
        number=number,
        start=start,
        first_place=place,
        first_time=cast("int", time) if _is_number(time) else 0,
        sequence=start,
        hash=previous if start and isinstance(previous, str) else FIRST_PREVIOUS,
    )


def _claims_of(place: str, heads: object) -> Iterator[_Claim]:
    for head in _objects(heads):
        chain, sequence, named_hash = head.get("chain"), head.get("sequence"), head.get("hash")
        if _is_number(chain) and _is_number(sequence) and isinstance(named_hash, str):
            yield _Claim(place, cast("int", chain), cast("int", sequence), named_hash)


def _hash_at(chain: _Chain, sequence: int) -> str:
    """Empty if the chain has no such entry."""
    index = sequence - chain.start - 1
    return chain.hashes[index * _HASH_BYTES : (index + 1) * _HASH_BYTES].hex() if index >= 0 else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    items = cast("list[Any]", value)
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
