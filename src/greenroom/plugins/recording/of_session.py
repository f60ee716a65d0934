"""Makes a recording of what a session's log has of a past run."""

from __future__ import annotations

from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.recording import LlmRecording, Recording, Recordings, ToolRecording
from greenroom.records.session import Session

_ABORTED = "INVOCATION_ABORTED"
_SAME_IN_RESPONSE = tuple(name for name in LlmResponse.__struct_fields__ if name in Event.__struct_fields__)


def recording_of(session: Session, invocation_id: str | None = None) -> Recordings:
    """The answers of models and tools in one run, or in all; turns are counted over the whole session.

    The log has no requests, so a replay can't verify those. It has replies as the agent's callbacks left them, and
    what a callback answered in place of a model looks like a model's reply.
    """
    recordings: list[Recording] = []
    calls: dict[str | None, FunctionCall] = {}
    turn = -1
    answered_by_tool = False
    for event in session.events:
        if is_turn(event):
            turn += 1
        if event.author == "user":
            continue
        is_wanted = invocation_id is None or event.invocation_id == invocation_id
        calls.update((call.id, call) for call in event.get_function_calls())
        responses = event.get_function_responses()
        for response in responses:
            if is_wanted and event.error_code is None:
                recorded = ToolRecording(tool_call=calls.get(response.id), tool_response=response)
                recordings.append(_recording(turn, event, tool_recording=recorded))
        # The text that follows a structured answer repeats what was given to its tool; no model said it.
        if is_wanted and not responses and not answered_by_tool and _is_reply(event):
            values = {name: getattr(event, name) for name in _SAME_IN_RESPONSE}
            reply = LlmRecording(llm_responses=[LlmResponse(**values)])
            recordings.append(_recording(turn, event, llm_recording=reply))
        answered_by_tool = event.actions.set_model_response is not None
        for call in event.get_function_calls():
            if is_wanted and call.id in (event.long_running_tool_ids or ()) and not _is_of_framework(call):
                recordings.append(_recording(turn, event, tool_recording=_left_open(call, session, event)))
    return Recordings(recordings=recordings)


def is_turn(event: Event) -> bool:
    """Whether the event is a message of the user."""
    return event.author == "user" and event.content is not None


def _is_reply(event: Event) -> bool:
    return not event.partial and event.error_code != _ABORTED and (event.content is not None or bool(event.error_code))


def _recording(
    turn: int,
    event: Event,
    *,
    llm_recording: LlmRecording | None = None,
    tool_recording: ToolRecording | None = None,
) -> Recording:
    return Recording(
        user_message_index=turn,
        agent_name=event.author,
        llm_recording=llm_recording,
        tool_recording=tool_recording,
    )
