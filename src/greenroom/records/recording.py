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
    """llm_request: None when only the answer is known. llm_responses: the whole reply, behind its chunks if it was
    streamed."""

    llm_request: LlmRequest | None = None
    llm_responses: list[LlmResponse] = msgspec.field(default_factory=list[LlmResponse])


class ToolRecording(Record, kw_only=True):
    """actions: what the tool did besides, of the log of a past run. error_code, error_message: of the error that it
    raised and that ended the run. These are ours."""

    tool_call: FunctionCall | None = None
    tool_response: FunctionResponse | None = None
    actions: EventActions | None = None
    error_code: str | None = None
    error_message: str | None = None


class Recording(Record, kw_only=True):
    """One request with its answer: a model's or a tool's, not both. user_message_index: the turn, from 0.

    The fields after these are ours, and come in place of them. user_content, state_delta: of the user's message in a
    live run. is_cancelled: the run was stopped when nothing was left, by another error than a cancellation where
    error_code and error_message say so, such as its deadline. is_unfinished: the log has no more of the run, since it
    was forked inside of it.
    """

    user_message_index: int
    agent_name: str
    llm_recording: LlmRecording | None = None
    tool_recording: ToolRecording | None = None
    user_content: Content | None = None
    state_delta: JsonObject | None = None
    is_cancelled: bool = False
    error_code: str | None = None
    error_message: str | None = None
    is_unfinished: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the answer came, and came to its end."""
        if self.llm_recording is not None:
            responses = self.llm_recording.llm_responses
            return bool(responses) and not responses[-1].partial
        return self.tool_recording is not None and self.tool_recording.tool_response is not None


class Recordings(Record, kw_only=True):
    """In the order of the requests."""

    recordings: list[Recording] = msgspec.field(default_factory=list[Recording])
