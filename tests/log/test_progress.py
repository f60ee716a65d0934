"""Progress of a run: small logs, and whether the run they belong to is over, waits or has failed."""

from __future__ import annotations

import pytest

from greenroom.log.progress import ABORTED
from greenroom.log.state import log_state_of
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions, NodeInfo
from greenroom.records.run import RunStatus

RUN = "e-1"


def event(author: str, *parts: Part, role: str = "model", actions: EventActions | None = None) -> Event:
    content = Content(role=role, parts=list(parts)) if parts else None
    return Event(invocation_id=RUN, author=author, content=content, actions=actions or EventActions())


def says(author: str, text: str = "Hello.") -> Event:
    return event(author, Part(text=text), role="user" if author == "user" else "model")


def calls(author: str, call_id: str = "c-1", *, waits: bool = False) -> Event:
    made = event(author, Part(function_call=FunctionCall(id=call_id, name="pay", args={})))
    if waits:
        made.long_running_tool_ids = [call_id]
    return made


def responds(author: str, call_id: str = "c-1") -> Event:
    return event(author, Part(function_response=FunctionResponse(id=call_id, name="pay", response={})), role="user")


def fails(failed: Event, code: str = "ConnectionError") -> Event:
    failed.error_code = code
    failed.error_message = "refused"
    return failed


def checkpoint(author: str, path: str = "") -> Event:
    made = event(author, actions=EventActions(agent_state={"current": "draft"}))
    made.node_info = NodeInfo(path=path) if path else None
    return made


def ends(author: str) -> Event:
    return event(author, actions=EventActions(end_of_agent=True))


def transfers(author: str, target: str, *, returns: bool = False) -> Event:
    response = FunctionResponse(id="t-1", name="transfer_to_agent", response={"return": True} if returns else {})
    return event(author, Part(function_response=response), role="user", actions=EventActions(transfer_to_agent=target))


def in_scope(inner: Event) -> Event:
    inner.isolation_scope = "task-1"
    return inner


OVER: dict[str, list[Event]] = {
    "an answer": [says("user"), says("desk")],
    "an answer after a tool": [says("user"), calls("desk"), responds("desk"), says("desk")],
    "a workflow that ended": [says("user"), checkpoint("flow"), says("draft"), ends("flow")],
    "a workflow that ended without a word": [says("user"), checkpoint("flow"), ends("flow")],
    "an answer of the agent to which a workflow gave the control back": [
        says("user"),
        checkpoint("flow"),
        says("draft"),
        ends("flow"),
        says("desk"),
    ],
    "the second of two workflows": [
        says("user"),
        checkpoint("flow"),
        ends("flow"),
        says("desk"),
        checkpoint("other"),
        says("draft"),
        ends("other"),
    ],
    "a failed run": [says("user"), calls("desk"), fails(responds("desk"))],
    "a run whose agent failed without a word": [
        says("user"),
        says("desk"),
        says("user"),
        calls("desk"),
        fails(event("desk")),
    ],
    "an answer of the agent that got the control back": [
        says("user"),
        transfers("desk", "clerk", returns=True),
        says("clerk"),
        says("desk"),
    ],
}

NOT_OVER: dict[str, list[Event]] = {
    "nothing but the message": [says("user")],
    "a call without a response": [says("user"), calls("desk")],
    "a response": [says("user"), calls("desk"), responds("desk")],
    "a message after the answer": [says("user"), says("desk"), says("user")],
    "an answer within a workflow": [says("user"), checkpoint("flow"), says("draft")],
    "a checkpoint of a workflow that began again": [says("user"), checkpoint("flow"), ends("flow"), checkpoint("flow")],
    "an answer by the user to a workflow that had ended": [
        says("user"),
        checkpoint("flow"),
        calls("draft", waits=True),
        ends("flow"),
        responds("user"),
    ],
    "a transfer": [says("user"), calls("desk"), transfers("desk", "clerk")],
    "an answer to an agent that wants the control back": [
        says("user"),
        transfers("desk", "clerk", returns=True),
        says("clerk"),
    ],
    "an answer inside of a task": [says("user"), calls("desk"), in_scope(says("clerk"))],
    "a step of a workflow without a word": [says("user"), checkpoint("flow"), fails(event("draft"))],
    "an answer of a node": [says("user"), checkpoint("wf", "wf@1/check@1"), calls("desk")],
}


def log_of(events: list[Event]) -> CopyOnWriteList[Event]:
    return CopyOnWriteList(events)


@pytest.mark.parametrize("name", OVER)
def test_a_run_is_over(name: str) -> None:
    assert log_state_of(log_of(OVER[name])).run(RUN).progress.is_over


@pytest.mark.parametrize("name", NOT_OVER)
def test_a_run_is_not_over(name: str) -> None:
    assert not log_state_of(log_of(NOT_OVER[name])).run(RUN).progress.is_over


@pytest.mark.parametrize(
    ("events", "status", "code"),
    [
        ([says("user"), says("desk")], RunStatus.SUCCEEDED, None),
        ([says("user"), calls("desk", waits=True)], RunStatus.WAITING, None),
        ([says("user"), calls("desk", waits=True), responds("desk")], RunStatus.WAITING, None),
        ([says("user"), calls("desk", waits=True), responds("user"), says("desk")], RunStatus.SUCCEEDED, None),
        ([says("user"), fails(event("desk"))], RunStatus.FAILED, "ConnectionError"),
        ([says("user"), fails(says("desk"), "MAX_TOKENS")], RunStatus.SUCCEEDED, None),
        ([says("user"), fails(event("desk"), ABORTED)], RunStatus.CANCELLED, "RunCancelled"),
        ([says("user"), calls("desk", waits=True), fails(event("clerk"))], RunStatus.WAITING, "ConnectionError"),
        (
            [says("user"), calls("desk", waits=True), says("desk"), fails(responds("desk"))],
            RunStatus.FAILED,
            "ConnectionError",
        ),
    ],
)
def test_the_status_of_a_run(events: list[Event], status: RunStatus, code: str | None) -> None:
    run = log_state_of(log_of(events)).run(RUN)
    assert run.status is status
    assert (run.progress.error.code if run.progress.error is not None else None) == code


def test_positions_of_a_turn() -> None:
    log = log_of([says("user", "1"), says("desk"), says("user", "2"), calls("desk", waits=True), responds("user")])
    progress = log_state_of(log).run(RUN).progress
    assert (progress.begins_at, progress.message_at) == (2, 4)
    assert progress.user_content == log[4].content
    assert progress.last is None


def test_calls_of_the_model_are_counted_once() -> None:
    repeated = says("desk")
    repeated.actions.set_model_response = {"total": 5}
    log = log_of([says("user"), calls("desk"), responds("desk"), repeated, says("desk"), fails(event("desk"))])
    assert log_state_of(log).run(RUN).progress.model_calls == 3


@pytest.mark.parametrize("name", [*OVER, *NOT_OVER])
def test_a_log_that_grows_is_read_as_one_that_is_loaded(name: str) -> None:
    events = (OVER | NOT_OVER)[name]
    grown = CopyOnWriteList[Event]()
    for number, each in enumerate(events, 1):
        grown.append(each)
        loaded = log_of(events[:number])
        for log in (grown, loaded):
            log_state_of(log)
        progress, other = (log_state_of(log).run(RUN).progress for log in (grown, loaded))
        assert progress.is_over == other.is_over
        assert (progress.begins_at, progress.message_at, progress.last) == (
            other.begins_at,
            other.message_at,
            other.last,
        )


def test_an_event_costs_the_same_at_any_length() -> None:
    log = log_of([says("user"), says("desk")] * 1000)
    state = log_state_of(log)
    before = state.steps
    log.append(says("user"))
    assert log_state_of(log) is state
    assert state.steps - before == 1
