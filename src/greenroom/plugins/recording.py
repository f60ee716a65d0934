"""Records the answers of models and tools: of running sessions, or from the log of a past one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from greenroom.errors import DeadlineExceeded, ReplayConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.log.calls import NEVER
from greenroom.log.progress import ABORTED
from greenroom.log.state import LogState, log_state_of
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.recordings_file import RECORDINGS_CONFIG, Settings, dump_recordings, load_recordings, settings_of
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, FunctionResponse
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import is_state_patch_id, new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.recording import LlmRecording, Recording, Recordings, ToolRecording
from greenroom.records.session import Session
from greenroom.records.steering import is_steering
from greenroom.tools.result import take_media, to_response
from greenroom.tools.tool import BaseTool

_log = logging.getLogger("greenroom.plugins")


class RecordingsPlugin(BasePlugin):
    """Records sessions whose state has `_adk_recordings_config` = {dir, user_message_index,
    streaming_mode}.

    A run's recordings are written when it completes. Register it first, to record answers before
    other plugins change them. For development only: clients that can set the state choose the
    folder.
    """

    def __init__(self, name: str = "adk_recordings") -> None:
        super().__init__(name)
        self._runs: dict[str, _RecordedRun] = {}

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Raises ReplayConfigError."""
        settings = settings_of(invocation_context.session, RECORDINGS_CONFIG)
        if settings is not None and not invocation_context.was_cut_off:
            self._runs[invocation_context.invocation_id] = _RecordedRun(settings)

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        run = self._run_of(callback_context)
        if run is not None:
            # Not a copy, because the agent's own callbacks may still change the request.
            recording = LlmRecording(llm_request=llm_request)
            run.open_replies[callback_context.agent_name] = recording
            run.add(callback_context.agent_name, llm_recording=recording)

    async def after_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_response: LlmResponse,
    ) -> None:
        run = self._run_of(callback_context)
        if run is not None:
            recording = run.open_replies.get(callback_context.agent_name)
        else:
            recording = None

        if run is None or recording is None:
            return

        # Ids are assigned here, because a replayed reply must have the ids that the run used.
        for part in (llm_response.content.parts if llm_response.content else None) or ():
            if part.function_call is not None and not part.function_call.id:
                part.function_call.id = new_function_call_id()

        recording.llm_responses.append(copy.deepcopy(llm_response))
        if not llm_response.partial:
            del run.open_replies[callback_context.agent_name]

    async def before_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: JsonObject,
        tool_context: ToolContext,
    ) -> None:
        run = self._run_of(tool_context)
        if run is not None:
            call = FunctionCall(
                id=tool_context.function_call_id,
                name=tool.name,
                args=copy.deepcopy(tool_args),
            )
            recording = ToolRecording(tool_call=call)
            run.open_calls[call.id] = recording
            run.add(tool_context.agent_name, tool_recording=recording)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> None:
        run = self._run_of(tool_context)
        call_id = tool_context.function_call_id
        if run is not None:
            recording = run.open_calls.pop(call_id, None)
        else:
            recording = None

        if recording is not None:
            left, media = take_media(result)
            recording.tool_response = FunctionResponse(
                id=call_id, name=tool.name, response=to_response(left), parts=media or None
            )

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        run = self._runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            run.write()

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        if self._runs.pop(invocation_context.invocation_id, None) is not None:
            _log.warning("Run %s failed, so it is not recorded", invocation_context.invocation_id)

    def _run_of(self, ctx: CallbackContext) -> _RecordedRun | None:
        if ctx.invocation_context.isolation_scope is not None:
            return None  # of an agent as a tool, only the result is recorded
        run = self._runs.get(ctx.invocation_id)
        if run is None and settings_of(ctx.session, RECORDINGS_CONFIG) is not None:
            raise ReplayConfigError(f"Run {ctx.invocation_id} was not recorded from its beginning")
        return run


class _RecordedRun:
    """The recordings of one run. open_replies: by agent. open_calls: by id."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

        if settings.path.exists():
            self._earlier = load_recordings(settings.path).recordings
        else:
            self._earlier = []

        self._added: list[Recording] = []
        self.open_replies: dict[str, LlmRecording] = {}
        self.open_calls: dict[str | None, ToolRecording] = {}

    def add(self, agent: str, **recorded: Any) -> None:
        self._added.append(Recording(user_message_index=self._settings.turn, agent_name=agent, **recorded))

    def write(self) -> None:
        complete = [recording for recording in self._added if recording.is_complete]
        if len(complete) < len(self._added):
            agents = ", ".join(sorted({one.agent_name for one in self._added if not one.is_complete}))
            dropped = len(self._added) - len(complete)
            _log.warning("%d requests of %s got no answer and are not recorded", dropped, agents)

        path = self._settings.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = dump_recordings(Recordings(recordings=[*self._earlier, *complete]))
        path.write_text(text, encoding="utf-8")


_STOPPED = frozenset({ABORTED, DeadlineExceeded.__name__})
"""Error codes of runs that were stopped from outside."""

_FRAMEWORK_CALLS = "adk_request_"


def turns_of(session: Session) -> list[tuple[int, Event]]:
    """The events with the indexes of their turns; -1 before the first.

    A turn begins with a message of the user, a change of the state outside a run, or a run without
    a message: a live run, or one that an agent began. A message that was read within a turn begins none.
    """
    live = live_runs(session)

    turns: list[tuple[int, Event]] = []
    turn = -1
    begun = set[str]()
    for event in session.events:
        is_live = event.invocation_id in live
        is_first = event.invocation_id not in begun
        begun.add(event.invocation_id)

        is_message = event.author == "user" and event.content is not None and not is_live and not is_steering(event)
        is_run_without_message = is_first and (is_live or event.author != "user")
        turn += is_message or is_run_without_message or is_state_patch_id(event.invocation_id)
        turns.append((turn, event))

    return turns


def live_runs(session: Session) -> set[str]:
    """The runs with an event that only live models have."""
    return {
        event.invocation_id
        for event in session.events
        if event.turn_complete or event.interrupted or event.input_transcription or event.output_transcription
    }


def recording_of(session: Session, invocation_id: str | None = None) -> Recordings:
    """The answers of models and tools in one run, or in all; turns are counted over the whole
    session.

    The log contains no requests, so that a replay can't verify them. Its replies are those after
    callbacks, and a callback's answer in place of a model looks like a model's reply.
    """
    log_state = log_state_of(session.events)
    live = live_runs(session)
    calls = {call.id: call for event in session.events for call in event.get_function_calls()}

    recordings: list[Recording] = []
    structured: set[str] = set()
    last_of_turn: dict[int, Event] = {}
    for index, (turn, event) in enumerate(turns_of(session)):
        calls.update(
            (one.call.id, one.call) for one in log_state.all_decided_at(index)
        )  # a person may have edited them
        is_live = event.invocation_id in live

        # Of an agent as a tool, only the result is recorded.
        if event.partial or event.isolation_scope is not None:
            continue

        # The text after a structured answer repeats the tool's arguments; it is no model's reply.
        is_repeated = event.author in structured
        structured.discard(event.author)
        if event.actions.set_model_response is not None:
            structured.add(event.author)

        if invocation_id is not None and event.invocation_id != invocation_id:
            continue

        if not is_live:
            last_of_turn[turn] = event

        is_reply = event.content is not None or event.error_code is not None
        entries: list[JsonObject] = []  # fields of recordings
        if event.error_code in _STOPPED:
            if event.content is not None and not event.get_function_responses():
                cut_off = LlmResponse(content=event.content, partial=True)
                entries.append({"llm_recording": LlmRecording(llm_responses=[cut_off])})
            entries.append({"is_cancelled": True, **_error_of_stop(event)})
        elif event.author == "user" and event.input_transcription is None:
            delta = event.actions.state_delta or None
            if is_live:
                entries = [{"user_content": event.content, "state_delta": delta}]
            else:
                entries = []
        elif responses := event.get_function_responses():
            entries = [{"tool_recording": tool} for tool in _tools(event, responses, calls)]
        elif (is_live or (is_reply and not is_repeated)) and not _is_framework_call(event):
            reply = LlmResponse(**{name: getattr(event, name) for name in LlmResponse.__struct_fields__})
            if is_live:
                reply.custom_metadata = None
            else:
                reply.custom_metadata = reply.custom_metadata

            entries = [{"llm_recording": LlmRecording(llm_responses=[reply])}]
            for call in event.get_function_calls():
                if call.id in (event.long_running_tool_ids or ()) and not _has_result(log_state, event, call):
                    entries.append({"tool_recording": _without_result(call)})

        recordings += [Recording(user_message_index=turn, agent_name=event.author, **one) for one in entries]

    recordings += [
        Recording(user_message_index=turn, agent_name=event.author, is_unfinished=True)
        for turn, event in last_of_turn.items()
        if _is_unfinished(event)
    ]

    return Recordings(recordings=recordings)


def _has_result(log_state: LogState, calling: Event, call: FunctionCall) -> bool:
    """Whether the tool of a long-running call gave a response itself."""
    run = log_state.find_run(calling.invocation_id)
    if run is not None:
        state = run.call(call.id, calling.author, calling.branch)
    else:
        state = None
    return state is not None and state.responded_at != NEVER


def _error_of_stop(event: Event) -> JsonObject:
    """The error of a run that was stopped otherwise than by a cancellation."""
    if event.error_code == ABORTED:
        return {}
    return {"error_code": event.error_code, "error_message": event.error_message}


def _is_unfinished(last: Event) -> bool:
    """True if a run does not end with its last event in the log, as in a fork that was made inside
    of it.
    """
    actions = last.actions
    if last.error_code is not None or actions.escalate or actions.end_of_agent or is_state_patch_id(last.invocation_id):
        return False
    if last.author == "user":
        return last.content is not None
    return not last.is_final_response()


def _tools(
    event: Event, responses: Sequence[FunctionResponse], calls: Mapping[str | None, FunctionCall]
) -> list[ToolRecording]:
    """Pairs calls and responses. The first has the actions of all; a call that raised has its error."""
    tools = [ToolRecording(tool_call=calls.get(response.id), tool_response=response) for response in responses]
    if event.actions != EventActions():
        tools[0].actions = event.actions
    else:
        tools[0].actions = None

    failed = next(
        (
            tool
            for tool, response in zip(tools, responses, strict=True)
            if (response.response or {}).keys() == {"error"}
        ),
        None,
    )
    if event.error_code is not None and failed is not None:
        failed.error_code = event.error_code
        failed.error_message = event.error_message

    return tools


def _is_framework_call(event: Event) -> bool:
    calls = event.get_function_calls()
    return bool(calls) and all((call.name or "").startswith(_FRAMEWORK_CALLS) for call in calls)


def _without_result(call: FunctionCall) -> ToolRecording:
    """The record of a call whose tool returned no first result."""
    response = FunctionResponse(id=call.id, name=call.name, response={"result": None})
    return ToolRecording(tool_call=call, tool_response=response)
