"""Runs as the server owns them: in line, attached to, cancelled, continued."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import (
    AppNotFound,
    IdempotencyConflict,
    InvalidRequest,
    ModelError,
    RunNotFound,
    SessionBusy,
    SessionNotFound,
    StorageError,
    Unavailable,
)
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import LiveItem, RunEnded, StreamItem
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import AgentRunRequest, Run, RunError, RunFilter, RunStatus
from greenroom.records.session import SessionKey
from greenroom.runs.engine import Attachment
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import Fails, ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.durability.engines import Gate

KEY = SessionKey("app", "ada", "s-1")


WAIT = FunctionCall(id="c-wait", name="wait", args={})


def said(request: LlmRequest) -> str:
    """The newest message of the user."""
    return next(c.text() for c in reversed(request.contents) if c.role == "user" and c.text())


def echo(request: LlmRequest) -> Any:
    """Answers every message with itself; `wait` calls the gate first."""
    message = said(request)
    is_answered = any(part.function_response for part in request.contents[-1].parts or ())
    return WAIT if message.startswith("wait") and not is_answered else f"re: {message}"


class Harness:
    """An engine with one app and one session."""

    def __init__(self, model: ScriptedModel, gate: Gate, **engine_options: Any) -> None:
        self.sessions = InMemorySessionService()
        self.store = InMemoryRunStore()
        self.gate = gate
        self.agent = LlmAgent(name="agent", model=model, tools=[gate.wait, LongRunningFunctionTool(export)])
        self.engine = InProcessRunEngine(
            apps=StaticAppLoader([App(name="app", root_agent=self.agent)]),
            run_store=self.store,
            session_service=self.sessions,
            **engine_options,
        )

    async def log(self, session_id: str = "s-1") -> list[Event]:
        page = await self.sessions.list_events(app_name="app", user_id="ada", session_id=session_id)
        return page.events

    async def start(self, request: AgentRunRequest, **options: Any) -> tuple[Run, Attachment]:
        run, attachment = await self.engine.start(request, **options)
        assert attachment is not None
        return run, attachment

    async def run(self, request: AgentRunRequest) -> RunEnded:
        _, attachment = await self.start(request)
        return end(await read(attachment))


def export() -> None:
    """Answers later."""


def asking(message: str | Part, *, session_id: str = "s-1", streaming: bool = False, **more: Any) -> AgentRunRequest:
    part = Part(text=message) if isinstance(message, str) else message
    return AgentRunRequest(
        app_name="app",
        user_id="ada",
        session_id=session_id,
        new_message=Content(role="user", parts=[part]),
        streaming=streaming,
        **more,
    )


async def read(attachment: Attachment, until: Callable[[LiveItem], bool] | None = None) -> list[LiveItem]:
    """All items up to the end of the run, or to one that is waited for."""
    items: list[LiveItem] = []
    is_last = until or _is_end
    async with asyncio.timeout(5):
        while not items or not is_last(items[-1]):
            items += await attachment.next_batch()
    attachment.close()
    return items


def _is_end(item: LiveItem) -> bool:
    return isinstance(item, RunEnded)


def end(items: list[LiveItem]) -> RunEnded:
    last = items[-1]
    assert isinstance(last, RunEnded)
    return last


def texts(items: list[LiveItem]) -> list[str]:
    """`3 text` for a stored event and its place, `- text` for a partial one."""
    return [
        f"{'-' if item.seq is None else item.seq} {_text(item.event)}" for item in items if isinstance(item, StreamItem)
    ]


def _text(event: Event) -> str:
    for part in (event.content.parts if event.content else None) or ():
        if part.function_call is not None:
            return f"calls {part.function_call.name}"
        if part.function_response is not None:
            return f"gets {part.function_response.name}"
    return event.content.text() if event.content else f"! {event.error_code}"


@pytest.fixture
def subscriptions(monkeypatch: pytest.MonkeyPatch) -> dict[InProcessEventStream, list[Any]]:
    """The open ones of each stream."""
    subscribe, unsubscribe = InProcessEventStream.subscribe, InProcessEventStream.unsubscribe
    found: dict[InProcessEventStream, list[Any]] = {}

    def subscribing(stream: InProcessEventStream, key: SessionKey, **options: Any) -> Any:
        subscription = subscribe(stream, key, **options)
        found.setdefault(stream, []).append(subscription)
        return subscription

    def unsubscribing(stream: InProcessEventStream, key: SessionKey, subscription: Any) -> None:
        unsubscribe(stream, key, subscription)
        found[stream] = [one for one in found[stream] if one is not subscription]

    monkeypatch.setattr(InProcessEventStream, "subscribe", subscribing)
    monkeypatch.setattr(InProcessEventStream, "unsubscribe", unsubscribing)
    return found


@pytest.fixture
async def make(subscriptions: dict[InProcessEventStream, list[Any]]) -> AsyncIterator[Callable[..., Any]]:
    """Makes harnesses, closes them, and holds that nothing is left running."""
    before = asyncio.all_tasks()
    harnesses: list[Harness] = []

    async def make_one(model: ScriptedModel | None = None, **engine_options: Any) -> Harness:
        harness = Harness(model or ScriptedModel(echo), Gate(), **engine_options)
        await harness.sessions.create_session(app_name="app", user_id="ada", session_id="s-1")
        harnesses.append(harness)
        return harness

    yield make_one
    async with asyncio.timeout(5):
        for harness in harnesses:
            await harness.engine.close(grace_seconds=0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() - {asyncio.current_task()} <= before
    for stream, still_open in tuple(subscriptions.items()):
        assert still_open == []
        late = stream.subscribe(KEY)
        assert await late.next_batch(idle_seconds=0) == [], "a message is still being written"
        late.close()


Make = Callable[..., Any]


# one run


async def test_a_run_gives_its_events_and_then_its_record(make: Make) -> None:
    harness: Harness = await make()
    run, attachment = await harness.start(asking("hi", streaming=True))
    items = await read(attachment)
    assert texts(items) == ["- re: ", "- hi", "2 re: hi"]
    record = end(items).run
    assert record == Run(
        id=run.id,
        app_name="app",
        user_id="ada",
        session_id="s-1",
        status=RunStatus.SUCCEEDED,
        created_at=record.created_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        attempts=1,
        request=record.request,
    )
    assert await harness.engine.get(run.id) == record
    assert {event.invocation_id for event in await harness.log()} == {run.id}


async def test_usage_is_summed_over_all_model_calls(make: Make) -> None:
    def reply(part: Part, count: int) -> LlmResponse:
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=count, total_token_count=count + 1)
        return LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=usage)

    model = ScriptedModel([reply(Part(function_call=WAIT), 10), reply(Part(text="done"), 20)])
    harness: Harness = await make(model)
    harness.gate.open.set()
    record = (await harness.run(asking("go"))).run
    assert record.usage == GenerateContentResponseUsageMetadata(prompt_token_count=30, total_token_count=32)


async def test_a_failed_run_says_why(make: Make) -> None:
    harness: Harness = await make(
        ScriptedModel([Fails(error=ModelError("too busy", model="m"), after_chunks=1, text="a b")])
    )
    _, attachment = await harness.start(asking("hi", streaming=True))
    items = await read(attachment)
    assert texts(items) == ["- a ", "2 a "]
    ended = end(items)
    assert ended.run.status is RunStatus.FAILED
    assert ended.run.error == RunError(code="ModelError", message="too busy", status=500)
    assert isinstance(ended.error, ModelError)
    assert (await harness.run(asking("hi"))).run.status is RunStatus.FAILED  # the script has run out; the lane has not


async def test_a_run_that_takes_too_long_is_failed_and_its_calls_are_answered(make: Make) -> None:
    harness: Harness = await make()
    record = (await harness.run(asking("wait", deadline_seconds=0.02))).run
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.code == "DeadlineExceeded"
    assert [_text(event) for event in await harness.log()] == ["wait", "calls wait", "gets wait"]
    harness.gate.open.set()
    assert (await harness.run(asking("still there?"))).run.status is RunStatus.SUCCEEDED


async def test_the_engines_deadline_holds_for_runs_that_have_none(make: Make) -> None:
    harness: Harness = await make(deadline_seconds=0.02)
    assert (await harness.run(asking("wait"))).run.status is RunStatus.FAILED


async def test_requests_that_cannot_be_carried_out_are_refused_and_leave_nothing(make: Make) -> None:
    harness: Harness = await make()
    wrong_app = asking("hi")
    wrong_app.app_name = "nobody"
    for request, error in (
        (wrong_app, AppNotFound),
        (asking("hi", session_id="s-2"), SessionNotFound),
        (asking(Part(function_call=WAIT)), InvalidRequest),
        (asking(Part(function_response=FunctionResponse(id="c-7", name="x", response={}))), InvalidRequest),
    ):
        with pytest.raises(error):
            await harness.engine.start(request)
    assert await harness.log() == []
    assert await harness.store.list_unfinished() == []
    with pytest.raises(RunNotFound):
        await harness.engine.get("e-nobody")
    with pytest.raises(RunNotFound):
        await harness.engine.attach("e-nobody")
    with pytest.raises(RunNotFound):
        await harness.engine.cancel("e-nobody", reason="?")


async def test_sessions_are_made_when_the_engine_may(make: Make) -> None:
    harness: Harness = await make(auto_create_session=True)
    assert (await harness.run(asking("hi", session_id="s-2"))).run.status is RunStatus.SUCCEEDED


async def test_a_run_nobody_is_attached_to_continues_and_its_record_is_stored_at_once(make: Make) -> None:
    harness: Harness = await make()
    run, attachment = await harness.engine.start(asking("wait"), attach=False)
    assert attachment is None
    stored = await harness.store.get(run.id)
    assert stored is not None
    assert stored.status is RunStatus.RUNNING
    harness.gate.open.set()
    assert end(await read(await harness.engine.attach(run.id))).run.status is RunStatus.SUCCEEDED


async def test_a_reader_that_leaves_does_not_stop_the_run(make: Make) -> None:
    harness: Harness = await make()
    run, attachment = await harness.start(asking("wait"))
    await harness.gate.entered.wait()
    attachment.close()
    harness.gate.open.set()
    assert end(await read(await harness.engine.attach(run.id))).run.status is RunStatus.SUCCEEDED


# several requests


async def test_runs_of_a_session_wait_their_turn_in_the_order_they_came(make: Make) -> None:
    harness: Harness = await make()
    first, attachment = await harness.start(asking("wait 1"))
    others = [await harness.start(asking(f"number {n}")) for n in (2, 3, 4)]
    await harness.gate.entered.wait()
    assert [run.status for run in (first, *(run for run, _ in others))] == ["running", "queued", "queued", "queued"]
    assert [run.id for run in await harness.store.list_unfinished()] == [first.id, *(run.id for run, _ in others)]
    harness.gate.open.set()
    await read(attachment)
    for _, other in others:
        await read(other)
    assert [_text(event) for event in await harness.log()] == [
        "wait 1", "calls wait", "gets wait", "re: wait 1",
        "number 2", "re: number 2",
        "number 3", "re: number 3",
        "number 4", "re: number 4",
    ]  # fmt: skip


async def test_runs_of_different_sessions_do_not_wait_for_each_other(make: Make) -> None:
    harness: Harness = await make(auto_create_session=True)
    _, waiting = await harness.start(asking("wait"))
    assert (await harness.run(asking("hi", session_id="s-2"))).run.status is RunStatus.SUCCEEDED
    harness.gate.open.set()
    await read(waiting)


async def test_a_busy_session_refuses_when_it_is_asked_to(make: Make) -> None:
    harness: Harness = await make()
    run, attachment = await harness.start(asking("wait"))
    with pytest.raises(SessionBusy) as caught:
        await harness.engine.start(asking("hi", multitask_strategy="reject"))
    assert (caught.value.session_id, caught.value.run_id) == ("s-1", run.id)
    harness.gate.open.set()
    await read(attachment)
    assert (await harness.run(asking("hi", multitask_strategy="reject"))).run.status is RunStatus.SUCCEEDED


async def test_an_interrupting_run_takes_the_place_of_all_others(make: Make) -> None:
    harness: Harness = await make()
    _, running = await harness.start(asking("wait"))
    _, queued = await harness.start(asking("in line"))
    await harness.gate.entered.wait()
    last = await harness.run(asking("now me", multitask_strategy="interrupt"))
    assert last.run.status is RunStatus.SUCCEEDED
    ends = [end(await read(attachment)).run for attachment in (running, queued)]
    assert [record.status for record in ends] == [RunStatus.CANCELLED, RunStatus.CANCELLED]
    assert [record.error.code for record in ends if record.error] == ["RunCancelled", "RunCancelled"]
    assert [_text(event) for event in await harness.log()] == [
        "wait", "calls wait", "gets wait", "now me", "re: now me",
    ]  # fmt: skip


# one key, one run


class _SlowStore(InMemoryRunStore):
    """Stores records when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[asyncio.Future[None]] = []

    def save(self, run: Run, **options: Any) -> asyncio.Future[None]:
        super().save(run, **options)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held.append(future)
        return future


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_repeated_request_is_answered_when_its_run_is_stored(make: Make, is_refused: bool) -> None:
    harness: Harness = await make()
    _, running = await harness.start(asking("wait"))
    await harness.gate.entered.wait()
    slow = harness.engine._queues.run_store = _SlowStore()
    requests = [asyncio.create_task(harness.start(asking("hi"), idempotency_key="k")) for _ in range(2)]
    async with asyncio.timeout(5):
        while not slow.held:
            await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert not any(request.done() for request in requests)
    harness.engine._queues.run_store = harness.store
    if is_refused:
        slow.held[0].set_exception(StorageError("Writing", "a test says so"))
        for request in requests:
            with pytest.raises(StorageError):
                await request
    else:
        slow.held[0].set_result(None)
    harness.gate.open.set()
    await read(running)
    if not is_refused:
        for request in requests:
            _, attachment = await request
            await read(attachment)


async def test_fifty_requests_with_one_key_start_one_run(make: Make) -> None:
    harness: Harness = await make()
    harness.gate.open.set()
    started = await asyncio.gather(
        *(harness.start(asking("wait", streaming=True), idempotency_key="k") for _ in range(50))
    )
    assert len({run.id for run, _ in started}) == 1
    all_items = [await read(attachment) for _, attachment in started]
    stored = [text for text in texts(all_items[0]) if not text.startswith("-")]
    assert stored == ["2 calls wait", "3 gets wait", "4 re: wait"]
    for items in all_items:
        assert [text for text in texts(items) if not text.startswith("-")] == stored
        assert end(items).run.status is RunStatus.SUCCEEDED
    assert len(await harness.log()) == 4


async def test_a_key_leads_to_its_run_long_after_it_is_over(make: Make) -> None:
    harness: Harness = await make()
    first, attachment = await harness.start(asking("hi"), idempotency_key="k")
    await read(attachment)
    again, attachment = await harness.start(asking("hi"), idempotency_key="k")
    assert again.id == first.id
    assert texts(await read(attachment)) == ["2 re: hi"]
    assert len(await harness.log()) == 2


async def test_a_key_leads_to_its_run_after_it_was_continued_too(make: Make) -> None:
    harness: Harness = await make(ScriptedModel([EXPORT, "done"]))
    first, attachment = await harness.start(asking("export"), idempotency_key="k")
    await read(attachment)
    await harness.run(asking(exported(7)))
    again, attachment = await harness.start(asking("export"), idempotency_key="k")
    assert again.id == first.id
    assert texts(await read(attachment)) == ["2 calls export", "4 done"]


async def test_a_key_used_for_another_request_is_a_conflict(make: Make) -> None:
    harness: Harness = await make()
    _, attachment = await harness.start(asking("wait"), idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        await harness.engine.start(asking("something else"), idempotency_key="k")
    harness.gate.open.set()
    await read(attachment)
    with pytest.raises(IdempotencyConflict):
        await harness.engine.start(asking("something else"), idempotency_key="k")


async def test_one_key_in_two_requests_at_the_same_moment_is_a_conflict_too(make: Make) -> None:
    harness: Harness = await make()
    outcomes = await asyncio.gather(
        *(harness.engine.start(asking(text), idempotency_key="k") for text in ("one", "two")), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [tuple, IdempotencyConflict]
    assert isinstance(outcomes[0], tuple)
    assert outcomes[0][1] is not None
    await read(outcomes[0][1])


# reading


async def test_a_reader_may_come_in_the_middle_and_misses_nothing(make: Make) -> None:
    harness: Harness = await make()
    run, first = await harness.start(asking("wait"))
    await harness.gate.entered.wait()
    second = await harness.engine.attach(run.id)
    third = await harness.engine.attach(run.id, after=2, with_user_events=False)
    harness.gate.open.set()
    assert texts(await read(first)) == ["2 calls wait", "3 gets wait", "4 re: wait"]
    assert texts(await read(second)) == ["1 wait", "2 calls wait", "3 gets wait", "4 re: wait"]
    assert texts(await read(third)) == ["3 gets wait", "4 re: wait"]


async def test_who_comes_while_a_message_is_being_written_gets_what_was_written_of_it(make: Make) -> None:
    harness: Harness = await make(ScriptedModel(["one two three four"], delay=0.02))
    run, first = await harness.start(asking("hi", streaming=True))
    begun = await read(first, until=lambda item: isinstance(item, StreamItem))
    late = await harness.engine.attach(run.id)
    items = await read(late)
    assert texts(begun) == ["- one "]
    assert sorted(texts(items)) == ["- four", "- one ", "- three ", "- two ", "1 hi", "2 one two three four"]
    assert texts(items)[-1] == "2 one two three four"


async def test_who_comes_when_the_run_is_over_reads_its_log(make: Make) -> None:
    harness: Harness = await make()
    await harness.run(asking("before"))
    run, attachment = await harness.start(asking("hi"))
    await read(attachment)
    await harness.run(asking("after"))
    assert texts(await read(await harness.engine.attach(run.id))) == ["3 hi", "4 re: hi"]
    assert texts(await read(await harness.engine.attach(run.id, after=3))) == ["4 re: hi"]
    assert texts(await read(await harness.engine.attach(run.id, with_user_events=False))) == ["4 re: hi"]


async def test_all_readers_get_the_same(make: Make) -> None:
    harness: Harness = await make(ScriptedModel(["a b c d e f g h"], delay=0.001))
    run, first = await harness.start(asking("hi", streaming=True))
    second = await harness.engine.attach(run.id, with_user_events=False)
    told_first, told_second = await asyncio.gather(read(first), read(second))
    assert texts(told_first) == texts(told_second)
    assert len(told_first) == 10


async def test_a_reader_that_falls_behind_continues_from_the_log_without_gap_or_repeat(make: Make) -> None:
    words = " ".join(str(number) for number in range(40))
    script = [[Part(text=words), FunctionCall(id=f"c-{n}", name="wait", args={})] for n in range(30)]
    harness: Harness = await make(ScriptedModel([*script, words]))
    harness.engine._stream.max_waiting_items = 4
    harness.gate.open.set()
    run, slow = await harness.start(asking("go", streaming=True))
    await read(await harness.engine.attach(run.id))  # in the meantime the slow reader reads nothing
    items = await read(slow)
    seqs = [item.seq for item in items if isinstance(item, StreamItem) and item.seq is not None]
    assert seqs == list(range(2, 63))
    assert end(items).run.status is RunStatus.SUCCEEDED


async def test_partial_events_of_a_fast_model_come_many_at_a_time(make: Make) -> None:
    words = [f"{number} " for number in range(300)]
    harness: Harness = await make(ScriptedModel(["".join(words)]))
    _, attachment = await harness.start(asking("go", streaming=True))
    batches: list[list[LiveItem]] = []
    async with asyncio.timeout(5):
        while not batches or not isinstance(batches[-1][-1], RunEnded):
            batches.append(await attachment.next_batch())
    attachment.close()
    partial = [item.event for batch in batches for item in batch if isinstance(item, StreamItem) and item.seq is None]
    assert [event.content.text() for event in partial if event.content] == words
    assert len(batches) < 100


async def test_a_silent_run_gives_an_empty_batch_after_a_while(make: Make) -> None:
    harness: Harness = await make()
    _, attachment = await harness.start(asking("wait"))
    await harness.gate.entered.wait()
    async with asyncio.timeout(5):
        while await attachment.next_batch(idle_seconds=0.01):
            pass
    harness.gate.open.set()
    await read(attachment)


async def test_a_session_is_followed_over_several_runs(make: Make) -> None:
    harness: Harness = await make()
    await harness.run(asking("one"))
    follower = harness.engine.attach_to_session(KEY, after=1)
    await harness.run(asking("two"))
    await harness.run(asking("three"))
    items: list[LiveItem] = []
    async with asyncio.timeout(5):
        while sum(isinstance(item, RunEnded) for item in items) < 2:
            items += await follower.next_batch()
    follower.close()
    assert texts(items) == ["2 re: one", "3 two", "4 re: two", "5 three", "6 re: three"]


# stopping


async def test_a_cancelled_run_ends_at_once_and_its_calls_are_answered(make: Make) -> None:
    harness: Harness = await make()
    run, attachment = await harness.start(asking("wait"))
    await harness.gate.entered.wait()
    record = await harness.engine.cancel(run.id, reason="enough")
    assert record.status is RunStatus.CANCELLED
    assert record.error is not None
    assert "enough" in record.error.message
    assert texts(await read(attachment)) == ["2 calls wait", "3 gets wait"]
    assert (await harness.log())[-1].error_code == "INVOCATION_ABORTED"
    again = await harness.engine.cancel(run.id, reason="twice")
    assert again == record


async def test_what_was_being_said_when_a_run_was_cancelled_is_kept(make: Make) -> None:
    harness: Harness = await make(ScriptedModel(["one two three"], delay=0.01))
    run, attachment = await harness.start(asking("hi", streaming=True))
    (first, *_) = await read(attachment, until=lambda item: isinstance(item, StreamItem))
    assert isinstance(first, StreamItem)
    await harness.engine.cancel(run.id, reason="enough")
    last = (await harness.log())[-1]
    assert last.content is not None
    assert last.content.text().startswith("one ")
    assert (last.id, last.interrupted, last.error_code) == (first.event.id, True, "INVOCATION_ABORTED")


async def test_a_run_in_line_can_be_cancelled_and_never_begins(make: Make) -> None:
    harness: Harness = await make()
    _, running = await harness.start(asking("wait"))
    queued, waiting = await harness.start(asking("never"))
    _, third = await harness.start(asking("third"))
    record = await harness.engine.cancel(queued.id, reason="not needed")
    assert (record.status, record.attempts) == (RunStatus.CANCELLED, 0)
    assert texts(await read(waiting)) == []
    harness.gate.open.set()
    await read(running)
    await read(third)
    assert [_text(event) for event in await harness.log() if event.author == "user"] == ["wait", "third"]


async def test_closing_lets_runs_end_for_a_while(make: Make) -> None:
    harness: Harness = await make()
    run, attachment = await harness.start(asking("wait"))
    await harness.gate.entered.wait()
    asyncio.get_running_loop().call_later(0.02, harness.gate.open.set)
    await harness.engine.close(grace_seconds=5)
    assert end(await read(attachment)).run.status is RunStatus.SUCCEEDED
    stored = await harness.store.get(run.id)
    assert stored is not None
    assert stored.status is RunStatus.SUCCEEDED
    with pytest.raises(Unavailable):
        await harness.engine.start(asking("hi"))


async def test_what_is_still_going_on_after_the_grace_is_left_for_the_next_process(make: Make) -> None:
    harness: Harness = await make()
    run, first = await harness.start(asking("wait"))
    queued, second = await harness.start(asking("in line"))
    await harness.gate.entered.wait()
    await harness.engine.close(grace_seconds=0.01)
    first.close()
    second.close()
    left = await harness.store.list_unfinished()
    assert [(record.id, record.status) for record in left] == [(run.id, "running"), (queued.id, "queued")]
    assert [_text(event) for event in await harness.log()] == ["wait", "calls wait"]


async def test_a_run_that_is_admitted_while_the_engine_closes_is_left_in_the_queue(make: Make) -> None:
    harness: Harness = await make()
    get_session = harness.sessions.get_session
    admitting, go_on = asyncio.Event(), asyncio.Event()

    async def slow_get_session(**options: Any) -> Any:
        admitting.set()
        await go_on.wait()
        return await get_session(**options)

    harness.sessions.get_session = slow_get_session
    starting = asyncio.create_task(harness.start(asking("hi")))
    await admitting.wait()
    await harness.engine.close(grace_seconds=0)
    go_on.set()
    run, attachment = await starting
    attachment.close()
    (left,) = await harness.store.list_unfinished()
    assert (left.id, left.status, left.attempts) == (run.id, RunStatus.QUEUED, 0)


# going on later


EXPORT = FunctionCall(id="c-x", name="export", args={})


def exported(rows: int) -> Part:
    return Part(function_response=FunctionResponse(id="c-x", name="export", response={"rows": rows}))


async def test_a_run_that_waits_is_continued_under_its_id(make: Make) -> None:
    usage = GenerateContentResponseUsageMetadata(total_token_count=5)
    asked = LlmResponse(content=Content(role="model", parts=[Part(function_call=EXPORT)]), usage_metadata=usage)
    done = LlmResponse(content=Content(role="model", parts=[Part(text="done")]), usage_metadata=usage)
    harness: Harness = await make(ScriptedModel([asked, "chatting", done]))
    waiting = (await harness.run(asking("export"))).run
    assert waiting.status is RunStatus.WAITING
    assert (await harness.run(asking("meanwhile"))).run.status is RunStatus.SUCCEEDED

    again, attachment = await harness.start(asking(exported(7)))
    assert again.id == waiting.id
    items = await read(attachment)
    assert texts(items) == ["6 done"]
    record = end(items).run
    assert record.status is RunStatus.SUCCEEDED
    assert record.usage == GenerateContentResponseUsageMetadata(total_token_count=10)
    assert (record.created_at, record.after_seq) == (waiting.created_at, 0)
    assert [event.invocation_id == waiting.id for event in await harness.log()] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert texts(await read(await harness.engine.attach(waiting.id))) == [
        "1 export",
        "2 calls export",
        "5 gets export",
        "6 done",
    ]
    assert (await harness.engine.list_runs(RunFilter(session_id="s-1"))).runs != []


async def test_a_run_that_waits_can_be_cancelled(make: Make) -> None:
    harness: Harness = await make(ScriptedModel([EXPORT]))
    waiting = (await harness.run(asking("export"))).run
    assert (await harness.engine.cancel(waiting.id, reason="never mind")).status is RunStatus.CANCELLED
    assert (await harness.engine.get(waiting.id)).status is RunStatus.CANCELLED


async def test_an_answer_that_comes_while_its_run_is_still_busy_is_taken_when_it_is_done(make: Make) -> None:
    model = ScriptedModel([[EXPORT, WAIT], "the gate is open", "and it is exported"])
    harness: Harness = await make(model)
    run, first = await harness.start(asking("go"))
    await harness.gate.entered.wait()
    again, second = await harness.start(asking(exported(7)))
    assert again.id == run.id
    harness.gate.open.set()
    items = await read(second)
    assert end(items).run.status is RunStatus.SUCCEEDED
    assert texts(items)[-1] == "6 and it is exported"
    assert end(await read(first)).run.status is RunStatus.SUCCEEDED


async def test_cancelling_a_busy_run_stops_it_and_its_next_attempt(make: Make) -> None:
    harness: Harness = await make(ScriptedModel([[EXPORT, WAIT], "never"]))
    run, first = await harness.start(asking("go"))
    await harness.gate.entered.wait()
    _, second = await harness.start(asking(exported(7)))
    assert (await harness.engine.cancel(run.id, reason="enough")).status is RunStatus.CANCELLED
    assert end(await read(first)).run.status is RunStatus.CANCELLED
    assert end(await read(second)).run.status is RunStatus.CANCELLED
    assert "never" not in [_text(event) for event in await harness.log()]


async def test_an_answer_in_line_is_kept_for_the_next_process(make: Make) -> None:
    harness: Harness = await make(ScriptedModel([[EXPORT, WAIT], "the gate is open"]))
    run, first = await harness.start(asking("go"))
    await harness.gate.entered.wait()
    _, second = await harness.start(asking(exported(7)))
    asyncio.get_running_loop().call_later(0.02, harness.gate.open.set)
    await harness.engine.close(grace_seconds=5)
    first.close()
    second.close()
    (left,) = await harness.store.list_unfinished()
    assert (left.id, left.status) == (run.id, RunStatus.QUEUED)
    assert left.request is not None
    assert left.request.new_message == Content(role="user", parts=[exported(7)])

    follower = Harness(ScriptedModel(["and it is exported"]), Gate())
    follower.engine = InProcessRunEngine(
        apps=StaticAppLoader([App(name="app", root_agent=follower.agent)]),
        run_store=harness.store,
        session_service=harness.sessions,
    )
    assert await follower.engine.recover() == 1
    assert end(await read(await follower.engine.attach(run.id))).run.status is RunStatus.SUCCEEDED
    assert [_text(event) for event in await harness.log()] == [
        "go", "calls export", "gets wait", "the gate is open", "gets export", "and it is exported",
    ]  # fmt: skip
    await follower.engine.close(grace_seconds=0)


async def test_an_ended_run_is_freed_without_the_garbage_collector(make: Make) -> None:
    harness: Harness = await make(ScriptedModel(echo))
    await harness.run(asking("a turn in which modules are loaded"))
    gc.collect()
    gc.disable()
    try:
        await harness.run(asking("hi"))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(one).__name__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left.isdisjoint({"RunTask", "RunLog", "InvocationContext", "Task", "coroutine"})
