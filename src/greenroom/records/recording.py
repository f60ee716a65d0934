"""Recordings: the answers of models and tools in the runs of a session, for replaying the runs without them.

Source: the recordings of ADK's conformance tests, which are YAML with snake_case keys.
"""

from __future__ import annotations

import msgspec

from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content, FunctionCall, FunctionResponse
from greenroom.records.event import EventActions
from greenroom.records.model_exchange import LlmRequest, LlmResponse


class LlmRecording(Record, kw_only=True):
    """A model's request and reply."""

    llm_request: LlmRequest | None = None
    """None when only the answer is known."""
    llm_responses: list[LlmResponse] = msgspec.field(default_factory=list[LlmResponse])
    """The whole reply, after its chunks if it was streamed."""


class ToolRecording(Record, kw_only=True):
    """A tool's call and response."""

    tool_call: FunctionCall | None = None
    tool_response: FunctionResponse | None = None
    actions: EventActions | None = None
    """The tool's side effects, taken from the log of a past run."""
    error_code: str | None = None
    """The error that the tool raised and that ended the run. ADK has no such field."""
    error_message: str | None = None
    """The error's text. ADK has no such field."""


class Recording(Record, kw_only=True):
    """A request with its answer, of a model or of a tool. The fields after `tool_recording` are ours; an entry that
    uses them has neither.
    """

    user_message_index: int
    """The number of the turn, from 0."""
    agent_name: str
    llm_recording: LlmRecording | None = None
    tool_recording: ToolRecording | None = None
    user_content: Content | None = None
    """The user's message in a live run."""
    state_delta: JsonObject | None = None
    """The changes of state that came with the user's message in a live run."""
    is_cancelled: bool = False
    """Whether the run was stopped at this point: cancelled, or failed by the error in error_code
    and error_message, such as its deadline."""
    error_code: str | None = None
    error_message: str | None = None
    is_unfinished: bool = False
    """Whether the log has no more of the run, because the session was forked inside it."""

    @property
    def is_complete(self) -> bool:
        """True if the whole answer was received."""
        if self.llm_recording is not None:
            responses = self.llm_recording.llm_responses
            return bool(responses) and not responses[-1].partial
        return self.tool_recording is not None and self.tool_recording.tool_response is not None


class Recordings(Record, kw_only=True):
    """Recordings of a session, in the order of the requests."""

    recordings: list[Recording] = msgspec.field(default_factory=list[Recording])
