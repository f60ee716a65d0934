"""Makes a recording of what a session's log has of a past run."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.records.content import FunctionCall, FunctionResponse
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.recording import LlmRecording, Recording, Recordings, ToolRecording
from greenroom.records.session import Session

_ABORTED = "INVOCATION_ABORTED"
_FRAMEWORK_CALLS = "adk_request_"
_SAME_IN_RESPONSE = tuple(name for name in LlmResponse.__struct_fields__ if name in Event.__struct_fields__)


def recording_of(session: Session, invocation_id: str | None = None) -> Recordings:
    """The answers of models and tools in one run, or in all; turns are counted over the whole session.

    The log has no requests, so a replay can't verify those. It has replies as the agent's callbacks left them, and
    what a callback answered in place of a model looks like a model's reply.
    """
    calls = {call.id: call for event in session.events for call in event.get_function_calls()}
    answered = {r.id for e in session.events if e.author != "user" for r in e.get_function_responses()}
    recordings: list[Recording] = []
    structured: set[str] = set()
    turn = -1
    for event in session.events:
        turn += is_turn(event)
        if event.author == "user" or event.partial or event.error_code == _ABORTED:
            continue
        if event.isolation_scope is not None:
            continue  # of an agent that runs as a tool, the answer is recorded
        # The text that follows a structured answer repeats what was given to its tool; no model said it.
        is_repeated = event.author in structured
        structured.discard(event.author)
        if event.actions.set_model_response is not None:
            structured.add(event.author)
        if invocation_id is not None and event.invocation_id != invocation_id:
            continue
        if event.get_function_responses():
            recordings += _of_tools(event, turn, calls)
        elif not is_repeated and _is_reply(event):
            reply = LlmResponse(**{name: getattr(event, name) for name in _SAME_IN_RESPONSE})
            recorded = LlmRecording(llm_responses=[reply])
            recordings.append(Recording(user_message_index=turn, agent_name=event.author, llm_recording=recorded))
            recordings += _left_open(event, turn, answered)
    return Recordings(recordings=recordings)


def is_turn(event: Event) -> bool:
    """Whether the event is a message of the user."""
    return event.author == "user" and event.content is not None


def _is_reply(event: Event) -> bool:
    calls = event.get_function_calls()
    if calls and all(_is_of_framework(call) for call in calls):
        return False
    return event.content is not None or event.error_code is not None


def _is_of_framework(call: FunctionCall) -> bool:
    return (call.name or "").startswith(_FRAMEWORK_CALLS)


def _of_tools(event: Event, turn: int, calls: dict[str | None, FunctionCall]) -> Iterator[Recording]:
    for response in event.get_function_responses():
        recorded = ToolRecording(tool_call=calls.get(response.id), tool_response=response)
        yield Recording(user_message_index=turn, agent_name=event.author, tool_recording=recorded)


def _left_open(event: Event, turn: int, answered: set[str | None]) -> Iterator[Recording]:
    """Calls of long-running tools that had no first word to say."""
    for call in event.get_function_calls():
        if call.id in (event.long_running_tool_ids or ()) and call.id not in answered:
            response = FunctionResponse(id=call.id, name=call.name, response={"result": None})
            recorded = ToolRecording(tool_call=call, tool_response=response)
            yield Recording(user_message_index=turn, agent_name=event.author, tool_recording=recorded)
