"""Checks an audit trail: an exported file, or the rows of a database.

Each entry must follow the one before it in its chain, by sequence number and hash; each signed head must have a valid
signature, and the entries of other chains that it names must be there. Deleting the newest entries together with the
heads that cover them leaves a shorter, valid trail: only a signed head that was kept elsewhere (`anchors`) shows that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from greenroom.audit.signing import HeadVerifier
from greenroom.audit.store import AuditRow
from greenroom.records.audit import FIRST_PREVIOUS, canonical

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
    """Entries after the last signed head of their chains: they can be changed without the key."""
    faults: list[Fault] = field(default_factory=list[Fault])
    """In the order of the trail, the first MAX_FAULTS."""
    fault_count: int = 0


@dataclass(kw_only=True)
class _Chain:
    """A chain, as far as it was read."""

    number: int
    sequence: int = 0
    hash: str = FIRST_PREVIOUS
    hashes: bytearray = field(default_factory=bytearray)
    """The hashes of its entries, by sequence number."""
    uncovered: int = 0
    heads: int = 0


class _Claim(NamedTuple):
    """A signed head names an entry."""

    place: str
    chain: int
    sequence: int
    hash: str


class AuditVerifier:
    """Checks entries in the order of their chains and sequence numbers. Call `finish` after the last one."""

    def __init__(self, *, keys: HeadVerifier | None = None, anchors: Sequence[bytes] = ()) -> None:
        """keys: without them, signatures aren't checked. anchors: signed heads that were kept elsewhere, as lines."""
        self.report = AuditReport()
        self._keys = keys
        self._chains: dict[int, _Chain] = {}
        self._chain: _Chain | None = None
        self._claims: list[_Claim] = []
        for number, anchor in enumerate(anchors, start=1):
            self._add_anchor(f"kept head {number}", anchor)

    def add_line(self, line: bytes, number: int) -> None:
        """Checks a line of an exported file, with its line break."""
        place = f"line {number}"
        if not line.endswith(b"\n"):
            self._fault(place, "the line has no end")
        fields = self._parse(place, line.removesuffix(b"\n"))
        if fields is not None:
            self._add(place, fields)

    def add_row(self, row: AuditRow) -> None:
        """Checks a row of a database."""
        place = f"chain {row.chain}, entry {row.sequence}"
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
        for claim in self._claims:
            chain = self._chains.get(claim.chain)
            found = "" if chain is None else _hash_at(chain, claim.sequence)
            if found != claim.hash:
                named = f"entry {claim.sequence} of chain {claim.chain}"
                is_missing = chain is None or claim.sequence > chain.sequence
                problem = f"names {named}, which {'is missing' if is_missing else 'has another hash'}"
                self._fault(claim.place, problem)
        report.chains = len(self._chains)
        for chain in self._chains.values():
            report.uncovered += chain.uncovered
            if self._keys is not None and chain.heads == 0:
                self._fault(f"chain {chain.number}", "has no signed head")
        if not report.entries:
            self._fault("the trail", "has no entries")
        return report

    def _add(self, place: str, fields: dict[str, Any]) -> None:
        self.report.entries += 1
        given_hash = fields.pop("hash", None)
        signature = fields.pop("signature", None)
        number = fields.get("chain")
        sequence = fields.get("sequence")
        if not _is_number(number) or not _is_number(sequence):
            self._fault(place, "has no chain or no sequence number")
            return

        chain = self._chain_of(place, cast("int", number))
        expected = chain.sequence + 1
        if sequence != expected:
            self._fault(place, f"is entry {sequence} of chain {number}, where entry {expected} must be")
        elif fields.get("previous") != chain.hash:
            self._fault(place, "doesn't continue the entry before it: `previous` is another hash")
        entry_hash = hashlib.sha256(canonical(fields).encode()).hexdigest()
        if given_hash != entry_hash:
            self._fault(place, "was changed: its hash is another one")

        chain.sequence = cast("int", sequence)
        chain.hash = entry_hash
        if chain.sequence == len(chain.hashes) // _HASH_BYTES + 1:
            chain.hashes += bytes.fromhex(entry_hash)
        chain.uncovered += 1
        if fields.get("action") == "head.signed":
            self._check_head(place, fields, entry_hash, signature)
            chain.uncovered = 0
            chain.heads += 1
        elif signature is not None:
            self._fault(place, "has a signature, but is no signed head")

    def _chain_of(self, place: str, number: int) -> _Chain:
        if self._chain is None or self._chain.number != number:
            if self._chain is not None and number < self._chain.number:
                self._fault(place, f"is of chain {number}, after chain {self._chain.number}")
            self._chain = self._chains.setdefault(number, _Chain(number=number))
        return self._chain

    def _check_head(self, place: str, fields: dict[str, Any], head_hash: str, signature: Any) -> None:
        if self._keys is not None:
            signed_by = fields.get("signedBy")
            if not isinstance(signed_by, str) or not self._keys.knows(signed_by):
                self._fault(place, f"is signed with another key: {signed_by}")
            elif not isinstance(signature, str) or not self._keys.is_valid(signed_by, head_hash, signature):
                self._fault(place, "has a signature that is not valid")
            self.report.signed_heads += 1
        for head in _objects(fields.get("heads")):
            chain, sequence, named_hash = head.get("chain"), head.get("sequence"), head.get("hash")
            if _is_number(chain) and _is_number(sequence) and isinstance(named_hash, str):
                self._claims.append(_Claim(place, cast("int", chain), cast("int", sequence), named_hash))

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


def _hash_at(chain: _Chain, sequence: int) -> str:
    """Empty if the chain has no such entry."""
    return chain.hashes[(sequence - 1) * _HASH_BYTES : sequence * _HASH_BYTES].hex() if sequence > 0 else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    items = cast("list[Any]", value)
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
