"""Records the answers of models and tools: of running sessions, or from the log of a past one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

from greenroom.errors import ReplayConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.recordings_file import RECORDINGS_CONFIG, Settings, dump_recordings, load_recordings, settings_of
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, FunctionResponse, FunctionResponsePart
from greenroom.records.event import Event
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.recording import LlmRecording, Recording, Recordings, ToolRecording
from greenroom.records.session import Session
from greenroom.tools.result import take_media, to_response
from greenroom.tools.tool import BaseTool

_log = logging.getLogger("greenroom.plugins")


class RecordingsPlugin(BasePlugin):
    """Records sessions whose state has `_adk_recordings_config` = {dir, user_message_index, streaming_mode}.

    A run's recordings are written when it completes. Register it first, to record answers before other plugins change
    them. For development only: clients that can set the state choose the folder.
    """

    def __init__(self, name: str = "adk_recordings") -> None:
        super().__init__(name)
        self._runs: dict[str, _Run] = {}

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Raises ReplayConfigError."""
        settings = settings_of(invocation_context.session, RECORDINGS_CONFIG)
        if settings is not None and not invocation_context.was_cut_off:
            self._runs[invocation_context.invocation_id] = _Run(settings)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        run = self._run_of(callback_context)
        if run is not None:
            run.begin_reply(callback_context.agent_name, llm_request)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        run = self._run_of(callback_context)
        if run is not None:
            run.add_response(callback_context.agent_name, llm_response)

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext) -> None:
        run = self._run_of(tool_context)
        if run is not None:
            call = FunctionCall(id=tool_context.function_call_id, name=tool.name, args=copy.deepcopy(tool_args))
            run.begin_call(tool_context.agent_name, call)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> None:
        run = self._run_of(tool_context)
        if run is not None:
            left, media = take_media(result)
            run.end_call(tool_context.function_call_id, to_response(left), media)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        run = self._runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            run.write()

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        run = self._runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            _log.warning("Run %s failed, so it is not recorded", invocation_context.invocation_id)

    def _run_of(self, ctx: CallbackContext) -> _Run | None:
        if ctx.invocation_context.isolation_scope is not None:
            return None  # of an agent as a tool, only the result is recorded
        run = self._runs.get(ctx.invocation_id)
        if run is None and settings_of(ctx.session, RECORDINGS_CONFIG) is not None:
            raise ReplayConfigError(f"Run {ctx.invocation_id} was not recorded from its beginning")
        return run


class _Run:
    """The recordings of one run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._earlier = load_recordings(settings.path).recordings if settings.path.exists() else []
        self._added: list[Recording] = []
        self._open_replies: dict[str, LlmRecording] = {}
        self._open_calls: dict[str | None, ToolRecording] = {}

    def begin_reply(self, agent: str, request: LlmRequest) -> None:
        # Not a copy, because the agent's own callbacks may still change the request.
        recording = self._open_replies[agent] = LlmRecording(llm_request=request)
        self._added.append(Recording(user_message_index=self._settings.turn, agent_name=agent, llm_recording=recording))

    def add_response(self, agent: str, response: LlmResponse) -> None:
        recording = self._open_replies.get(agent)
        if recording is None:
            return
        # Ids are assigned here, because a replayed reply must have the ids that the run used.
        for part in (response.content.parts if response.content else None) or ():
            if part.function_call is not None and not part.function_call.id:
                part.function_call.id = new_function_call_id()
        recording.llm_responses.append(copy.deepcopy(response))
        if not response.partial:
            del self._open_replies[agent]

    def begin_call(self, agent: str, call: FunctionCall) -> None:
        recording = self._open_calls[call.id] = ToolRecording(tool_call=call)
        self._added.append(
            Recording(user_message_index=self._settings.turn, agent_name=agent, tool_recording=recording)
        )

    def end_call(self, call_id: str | None, response: JsonObject, media: list[FunctionResponsePart]) -> None:
        recording = self._open_calls.pop(call_id, None)
        if recording is not None and recording.tool_call is not None:
            name = recording.tool_call.name
            recording.tool_response = FunctionResponse(id=call_id, name=name, response=response, parts=media or None)

    def write(self) -> None:
        dropped = [recording for recording in self._added if not recording.is_complete]
        if dropped:
            agents = ", ".join(sorted({recording.agent_name for recording in dropped}))
            _log.warning("%d requests of %s got no answer and are not recorded", len(dropped), agents)
        complete = [recording for recording in self._added if recording.is_complete]
        path = self._settings.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = dump_recordings(Recordings(recordings=[*self._earlier, *complete]))
        path.write_text(text, encoding="utf-8")


_ABORTED = "INVOCATION_ABORTED"
_FRAMEWORK_CALLS = "adk_request_"
_SAME_IN_RESPONSE = tuple(name for name in LlmResponse.__struct_fields__ if name in Event.__struct_fields__)


def recording_of(session: Session, invocation_id: str | None = None) -> Recordings:
    """The answers of models and tools in one run, or in all; turns are counted over the whole session.

    The log contains no requests, so that a replay can't verify them. Its replies are those after callbacks, and a
    callback's answer in place of a model looks like a model's reply.
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
            continue  # of an agent as a tool, only the result is recorded
        # The text after a structured answer repeats the tool's arguments; it is no model's reply.
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
    """Calls of long-running tools that returned no first result."""
    for call in event.get_function_calls():
        if call.id in (event.long_running_tool_ids or ()) and call.id not in answered:
            response = FunctionResponse(id=call.id, name=call.name, response={"result": None})
            recorded = ToolRecording(tool_call=call, tool_response=response)
            yield Recording(user_message_index=turn, agent_name=event.author, tool_recording=recorded)
