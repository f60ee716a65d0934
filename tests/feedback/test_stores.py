"""All stores of feedback keep the contract, and read lists by an index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import InvalidRequest, OwnershipLost, TooMuchFeedback
from greenroom.feedback.store import MAX_PER_EVENT, FeedbackStore
from greenroom.postgres.database import Database as PostgresDatabase
from greenroom.records.feedback import Feedback, FeedbackFilter, feedback_id
from greenroom.records.session import SessionKey
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore

KEY = SessionKey("desk", "ann", "s")


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
def store(runs: RunStore) -> FeedbackStore:
    return runs.feedback


def feedback(name: str = "helpful", *, key: SessionKey = KEY, event_id: str = "e", **fields: Any) -> Feedback:
    subject = fields.pop("subject", "ann")
    given: dict[str, Any] = {"run_id": "r", "source": "user", "score": True, "created_at": 1.0, **fields}
    return Feedback(
        **key._asdict(),
        id=feedback_id(key, event_id, name, subject),
        event_id=event_id,
        name=name,
        subject=subject,
        **given,
    )


async def names(store: FeedbackStore, **where: Any) -> list[str]:
    page = await store.list(FeedbackFilter(app_name="desk", **where))
    return [one.name for one in page.feedback]


async def test_feedback_comes_back_as_it_was(store: FeedbackStore) -> None:
    given = feedback(score=0.25, label="wrong", comment="a\x00b \U0001f600", source="service", subject="judge")
    await store.save(given)
    assert (await store.list(FeedbackFilter(app_name="desk"))).feedback == [given]
    assert (await store.list(FeedbackFilter(app_name="other"))).feedback == []


async def test_a_boolean_stays_a_boolean(store: FeedbackStore) -> None:
    await store.save(feedback(score=False))
    [found] = (await store.list(FeedbackFilter(app_name="desk"))).feedback
    assert found.score is False


async def test_the_same_subject_and_name_replace_and_others_stay_beside(store: FeedbackStore) -> None:
    await store.save(feedback(score=True, created_at=1.0))
    await store.save(feedback(score=False, label="no", created_at=2.0))
    await store.save(feedback("tone", created_at=3.0))
    await store.save(feedback(subject="judge", created_at=4.0))
    await store.save(feedback(event_id="other", created_at=5.0))
    found = (await store.list(FeedbackFilter(app_name="desk"))).feedback
    assert [(one.name, one.subject, one.event_id, one.score, one.label) for one in found] == [
        ("helpful", "ann", "other", True, None),
        ("helpful", "judge", "e", True, None),
        ("tone", "ann", "e", True, None),
        ("helpful", "ann", "e", False, "no"),
    ]
    assert await names(store, max_score=0) == ["helpful"]
    assert await names(store, label="no") == ["helpful"]


async def test_lists_are_filtered(store: FeedbackStore) -> None:
    bobs = SessionKey("desk", "bob", "s")
    await store.save(feedback("a", score=True, created_at=1.0))
    await store.save(feedback("b", score=0.5, created_at=2.0, source="service", subject="judge"))
    await store.save(feedback("c", score=None, label="x", created_at=3.0))
    await store.save(feedback("d", score=-3, created_at=4.0, key=bobs, event_id="f"))
    assert await names(store) == ["d", "c", "b", "a"]
    assert await names(store, user_id="ann") == ["c", "b", "a"]
    assert await names(store, user_id="bob", session_id="s") == ["d"]
    assert await names(store, event_id="f") == ["d"]
    assert await names(store, name="b") == ["b"]
    assert await names(store, label="x") == ["c"]
    assert await names(store, source="service") == ["b"]
    assert await names(store, min_score=0.5) == ["b", "a"]
    assert await names(store, max_score=0.5) == ["d", "b"]
    assert await names(store, min_score=0.5, max_score=0.5) == ["b"]
    assert await names(store, created_from=2.0, created_before=4.0) == ["c", "b"]


async def test_pages_have_each_feedback_once_also_of_one_moment(store: FeedbackStore) -> None:
    given = [feedback(f"n{number}", created_at=float(number // 3)) for number in range(10)]
    for one in given:
        await store.save(one)

    token: str | None = None
    found: list[Feedback] = []
    while True:
        page = await store.list(FeedbackFilter(app_name="desk"), limit=4, page_token=token)
        found += page.feedback
        token = page.next_page_token
        if token is None:
            break
    assert found == sorted(given, key=lambda one: (one.created_at, one.id), reverse=True)
    with pytest.raises(InvalidRequest):
        await store.list(FeedbackFilter(app_name="desk"), page_token="x")


async def test_deleting_takes_the_subjects_own_by_one_name_or_by_all(store: FeedbackStore) -> None:
    for name in ("a", "b", "c"):
        await store.save(feedback(name))
    await store.save(feedback("other", subject="judge"))
    await store.save(feedback("elsewhere", event_id="f"))
    await store.delete(KEY, "e", subject="ann", name="a")
    await store.delete(KEY, "e", subject="ann", name="a")
    assert sorted(await names(store)) == ["b", "c", "elsewhere", "other"]
    await store.delete(KEY, "e", subject="ann")
    assert sorted(await names(store)) == ["elsewhere", "other"]


async def test_an_event_has_a_limited_number(store: FeedbackStore) -> None:
    for number in range(MAX_PER_EVENT):
        await store.save(feedback(f"n{number}"))
    with pytest.raises(TooMuchFeedback):
        await store.save(feedback("more"))
    await store.save(feedback("n0", score=False))
    await store.save(feedback("more", event_id="f"))


async def test_deleting_a_session_deletes_its_feedback(runs: RunStore) -> None:
    await runs.feedback.save(feedback("of the session"))
    await runs.feedback.save(feedback("stays", key=SessionKey("desk", "ann", "other")))
    await runs.delete_session(**KEY._asdict())
    assert await names(runs.feedback) == ["stays"]


async def test_a_server_that_lost_the_session_stores_nothing(postgres_uri: str) -> None:
    former = PostgresRunStore(postgres_uri)
    database = PostgresDatabase.open(postgres_uri)
    try:
        await former.lock(wait_seconds=5.0)
        await former.feedback.save(feedback("before"))
        await database.execute("UPDATE shards SET epoch = epoch + 1")
        with pytest.raises(OwnershipLost):
            await former.feedback.save(feedback("after"))
        with pytest.raises(OwnershipLost):
            await former.feedback.delete(KEY, "e", subject="ann")
        assert await names(former.feedback) == ["before"]
    finally:
        await database.close()
        await former.close()
