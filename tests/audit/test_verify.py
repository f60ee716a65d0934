"""Whatever is changed in an audit trail is found, and its place named.

GREENROOM_TAMPERINGS says how many random changes are tried, GREENROOM_SEED repeats them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from greenroom.audit.export import line_of
from greenroom.audit.signing import HeadSigner, HeadVerifier, new_key_pair
from greenroom.audit.store import AuditRow, empty_chain, first_entries, head_entry, row_of
from greenroom.audit.verify import AuditReport, AuditVerifier, verify_lines
from greenroom.records.audit import AuditEntry, canonical, canonical_body, hash_of, new_entry
from tests.seed import SEED

TAMPERINGS = int(os.environ.get("GREENROOM_TAMPERINGS", "150"))

PRIVATE, PUBLIC = (key.decode() for key in new_key_pair())
SIGNER = HeadSigner.load(PRIVATE)
KEYS = HeadVerifier.load([PUBLIC])
OTHER_SIGNER = HeadSigner.load(new_key_pair()[0].decode())

ACTIONS = ("run.started", "request.answered", "access.refused", "session.deleted", "key.created")


def make_trail(chance: random.Random, *, is_cut: bool = False) -> list[AuditRow]:
    """Three chains, whose signed heads name each other's entries.

    is_cut: the trail was cut twice, and some entries from before the second cut are still there.
    """
    chains: list[list[AuditRow]] = [[], [], [], []]

    def append(number: int, entry: AuditEntry, signer: HeadSigner | None = None) -> None:
        rows = chains[number]
        rows.append(row_of(entry, rows[-1].head if rows else empty_chain(number), signer))

    def sign(number: int) -> None:
        append(
            number, head_entry(SIGNER, [rows[-1].head for n, rows in enumerate(chains) if rows and n != number]), SIGNER
        )

    for number in range(1, 4):
        append(number, new_entry("server.started", settings_digest="0" * 64))
        sign(number)
    for count in range(60):
        if is_cut and count in (20, 40):
            cut(chains, chance)
        number = chance.randrange(1, 4)
        if chance.random() < 0.1:
            sign(number)
            continue
        entry = new_entry(
            chance.choice(ACTIONS),
            subject=chance.choice(["ann", "zoë", "\u0001\n\"'\\", "日本"]),
            app_name="desk",
            run_id=f"e-{chance.randrange(1000)}",
            arguments_digest=f"{chance.getrandbits(256):064x}",
        )
        append(number, entry)
    for number in range(1, 4):
        sign(number)
    return [row for rows in chains for row in rows]


def cut(chains: list[list[AuditRow]], chance: random.Random) -> None:
    heads = [row for rows in chains for row in rows if row.action == "head.signed"]
    at = chance.choice(heads[len(heads) // 2 :])
    kept = [at.head, *(at.entry.heads or ())]
    starts = [rows[0].head for rows in chains if rows]
    entry = new_entry("trail.cut", cuts=first_entries(starts, kept))
    rows = chains[chance.randrange(1, 4)]
    rows.append(row_of(entry, rows[-1].head))
    rows.append(row_of(head_entry(SIGNER, [other[-1].head for other in chains if other and other is not rows]),
                       rows[-1].head, SIGNER))  # fmt: skip
    is_whole = chance.random() < 0.5
    for place in entry.cuts or ():
        own = chains[place.chain]
        first = place.sequence if is_whole else chance.randint(own[0].sequence, place.sequence)
        own[:] = [row for row in own if row.sequence >= first]


def check(lines: list[bytes], kept: bytes) -> AuditReport:
    return verify_lines(lines, keys=KEYS, anchors=[kept])


def is_head(line: bytes) -> bool:
    return b'"action":"head.signed"' in line


def change_byte(lines: list[bytes], chance: random.Random) -> int:
    number = chance.randrange(len(lines))
    line = bytearray(lines[number])
    place = chance.randrange(len(line) - 1)
    line[place] = chance.choice([byte for byte in range(256) if byte != line[place]])
    lines[number : number + 1] = bytes(line).splitlines(keepends=True) if b"\n" in line[:-1] else [bytes(line)]
    return number


def change_value(lines: list[bytes], chance: random.Random) -> int:
    """Another value in valid, canonical JSON."""
    number = chance.randrange(len(lines))
    fields: dict[str, Any] = json.loads(lines[number])
    name = chance.choice(sorted(fields))
    value = fields[name]
    fields[name] = value + 1 if isinstance(value, int) else f"{value}x" if isinstance(value, str) else value[1:]
    lines[number] = canonical(fields).encode() + b"\n"
    return number


def remove_field(lines: list[bytes], chance: random.Random) -> int:
    number = chance.randrange(len(lines))
    fields: dict[str, Any] = json.loads(lines[number])
    del fields[chance.choice(sorted(fields))]
    lines[number] = canonical(fields).encode() + b"\n"
    return number


def delete_line(lines: list[bytes], chance: random.Random) -> int:
    number = chance.randrange(len(lines))
    del lines[number]
    return number


def swap_lines(lines: list[bytes], chance: random.Random) -> int:
    first, second = sorted(chance.sample(range(len(lines)), 2))
    lines[first], lines[second] = lines[second], lines[first]
    return first


def duplicate_line(lines: list[bytes], chance: random.Random) -> int:
    number = chance.randrange(len(lines))
    to = chance.randrange(len(lines) + 1)
    lines.insert(to, lines[number])
    return number + 1 if to == number else to


def insert_line(lines: list[bytes], chance: random.Random) -> int:
    """A new entry with a right hash, and with the number and `previous` that its place within a chain needs."""
    chains = [json.loads(line)["chain"] for line in lines]
    number = chance.choice([n for n in range(1, len(lines)) if chains[n] == chains[n - 1]])
    before = json.loads(lines[number - 1])
    entry = new_entry("run.started", subject="eve")
    entry.chain = before["chain"]
    entry.sequence = before["sequence"] + 1
    entry.previous = before["hash"]
    fields = json.loads(canonical_body(entry))
    fields["hash"] = hash_of(canonical_body(entry))
    lines.insert(number, canonical(fields).encode() + b"\n")
    return number + 1


def cut_tail(lines: list[bytes], chance: random.Random) -> int:
    number = chance.randrange(len(lines) - 1)
    del lines[number:]
    return number


def cut_chain_tail(lines: list[bytes], chance: random.Random) -> int:
    """Deletes the newest entries of one chain, with the heads that cover them."""
    chain = chance.randrange(1, 4)
    own = [n for n, line in enumerate(lines) if json.loads(line)["chain"] == chain]
    number = chance.choice(own)
    del lines[number : own[-1] + 1]
    return number


def rehash_chain(lines: list[bytes], chance: random.Random, signer: HeadSigner | None = None) -> int:
    """Changes an entry and computes all hashes after it again. The signatures stay, or are those of another key."""
    plain = [n for n, line in enumerate(lines) if not is_head(line)]
    number = chance.choice(plain)
    fields: dict[str, Any] = json.loads(lines[number])
    fields["subject"] = "somebody else"
    chain = fields["chain"]
    new_hash = fields["previous"]
    first_head = -1
    for n in range(number, len(lines)):
        if n > number:
            fields = json.loads(lines[n])
        if fields["chain"] != chain:
            break
        fields.pop("hash")
        signature = fields.pop("signature", None)
        fields["previous"] = new_hash
        if signature is not None and signer is not None:
            fields["signedBy"] = signer.signed_by
        new_hash = hash_of(canonical(fields))
        fields["hash"] = new_hash
        if signature is not None:
            fields["signature"] = signer.sign(new_hash) if signer is not None else signature
            first_head = n if first_head < 0 else first_head
        lines[n] = canonical(fields).encode() + b"\n"
    return first_head


def cut_beginning(lines: list[bytes], chance: random.Random) -> int:
    """Deletes the oldest entries of one chain, more than a cut has removed."""
    chain = chance.randrange(1, 4)
    own = [n for n, line in enumerate(lines) if json.loads(line)["chain"] == chain]
    kept = [place for line in lines for place in json.loads(line).get("cuts", ()) if place["chain"] == chain]
    begins = max((place["sequence"] for place in kept), default=1)
    after = [n for n in own if json.loads(lines[n])["sequence"] >= begins]
    number = chance.choice(after)
    del lines[own[0] : number + 1]
    return own[0]


def delete_cuts(lines: list[bytes], chance: random.Random) -> int:
    """Deletes the entries about cuts, with all that follows them in their chains."""
    number = next((n for n, line in enumerate(lines) if b'"action":"trail.cut"' in line), len(lines) - 1)
    chain = json.loads(lines[number])["chain"]
    while number < len(lines) and json.loads(lines[number])["chain"] == chain:
        del lines[number]
    return number


def rehash_with_another_key(lines: list[bytes], chance: random.Random) -> int:
    return rehash_chain(lines, chance, OTHER_SIGNER)


TAMPERS: tuple[Callable[[list[bytes], random.Random], int], ...] = (
    change_byte, change_value, remove_field, delete_line, swap_lines, duplicate_line, insert_line, cut_tail,
    cut_chain_tail, rehash_chain, rehash_with_another_key, cut_beginning, delete_cuts,
)  # fmt: skip


@pytest.mark.parametrize("is_cut", [False, True])
def test_random_tampering_is_found_and_its_place_named(*, is_cut: bool) -> None:
    chance = random.Random(SEED)
    honest: list[bytes] = []
    newest_head = b""
    for number in range(TAMPERINGS):
        if number % 50 == 0:
            honest = [line_of(row) for row in make_trail(chance, is_cut=is_cut)]
            newest_head = honest[-1]
            assert not check(honest, newest_head).faults
        tamper = TAMPERS[number % len(TAMPERS)]
        lines = list(honest)
        place = tamper(lines, chance)
        if lines == honest:
            continue  # a line was repeated beside itself, or two equal ones were swapped
        if is_cut and is_further_cut(honest, lines):
            continue  # only what a signed cut has removed anyway was removed
        report = check(lines, newest_head)
        assert report.faults, f"{tamper.__name__} was not found; the seed is {SEED}"
        named = names(report, lines, honest, place)
        assert named, f"{tamper.__name__} at {place + 1}: {report.faults}; the seed is {SEED}"


def names(report: AuditReport, lines: list[bytes], honest: list[bytes], place: int) -> bool:
    """True if the first fault is at a place or the line after it, which may be the one that fits no longer, or if deleted
    entries at the end of a chain are named, or beginnings that only a deleted entry about a cut explains."""
    of_lines = [fault.place for fault in report.faults if fault.place.startswith("line ")]
    is_named = bool(of_lines) and of_lines[0] in (f"line {place + 1}", f"line {place + 2}")
    is_unexplained = all("no signed cut" in fault.problem for fault in report.faults)
    lost_cut = any(b'"action":"trail.cut"' in line for line in honest if line not in lines)
    is_missing = any("is missing" in fault.problem for fault in report.faults)
    return is_named or is_missing or (is_unexplained and lost_cut)


def is_further_cut(honest: list[bytes], lines: list[bytes]) -> bool:
    """True if only entries are missing that are older than the newest cut, and those from the first on."""
    removed = [json.loads(line) for line in honest if line not in lines]
    if [line for line in honest if line in lines] != lines:
        return False
    for entry in removed:
        own = [one for one in map(json.loads, honest) if one["chain"] == entry["chain"]]
        kept = [
            place["sequence"]
            for line in honest
            for place in json.loads(line).get("cuts", ())
            if place["chain"] == entry["chain"]
        ]
        is_older = entry["sequence"] < max(kept, default=0)
        earlier = [one for one in own if one["sequence"] < entry["sequence"]]
        if not is_older or any(one not in removed for one in earlier):
            return False
    return bool(removed)


def test_shortened_trail_is_found_by_a_head_that_was_kept() -> None:
    lines = [line_of(row) for row in make_trail(random.Random(1)) if row.chain == 1]
    lines = [line for line in lines if not json.loads(line).get("heads")]  # one chain alone
    rows: list[AuditRow] = []
    for number in range(10):
        signer = SIGNER if number % 3 == 0 else None
        entry = head_entry(SIGNER, ()) if signer is not None else new_entry("run.started")
        rows.append(row_of(entry, rows[-1].head if rows else empty_chain(1), signer))
    whole = [line_of(row) for row in rows]
    shortened = whole[:7]
    assert not verify_lines(shortened, keys=KEYS).faults
    [fault] = verify_lines(shortened, keys=KEYS, anchors=[whole[9]]).faults
    assert fault.problem == "names entry 10 of chain 1, which is missing"


def test_forged_chain_without_a_signature_is_found() -> None:
    rows = make_trail(random.Random(1))
    forged = row_of(new_entry("run.started"), empty_chain(7))
    report = verify_lines([line_of(row) for row in (*rows, forged)], keys=KEYS)
    assert [fault.place for fault in report.faults] == ["chain 7"]


def test_entries_after_the_last_head_are_counted() -> None:
    rows = make_trail(random.Random(1))
    rows.append(row_of(new_entry("run.started"), rows[-1].head))
    report = verify_lines([line_of(row) for row in rows], keys=KEYS)
    assert not report.faults
    assert report.uncovered == 1


@pytest.mark.parametrize("column", ["time", "action", "outcome", "subject", "app_name", "user_id", "run_id"])
def test_changed_column_of_a_row_is_found(column: str) -> None:
    rows = make_trail(random.Random(1))
    verifier = AuditVerifier(keys=KEYS)
    for number, row in enumerate(rows):
        verifier.add_row(row._replace(**{column: 5 if column == "time" else "x"}) if number == 3 else row)
    [fault] = verifier.finish().faults
    assert fault == (f"chain {rows[3].chain}, entry {rows[3].sequence}", f"the column {column} differs from the entry")
