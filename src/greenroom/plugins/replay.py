"""Replays recorded runs with the recorded answers of models and tools, and compares the requests."""

from __future__ import annotations

import asyncio
import copy
import difflib
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from itertools import groupby
from typing import NoReturn, cast

from greenroom.errors import GreenroomError, ReplayConfigError, ReplayVerificationError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.log.progress import ABORTED
from greenroom.models.model import BaseLlm, BaseLlmConnection, RealtimeInput
from greenroom.models.retrying import WrapperLlm
from greenroom.plugins.plugin import PerRunPlugin, UnwrappedError, agents_of_app, raised_error
from greenroom.plugins.recordings_file import (
    RECORDINGS_CONFIG,
    REPLAY_CONFIG,
    dump,
    load_recordings,
    settings_of,
    to_snake,
)
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import FROM_OTHER_AGENTS, Content, FunctionResponse
from greenroom.records.event import Event
from greenroom.records.model_exchange import LiveRequest, LlmRequest, LlmResponse
from greenroom.records.recording import LlmRecording, Recording, ToolRecording
from greenroom.records.steering import is_steering
from greenroom.tools.tool import BaseTool

_log = logging.getLogger("greenroom.plugins")

_SHOWN_LINES = 60

LIVE_SECONDS = 5.0
"""Time for which the replay of a live model waits for the agent's input."""

_WHO = re.compile(r"\[([^\]]+)\]")
_TAGS = re.compile(rf"</?quoted>|(?<=^{FROM_OTHER_AGENTS}).*")

_CHANGES_EACH_TIME = ("id", "timestamp", "invocation_id", "long_running_tool_ids", "node_info")
_REQUESTS = ("requested_auth_configs", "requested_tool_confirmations")

CONTROL_FLOW_TOOLS = frozenset({"transfer_to_agent", "exit_loop", "set_model_response"})
"""Tools whose only effect is on the flow of the run."""


class ReplayPlugin(PerRunPlugin["_ReplayedRun"]):
    """Replays sessions whose state has `_adk_replay_config` = {dir, user_message_index,
    streaming_mode}.

    Models are not called: each agent gets its recorded replies, chunks included, in their order.
    Tools run for their side effects (agents as tools don't), then the recorded response is used;
    with run_tools False only tools that control the flow run. A request or call that differs, or a
    reply left over, ends the run with ReplayVerificationError; with verify_requests False different
    requests are only logged.

    The models of the app's agents are wrapped from the first replay on, without effect on other
    sessions. A caller that has the recordings calls `begin` before each run instead. A run that was
    cancelled is cancelled where it was.
    """

    def __init__(
        self,
        name: str = "adk_replay",
        *,
        run_tools: bool = True,
        verify_requests: bool = True,
    ) -> None:
        super().__init__(name)
        self._run_tools = run_tools
        self._verify_requests = verify_requests
        self._next: _ReplayedRun | None = None

    def begin(self, recordings: Iterable[Recording], cancel: Callable[[], object]) -> None:
        """The recordings of the next run. cancel: called where the recorded run was cancelled."""
        self._next = _ReplayedRun(recordings, verify_requests=self._verify_requests, cancel=cancel)

    def unwrap_models(self, root: object) -> None:
        """Removes the wrappers that the replays of this plugin left in the models of an app."""
        for agent in agents_of_app(root):
            model: BaseLlm | str | None = getattr(agent, "model", None)
            if isinstance(model, ReplayingLlm):
                agent.model = model.without(self._reply_to)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Raises ReplayConfigError."""
        settings = settings_of(invocation_context.session, REPLAY_CONFIG)
        run = self._next
        self._next = None

        if run is None and settings is not None and not invocation_context.was_cut_off:
            turn = [
                recording
                for recording in load_recordings(settings.path).recordings
                if recording.user_message_index == settings.turn
            ]
            run = _ReplayedRun(turn, verify_requests=self._verify_requests)

        if run is not None:
            run.ctx = invocation_context
            self._runs[invocation_context.invocation_id] = run
            for agent in agents_of_app(invocation_context.agent):
                model: BaseLlm | str | None = getattr(agent, "model", None)
                if model and not (isinstance(model, ReplayingLlm) and model.replies_to == self._reply_to):
                    agent.model = ReplayingLlm(model, self._reply_to)

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        run = self._run_of(callback_context)
        if run is not None:
            run.asked[callback_context.agent_name] = llm_request

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        """Raises ReplayVerificationError."""
        run = self._run_of(tool_context)
        if run is None:
            return None

        recorded = run.respond(
            tool_context.agent_name,
            tool_context.function_call_id,
            tool.name,
            tool_args,
        )
        if recorded is None:
            return await run.cancelled()

        response = run.result_of(recorded)

        is_agent = getattr(tool, "agent", None) is not None
        if not is_agent and (self._run_tools or tool.name in CONTROL_FLOW_TOOLS):
            try:
                await tool.run_async(args=copy.deepcopy(tool_args), tool_context=tool_context)
            except Exception:  # the recorded response counts
                if recorded.error_code is None:
                    _log.warning("tool %s failed while it was replayed", tool.name, exc_info=True)
        elif recorded.actions is not None:
            actions = copy.deepcopy(recorded.actions)
            tool_context.state.update(actions.state_delta)
            actions.state_delta = {}
            tool_context.actions.merge(actions)

        if recorded.error_code is not None:
            raise UnwrappedError(raised_error(recorded.error_code, recorded.error_message or ""))
        if tool.is_long_running and response == {"result": None}:
            return {}  # it returned nothing, so its call stays open

        return response

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Raises ReplayVerificationError, even if an error callback turned it into a reply."""
        run = self._runs.pop(invocation_context.invocation_id, None)
        if run is not None:
            run.finish()

    def _run_of(self, ctx: CallbackContext) -> _ReplayedRun | None:
        run = self._runs.get(ctx.invocation_id)
        if run is None and settings_of(ctx.session, REPLAY_CONFIG) is not None:
            raise ReplayConfigError(f"Run {ctx.invocation_id} was not replayed from its beginning")
        return run

    def _reply_to(self, request: LlmRequest) -> tuple[_ReplayedRun, str] | None:
        """The run and the agent that ask; None for a session that isn't replayed."""
        for run in self._runs.values():
            for agent, asked in run.asked.items():
                if asked is request:
                    return run, agent
        return None


class _ReplayedRun:
    """The remaining recordings of one turn. script: all of them, in their order, for a live run."""

    ctx: InvocationContext

    def __init__(
        self, recordings: Iterable[Recording], *, verify_requests: bool, cancel: Callable[[], object] | None = None
    ) -> None:
        self.asked: dict[str, LlmRequest] = {}
        self.script = deque(recordings)
        self.is_cancelled = any(recording.is_cancelled or recording.is_unfinished for recording in self.script)
        self._cancel = cancel
        self._verify_requests = verify_requests
        self._error: ReplayVerificationError | None = None
        self._replies: dict[str, deque[LlmRecording]] = {}
        self._responses: dict[str, list[ToolRecording]] = {}
        self._counts: dict[tuple[str, str], int] = {}

        for recording in self.script:
            agent = recording.agent_name
            if recording.llm_recording is not None:
                self._replies.setdefault(agent, deque()).append(recording.llm_recording)
            elif recording.tool_recording is not None:
                self._responses.setdefault(agent, []).append(recording.tool_recording)

    def reply(self, agent: str, request: LlmRequest) -> list[LlmResponse]:
        del self.asked[agent]

        replies = self._replies.get(agent)
        index = self._count(agent, "model")
        if not replies:
            if self.is_cancelled:
                return []
            raise self.differs(agent, f"asks its model for reply {index + 1}; recorded are {index}")

        recorded = replies.popleft()
        if recorded.llm_request is not None:
            changes = difference(
                comparable_request(recorded.llm_request),
                comparable_request(request),
            )
            if changes:
                what = f"model request {index + 1} is not the one that was recorded"
                if self._verify_requests:
                    raise self.differs(agent, what, changes)
                _log.warning("Agent %r: %s\n%s", agent, what, changes)

        return copy.deepcopy(recorded.llm_responses)

    async def cancelled(self) -> NoReturn:
        """Cancels the run where it was cancelled. Raises ReplayVerificationError where nobody can
        cancel it.
        """
        if self._cancel is None:
            raise ReplayVerificationError("", "was cancelled here", "")
        self._cancel()
        await asyncio.Event().wait()
        raise AssertionError

    def respond(
        self,
        agent: str,
        call_id: str | None,
        name: str,
        args: JsonObject,
    ) -> ToolRecording | None:
        """None where the recorded run was cancelled."""
        left = self._responses.get(agent) or []
        index = self._count(agent, "tool")

        if not left and self.is_cancelled:
            return None
        if not left:
            raise self.differs(agent, f"makes tool call {index + 1}, {name!r}; recorded are {index}")

        # By id first, because concurrent calls start in any order.
        recorded = next((r for r in left if call_id and r.tool_call is not None and r.tool_call.id == call_id), left[0])
        left.remove(recorded)

        call = recorded.tool_call
        then: JsonObject
        if call is not None:
            then = {"name": call.name, "args": call.args or {}}
        else:
            then = {}

        changes = difference(then, {"name": name, "args": args})
        if changes:
            raise self.differs(agent, f"tool call {index + 1} is not the one that was recorded", changes)

        return recorded

    @staticmethod
    def result_of(recorded: ToolRecording) -> JsonObject:
        response = recorded.tool_response or FunctionResponse()
        media = {
            f"media {number}": part.inline_data or part.file_data for number, part in enumerate(response.parts or ())
        }
        return {**copy.deepcopy(response.response or {}), **media}  # which are put back in their positions

    def finish(self) -> None:
        if self._error is not None:
            raise self._error
        if self.is_cancelled or self.ctx.live_request_queue is not None:
            return  # a live model's are given one after the other

        for agent, replies in self._replies.items():
            if replies:
                raise self.differs(agent, f"did not ask its model for {len(replies)} of the recorded replies")

        for agent, left in self._responses.items():
            if left:
                # Not an error: the log also has responses of calls that never reached a tool.
                names = ", ".join(str(r.tool_call.name if r.tool_call else None) for r in left)
                _log.warning(
                    "Agent %r did not make these of the recorded tool calls: %s",
                    agent,
                    names,
                )

    def _count(self, agent: str, kind: str) -> int:
        index = self._counts.get((agent, kind), 0)
        self._counts[agent, kind] = index + 1
        return index

    def differs(self, agent: str, what: str, found: str = "") -> ReplayVerificationError:
        self._error = ReplayVerificationError(agent, what, found)
        return self._error


class ReplayingLlm(WrapperLlm):
    """Gives recorded replies to requests of replayed sessions; others go to the wrapped model.

    The wrapped model is looked up only then: a replay needs neither a provider's package nor a key.
    """

    def __init__(
        self,
        wrapped: BaseLlm | str,
        replies_to: Callable[[LlmRequest], tuple[_ReplayedRun, str] | None],
    ) -> None:
        super().__init__(wrapped)
        self.replies_to = replies_to

    @property
    def is_on_vertex(self) -> bool | None:
        try:
            return super().is_on_vertex
        except GreenroomError:  # a model that is not installed here
            return None

    def without(self, replies_to: Callable[[LlmRequest], tuple[_ReplayedRun, str] | None]) -> BaseLlm | str:
        """The model without the wrapper of these replies, which may be inside of another replay's."""
        if self.replies_to == replies_to:
            return self._wrapped
        if isinstance(self._wrapped, ReplayingLlm):
            self._wrapped = self._wrapped.without(replies_to)
        return self

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        asking = self.replies_to(llm_request)
        if asking is not None:
            run, agent = asking
            recorded = run.reply(agent, llm_request)
            for response in recorded:
                if stream or run.is_cancelled or not response.partial:
                    yield response

            if not recorded or recorded[-1].partial:
                await run.cancelled()

            return

        replies = self.wrapped.generate_content_async(llm_request, stream)
        async with aclosing(cast("AsyncGenerator[LlmResponse]", replies)):
            async for response in replies:
                yield response

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        asking = self.replies_to(llm_request)
        if asking is None:
            return super().connect(llm_request)
        return nullcontext(_RecordedConnection(asking[0]))


class _RecordedConnection(BaseLlmConnection):
    """A connection that replays the model's recorded messages, with the user's recorded messages at the same points."""

    def __init__(self, run: _ReplayedRun) -> None:
        self._run = run
        self._sent: asyncio.Queue[Content] = asyncio.Queue()

    async def send_history(self, history: Sequence[Content]) -> None:
        pass

    async def send_content(self, content: Content) -> None:
        self._sent.put_nowait(content)

    async def send_realtime(self, data: RealtimeInput) -> None:
        pass

    async def receive(self) -> AsyncIterator[LlmResponse]:
        """Raises ReplayVerificationError if the agent's input differs from the recording."""
        run = self._run
        queue = self._run.ctx.live_request_queue
        assert queue is not None

        expected = 0
        while run.script:
            recording = run.script.popleft()
            message = recording.user_content
            tool = recording.tool_recording
            if message is not None or recording.state_delta:
                queue.send(LiveRequest(content=message, state_delta=recording.state_delta))
                expected += message is not None and not any(part.function_response for part in message.parts or ())
            elif recording.llm_recording is not None:
                for response in recording.llm_recording.llm_responses:
                    yield copy.deepcopy(response)
            elif recording.is_cancelled:
                await run.cancelled()
            elif tool is not None and not (run.script and run.script[0].tool_recording is not None):
                expected += 1  # one message has the responses to all calls of a reply

            try:
                async with asyncio.timeout(LIVE_SECONDS):
                    await queue.join()
                    while expected:
                        await self._sent.get()
                        expected -= 1
            except TimeoutError:
                raise run.differs(recording.agent_name, "does not send what it sent to the live model") from None

        queue.close()
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


def comparable_request(request: LlmRequest) -> JsonObject:
    """A request without transport options and labels; the order of tools and of concurrent agents
    doesn't matter.
    """
    plain = cast("JsonObject", to_snake(request))
    plain.pop("live_connect_config", None)
    config: JsonObject = plain.setdefault("config", {})
    config.pop("labels", None)
    entries: list[JsonObject] = config.pop("tools", [])
    declarations = [declared for entry in entries for declared in entry.pop("function_declarations", [])]
    config["tools"] = [
        *sorted(declarations, key=lambda declaration: declaration.get("name") or ""),
        *filter(None, entries),
    ]
    contents: list[JsonObject] = plain.get("contents", [])
    plain["contents"] = []

    for content in contents:
        if _quoted_agent(content) is not None:  # older recordings hold the words without tags
            for part in _parts(content):
                if "text" in part:
                    part["text"] = _TAGS.sub("", part["text"])

    for _, group in groupby(contents, lambda content: _quoted_agent(content) is not None):
        plain["contents"] += sorted(group, key=lambda content: _quoted_agent(content) or "")

    return plain


def _quoted_agent(content: JsonObject) -> str | None:
    """The agent that is quoted in another one's prompt; empty when its name is not in the text."""
    parts = _parts(content)
    if len(parts) < 2 or not parts[0].get("text", "").startswith(FROM_OTHER_AGENTS):
        return None
    found = _WHO.match(parts[1].get("text") or "")
    return found[1] if found is not None else ""


def comparable_events(events: Iterable[Event]) -> list[JsonObject]:
    """Orders the events of concurrent branches by branch. Leaves out those of agents that run as
    tools, since a replay uses only their results, and messages that were read within a turn, since
    a replay sends only those that begin one.
    """
    ordered: list[JsonObject] = []
    outer = (event for event in events if event.isolation_scope is None and not is_steering(event))
    for _, group in groupby(outer, lambda event: event.branch is not None):
        ordered += map(comparable_event, sorted(group, key=lambda event: event.branch or ""))
    return ordered


def comparable_event(event: Event) -> JsonObject:
    """An event without ids, times and other values that differ between runs."""
    plain = cast("JsonObject", to_snake(event))
    for name in _CHANGES_EACH_TIME:
        plain.pop(name, None)

    actions: JsonObject = plain.get("actions", {})
    for name in _REQUESTS:
        actions.pop(name, None)

    actions["state_delta"] = comparable_state(actions.get("state_delta") or {})
    if event.error_code == ABORTED:
        plain.pop("error_message", None)  # it names the run

    plain["actions"] = {name: value for name, value in actions.items() if value not in (None, {})}

    for part in _parts(plain.get("content", {})):
        part.pop("thought_signature", None)
        for name in ("function_call", "function_response"):
            if name in part:
                part[name].pop("id", None)

    return plain


def comparable_state(state: JsonObject) -> JsonObject:
    return {key: value for key, value in state.items() if key not in (RECORDINGS_CONFIG, REPLAY_CONFIG)}


def difference(recorded: JsonValue, replayed: JsonValue) -> str:
    """A unified diff in YAML; empty when there is none."""
    if recorded == replayed:
        return ""
    texts = dump(recorded).splitlines(), dump(replayed).splitlines()
    lines = list(difflib.unified_diff(*texts, "recorded", "replayed", lineterm="", n=2))
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], f"… {len(lines) - _SHOWN_LINES} more lines"]
    return "\n".join(lines)


def _parts(content: JsonObject) -> list[JsonObject]:
    return content.get("parts", [])
