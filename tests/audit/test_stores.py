"""All stores of the audit trail keep the contract."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast

import pytest

from greenroom.audit.cut import cut_trail
from greenroom.audit.export import all_rows, line_of
from greenroom.audit.signing import HeadSigner, HeadVerifier, new_key_pair
from greenroom.audit.sql import SqlAuditStore
from greenroom.audit.store import AuditStore, row_of
from greenroom.audit.verify import AuditVerifier, verify_lines, verify_rows
from greenroom.errors import CallerError, IdempotencyConflict, InvalidRequest
from greenroom.records.audit import AuditEntry, AuditFilter, AuditOutcome, new_entry
from greenroom.records.run import Run, RunStatus
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore

PRIVATE, PUBLIC = (key.decode() for key in new_key_pair())
SIGNER = HeadSigner.load(PRIVATE)
KEYS = HeadVerifier.load([PUBLIC])


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def runs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    if request.param == "memory":
        store: RunStore = InMemoryRunStore()
    elif request.param == "sqlite":
        store = SqliteRunStore(tmp_path / "runs.db")
    else:
        store = PostgresRunStore(request.getfixturevalue("postgres_uri"))
    yield store
    await store.close()


@pytest.fixture
def store(runs: RunStore) -> AuditStore:
    return runs.audit


async def add(store: AuditStore, *subjects: str, outcome: AuditOutcome = "success") -> None:
    await store.append([new_entry("run.started", outcome=outcome, subject=subject) for subject in subjects])


async def test_appended_entries_form_a_chain_that_verifies(store: AuditStore) -> None:
    await store.append([new_entry("server.started")], signer=SIGNER)
    await asyncio.gather(*(add(store, f"user {number}") for number in range(20)))
    head = await store.sign(SIGNER)
    assert head is not None
    assert head.sequence == 23

    report = await verify_rows(all_rows(store), keys=KEYS)
    assert not report.faults
    assert (report.entries, report.chains, report.signed_heads, report.uncovered) == (23, 1, 2, 0)
    lines = [line_of(row) async for row in all_rows(store)]
    assert not verify_lines(lines, keys=KEYS).faults


async def test_head_is_signed_once(store: AuditStore) -> None:
    assert await store.sign(SIGNER) is None
    await add(store, "ann")
    assert await store.sign(SIGNER) is not None
    assert await store.sign(SIGNER) is None


async def test_entries_are_listed_newest_first_by_pages(store: AuditStore) -> None:
    for number in range(5):
        await add(store, f"user {number}")
    first = await store.list_entries(AuditFilter(), limit=3)
    assert [entry.subject for entry in first.entries] == ["user 4", "user 3", "user 2"]
    assert all(entry.hash for entry in first.entries)
    second = await store.list_entries(AuditFilter(), limit=3, page_token=first.next_page_token)
    assert [entry.subject for entry in second.entries] == ["user 1", "user 0"]
    assert second.next_page_token is None
    with pytest.raises(InvalidRequest):
        await store.list_entries(AuditFilter(), page_token="x")


async def test_filters_select_entries(store: AuditStore) -> None:
    entry = new_entry("session.deleted", subject="ann", app_name="desk", user_id="bob", session_id="s", run_id="r")
    await store.append([entry])
    await add(store, "eve", outcome="refused")

    selecting = (
        AuditFilter(actions=["session.deleted"]),
        AuditFilter(outcome="success"),
        AuditFilter(subject="ann"),
        AuditFilter(app_names=["desk", "other"]),
        AuditFilter(user_id="bob"),
        AuditFilter(session_id="s"),
        AuditFilter(run_id="r"),
    )
    for where in selecting:
        found = await store.list_entries(where)
        assert [one.action for one in found.entries] == ["session.deleted"], where
    assert (await store.list_entries(AuditFilter(app_names=[]))).entries == []
    assert (await store.list_entries(AuditFilter(time_before=entry.time))).entries == []
    assert len((await store.list_entries(AuditFilter(time_from=entry.time))).entries) == 2


async def cut(store: AuditStore, before: int, folder: Path, *, keys: HeadVerifier = KEYS) -> tuple[int, list[bytes]]:
    """Returns how many entries were removed, and the lines of the file."""
    with TemporaryFile(dir=folder) as out:
        count = await cut_trail(store, before=before, out=out, subject="op", target="x", signer=SIGNER, keys=keys)
        out.seek(0)
        return count, out.read().splitlines(keepends=True)


async def test_cut_trail_verifies_alone_and_after_the_file_with_what_was_cut(store: AuditStore, tmp_path: Path) -> None:
    for number in range(3):
        await store.append([new_entry("server.started")], signer=SIGNER)
        await add(store, *(f"user {number}" for number in range(number * 3)))
        await asyncio.sleep(0.002)
    whole = [line_of(row) async for row in all_rows(store)]
    third = (await store.list_entries(AuditFilter(actions=["server.started"]))).entries[0]

    removed, old = await cut(store, third.time, tmp_path)
    kept = [line_of(row) async for row in all_rows(store)]
    assert removed == len(old) - 1
    assert old[-1] == kept[0]
    assert [*old, *kept[1 : len(whole) - removed]] == whole
    assert not verify_lines(old, keys=KEYS).faults

    report = await verify_rows(all_rows(store), keys=KEYS)
    assert not report.faults
    assert report.cut_before is not None
    assert report.uncovered == 0
    verifier = AuditVerifier(keys=KEYS)
    for name, lines in (("old", old), ("kept", kept)):
        verifier.begin_source(name)
        for number, line in enumerate(lines, start=1):
            verifier.add_line(line, number)
    report = verifier.finish()
    assert not report.faults
    assert report.cut_before is None
    assert report.entries == len(whole) + 2

    [noted] = (await store.list_entries(AuditFilter(actions=["trail.cut"]))).entries
    assert noted.subject == "op"
    with pytest.raises(CallerError, match="no signed head before"):
        await cut(store, third.time, tmp_path)
    await store.append([new_entry("server.started")], signer=SIGNER)
    await cut(store, 2**50, tmp_path)
    assert not (await verify_rows(all_rows(store), keys=KEYS)).faults


async def test_trail_that_was_changed_is_not_cut(store: AuditStore, tmp_path: Path) -> None:
    await store.append([new_entry("server.started")], signer=SIGNER)
    await store.append([new_entry("server.started")], signer=SIGNER)
    other = HeadVerifier.load([new_key_pair()[1].decode()])
    with pytest.raises(CallerError, match="only cut with --force: chain 1, entry 2"):
        await cut(store, 2**50, tmp_path, keys=other)
    assert not (await store.list_entries(AuditFilter(actions=["trail.cut"]))).entries
    assert not (await verify_rows(all_rows(store), keys=KEYS)).faults


@pytest.mark.parametrize("runs", ["sqlite"], indirect=True)
async def test_changed_trail_is_cut_by_force_and_keeps_what_was_found(store: SqlAuditStore, tmp_path: Path) -> None:
    await store.append([new_entry("server.started")], signer=SIGNER)
    await add(store, "ann")
    await rewrite(store, 2, rename)
    await store.sign(SIGNER)
    await add(store, "bob")
    await store.sign(SIGNER)
    with TemporaryFile(dir=tmp_path) as out:
        options: dict[str, Any] = {"subject": "op", "target": "exported", "signer": SIGNER, "keys": KEYS}
        assert await cut_trail(store, before=2**50, out=out, force=True, **options) == 6
        out.seek(0)
        assert b'"action":"trail.broken"' in out.read()
    [noted] = (await store.list_entries(AuditFilter(actions=["trail.cut"]))).entries
    assert noted.target == "exported; the trail was not as it was written, with faults: 1"
    assert not (await verify_rows(all_rows(store), keys=KEYS)).faults


async def test_cut_of_several_chains_is_one_moment(empty_postgres_uri: str, tmp_path: Path) -> None:
    stores = [PostgresRunStore(f"{empty_postgres_uri}{'&' if '?' in empty_postgres_uri else '?'}application_name=c{n}")
              for n in range(3)]  # fmt: skip

    async def write(audit: AuditStore) -> None:
        for number in range(15):
            await add(audit, f"{number}")
            if number % 4 == 0:
                await audit.sign(SIGNER)

    for store in stores:
        await store.audit.append([new_entry("server.started")], signer=SIGNER)
    await asyncio.gather(*(write(store.audit) for store in stores))
    audit = stores[0].audit
    time = (await audit.list_entries(AuditFilter(), limit=30)).entries[-1].time
    _, old = await cut(audit, time, tmp_path)
    assert not verify_lines(old, keys=KEYS).faults
    for store in stores:
        await add(store.audit, "after")
        await store.audit.sign(SIGNER)
    report = await verify_rows(all_rows(audit), keys=KEYS)
    assert not report.faults
    assert report.chains == 3
    for store in stores:
        await store.close()


async def rewrite(store: SqlAuditStore, after: int, change: Callable[[list[AuditEntry]], None]) -> None:
    """Writes the entries of chain 1 after one again, with right hashes, as somebody with access to the database can."""
    rows = [row for row in await store.rows() if row.sequence >= after]
    head, entries = rows[0].head, [row.entry for row in rows[1:]]
    change(entries)

    async def write(transaction: Any) -> None:
        await transaction.fetch("DELETE FROM audit_entries WHERE chain = 1 AND sequence > ?", after)
        last = head
        for entry in entries:
            row = row_of(entry, last)
            last = row.head
            marks = ", ".join("?" * len(row))
            await transaction.fetch(f"INSERT INTO audit_entries ({', '.join(row._fields)}) VALUES ({marks})", *row)

    await store._database.transact(write)


def rename(entries: list[AuditEntry]) -> None:
    entries[0].subject = "somebody else"


def remove_last(entries: list[AuditEntry]) -> None:
    del entries[-1]


@pytest.mark.parametrize("runs", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("change", [rename, remove_last])
@pytest.mark.parametrize("is_followed", [False, True])
async def test_changed_entries_are_not_signed_as_if_they_were_genuine(
    store: SqlAuditStore, change: Callable[[list[AuditEntry]], None], *, is_followed: bool
) -> None:
    await store.append([new_entry("server.started")], signer=SIGNER)
    await add(store, "ann", "bob")
    await rewrite(store, 2, change)
    if is_followed:
        await add(store, "carol")

    await store.sign(SIGNER)
    [broken] = (await store.list_entries(AuditFilter(actions=["trail.broken"]))).entries
    assert "chain 1" in (broken.target or "")
    report = await verify_rows(all_rows(store), keys=KEYS)
    assert [fault.problem.partition(":")[0] for fault in report.faults] == [
        "a server has found that the trail was changed"
    ]

    await add(store, "dan")
    await store.sign(SIGNER)
    assert len((await store.list_entries(AuditFilter(actions=["trail.broken"]))).entries) == 1


@pytest.mark.parametrize("runs", ["sqlite"], indirect=True)
async def test_restarted_server_checks_the_entries_after_the_last_head(runs: RunStore, tmp_path: Path) -> None:
    await runs.audit.append([new_entry("server.started")], signer=SIGNER)
    await add(runs.audit, *(f"user {number}" for number in range(500)))
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("UPDATE audit_entries SET data = replace(data, 'user 7\"', 'user 8\"') WHERE sequence = 10")
    restarted = SqlAuditStore(cast("SqlAuditStore", runs.audit)._database, chains=1)
    await restarted.append([new_entry("server.started")], signer=SIGNER)
    [broken] = (await restarted.list_entries(AuditFilter(actions=["trail.broken"]))).entries
    assert broken.target == "chain 1, entry 10: the column subject differs from the entry"


@pytest.mark.parametrize("runs", ["sqlite"], indirect=True)
async def test_other_programs_may_append_to_the_chain(runs: RunStore) -> None:
    store = cast("SqlAuditStore", runs.audit)
    await store.append([new_entry("server.started")], signer=SIGNER)
    await add(store, "ann")
    other = SqlAuditStore(store._database, chains=1)
    await add(other, "op")
    await other.append([new_entry("key.created")], signer=SIGNER)
    await add(store, "bob")
    await store.sign(SIGNER)
    assert not (await verify_rows(all_rows(store), keys=KEYS)).faults


async def test_run_is_saved_with_its_entries_or_not_at_all(runs: RunStore) -> None:
    def run(run_id: str) -> Run:
        return Run(
            id=run_id,
            app_name="desk",
            user_id="ann",
            session_id="s",
            status=RunStatus.QUEUED,
            created_at=1.0,
            idempotency_key="k",
        )

    await runs.save(run("r-1"), audit=[new_entry("run.started", run_id="r-1")])
    with pytest.raises(IdempotencyConflict):
        await runs.save(run("r-2"), audit=[new_entry("run.started", run_id="r-2")])
    found = await runs.audit.list_entries(AuditFilter())
    assert [entry.run_id for entry in found.entries] == ["r-1"]


async def test_programs_on_one_postgres_write_chains_of_their_own(empty_postgres_uri: str) -> None:
    """Two processes are two stores on two pools here; each takes the chain that was idle for the longest time."""
    stores = [PostgresRunStore(f"{empty_postgres_uri}{'&' if '?' in empty_postgres_uri else '?'}application_name=a{n}")
              for n in range(3)]  # fmt: skip
    for store in stores:
        await store.audit.append([new_entry("server.started")], signer=SIGNER)
    await asyncio.gather(*(add(store.audit, f"{n}") for n in range(20) for store in stores))
    for store in stores:
        await store.audit.sign(SIGNER)

    report = await verify_rows(all_rows(stores[0].audit), keys=KEYS)
    assert not report.faults
    assert (report.chains, report.entries) == (3, 3 * 23)
    for store in stores:
        await store.close()
