"""Progress of a run, read from its log: after a crash nothing else is asked. Small logs, and the decision:

    1  user  "How is Oslo?"
    2  desk  call c-1 weather(city="Oslo")          the call may have begun: its tool's `on_interrupt` decides, then
                                                    the model is called
    3  desk  response c-1 {"temp": 18}              the model is called
    4  desk  "18 degrees."                          a final response: the run is over

    1  user  "Write it."
    2  flow  agentState {current: "draft"}          the outermost workflow agent: it continues with `draft`
    3  draft "Once upon a time"                     final for `draft`, not for the run: `flow` continues after it
    4  flow  endOfAgent                             the run is over

    1  user  "Pay 5"
    2  desk  call c-1 pay(amount=5)
    3  desk  response c-1, errorCode ConnectionError  the newest event ends the run with an error: it has failed

A message that only answers calls, or is for a task, or was read within the turn (steering), belongs to the turn of the
message before it. Each agent finds its own position: see `agents/turn/resume.py`, and for workflow agents their
checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from greenroom.errors import RunCancelled
from greenroom.log.calls import NEVER
from greenroom.records.content import Content, FunctionResponse
from greenroom.records.event import Event
from greenroom.records.human_requests import requests_in
from greenroom.records.run import RunError
from greenroom.records.steering import is_steering

ABORTED = "INVOCATION_ABORTED"
"""Error code of the event that ends a cancelled run. Source: ADK's servers."""

TRANSFER_TOOL = "transfer_to_agent"

RETURN = "return"
"""The argument of `transfer_to_agent` by which an agent wants the control back, and the key of its response."""


_NOBODY: frozenset[str] = frozenset()


class RunProgress:
    """The progress of one run. A turn begins with a message of the user that is no answer to calls.

    Steps of agents that run as tools are no part of a turn: their callers resume them.
    """

    __slots__ = (
        "_authors",
        "_ends_with_steering",
        "_has_checkpoint",
        "_is_reply_repeated",
        "_lenders",
        "_workflow",
        "begins_at",
        "error",
        "last",
        "message_at",
        "model_calls",
        "user_content",
        "was_failed",
    )

    def __init__(self) -> None:
        self.begins_at = NEVER
        """Index in the session's log of the turn's first event."""
        self.message_at = NEVER
        """Index of the run's newest message; of its first event while it has none."""
        self.user_content: Content | None = None
        """The newest message."""
        self.last: Event | None = None
        """The newest event by an agent since the message. One that only changes state, as a callback makes it, doesn't
        count, nor does one of a node that a tool or a workflow runs."""
        self.error: RunError | None = None
        """The error in the newest event, if it ends its agent's turn; a reply that the model cut short is no error."""
        self.was_failed = False
        """Whether the newest event is the one that ends a failed run."""
        self.model_calls = 0
        """Calls of the model, as far as the log shows them: a callback's answer in place of a model's counts too, a
        call whose reply was never stored doesn't."""
        self._is_reply_repeated = False
        self._ends_with_steering = False
        """Whether the newest event is a message after which an agent is to call its model."""
        self._begin_turn()

    def retry(self) -> None:
        """Notes the beginning of a retry: the run has not failed any more."""
        self.error = None
        self.was_failed = False

    def _begin_turn(self) -> None:
        self._authors: dict[str, bool] = {}
        """Those who wrote in the turn; True: before any checkpoint."""
        self._has_checkpoint = False
        self._lenders = _NOBODY
        """The agents that asked for control to return, and haven't written an event since."""
        self._workflow: _OutermostWorkflow | None = None
        """From the first checkpoint on."""

    def add(self, index: int, event: Event, responses: Sequence[FunctionResponse]) -> None:
        """Adds the next event of the run.

        responses: the responses in the event.
        """
        is_outer = event.isolation_scope is None
        self.error = None
        self.was_failed = False
        self._ends_with_steering = False
        if self.begins_at == NEVER:
            self.begins_at = index
            self.message_at = index
        elif is_outer and event.author == "user" and not responses:
            if is_steering(event):
                self._ends_with_steering = True
                return
            self._begin_turn()
            self.begins_at = index

        if event.error_code is not None:
            self.error = _error_of(event)
            self.was_failed = is_outer and self._ends_run(event)
        if event.author != "user" and not self._is_reply_repeated and _is_reply(event):
            self.model_calls += 1
        # An answer through the tool for structured ones is followed by the same as text.
        self._is_reply_repeated = event.actions.set_model_response is not None
        if not is_outer:
            return

        has_state = event.actions.agent_state is not None
        self._authors.setdefault(event.author, not self._has_checkpoint)
        if has_state:
            self._has_checkpoint = True
        if self._lenders and event.content is not None:
            self._lenders -= {event.author}
        if responses and asks_for_return(event):
            self._lenders |= {event.author}
        if has_state and self._workflow is None and _is_progress_of_root(event):
            self._workflow = _OutermostWorkflow()
        if self._workflow is not None:
            self._workflow.add(event)

        if event.author == "user" and event.node_info is None:
            self.user_content = event.content or self.user_content
            self.message_at = index
            self.last = None
        elif (event.content is not None or event.error_code is not None) and _may_be_last(event):
            self.last = event

    @property
    def is_over(self) -> bool:
        if self.was_failed:
            return True
        if self._ends_with_steering:
            return False
        if self._workflow is not None and self._workflow.status != "none":
            return self._workflow.status == "ended" and not self._lenders
        last = self.last
        if last is None or last.get_function_calls() or _ends_with_code(last):
            return False
        return last.is_final_response() and last.actions.transfer_to_agent is None and not self._lenders

    def _ends_run(self, event: Event) -> bool:
        """Whether an event with an error ends the run. An agent of a workflow whose model failed to say anything has
        ended, but not the run; the agent that the run entered is above the workflow, or is it."""
        if event.content is not None:
            return bool(event.interrupted or event.get_function_responses())
        if event.node_path:  # of a workflow, in which a checkpoint follows what does not end the run
            return True
        return self._authors.get(event.author, False)


class _OutermostWorkflow:
    """The outermost workflow agent of a turn, from its first checkpoint.

    It has ended until another agent speaks, to which it gave the control back; then the outermost one of the events
    after its end counts. Messages of its own callbacks don't count.
    """

    __slots__ = ("_author", "_has_ended", "_is_left", "_later")

    def __init__(self) -> None:
        self._author: str | None = None
        self._has_ended = False
        self._is_left = False
        self._later: _OutermostWorkflow | None = None
        """Reads the events after the end."""

    @property
    def status(self) -> Literal["none", "running", "ended"]:
        if self._author is None:
            return "none"
        if not self._has_ended:
            return "running"
        if not self._is_left:
            return "ended"
        return self._later.status if self._later is not None else "none"

    def add(self, event: Event) -> None:
        if self._author is None:
            if not _is_progress_of_root(event):
                return
            self._author = event.author

        if event.author == self._author and event.actions.end_of_agent:
            self._has_ended = True
            self._is_left = False
            self._later = None
        elif event.author == "user" or (event.author == self._author and event.actions.agent_state is not None):
            self._has_ended = False
        elif self._has_ended:
            self._is_left = self._is_left or (event.author != self._author and event.content is not None)
            self._later = self._later or _OutermostWorkflow()
            self._later.add(event)


def _error_of(event: Event) -> RunError | None:
    code = event.error_code
    if code is None or (event.content is not None and not event.interrupted and not event.get_function_responses()):
        return None
    return RunError(code=RunCancelled.__name__ if code == ABORTED else code, message=event.error_message or code)


def asks_for_return(event: Event) -> bool:
    """True if the agent that transfers with this event continues after the other agent has answered."""
    return any(
        response.name == TRANSFER_TOOL and (response.response or {}).get(RETURN) is True
        for response in event.get_function_responses()
    )


def _is_progress_of_root(event: Event) -> bool:
    """Whether it is a checkpoint, but not of a node within a workflow, which may be an agent's tool."""
    return event.actions.agent_state is not None and "/" not in event.node_path


def _may_be_last(event: Event) -> bool:
    """Whether it is neither half a message nor of a node that a workflow or a tool runs."""
    return not event.is_cut_off and "/" not in event.node_path


def _ends_with_code(event: Event) -> bool:
    """Whether there may be code to run, which only the agent knows."""
    parts = event.content.parts if event.content is not None else None
    return bool(parts) and parts[-1].executable_code is not None


def _is_reply(event: Event) -> bool:
    """Whether an agent's event is a model's reply."""
    if requests_in(event):
        return False
    if event.content is None:
        return event.error_code is not None
    if event.content.role == "model":
        for part in event.content.parts or ():
            if part.code_execution_result is None:
                return True
    return False
