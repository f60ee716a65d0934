"""The state of a session's log: its runs, calls, requests to people and their answers, folded once from its events.

The state is kept with the log and only extended as events are appended, so that a question about one call is one
look-up, however long the log is. A small log, and what the state knows after each line:

    1  user   "Pay 5"                                          the run's message
    2  desk   call c-1 pay(amount=5)                           c-1 is made
    3  desk   response c-1 "not run yet", confirmation needed  c-1 has asked for an approval
    4  desk   request r-1 about c-1, shows pay(amount=5)       r-1 is pending; its call stays open: the run waits
    5  user   response r-1 {"confirmed": true}                 c-1 is approved, with amount=5; r-1 is used up
    6  desk   response c-1 {"paid": 5}                         c-1 has responded: the approval has been spent

An approval holds for one call of one run, with the arguments that were shown, for a limited time, and only if the agent
that asks did make that call and the tool, or its gate, did ask. All of this is read from what agents stored: a model
can write neither actions nor long-running ids. Whether this server's agents stored it, and no client that brought a log
along, says the run's record (`Run.asked`).

Models repeat ids. A call is identified by id, author, branch and run; of several equal ones the newest counts.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.log.calls import NEVER, DecidedCall, closes_call
from greenroom.log.retries import retry_in, taken_back_indexes
from greenroom.log.rewind import rewound_indexes
from greenroom.log.run_state import RunState
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, ToolConfirmation
from greenroom.records.human_requests import (
    DECLINED,
    EXPIRES_AFTER_SECONDS,
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUESTS,
    Request,
    credential_key,
    original_call,
    read_confirmation,
    requests_in,
    responses_in,
)
from greenroom.records.steering import is_steering

_CURRENT = "log_state"
_SHORTER = "log_state_of_shorter_view"


class _LoggedCalls:
    """The function calls of a log by id, the requests to people, and their answers."""

    __slots__ = ("answered_at", "answers", "decisions", "long_running", "made", "requests", "waiting")

    def __init__(self) -> None:
        self.made: dict[str | None, Event] = {}
        """The events with the calls."""
        self.long_running: dict[str | None, Event] = {}
        """Those with long-running calls."""
        self.waiting: dict[str, list[tuple[RunState, str | None]]] = {}
        """The runs and branches that wait for the responses of long-running calls."""
        self.requests: dict[str | None, Request] = {}
        """The newest request with each id."""
        self.answered_at: dict[str | None, int] = {}
        """The index of the user's newest response to each call."""
        self.answers: dict[int, list[Request]] = {}
        """The requests that each message of the user answered, by its index."""
        self.decisions: dict[int, list[DecidedCall]] = {}
        """The calls that each message of the user decided on, by its index."""


_NO_RETRIES: Mapping[str, int] = {}
_NO_SUCCESSORS: Mapping[str, str] = {}
_NO_CALLS = _LoggedCalls()
"""Of all logs without any. Always empty."""


class LogState:
    """The state of a log after the first `seen` events; get it with `log_state_of`."""

    __slots__ = (
        "_calls",
        "_others_spoke_at",
        "_retried",
        "_retried_as",
        "_retries",
        "_runs",
        "_speaker",
        "_spoke_at",
        "has_compactions",
        "rewound",
        "seen",
        "steps",
        "tasks",
    )

    def __init__(self, rewound: frozenset[int] = frozenset(), retried: frozenset[int] = frozenset()) -> None:
        self.rewound = rewound | retried
        """The indexes of the events that a rewind or a retry took back, and of the rewinds and retries."""
        self._retried = retried
        self.seen = 0
        self.steps = 0
        """Counts the events and parts that were looked at, for tests."""
        self.tasks: dict[tuple[str, str], Event] = {}
        """The tasks that wait for the user's next message, by run and scope, oldest first, with their newest events."""
        self.has_compactions = False
        """Whether a loaded event is a compaction that no rewind took back."""
        self._speaker: str = ""
        """The run of the newest event with content."""
        self._spoke_at = NEVER
        self._others_spoke_at = NEVER
        """The newest event with content of another run than that."""
        self._retries: Mapping[str, int] = _NO_RETRIES
        """The number of the newest retry of each run."""
        self._retried_as: Mapping[str, str] = _NO_SUCCESSORS
        """By id of a run that was retried in this fork, the run that continues it."""
        self._runs: dict[str, RunState] = {}
        self._calls = _NO_CALLS
        """To read; `_own_calls` are to be changed."""

    def _own_calls(self) -> _LoggedCalls:
        if self._calls is _NO_CALLS:
            self._calls = _LoggedCalls()
        return self._calls

    # questions

    def run(self, invocation_id: str) -> RunState:
        """Raises KeyError for a run of which the log holds no event."""
        return self._runs[invocation_id]

    def find_run(self, invocation_id: str) -> RunState | None:
        return self._runs.get(invocation_id)

    def has_run(self, invocation_id: str) -> bool:
        return invocation_id in self._runs

    def retries(self, invocation_id: str) -> int:
        """The number of retries of a run that have begun."""
        return self._retries.get(invocation_id, 0)

    def run_with(self, event: Event) -> str:
        """The id of the run that an event belongs to; in a fork, its run may have been retried with another id."""
        return self._retried_as.get(event.invocation_id, event.invocation_id)

    def is_waiting(self, invocation_id: str, *, since: int = 0, branch: str | None = None) -> bool:
        run = self._runs.get(invocation_id)
        return run is not None and run.is_waiting(since=since, branch=branch)

    def has_call(self, call_id: str | None) -> bool:
        return call_id in self._calls.made

    def is_open(self, call_id: str | None) -> bool:
        """Whether a long-running call of that id waits for its response."""
        return call_id in self._calls.waiting

    def open_calls(self) -> dict[str, FunctionCall]:
        """The long-running calls that wait for their response, by id, oldest first."""
        calls: dict[str, FunctionCall] = {}
        for call_id in self._calls.waiting:
            event = self._calls.long_running.get(call_id)
            for call in event.get_function_calls() if event is not None else ():
                if call.id == call_id:
                    calls[call_id] = call
        return calls

    def begin_of_segment(self, invocation_id: str) -> int:
        """The index from which on no other run has written content, up to the end of the log."""
        return 1 + (self._others_spoke_at if invocation_id == self._speaker else self._spoke_at)

    def waiting_task(self) -> Event | None:
        """The newest event of the task that takes the user's next message. A run that failed since has none."""
        for event in reversed(self.tasks.values()):
            if self._runs[event.invocation_id].progress.error is None:
                return event
        return None

    def first_of_waiting_runs(self) -> list[int]:
        return [run.indexes[0] for run in self._runs.values() if run.calls.waiting]

    def find_request(self, request_id: str | None) -> Request | None:
        """The newest request with that id."""
        self.steps += 1
        return self._calls.requests.get(request_id)

    def call_to_answer(self, response: FunctionResponse, *, location: tuple[str, ...]) -> Event:
        """The event with the call that a client's response answers; a long-running call may be answered again.

        Answers to requests for approval pass, and are checked by `decide`. Raises InvalidRequest, with the location,
        for answers to calls that nobody made, and to calls that are not long-running.
        """
        self.steps += 1
        call = self._calls.long_running.get(response.id)
        if call is None:
            call = self._calls.made.get(response.id)
            if call is None:
                raise InvalidRequest(f"No function call of this session has the id {response.id}", location=location)
            if response.name not in REQUESTS:
                raise InvalidRequest(
                    f"The function call {response.id} is not long-running: its tool answers it, not a client",
                    location=location,
                )
        return call

    def answerable_ids(self) -> Iterator[str]:
        """The ids of calls that clients answer, newest first."""
        return (call_id for call_id in reversed(self._calls.long_running) if call_id is not None)

    def decide(self, message: Content | None) -> list[DecidedCall]:
        """Returns the calls on which a message, not stored yet, decides by answering requests for confirmation.

        Raises ApprovalRefused for an answer without a request, an answer to a used or expired request, or a duplicate.
        """
        decided: dict[object, DecidedCall] = {}
        for response in responses_in(message):
            request = self.find_request(response.id)
            kind = request.call.name if request is not None else None
            if REQUEST_CONFIRMATION in (response.name, kind):  # the request that it answers, or claims to answer
                decision = self._decide(request, response, answered_at=time.time(), is_stored=False)
                if decision.key in decided:
                    raise ApprovalRefused("the same message answers it twice")
                decided[decision.key] = decision
        return list(decided.values())

    def credential_answers(self, message: Content | None) -> list[tuple[Request, JsonObject]]:
        """Returns the credential requests that a message, not stored yet, answers, each with the answer.

        Raises ApprovalRefused for an answer without a request, to an answered request, or a duplicate.
        """
        answers: dict[str | None, tuple[Request, JsonObject]] = {}
        for response in responses_in(message):
            request = self.find_request(response.id)
            if request is None or request.call.name != REQUEST_CREDENTIAL:
                if response.name == REQUEST_CREDENTIAL:
                    raise ApprovalRefused("nobody asked for it")
                continue
            self.reject_duplicate(request)
            if response.id in answers:
                raise ApprovalRefused("the same message answers it twice")
            answers[response.id] = (request, response.response or {})
        return list(answers.values())

    def requests_answered_at(self, index: int) -> list[Request]:
        """The requests that the message at that index of the log answers."""
        return self._calls.answers.get(index, [])

    def all_decided_at(self, index: int) -> Sequence[DecidedCall]:
        """The calls that the message at that index of the log decides on."""
        return self._calls.decisions.get(index, ())

    def decided_at(self, index: int) -> list[DecidedCall]:
        """Returns the calls on which the message at that index of the log decides, and that have no response since."""
        return [one for one in self.all_decided_at(index) if not self._has_responded(one, since=index)]

    def _has_responded(self, decided: DecidedCall, *, since: int) -> bool:
        record = self._runs[decided.invocation_id].call(decided.call.id, decided.author, decided.branch)
        return record is not None and record.responded_at > since

    def _decide(
        self, request: Request | None, response: FunctionResponse, *, answered_at: float, is_stored: bool
    ) -> DecidedCall:
        if request is None or request.original is None or request.call.name != REQUEST_CONFIRMATION:
            raise ApprovalRefused("nobody asked for it")
        made_call = request.made
        event = request.event
        record = self._runs[event.invocation_id].call(request.original.id, event.author, event.branch)
        if made_call is None or record is None:
            raise ApprovalRefused("the call that it is about was never made")
        if made_call.name != request.original.name or not _is_same_json(made_call.args, request.original.args):
            raise ApprovalRefused("it shows another call than the one that was made")
        confirmation = record.confirmation if record.asked_at > request.made_at else None
        if confirmation is None:
            if is_stored or record.responded_at >= request.made_at:
                raise ApprovalRefused("the tool did not ask for it")
            confirmation = ToolConfirmation()  # a reader of the stream may answer before the tool's event is stored

        if answered_at - event.timestamp > EXPIRES_AFTER_SECONDS:
            raise ApprovalRefused("it is out of date")
        self.reject_duplicate(request)
        answer = read_confirmation(response)
        arguments = made_call.args
        if answer.confirmed and confirmation.payload is None and isinstance(payload := answer.payload, dict):
            arguments = cast("JsonObject", payload)  # the person edited the arguments in the request
        approved = FunctionCall(id=made_call.id, name=made_call.name, args=arguments)
        return DecidedCall(approved, answer, event.author, event.branch, event.invocation_id)

    def reject_duplicate(self, request: Request) -> None:
        """Raises ApprovalRefused when the request has been answered."""
        if self._calls.answered_at.get(request.call.id, NEVER) > request.index:
            raise ApprovalRefused("it was answered before")

    # the fold

    def read(self, events: Iterable[Event]) -> None:
        """Extends the state by the events after those it has read."""
        for event in events:
            if self.seen not in self.rewound:
                self._add(self.seen, event)
            elif self.seen in self._retried:
                self._add_retry(event)
            else:
                self._speaker = ""
                self._spoke_at = self.seen
            self.seen += 1

    def _add_retry(self, event: Event) -> None:
        """Notes a retry; other events that were taken back count for nothing."""
        retry = retry_in(event)
        if retry is None:
            return
        run_id = event.invocation_id
        self._retries = {**self._retries, run_id: retry.number}
        run = self._runs.get(retry.retried_run or run_id)
        if run is not None:
            run.progress.retry()
            self._runs[run_id] = run
        if retry.retried_run is not None:
            self._retried_as = {**self._retried_as, retry.retried_run: run_id}
            if self._speaker == retry.retried_run:
                self._speaker = run_id

    def _add(self, index: int, event: Event) -> None:
        self.steps += 1
        run = self._runs.get(event.invocation_id)
        if run is None:
            run = self._runs[event.invocation_id] = RunState()
        run.indexes.append(index)
        responses = event.get_function_responses()
        run.progress.add(index, event, responses)
        if event.isolation_scope is not None:
            self._end_wait(run, event.invocation_id, event.isolation_scope)
            if event.waits_for_message():
                self.tasks[event.invocation_id, event.isolation_scope] = event
                run.own_calls().waiting[event.isolation_scope, event.branch] = index

        if event.content is not None:
            if event.invocation_id != self._speaker:
                self._others_spoke_at = self._spoke_at
                self._speaker = event.invocation_id
            self._spoke_at = index
            if event.author == "user" and event.node_info is None:
                if not is_steering(event):
                    run.messages += (index,)
            elif run.transfers and event.isolation_scope is None:
                run.spoken_at[event.author] = index
            self._add_parts(index, event, run)

        actions = event.actions
        if actions.compaction is not None:
            self.has_compactions = True
        if event.author != "user":
            if actions.transfer_to_agent is not None and event.isolation_scope is None:
                run.transfers += ((index, event),)
            for call_id, confirmation in actions.requested_tool_confirmations.items():
                record = run.record_of(call_id, event)
                record.confirmation = confirmation
                record.asked_at = index
            for call_id, config in actions.requested_auth_configs.items():
                logins = run.own_calls().logins.setdefault((event.author, event.branch), {})
                logins[call_id] = credential_key(config)

        if event.long_running_tool_ids:
            self._add_long_running(index, event, run)
        if event.author == "user" and responses:
            self._add_answers(index, event, responses)

    def _add_parts(self, index: int, event: Event, run: RunState) -> None:
        """Adds the calls and responses of an event."""
        for part in (event.content.parts if event.content is not None else None) or ():
            call = part.function_call
            response = part.function_response
            if call is None and response is None:
                continue
            self.steps += 1
            if call is not None:
                record = run.record_of(call.id, event)
                record.call = call
                record.event = event
                record.made_at = index
                self._own_calls().made[call.id] = event
            if response is not None:
                if self.tasks and response.id is not None:
                    self._end_wait(run, event.invocation_id, response.id)
                if event.author == "user":
                    for record in run.calls_with_id(response.id):
                        record.answered_at = index
                record = run.call(response.id, event.author, event.branch)
                if record is not None:
                    record.responded_at = index
                if response.id is not None and self.is_open(response.id) and closes_call(event, response):
                    for waiting, branch in self._calls.waiting.pop(response.id):
                        waiting.calls.waiting.pop((response.id, branch), None)
            logins = run.calls.logins.get((event.author, event.branch))
            if logins:
                logins.pop((call.id if call is not None else response.id if response else None) or "", None)

    def _end_wait(self, run: RunState, invocation_id: str, scope: str) -> None:
        waiting = self.tasks.pop((invocation_id, scope), None)
        if waiting is not None:
            run.calls.waiting.pop((scope, waiting.branch), None)

    def _add_long_running(self, index: int, event: Event, run: RunState) -> None:
        ids = event.long_running_tool_ids or ()
        calls = self._own_calls()
        for call_id in ids:
            self.steps += 1
            run.own_calls().waiting[call_id, event.branch] = index
            calls.waiting.setdefault(call_id, []).append((run, event.branch))
        for call in event.get_function_calls():
            if call.id in ids:
                calls.long_running[call.id] = event
        requests: dict[str | None, Request] = {}
        for call in requests_in(event):
            requests.setdefault(call.id, self._request(call, event, index, run))
        calls.requests.update(requests)
        for request_id, request in requests.items():
            if request_id is not None:
                run.own_calls().requests[request_id] = request

    def _request(self, call: FunctionCall, event: Event, index: int, run: RunState) -> Request:
        original = original_call(call) if call.name == REQUEST_CONFIRMATION else None
        record = run.call(original.id, event.author, event.branch) if original is not None and original.id else None
        if record is None or record.call is None or record.made_at == index:
            return Request(call, event, index, original, None, NEVER)
        return Request(call, event, index, original, record.effective_call(), record.made_at)

    def _add_answers(self, index: int, event: Event, responses: list[FunctionResponse]) -> None:
        """A stored message with responses by the user. An invalid one was answered by another message first."""
        answered: list[Request] = []
        decided: dict[object, DecidedCall] = {}
        logins: list[tuple[Request, FunctionResponse]] = []
        for response in responses:
            request = self._calls.requests.get(response.id)
            if request is None:
                continue
            answered.append(request)
            with contextlib.suppress(ApprovalRefused):
                if request.call.name == REQUEST_CONFIRMATION:
                    decision = self._decide(request, response, answered_at=event.timestamp, is_stored=True)
                    decided.setdefault(decision.key, decision)
                elif request.call.name == REQUEST_CREDENTIAL:
                    self.reject_duplicate(request)
                    logins.append((request, response))

        for decision in decided.values():
            record = self._runs[decision.invocation_id].call(decision.call.id, decision.author, decision.branch)
            is_of_run = self._runs[decision.invocation_id] is self._runs[event.invocation_id]
            if record is not None and is_of_run:
                record.decision = decision
                record.decided_at = index

        for request, response in logins:
            for decision in self._released(request, is_declined=response.response == DECLINED):
                decided.setdefault(decision.key, decision)

        calls = self._own_calls()
        for response in responses:
            calls.answered_at[response.id] = index
        if answered:
            calls.answers[index] = answered
            calls.decisions[index] = list(decided.values())

    def _released(self, request: Request, *, is_declined: bool) -> Iterable[DecidedCall]:
        """Returns the calls of the requesting agent that waited for a credential; earlier approvals remain valid."""
        event = request.event
        run = self._runs[event.invocation_id]
        for call_id, key in run.calls.logins.get((event.author, event.branch), {}).items():
            record = run.call(call_id, event.author, event.branch)
            if key != request.credential_key or record is None or record.call is None:
                continue
            call = record.call
            answer = ToolConfirmation(confirmed=False) if is_declined else None
            if record.decision is not None and record.decided_at > record.made_at and not is_declined:
                call = record.decision.call
                answer = record.decision.answer
            yield DecidedCall(call, answer, event.author, event.branch, event.invocation_id)


def log_state_of(events: CopyOnWriteList[Event]) -> LogState:
    """The state of a log, up to its newest event. Events that a rewind or a retry took back count for nothing."""
    key = _CURRENT
    end = len(events)
    state: LogState | None = events.derived.get(key)
    if state is not None and state.seen > end:
        key = _SHORTER  # another holder of the log has appended to it, and this one hasn't seen that yet
        state = events.derived.get(key)
    if state is not None and state.seen == end:
        return state

    if state is None or state.seen > end:
        state = LogState()
    new_events = events[state.seen :]
    for event in new_events:
        if event.actions.rewind_before_invocation_id or (event.custom_metadata and event.is_retry()):
            rewound = rewound_indexes(events)
            state = LogState(rewound, taken_back_indexes(events, rewound))
            new_events = events
            break
    state.read(new_events)
    if end:
        events.derived[key] = state
    return state


def kept_events(events: CopyOnWriteList[Event]) -> Sequence[Event]:
    """The events that no rewind or retry took back."""
    rewound = log_state_of(events).rewound
    return [event for index, event in enumerate(events) if index not in rewound] if rewound else events


def events_of_run(events: CopyOnWriteList[Event], invocation_id: str, *, since: int = 0) -> list[Event]:
    """Yields the events of a run at that index of the log or after it, in order."""
    state = log_state_of(events)
    indexes = state.run(invocation_id).indexes if state.has_run(invocation_id) else []
    return [events[index] for index in indexes[bisect_left(indexes, since) :]]


def _is_same_json(arguments: JsonObject | None, others: JsonObject | None) -> bool:
    """Equal as JSON: to Python, true is 1."""
    return msgspec.json.encode(arguments or {}, order="sorted") == msgspec.json.encode(others or {}, order="sorted")
