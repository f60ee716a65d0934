"""Records what models and tools answer, in sessions that ask for it."""

from __future__ import annotations

import copy
import logging
from typing import Any

from greenroom.errors import ReplayConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.recording.settings import RECORDINGS_CONFIG, Settings, settings_of
from greenroom.plugins.recording.yaml_text import dump_recordings, load_recordings
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, FunctionResponse, FunctionResponsePart
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.recording import LlmRecording, Recording, Recordings, ToolRecording
from greenroom.tools.media import take_media
from greenroom.tools.result import to_response
from greenroom.tools.tool import BaseTool

_log = logging.getLogger("greenroom.plugins")


class RecordingsPlugin(BasePlugin):
    """A session whose state has `_adk_recordings_config` = {dir, user_message_index, streaming_mode} is recorded.

    What a run adds is written when it has ended by itself. Register it first: it sees what models and tools answer
    before anything changes it. For development: whoever can set the state chooses the folder that is written to.
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
            return None  # of an agent that runs as a tool, the answer is recorded
        run = self._runs.get(ctx.invocation_id)
        if run is None and settings_of(ctx.session, RECORDINGS_CONFIG) is not None:
            raise ReplayConfigError(f"Run {ctx.invocation_id} was not recorded from its beginning")
        return run


class _Run:
    """One run's share of a file."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._earlier = load_recordings(settings.path).recordings if settings.path.exists() else []
        self._added: list[Recording] = []
        self._open_replies: dict[str, LlmRecording] = {}
        self._open_calls: dict[str | None, ToolRecording] = {}

    def begin_reply(self, agent: str, request: LlmRequest) -> None:
        # The request itself: what the agent's own callbacks still change in it belongs to what the model is asked.
        recording = self._open_replies[agent] = LlmRecording(llm_request=request)
        self._added.append(Recording(user_message_index=self._settings.turn, agent_name=agent, llm_recording=recording))

    def add_response(self, agent: str, response: LlmResponse) -> None:
        recording = self._open_replies.get(agent)
        if recording is None:
            return
        # Now, and not by whoever comes next: a replayed reply must have the ids that the run went on with.
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
