"""All stores of the audit trail keep the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.audit.export import all_rows, line_of
from greenroom.audit.signing import HeadSigner, HeadVerifier, new_key_pair
from greenroom.audit.store import AuditStore
from greenroom.audit.verify import verify_lines, verify_rows
from greenroom.errors import IdempotencyConflict, InvalidRequest
from greenroom.records.audit import AuditFilter, AuditOutcome, new_entry
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
