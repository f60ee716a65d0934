"""The position of a workflow, folded from its events: what became of every run of a node, by path.
A small log:

    1  user  "Book for 10"
    2  wf    agentState {check: running}     path wf@1/check@1: it has begun, and its effect is unknown from here on
    3  wf    output "large", route "large"   path wf@1/check@1: complete; its route says which edges are followed
    4  wf    call adk_request_input ask_ok   path wf@1/ask@1: waits, as its run is one event
    5  user  response ask_ok {"ok": true}    wf@1/ask@1 is answered: it runs again, or the answer is its output
    6  wf    errorCode TimeoutError          path wf@1/book@1: its first attempt has failed
    7  wf    agentState {book: pending, 2}   path wf@1/book@1: a second attempt follows; stored in one step with line 6

Lines 2 and 7 are checkpoints, which ADK does not send. A node whose run is one event needs none to
be complete or to wait; others have a checkpoint that says so, since an output or a request may come
before the end.

Source of paths, statuses and the order of events: ADK's workflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast

from greenroom.errors import InvalidRequest
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import FunctionCall, FunctionResponse
from greenroom.records.event import Event, EventActions, NodeInfo
from greenroom.records.human_requests import is_input_request, read_input


class NodeStatus(IntEnum):
    INACTIVE = 0
    PENDING = 1
    RUNNING = 2
    COMPLETED = 3
    WAITING = 4
    FAILED = 5
    CANCELLED = 6


@dataclass(slots=True)
class NodeRecord:
    """A run of a node. The times `…_at` count the events of the fold."""

    status: NodeStatus = NodeStatus.INACTIVE
    attempt: int = 1
    """The newest, from 1."""

    began_at: int | None = None
    """Index in the log of the attempt's first event; None when it is not known."""

    attempt_at: int = 0
    """The time at which the newest repeated attempt was stored."""

    failed_at: int = 0
    """The time of its newest failure."""

    settled_at: int | None = None
    """The time at which it last stored something that is neither a failure nor a request."""

    completed_at: int | None = None
    """The time of the checkpoint that records it."""

    output: JsonValue = None
    """Of the node, or of the node that replaces it."""

    gave_output: bool = False
    """The node's own event has it."""

    route: JsonValue = None
    error: tuple[str, str] | None = None
    asked: bool = False
    """It has made requests since it began."""

    requests: dict[str, FunctionCall] = field(default_factory=dict[str, FunctionCall])
    """Open ones, by id."""

    answers: JsonObject = field(default_factory=dict[str, JsonValue])
    """By id of the request."""

    is_answered: bool = False
    """One of them came since it last asked."""

    @property
    def has_result(self) -> bool:
        return self.gave_output or self.route is not None

    @property
    def answer(self) -> JsonValue:
        """The answer that is the node's output; of several requests a map."""
        if len(self.answers) == 1:
            return next(iter(self.answers.values()))
        return dict(self.answers)

    def completion(self, *, is_one_event: bool) -> int | None:
        """Returns when it was complete, as a number of events of the fold; None while it is not."""
        if self.completed_at is None and is_one_event and self.status is not NodeStatus.FAILED:
            return self.settled_at
        return self.completed_at

    def is_suspended(self, *, is_one_event: bool) -> bool:
        """True if the node's code ended with a request, instead of being cut off after one."""
        return self.status is NodeStatus.WAITING or (is_one_event and self.asked)


class Position:
    """The fold. `add` takes the events of one run of a workflow in the order of the log."""

    def __init__(self) -> None:
        self._records: dict[str, NodeRecord] = {}
        self._waiting: dict[str | None, dict[str, NodeRecord]] = {}
        self._count = 0
        self._failed: str | None = None

    def __contains__(self, path: str) -> bool:
        return path in self._records

    def at(self, path: str) -> NodeRecord:
        record = self._records.get(path)
        if record is None:
            record = NodeRecord()
            self._records[path] = record
        return record

    def read(self, events: Iterable[tuple[int, Event]]) -> None:
        """Adds stored events, each with its index in the log."""
        for index, event in events:
            self.add(event, index)

        if self._failed is not None:  # ended the run: the nodes above the failed one have failed, too
            path = self._failed
            while path := path.rpartition("/")[0]:
                record = self.at(path)
                if record.status is not NodeStatus.WAITING:
                    record.status = NodeStatus.FAILED

    def add(self, event: Event, index: int | None = None) -> None:
        self._count += 1
        self._failed = None

        if event.author == "user":
            for response in event.get_function_responses():
                self._add_answer(response)
            return

        path = event.node_path
        if not path or event.partial:
            return

        record = self.at(path)
        actions = event.actions
        if actions.agent_state is not None and event.content is None:
            self._add_checkpoint(record, actions.agent_state)
            return

        if record.began_at is None:
            record.began_at = index

        if actions.route is not None:
            record.route = actions.route

        for output_of in (event.node_info and event.node_info.output_for) or ():
            self._add_output(self.at(output_of), event)
            record.gave_output = record.gave_output or output_of == path

        if is_failure(event):
            record.status = NodeStatus.FAILED
            record.error = (event.error_code or "", event.error_message or "")
            self._failed = path
        elif event.long_running_tool_ids:
            if record.is_answered:  # it runs again since then, and has not ended
                record.status = NodeStatus.RUNNING

            record.asked = True
            record.is_answered = False

            calls = {call.id: call for call in event.get_function_calls()}
            for call_id in event.long_running_tool_ids:
                record.requests[call_id] = calls.get(call_id) or FunctionCall(id=call_id)
                self._waiting.setdefault(call_id, {})[path] = record
        else:
            record.settled_at = self._count

    def _add_checkpoint(self, record: NodeRecord, state: JsonObject) -> None:
        for entry in cast("dict[str, JsonObject]", state.get("nodes") or {}).values():
            record.status = NodeStatus(entry["status"])
            record.attempt = entry.get("attempt", record.attempt)

            if record.status is NodeStatus.COMPLETED:
                record.completed_at = self._count
                if entry.get("isAnswered"):
                    record.output = record.answer
                continue

            record.settled_at = None
            if record.status is NodeStatus.WAITING:
                record.is_answered = False
            else:
                record.asked = False

            if record.status is NodeStatus.FAILED:
                record.failed_at = self._count
            elif record.status is NodeStatus.PENDING:
                record.attempt_at = self._count
                record.began_at = None
                record.error = None

    def _add_output(self, record: NodeRecord, event: Event) -> None:
        record.output = event.output
        if event.output is None and event.node_info is not None and event.node_info.message_as_output:
            record.output = text_of(event)

    def _add_answer(self, response: FunctionResponse) -> None:
        for record in self._waiting.pop(response.id, {}).values():
            call = record.requests.pop(response.id or "")
            answer: JsonValue = response.response
            if is_input_request(call):
                try:
                    answer = read_input(call, response)
                except InvalidRequest:  # in a log that a client brought along
                    pass

            record.answers[response.id or ""] = answer
            record.is_answered = True


def is_failure(event: Event) -> bool:
    """Whether it is the failure of an attempt, and not a reply that a model cut short."""
    if event.error_code is None:
        return False
    return event.content is None or bool(event.interrupted) or bool(event.get_function_responses())


def text_of(event: Event) -> str:
    """Returns the event's text without thoughts."""
    parts = (event.content.parts if event.content is not None else None) or ()
    return "".join(part.text for part in parts if part.text and not part.thought)


def checkpoint(
    path: str,
    *,
    author: str,
    branch: str | None,
    status: NodeStatus,
    attempt: int = 1,
    is_answered: bool = False,
    interrupts: Sequence[str] = (),
) -> Event:
    """The checkpoint event of a node's run.

    is_answered: its output is the answer to its request.
    interrupts: ids of the requests that have no answer.
    """
    entry: JsonObject = {"status": int(status)}
    if interrupts:
        entry["interrupts"] = [*interrupts]

    if is_answered:
        entry["isAnswered"] = True

    if attempt > 1:
        entry["attempt"] = attempt

    name = path.rpartition("/")[2].partition("@")[0]

    return Event(
        author=author,
        branch=branch,
        node_info=NodeInfo(path=path),
        actions=EventActions(agent_state={"nodes": {name: entry}}),
    )
