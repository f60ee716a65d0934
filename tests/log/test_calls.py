"""The state of a log: what it knows of a log, and what a question costs."""

from __future__ import annotations

import pytest

from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.log.state import log_state_of
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions, NodeInfo, ToolConfirmation
from greenroom.records.human_requests import REQUEST_CONFIRMATION

HERE = ("body",)


def made(*ids: str, long_running: bool = False, run: str = "e-1") -> Event:
    parts = [Part(function_call=FunctionCall(id=one, name="pay", args={"amount": 5})) for one in ids]
    event = Event(invocation_id=run, author="desk", content=Content(role="model", parts=parts))
    event.long_running_tool_ids = list(ids) if long_running else None
    return event


def needs_approval(call_id: str) -> Event:
    event = answered(call_id, author="desk")
    event.actions = EventActions(requested_tool_confirmations={call_id: ToolConfirmation()})
    return event


def request(request_id: str, call_id: str, *, amount: int = 5) -> Event:
    shown = {"originalFunctionCall": {"id": call_id, "name": "pay", "args": {"amount": amount}}}
    call = FunctionCall(id=request_id, name=REQUEST_CONFIRMATION, args=shown)
    event = Event(invocation_id="e-1", author="desk", content=Content(parts=[Part(function_call=call)]))
    event.long_running_tool_ids = [request_id]
    return event


def responses(*ids: str, response: dict[str, object] | None = None) -> Content:
    given = response or {"confirmed": True}
    return Content(role="user", parts=[Part(function_response=FunctionResponse(id=one, response=given)) for one in ids])


def answered(*ids: str, author: str = "user") -> Event:
    return Event(invocation_id="e-1", author=author, content=responses(*ids))


def asking() -> CopyOnWriteList[Event]:
    return CopyOnWriteList([made("c-1"), needs_approval("c-1"), request("r-1", "c-1")])


def test_an_approval_frees_its_call_until_that_has_responded() -> None:
    log = asking()
    assert log_state_of(log).is_waiting("e-1")
    (decided,) = log_state_of(log).decide(responses("r-1"))
    assert (decided.call.id, decided.call.args) == ("c-1", {"amount": 5})
    log.append(answered("r-1"))
    assert not log_state_of(log).is_waiting("e-1")
    assert log_state_of(log).decided_at(3) == [decided]
    with pytest.raises(ApprovalRefused, match="answered before"):
        log_state_of(log).decide(responses("r-1"))
    log.append(answered("c-1", author="desk"))
    assert log_state_of(log).decided_at(3) == []


def test_a_request_that_shows_another_call_is_refused() -> None:
    log = CopyOnWriteList([made("c-1"), needs_approval("c-1"), request("r-1", "c-1", amount=5000)])
    with pytest.raises(ApprovalRefused, match="another call"):
        log_state_of(log).decide(responses("r-1"))


def test_arguments_that_a_person_edited_stand_when_the_tool_asks_again() -> None:
    log = asking()
    edited = responses("r-1", response={"confirmed": True, "payload": {"amount": 1}})
    log.append(Event(invocation_id="e-1", author="user", content=edited))
    log.extend([needs_approval("c-1"), request("r-2", "c-1", amount=1)])
    (decided,) = log_state_of(log).decide(responses("r-2"))
    assert decided.call.args == {"amount": 1}


def test_a_holder_of_a_shorter_log_does_not_see_what_others_appended() -> None:
    log = asking()
    shorter = log.snapshot()
    log.append(answered("r-1"))
    assert not log_state_of(log).is_waiting("e-1")
    assert log_state_of(shorter).is_waiting("e-1")
    assert log_state_of(shorter) is log_state_of(shorter)


def test_a_call_that_is_not_long_running_is_not_a_clients_to_answer() -> None:
    log_state = log_state_of(CopyOnWriteList([made("c-1"), made("c-2", long_running=True)]))
    assert log_state.call_to_answer(FunctionResponse(id="c-2"), location=HERE).get_function_calls()[0].id == "c-2"
    with pytest.raises(InvalidRequest, match="not long-running"):
        log_state.call_to_answer(FunctionResponse(id="c-1", name="pay"), location=HERE)
    with pytest.raises(InvalidRequest, match="No function call"):
        log_state.call_to_answer(FunctionResponse(id="c-3", name="pay"), location=HERE)


@pytest.mark.parametrize("parts", [10, 1000])
@pytest.mark.parametrize("earlier", [100, 1000])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_the_work_for_a_message_grows_with_its_parts_and_not_with_the_log(
    parts: int, earlier: int, is_repeated: bool
) -> None:
    ids = ["c"] * parts if is_repeated else [f"c-{i}" for i in range(parts)]
    old = [made("c", long_running=True, run=f"old-{i}") for i in range(earlier)]
    log = CopyOnWriteList([*old, made(*dict.fromkeys(ids), long_running=True)])
    log_state = log_state_of(log)
    before = log_state.steps
    message = responses(*ids)
    for part in message.parts or ():
        assert part.function_response is not None
        log_state.call_to_answer(part.function_response, location=HERE)
    assert log_state.decide(message) == []
    assert log_state.credential_answers(message) == []
    log.append(Event(invocation_id="e-1", author="user", content=message))
    assert not log_state_of(log).is_waiting("e-1")
    assert log_state.steps - before <= 5 * parts + 1
    assert log_state.seen == len(log)


def in_run(event: Event, run: str) -> Event:
    event.invocation_id = run
    return event


def words(author: str, run: str) -> Event:
    return Event(invocation_id=run, author=author, content=Content(parts=[Part(text="Hello.")]))


def rewind(run: str) -> EventActions:
    return EventActions(rewind_before_invocation_id=run)


@pytest.mark.parametrize(
    ("log", "unanswered"),
    [
        ([made("c-1", "c-2")], ["c-1", "c-2"]),
        ([made("c-1", "c-2"), answered("c-2", author="desk")], ["c-1"]),
        ([made("c-1", long_running=True), answered("c-1")], []),
        ([made("c-1"), answered("c-1", author="desk"), made("c-1")], ["c-1"]),
        ([made("c-1"), answered("c-1", author="clerk")], ["c-1"]),
        ([made("c-1"), words("desk", "e-2")], []),
        ([made("c-1"), words("desk", "e-2"), made("c-2")], ["c-2"]),
        ([made("c-1"), Event(invocation_id="p-1", author="user")], ["c-1"]),
        ([made("c-1"), words("user", "e-2"), Event(author="user", actions=rewind("e-2"))], []),
    ],
)
def test_calls_that_a_stopped_run_leaves_without_a_response(log: list[Event], unanswered: list[str]) -> None:
    """Those since another run has written; a rewind ends what was before it, too."""
    state = log_state_of(CopyOnWriteList(log))
    found = state.run("e-1").unanswered_calls(since=state.begin_of_segment("e-1"))
    assert [one.call.id for one in found if one.call is not None] == unanswered


def test_a_task_takes_the_next_message_until_it_ends_or_its_run_fails() -> None:
    def task(scope: str, run: str) -> Event:
        event = words("clerk", run)
        event.isolation_scope = scope
        event.node_info = NodeInfo(path=f"clerk@{scope}")
        assert event.waits_for_message()
        return event

    older = task("t-1", "e-1")
    newer = task("t-2", "e-2")
    log = CopyOnWriteList([older, newer])
    assert log_state_of(log).waiting_task() is newer
    log.append(Event(invocation_id="e-2", author="desk", error_code="ConnectionError"))
    assert log_state_of(log).waiting_task() is older
    log.append(in_run(answered("t-1", author="desk"), "e-1"))
    assert log_state_of(log).waiting_task() is None
