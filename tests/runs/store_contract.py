"""Contract of stores of run records.

Star-import these tests into a test file that has a fixture `run_store`: a new, empty store for each test. Needs pytest
with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from greenroom.errors import IdempotencyConflict, InvalidRequest
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.feedback import Feedback, feedback_id
from greenroom.records.inbox import (
    GivenAnswer,
    HumanRequest,
    Reader,
    RequestChanges,
    RequestFilter,
    RequestKind,
    RequestStatus,
)
from greenroom.records.run import (
    AgentRunRequest,
    ListRunsResponse,
    PushConfig,
    Run,
    RunError,
    RunFilter,
    RunStatus,
    Webhook,
)
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards, shard_of
from greenroom.records.webhook_delivery import DeliveryAttempt, WebhookDelivery, add_webhooks
from greenroom.runs.store import RunStore
from greenroom.testing.contracts.paging import pages

_SESSION: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-1"}
_OF_SESSION = RunFilter(app_names=["concierge"], user_id="ann", session_id="s-1")


async def _listed(run_store: RunStore, where: RunFilter, limit: int | None = None) -> list[str]:
    return [run.id for run in (await run_store.list_runs(where, limit=limit)).runs]


def _run(run_id: str = "e-1", *, at: float = 100.0, key: str | None = None, **fields: Any) -> Run:
    fields = {**_SESSION, "status": RunStatus.QUEUED, "created_at": at, "idempotency_key": key, **fields}
    return Run(id=run_id, **fields)


async def _get(run_store: RunStore, run_id: str = "e-1") -> Run:
    run = await run_store.get(run_id)
    assert run is not None
    return run


async def _found(run_store: RunStore, key: str) -> Run:
    run = await run_store.find_by_idempotency_key(app_name="concierge", user_id="ann", key=key)
    assert run is not None
    return run


async def test_a_run_comes_back_as_it_was(run_store: RunStore) -> None:
    run = _run(key="k-1", status=RunStatus.FAILED, attempts=2, after_seq=7, request_digest="d")
    run.started_at, run.ended_at = 101.0, 102.5
    run.error = RunError(code="ModelError", message="over\u2028loaded")
    run.usage = GenerateContentResponseUsageMetadata(total_token_count=12)
    run.request = AgentRunRequest(**_SESSION, new_message=Content(role="user", parts=[Part(text="hi \U0001f600")]))
    await run_store.save(run)
    assert await run_store.get("e-1") == run


async def test_a_run_is_found_by_the_keys_of_all_its_messages(run_store: RunStore) -> None:
    await run_store.save(_run(key="k-1", request_digest="d-1"))
    await run_store.save(_run(key="k-2", request_digest="d-2", status=RunStatus.RUNNING))
    await run_store.save(_run(status=RunStatus.SUCCEEDED))
    for key, digest in (("k-1", "d-1"), ("k-2", "d-2")):
        found = await _found(run_store, key)
        assert (found.id, found.status) == ("e-1", RunStatus.SUCCEEDED)
        assert (found.idempotency_key, found.request_digest) == (key, digest)
    for app_name, user_id, key in (("concierge", "bob", "k-1"), ("porter", "ann", "k-1"), ("concierge", "ann", "k")):
        assert await run_store.find_by_idempotency_key(app_name=app_name, user_id=user_id, key=key) is None


@pytest.mark.parametrize("first", [None, "k-1"])
@pytest.mark.parametrize("second", [None, "k-2"])
async def test_the_last_of_many_records_that_are_saved_at_once_stays(
    run_store: RunStore, first: str | None, second: str | None
) -> None:
    await run_store.save(_run(key=first))
    saved = [
        run_store.save(_run("e-2")),  # of another run, so that some records are written together
        run_store.save_progress(_run(key=first, status=RunStatus.RUNNING)),
        run_store.save(_run(key=first, status=RunStatus.WAITING)),
        run_store.save(_run("e-2", status=RunStatus.RUNNING)),
    ]
    await asyncio.gather(*saved)
    assert (await _get(run_store)).status is RunStatus.WAITING
    saved = [
        run_store.save_progress(_run(key=first, status=RunStatus.RUNNING)),
        run_store.save(_run(key=first, status=RunStatus.WAITING)),
        run_store.save(_run(key=second, status=RunStatus.QUEUED)),
        run_store.save_progress(_run(key=second, status=RunStatus.RUNNING)),
        run_store.save(_run(key=second, status=RunStatus.SUCCEEDED)),
    ]
    await asyncio.gather(*saved)
    assert (await _get(run_store)).status is RunStatus.SUCCEEDED


async def test_a_later_record_replaces_the_earlier(run_store: RunStore) -> None:
    run = _run()
    await run_store.save(run)
    run.status, run.attempts = RunStatus.RUNNING, 1
    await run_store.save(run)
    assert await run_store.get("e-1") == run
    assert len(await _listed(run_store, _OF_SESSION)) == 1


async def test_the_record_is_written_as_it_was_at_the_call(run_store: RunStore) -> None:
    run = _run()
    saved = run_store.save(run)
    run.status = RunStatus.FAILED
    await saved
    stored = await _get(run_store)
    assert stored.status == RunStatus.QUEUED
    stored.attempts = 9
    assert (await _get(run_store)).attempts == 0


async def test_records_are_written_in_the_order_of_the_calls(run_store: RunStore) -> None:
    run = _run()
    futures: list[asyncio.Future[None]] = []
    for attempts in range(50):
        run.attempts = attempts
        futures.append(run_store.save(run))
    await futures[-1]
    assert (await _get(run_store)).attempts == 49


async def test_a_future_may_be_dropped(run_store: RunStore) -> None:
    for number in range(5):
        run_store.save(_run(f"e-{number}", at=number))
    run_store.save(_run("e-5", at=5)).cancel()
    await run_store.save(_run("e-6", at=6))
    assert [run.id for run in await run_store.list_unfinished()] == [f"e-{number}" for number in range(7)]


async def test_an_idempotency_key_belongs_to_one_run_of_a_user(run_store: RunStore) -> None:
    await run_store.save(_run("e-1", key="k-1"))
    with pytest.raises(IdempotencyConflict) as caught:
        await run_store.save(_run("e-2", key="k-1"))
    assert caught.value.key == "k-1"
    assert await run_store.get("e-2") is None
    await run_store.save(_run("e-1", key="k-1", status=RunStatus.SUCCEEDED))
    bob = _run("e-3", key="k-1", user_id="bob")
    await run_store.save(bob)
    assert await run_store.get("e-3") == bob


async def test_runs_of_a_session_are_listed_newest_first(run_store: RunStore) -> None:
    for run_id, at in (("e-1", 2.0), ("e-2", 1.0), ("e-3", 3.0), ("e-4", 3.0)):
        await run_store.save(_run(run_id, at=at, status=RunStatus.SUCCEEDED))
    await run_store.save(_run("e-9", session_id="s-2"))
    assert await _listed(run_store, _OF_SESSION) == ["e-4", "e-3", "e-1", "e-2"]
    assert await _listed(run_store, _OF_SESSION, limit=2) == ["e-4", "e-3"]
    assert await _listed(run_store, RunFilter(app_names=["concierge"], user_id="ann", session_id="nope")) == []


async def test_runs_are_filtered(run_store: RunStore) -> None:
    for number, status in enumerate(RunStatus):
        owner = {"app_name": "porter", "user_id": "bob"} if number >= 4 else {}
        await run_store.save(
            _run(f"e-{number}", at=float(number), status=status, session_id=f"s-{number % 2}", **owner)
        )
    for where, expected in (
        (RunFilter(), ["e-5", "e-4", "e-3", "e-2", "e-1", "e-0"]),
        (RunFilter(app_names=["porter"]), ["e-5", "e-4"]),
        (RunFilter(app_names=["porter", "concierge"], user_id="ann"), ["e-3", "e-2", "e-1", "e-0"]),
        (RunFilter(app_names=[]), []),
        (RunFilter(session_id="s-1"), ["e-5", "e-3", "e-1"]),
        (RunFilter(statuses=[RunStatus.WAITING, RunStatus.FAILED]), ["e-4", "e-2"]),
        (RunFilter(created_from=1.0, created_before=3.0), ["e-2", "e-1"]),
        (RunFilter(user_id="ann", session_id="s-0", created_from=1.0), ["e-2"]),
    ):
        assert await _listed(run_store, where) == expected


async def test_runs_are_filtered_by_error(run_store: RunStore) -> None:
    for number, status in enumerate([RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.SUCCEEDED, RunStatus.FAILED] * 2):
        run = _run(f"e-{number}", at=float(number), status=status)
        if status is not RunStatus.SUCCEEDED:
            run.error = RunError(code="ValueError" if number < 3 else "it's", message='"error":{"code":"missing",\x00')
        await run_store.save(run, is_to_remember=number == 3)
    for where, expected in (
        (RunFilter(error_code="ValueError"), ["e-1", "e-0"]),
        (RunFilter(error_code="it's"), ["e-7", "e-5", "e-4", "e-3"]),
        (RunFilter(error_code="it's", statuses=[RunStatus.FAILED, RunStatus.SUCCEEDED]), ["e-7", "e-4", "e-3"]),
        (RunFilter(error_code="it's", statuses=[RunStatus.WAITING]), []),
        (RunFilter(error_code="it's", user_id="ann", created_before=5.0), ["e-4", "e-3"]),
        (RunFilter(error_code="missing"), []),
    ):
        assert await _listed(run_store, where) == expected
    assert await _listed(run_store, RunFilter(error_code="it's"), limit=2) == ["e-7", "e-5"]


async def test_runs_are_filtered_by_version(run_store: RunStore) -> None:
    for number in range(4):
        await run_store.save(_run(f"e-{number}", at=float(number), app_version=f"v{number % 2}"))
    assert await _listed(run_store, RunFilter(app_version="v1")) == ["e-3", "e-1"]
    assert await _listed(run_store, RunFilter(app_version="v1", created_before=2.0)) == ["e-1"]
    assert await _listed(run_store, RunFilter(app_version="v2")) == []


async def test_runs_are_filtered_by_feedback(run_store: RunStore) -> None:
    key = SessionKey(**_SESSION)
    for number in range(4):
        run = _run(f"e-{number}", at=float(number), status=RunStatus.SUCCEEDED if number else RunStatus.FAILED)
        await run_store.save(run)
        for event, label in enumerate(("odd" if number % 2 else "even", "all")):
            feedback = Feedback(
                **key._asdict(),
                id=feedback_id(key, f"v-{number}-{event}", "stars", "ann"),
                event_id=f"v-{number}-{event}",
                run_id=run.id,
                name="stars",
                score=number,
                label=label,
                source="user",
                subject="ann",
                created_at=10.0 - number,
            )
            await run_store.feedback.save(feedback)

    async def found(limit: int | None = None, **fields: Any) -> list[str]:
        return await _listed(run_store, RunFilter(app_names=["concierge"], feedback="stars", **fields), limit)

    assert await found() == ["e-3", "e-2", "e-1", "e-0"]  # once each, though each has two
    assert await found(limit=2) == ["e-3", "e-2"]
    assert await found(min_score=1, max_score=2) == ["e-2", "e-1"]
    assert await found(feedback_label="odd") == ["e-3", "e-1"]
    assert await found(feedback_label="odd", max_score=2) == ["e-1"]
    assert await found(statuses=[RunStatus.FAILED]) == ["e-0"]
    assert await found(user_id="bob") == []
    assert await found(created_from=2.0) == ["e-3", "e-2"]
    assert await _listed(run_store, RunFilter(app_names=["concierge"], feedback="other")) == []
    for wrong in (RunFilter(feedback="stars"), RunFilter(app_names=["concierge"], max_score=1)):
        with pytest.raises(InvalidRequest):
            await run_store.list_runs(wrong)


async def test_runs_are_listed_in_pages(run_store: RunStore) -> None:
    for number in range(7):
        await run_store.save(_run(f"e-{number}", at=float(number // 3), status=RunStatus.SUCCEEDED))

    async def listing(token: str | None) -> ListRunsResponse:
        if token is not None:
            await run_store.save(_run(f"e-later-{token}", at=9.0))
        return await run_store.list_runs(RunFilter(user_id="ann"), limit=3, page_token=token)

    seen = [run.id for page in await pages(listing) for run in page.runs]
    assert seen == ["e-6", "e-5", "e-4", "e-3", "e-2", "e-1", "e-0"]
    for bad in ("nonsense", "WzEsW11d"):
        with pytest.raises(InvalidRequest):
            await run_store.list_runs(RunFilter(), page_token=bad)
    with pytest.raises(InvalidRequest):
        await run_store.list_runs(RunFilter(), limit=0)


async def test_a_list_has_what_is_still_being_written(run_store: RunStore) -> None:
    await run_store.save(_run(status=RunStatus.RUNNING))
    writing = run_store.save(_run(status=RunStatus.SUCCEEDED))
    (run,) = (await run_store.list_runs(_OF_SESSION)).runs
    assert run.status is RunStatus.SUCCEEDED
    await writing


async def test_the_runs_of_a_session_are_deleted_with_their_keys(run_store: RunStore) -> None:
    await run_store.save(_run("e-1", key="k-1", status=RunStatus.SUCCEEDED))
    await run_store.save(_run("e-2"))
    await run_store.save(_run("e-3", session_id="s-2"))
    await run_store.delete_session(**_SESSION)
    await run_store.delete_session(**_SESSION)
    assert await _listed(run_store, RunFilter()) == ["e-3"]
    assert [run.id for run in await run_store.list_unfinished()] == ["e-3"]
    assert await run_store.find_by_idempotency_key(app_name="concierge", user_id="ann", key="k-1") is None
    await run_store.save(_run("e-4", key="k-1"))


async def test_push_configs_are_kept_until_they_or_their_session_are_deleted(run_store: RunStore) -> None:
    for run_id in ("e-1", "e-2"):
        await run_store.save(_run(run_id))
    first = PushConfig(run_id="e-1", id="a", config={"url": "https://h"})
    for webhook in (PushConfig(run_id="e-1", id="b", config={}), first, PushConfig(run_id="e-2", id="a", config={})):
        await run_store.save_push_config(webhook)
    await run_store.save_push_config(PushConfig(run_id="e-1", id="b", config={}, reported="failed", is_over=True))
    assert [(one.id, one.is_over) for one in await run_store.list_push_configs("e-1")] == [("a", False), ("b", True)]
    assert (await run_store.list_push_configs("e-1"))[0] == first
    assert {(one.run_id, one.id) for one in await run_store.list_open_push_configs()} == {("e-1", "a"), ("e-2", "a")}
    await run_store.delete_push_config("e-1", "a")
    await run_store.delete_push_config("e-1", "a")
    assert [one.id for one in await run_store.list_push_configs("e-1")] == ["b"]
    await run_store.delete_session(**_SESSION)
    assert await run_store.list_push_configs("e-1") == await run_store.list_open_push_configs() == []


async def test_unfinished_runs_are_listed_oldest_first(run_store: RunStore) -> None:
    for number, status in enumerate(RunStatus):
        await run_store.save(_run(f"e-{status}", at=10.0 - number, status=status))
    assert [run.id for run in await run_store.list_unfinished()] == ["e-running", "e-queued"]
    await run_store.save(_run("e-running", at=9.0, status=RunStatus.SUCCEEDED))
    assert [run.id for run in await run_store.list_unfinished()] == ["e-queued"]
    await run_store.save(_run("e-waiting", at=8.0, status=RunStatus.RUNNING))
    assert [run.id for run in await run_store.list_unfinished()] == ["e-waiting", "e-queued"]


async def test_what_a_crash_left_is_listed_by_shard(run_store: RunStore) -> None:
    sessions = [SessionKey("concierge", "ann", f"s-{number}") for number in range(20)]
    for key in sessions:
        for status in RunStatus:
            run = _run(f"{key.session_id}-{status}", session_id=key.session_id, status=status)
            await run_store.save(run, is_to_remember=status is RunStatus.SUCCEEDED)
        await run_store.save_push_config(PushConfig(run_id=f"{key.session_id}-waiting", id="a", config={}))

    taken = Shards(shard_of(key) for key in sessions[:5])
    ids = {key.session_id for key in sessions if shard_of(key) in taken}
    unfinished = [run.id for run in await run_store.list_unfinished(taken)]
    assert sorted(unfinished) == sorted(f"{one}-{status}" for one in ids for status in ("queued", "running"))
    push_configs = await run_store.list_open_push_configs(taken)
    assert {config.run_id for config in push_configs} == {f"{one}-waiting" for one in ids}
    if await run_store.list_to_remember():  # none in memory
        to_remember = [run.id for run in await run_store.list_to_remember(taken)]
        assert sorted(to_remember) == sorted(f"{one}-succeeded" for one in ids)
    assert await run_store.list_unfinished(Shards()) == []
    assert await run_store.list_open_push_configs(Shards()) == []


async def test_ids_may_hold_any_characters(run_store: RunStore) -> None:
    for run_id in ("a/b", 'it\'s "quoted"', "\U0001f95e", "x" * 10_000):
        await run_store.save(_run(run_id, key=run_id))
        assert (await _get(run_store, run_id)).id == run_id
        assert (await _found(run_store, run_id)).id == run_id


async def test_an_id_with_nul_is_stored_or_refused(run_store: RunStore) -> None:
    try:
        await run_store.save(_run("a\x00b", key="a\x00b"))
    except InvalidRequest:
        assert (await run_store.list_runs(RunFilter())).runs == []
    else:
        assert (await _found(run_store, "a\x00b")).id == "a\x00b"


async def test_messages_to_webhooks_are_stored_with_the_status_that_they_report(run_store: RunStore) -> None:
    told: list[str] = []
    run_store.added = lambda deliveries: told.extend(delivery.type for delivery in deliveries)
    run = _run("e-1", key="k", status=RunStatus.RUNNING)
    add_webhooks(run, [Webhook(url="https://h", states=[RunStatus.WAITING, RunStatus.SUCCEEDED], id="w")])
    for status in (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.WAITING, RunStatus.RUNNING, RunStatus.WAITING):
        run.status = status
        await run_store.save(run)
    run = await _get(run_store)
    run.status = RunStatus.SUCCEEDED
    await run_store.save_progress(run)

    assert told == ["run.waiting", "run.waiting", "run.succeeded"]
    pending = await run_store.list_pending_deliveries()
    assert [(one.type, one.number) for one in pending] == [
        ("run.waiting", 2),
        ("run.waiting", 4),
        ("run.succeeded", 5),
    ]
    assert await run_store.list_deliveries(app_name="concierge", webhook_id="w", run_id="e-1") == pending[::-1]
    assert await run_store.list_deliveries(app_name="concierge", webhook_id="w", limit=1) == pending[2:]
    assert await run_store.list_deliveries(app_name="concierge", webhook_id="w", run_id="e-2") == []

    pending[0].note(DeliveryAttempt(at=1.0, seconds=0.5, status_code=204))
    await run_store.update_delivery(pending[0])
    assert await run_store.get_delivery(pending[0].id) == pending[0]
    assert await run_store.list_pending_deliveries() == pending[1:]
    await run_store.delete_session(**_SESSION)
    await run_store.update_delivery(pending[1])
    assert await run_store.get_delivery(pending[1].id) is None
    assert await run_store.list_pending_deliveries() == []


async def test_old_messages_are_pruned_unless_they_are_pending(run_store: RunStore) -> None:
    for number in range(6):
        await run_store.add_delivery(
            WebhookDelivery(
                id=f"msg-{number}",
                webhook_id="w",
                app_name="a",
                url="https://h",
                type="webhook.test",
                created_at=float(number),
                body="{}",
                status="pending" if number == 1 else "delivered",
                next_try_at=1.0 if number == 1 else None,
            )
        )
    await run_store.prune_deliveries(app_name="a", webhook_id="w", keep=3)
    kept = await run_store.list_deliveries(app_name="a", webhook_id="w")
    assert [one.id for one in kept] == ["msg-5", "msg-4", "msg-3", "msg-1"]


async def test_the_earliest_wake_ups_come_first(run_store: RunStore) -> None:
    for run_id, at in (("e-1", 30.5), ("e-2", 10.25), ("e-3", 20.0)):
        run = _run(run_id, status=RunStatus.WAITING)
        await run_store.save(run)
        await run_store.save_wake_up(run, at)
    assert await run_store.next_wake_ups(2) == [(10.25, "e-2"), (20.0, "e-3")]
    await run_store.save_wake_up(_run("e-1", status=RunStatus.WAITING), 5.0)
    assert await run_store.next_wake_ups(10) == [(5.0, "e-1"), (10.25, "e-2"), (20.0, "e-3")]


async def test_a_wake_up_is_moved_and_deleted_only_as_it_was_read(run_store: RunStore) -> None:
    run = _run(status=RunStatus.WAITING)
    await run_store.save(run)
    await run_store.save_wake_up(run, 10.25)
    await run_store.move_wake_up("e-1", 9.0, to=None)
    await run_store.move_wake_up("e-1", 9.0, to=50.0)
    assert await run_store.next_wake_ups(10) == [(10.25, "e-1")]
    await run_store.move_wake_up("e-1", 10.25, to=50.0)
    assert await run_store.next_wake_ups(10) == [(50.0, "e-1")]
    await run_store.move_wake_up("e-1", 50.0, to=None)
    assert await run_store.next_wake_ups(10) == []


async def test_a_deleted_session_leaves_no_wake_up(run_store: RunStore) -> None:
    run = _run(status=RunStatus.WAITING)
    await run_store.save(run)
    await run_store.save_wake_up(run, 10.25)
    await run_store.delete_session(**_SESSION)
    assert await run_store.next_wake_ups(10) == []


def _request(request_id: str, run_id: str = "e-1", **fields: Any) -> HumanRequest:
    given: dict[str, Any] = {
        "kind": RequestKind.APPROVAL,
        "status": RequestStatus.OPEN,
        "call_id": f"adk-{request_id}",
        "function": "adk_request_confirmation",
        "agent": "desk",
        "tool": "pay",
        "created_at": 10.0,
        "approvers": [_SESSION["user_id"]],
        **_SESSION,
        **fields,
    }
    return HumanRequest(id=request_id, run_id=run_id, **given)


async def _ids(run_store: RunStore, **where: Any) -> list[str]:
    return [request.id for request in (await run_store.list_requests(RequestFilter(**where))).requests]


async def test_requests_are_stored_with_their_runs_record(run_store: RunStore) -> None:
    run = _run(status=RunStatus.WAITING)
    requests = [_request("q-1"), _request("q-2", created_at=20.0), _request("q-3", created_at=20.0)]
    await run_store.save(run, requests=RequestChanges(added=requests))
    assert await _ids(run_store) == ["q-3", "q-2", "q-1"]
    assert await run_store.get_request("q-1") == requests[0]
    assert await run_store.get_request("q-4") is None

    answer = GivenAnswer(user_id="bob", answered_at=30.0, confirmed=True)
    answered = msgspec.structs.replace(requests[1], status=RequestStatus.ANSWERED, answers=[answer])
    changes = RequestChanges(added=[_request("q-2"), requests[2]], answered=[answered], cancelled=["q-1"])
    await run_store.save(run, requests=changes)
    assert await _ids(run_store) == ["q-3"]
    assert await run_store.get_request("q-2") == answered
    cancelled = await run_store.get_request("q-1")
    assert cancelled is not None
    assert cancelled.status is RequestStatus.CANCELLED

    await run_store.save(run, requests=RequestChanges(added=[_request("q-2")], cancelled=["q-2"]))
    assert await run_store.get_request("q-2") == answered


async def test_open_requests_are_counted_by_app(run_store: RunStore) -> None:
    kinds = {"q-1": RequestKind.APPROVAL, "q-2": RequestKind.INPUT, "q-3": RequestKind.APPROVAL}
    requests = [_request(request_id, kind=kind, created_at=1e9) for request_id, kind in kinds.items()]
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=requests, cancelled=["q-3"]))
    app = requests[0].app_name
    assert await run_store.count_requests(open_at=1e9) == {app: 2}
    assert await run_store.count_requests(open_at=2e9) == {app: 1}  # those for input don't expire


async def test_pages_of_requests_have_each_once(run_store: RunStore) -> None:
    requests = [_request(f"q-{number}", created_at=10.0 + number // 2) for number in range(5)]
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=requests))
    found: list[str] = []
    token: str | None = None
    while True:
        page = await run_store.list_requests(RequestFilter(), limit=2, page_token=token)
        found += [request.id for request in page.requests]
        token = page.next_page_token
        if token is None:
            break
    assert found == ["q-4", "q-3", "q-2", "q-1", "q-0"]


async def test_requests_are_filtered(run_store: RunStore) -> None:
    await run_store.save(
        _run(status=RunStatus.WAITING),
        requests=RequestChanges(added=[_request("q-1"), _request("q-2", kind=RequestKind.INPUT, tool=None)]),
    )
    other = _run("e-2", status=RunStatus.WAITING, user_id="zoe")
    asked = _request("q-3", "e-2", user_id="zoe", approvers=["zoe", "bob"])
    await run_store.save(other, requests=RequestChanges(added=[asked]))

    app = _SESSION["app_name"]
    assert await _ids(run_store, app_names=[app]) == ["q-3", "q-2", "q-1"]
    assert await _ids(run_store, app_names=[]) == []
    assert await _ids(run_store, user_id="zoe") == ["q-3"]
    assert await _ids(run_store, kinds=[RequestKind.INPUT]) == ["q-2"]
    assert await _ids(run_store, tool="pay") == ["q-3", "q-1"]
    assert await _ids(run_store, run_ids=["e-2", "e-3"]) == ["q-3"]
    for user, seen in (("zoe", ["q-3"]), ("bob", ["q-3"]), (_SESSION["user_id"], ["q-2", "q-1"]), ("eve", [])):
        assert await _ids(run_store, seen_by=Reader(user_id=user)) == seen
        assert await _ids(run_store, answered_by=Reader(user_id=user)) == seen
    assert await _ids(run_store, seen_by=Reader(user_id="eve", all_users_of=[app])) == ["q-3", "q-2", "q-1"]
    assert await _ids(run_store, answered_by=Reader(user_id="eve", all_users_of=[app])) == []


async def test_webhooks_of_apps_are_stored_by_app_and_id(run_store: RunStore) -> None:
    first = Webhook(id="w", url="https://example.com/1", states=[RunStatus.FAILED])
    second = Webhook(id="v", url="https://example.com/2")
    for app_name, webhook in (("desk", second), ("concierge", second), ("concierge", first)):
        await run_store.save_app_webhook(app_name, webhook)
    assert await run_store.list_app_webhooks() == [("concierge", second), ("concierge", first), ("desk", second)]

    moved = Webhook(id="w", url="https://example.com/3")
    await run_store.save_app_webhook("concierge", moved)
    assert await run_store.delete_app_webhook("concierge", "v")
    assert not await run_store.delete_app_webhook("concierge", "v")
    assert await run_store.list_app_webhooks() == [("concierge", moved), ("desk", second)]


async def test_approvals_and_logins_expire(run_store: RunStore) -> None:
    kinds = {"q-1": RequestKind.APPROVAL, "q-2": RequestKind.LOGIN, "q-3": RequestKind.INPUT}
    requests = [_request(request_id, kind=kind) for request_id, kind in kinds.items()]
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=requests))
    days = 24 * 3600.0
    assert await _ids(run_store, open_at=10.0 + 30 * days) == ["q-3", "q-2", "q-1"]
    assert await _ids(run_store, open_at=11.0 + 30 * days) == ["q-3"]


async def test_a_saved_request_concerns_others(run_store: RunStore) -> None:
    request = _request("q-1")
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=[request]))
    await run_store.save_request(msgspec.structs.replace(request, approvers=["bob"]))
    assert await _ids(run_store, answered_by=Reader(user_id="bob")) == ["q-1"]
    assert await _ids(run_store, answered_by=Reader(user_id=request.user_id)) == []


async def test_a_scope_and_those_who_may_not_answer_count(run_store: RunStore) -> None:
    policy = ApprovalPolicy(users=["bob"], scope="approve:money")
    request = _request("q-1", policy=policy, approvers=["bob"], excluded=["carol"])
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=[request]))
    money = ["approve:money", "run"]
    for user, scopes, sees, may in (
        ("bob", [], True, True),
        ("dave", money, True, True),
        ("dave", ["run"], False, False),
        ("carol", money, True, False),
        (request.user_id, [], True, False),
        (request.user_id, money, True, True),
    ):
        reader = Reader(user_id=user, scopes=scopes)
        assert await _ids(run_store, seen_by=reader) == ["q-1"] * sees, (user, scopes)
        assert await _ids(run_store, answered_by=reader) == ["q-1"] * may, (user, scopes)


async def test_a_deleted_session_leaves_no_request(run_store: RunStore) -> None:
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=[_request("q-1")]))
    await run_store.delete_session(**_SESSION)
    assert await _ids(run_store) == []
    assert await run_store.get_request("q-1") is None
    await run_store.save(_run(status=RunStatus.WAITING), requests=RequestChanges(added=[_request("q-1")]))
    assert await _ids(run_store, seen_by=Reader(user_id=_SESSION["user_id"])) == ["q-1"]


async def test_a_delayed_run_is_stored_with_its_time(run_store: RunStore) -> None:
    run = _run(start_at=30.5, key="k-1")
    await run_store.save(run)
    assert await _get(run_store) == run
    assert await run_store.next_wake_ups(10) == [(30.5, "e-1")]
    assert await run_store.list_unfinished() == []
    assert await run_store.list_unfinished(Shards([shard_of(run.session_key)])) == []

    run.start_at = None
    await run_store.save_progress(run)
    assert [one.id for one in await run_store.list_unfinished()] == ["e-1"]
    assert await run_store.next_wake_ups(10) == [(30.5, "e-1")]
    await run_store.delete_wake_up("e-1")
    await run_store.delete_wake_up("e-1")
    assert await run_store.next_wake_ups(10) == []


async def test_a_delayed_run_that_is_refused_leaves_no_time(run_store: RunStore) -> None:
    await run_store.save(_run(key="k-1"))
    with pytest.raises(IdempotencyConflict):
        await run_store.save(_run("e-2", start_at=30.5, key="k-1"))
    await run_store.save(_run("e-3", start_at=40.5, status=RunStatus.CANCELLED))
    assert await run_store.next_wake_ups(10) == []


async def test_delayed_runs_are_listed_as_queued(run_store: RunStore) -> None:
    for number in range(6):
        start_at = 30.5 if number % 2 else None
        await run_store.save(_run(f"e-{number}", at=number, start_at=start_at, user_id=f"u-{number}"))
    every = ["e-5", "e-4", "e-3", "e-2", "e-1", "e-0"]
    queued = RunFilter(statuses=[RunStatus.QUEUED])
    assert await _listed(run_store, queued) == every
    assert await _listed(run_store, queued, limit=3) == every[:3]
    assert await _listed(run_store, RunFilter(statuses=list(RunStatus))) == every
    assert await _listed(run_store, RunFilter(statuses=[RunStatus.QUEUED], user_id="u-3")) == ["e-3"]
    assert await _listed(run_store, RunFilter(statuses=[RunStatus.RUNNING])) == []
    with_app = RunFilter(statuses=[RunStatus.QUEUED, RunStatus.FAILED], app_names=["concierge"])
    assert await _listed(run_store, with_app) == every
