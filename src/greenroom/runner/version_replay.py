"""Replays the log of a run with the present code of its app, and finds the first step that differs.

Each message of the run is sent again, in a copy of the session as it was then. Models, tools, and nodes that run no
other nodes are answered from the log: their code isn't executed. Neither are the app's plugins, and the callbacks of
models and tools, whose results are in the log. What is executed decides the order of the steps: agents, workflows,
instructions, and the predicates of confirmations. An example, in which the tool has another name now:

    1  user   "Pay 4200"
    2  clerk  call pay {"amount": 4200}    the log answers the model: the same call
    3  clerk  request for an approval      the agent has no tool `pay` any more

The difference is reported for line 2, which made the call.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.events import ToolCallPending
from greenroom.agents.turn.output import FINISH_TASK_TOOL
from greenroom.agents.turn.tool_calls import UnknownTool
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.requests import confirmation_id
from greenroom.apps.app import App
from greenroom.errors import ReplayVerificationError, error_of
from greenroom.invocation.context import InvocationContext, RunningAgent
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.log.state import log_state_of
from greenroom.plugins.plugin import BasePlugin, UnwrappedError, agents_of_app, raised_error
from greenroom.plugins.replay import CONTROL_FLOW_TOOLS
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import requests_in
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.records.session import Session
from greenroom.records.waiting_run import VersionDifference
from greenroom.runner.accept import answered_call
from greenroom.runner.commit import RunLog
from greenroom.runner.runner import Runner
from greenroom.runner.steps import Step, first_difference, steps_of
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.tools.confirmation import approval_hint, confirmation_response
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool

MAX_EVENTS = 10_000
"""Maximum number of events of a session of which a run is replayed."""

REPLAY_SECONDS = 10.0
"""Time limit of a replay."""


async def find_difference(
    app: App,
    session: Session,
    run_id: str,
    *,
    run_config: RunConfig | None = None,
    is_unfinished: bool = False,
    timeout_seconds: float = REPLAY_SECONDS,
) -> VersionDifference | None:
    """Replays a run that waits. Returns the first difference, also when the run can't be replayed; None if it is equal.

    app: the present code. session: with all its events. is_unfinished: the run was cut off, and may do more than the
    log shows.
    """
    reason = _why_not_replayed(app, session, run_id)
    if reason is not None:
        return reason

    config = run_config or RunConfig()
    config = RunConfig(client_tools=config.client_tools, model_input_context=config.model_input_context)
    segments = _segments_of(session, run_id)
    replay = _Replay(app, session, config)
    try:
        async with asyncio.timeout(timeout_seconds):
            await replay.open()
            for segment in segments:
                is_last = segment is segments[-1]
                difference = await replay.difference_in(segment, is_unfinished=is_last and is_unfinished)
                if difference is not None:
                    return difference
    except TimeoutError:
        return VersionDifference(
            seq=session.events.end, text=f"the replay of the run took longer than {timeout_seconds:g} seconds"
        )
    return None


class _Segment(NamedTuple):
    """A message of the run, and what followed it."""

    start: int
    """Index in the log of the message, or of the first event of a run without one."""
    message: Event | None
    events: list[tuple[int, Event]]
    """With their sequence numbers."""


def _segments_of(session: Session, run_id: str) -> list[_Segment]:
    events = session.events
    run = log_state_of(events).run(run_id)
    starts = {run.indexes[0], *run.messages}

    segments: list[_Segment] = []
    for index in run.indexes:
        event = events[index]
        is_of_user = event.author == "user" and event.node_info is None
        if index in starts:
            segments.append(_Segment(index, event if is_of_user else None, []))
        if not is_of_user:
            segments[-1].events.append((index + 1, event))

    return segments


def _why_not_replayed(app: App, session: Session, run_id: str) -> VersionDifference | None:
    """Returns the reason for which a run can't be replayed, at the event that is the reason."""
    events = session.events
    if not log_state_of(events).has_run(run_id):
        return VersionDifference(seq=events.end, text="the log of the session has no event of the run")
    if events.skipped or len(events) > MAX_EVENTS:
        return VersionDifference(seq=events.end, text=f"a session of more than {MAX_EVENTS:,} events is not replayed")

    agents = {agent.name: agent for agent in agents_of_app(app.root_agent)}
    for index in log_state_of(events).run(run_id).indexes:
        event = events[index]
        agent = agents.get(event.author)
        if agent is not None and agent.is_remote:
            text = f"agent {event.author!r} runs on another server, which is not asked again"
            return VersionDifference(seq=index + 1, text=text)
        if any(part.executable_code for part in (event.content.parts if event.content else None) or ()):
            text = f"agent {event.author!r} executed code, which is not executed again"
            return VersionDifference(seq=index + 1, text=text)

    return None


class _Replay:
    """Replays the segments of one run, each in a fork of the session."""

    def __init__(self, app: App, session: Session, config: RunConfig) -> None:
        self._app = app
        self._session = session
        self._config = config
        self._sessions = InMemorySessionService()

    async def open(self) -> None:
        """Copies the session."""
        session = self._session
        changed = {key for event in session.events for key in event.actions.state_delta}
        state = {key: value for key, value in session.state.items() if key not in changed}
        await self._sessions.create_session(**session.key._asdict(), state=state, events=list(session.events))

    async def difference_in(self, segment: _Segment, *, is_unfinished: bool) -> VersionDifference | None:
        plugin = _LogPlugin(segment.events, is_unfinished=is_unfinished)
        replayed, error = await self._replayed(segment, plugin)

        then = [step for step in steps_of(segment.events) if not step.is_within(plugin.answered_agent_calls)]
        now = [step for step in replayed if not step.is_within(plugin.answered_agent_calls)]
        end: int | None = None
        if not plugin.has_reached_end:
            end = segment.events[-1][0] if segment.events else segment.start + 1
        difference = first_difference(then, now, end=end, further=plugin.stopped_before)
        if error is not None and difference is not None:
            difference.text += f" ({type(error).__name__}: {error})"

        found = plugin.difference
        if found is not None and (difference is None or found.seq <= difference.seq):
            return found
        return difference

    async def _replayed(self, segment: _Segment, plugin: _LogPlugin) -> tuple[list[Step], Exception | None]:
        key = self._session.key._asdict()
        fork = await self._sessions.fork_session(**key, seq=segment.start)
        session = await self._sessions.get_session(**fork.key._asdict())
        assert session is not None

        # Of the run that was retried in a fork, the events keep their run's id.
        run_id = self._session.events[segment.start].invocation_id
        message = segment.message.content if segment.message is not None else None
        state_delta = segment.message.actions.state_delta if segment.message is not None else None
        answered = answered_call(session.events, message)
        if answered is None and log_state_of(session.events).has_run(run_id):
            answered = log_state_of(session.events).waiting_task()

        runner = _ReplayRunner(self._app, self._sessions, plugin)
        log = runner.open_log(session, run_id, self._config)
        run = runner.execute(log, message, answered=answered, state_delta=state_delta, run_config=self._config)
        error: Exception | None = None
        try:
            async for _ in run:
                pass
        except TimeoutError:
            raise
        except Exception as raised:  # the app's code may raise anything; the failure is a step of the replay
            error = raised if not plugin.has_stopped else None

        stored = session.events[segment.start :]
        if plugin.has_stopped:
            stored = [event for event in stored if event.error_code is None]  # with which the replay was stopped
        return list(steps_of(enumerate(stored, segment.start + 1))), error


class _ReplayRunner(Runner):
    """Runs an app without its plugins and policies; a plugin answers in place of models, tools and nodes."""

    def __init__(self, app: App, sessions: InMemorySessionService, plugin: _LogPlugin) -> None:
        bare = dataclasses.replace(app, plugins=[plugin], events_compaction_config=None, memory_policy=None)
        super().__init__(app=bare, session_service=sessions)
        self._plugin = plugin

    def _context(
        self, log: RunLog, agent: BaseAgent, user_content: Content | None, run_config: RunConfig
    ) -> InvocationContext:
        ctx = super()._context(log, agent, user_content, run_config)
        ctx.recorded_nodes = self._plugin
        return ctx


class _Answer(NamedTuple):
    """The response to a call, as the log has it."""

    response: JsonObject
    actions: EventActions
    """Those of all calls of the event, with the first call."""
    error: Exception | None
    """Raised by the tool."""


class _LogPlugin(BasePlugin):
    """Answers in place of the models, the tools and the nodes of one segment of a run, from its events."""

    def __init__(self, events: Sequence[tuple[int, Event]], *, is_unfinished: bool) -> None:
        super().__init__("greenroom_version_replay")
        self._is_unfinished = is_unfinished
        self.difference: VersionDifference | None = None
        """The first call that the present code does not take as it was."""
        self.stopped_before: str | None = None
        """The next step of the replay, which the log does not have."""
        self.has_reached_end = False
        """It was asked for more than the log of an unfinished run has."""
        self.answered_agent_calls: set[str] = set()
        """The calls of agents as tools that were answered without running the agent."""

        self._replies: dict[tuple[str, str | None], deque[Event]] = {}
        self._calls: dict[str, tuple[int, FunctionCall]] = {}
        self._long_running: set[str] = set()
        self._answers: dict[str, _Answer] = {}
        self._by_path: dict[str, list[Event]] = {}
        self._structured: set[str] = set()
        """While the events are read, the agents whose newest event is the call of a structured answer."""
        for seq, event in events:
            self._add(seq, event)

    def _add(self, seq: int, event: Event) -> None:
        if event.node_path:
            self._by_path.setdefault(event.node_path, []).append(event)
        if event.actions.compaction is not None or requests_in(event):
            return

        responses = event.get_function_responses()
        for response in responses:
            self._answers[response.id or ""] = _answer_in(event, response, is_first=response is responses[0])

        # The text after a structured answer is made of the tool's arguments; it is no model's reply.
        is_repeated = event.author in self._structured
        self._structured.discard(event.author)
        if event.actions.set_model_response is not None:
            self._structured.add(event.author)

        is_reply = event.content is not None or event.error_code is not None
        if is_reply and not responses and not is_repeated:
            self._replies.setdefault((event.author, event.branch), deque()).append(event)
        self._long_running.update(event.long_running_tool_ids or ())
        for call in event.get_function_calls():
            self._calls[call.id or ""] = (seq, call)

    async def before_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> None:
        """Raises ReplayVerificationError."""
        if isinstance(agent, BaseAgent) and agent.is_remote:
            raise self._stopped(f"agent {agent.name!r} is asked on another server")

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Raises ReplayVerificationError."""
        agent = callback_context.agent_name
        branch = callback_context.invocation_context.branch
        replies = self._replies.get((agent, branch))
        if not replies:
            raise self._stopped(f"agent {agent!r} asks its model")

        reply = replies.popleft()
        return LlmResponse(**{name: copy.deepcopy(getattr(reply, name)) for name in LlmResponse.__struct_fields__})

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        """Raises UnwrappedError."""
        call_id = tool_context.function_call_id or ""
        answer = self._answers.get(call_id)
        was_refused = answer is not None and _is_refusal(tool, answer.response)

        fault = _fault_of(tool, tool_args)
        if fault is not None and not was_refused:
            raise self._call_differs(tool_context, tool, fault)
        if tool.name in CONTROL_FLOW_TOOLS or tool.name == FINISH_TASK_TOOL or _runs_agents(tool):
            return None

        asked = answer.actions.requested_tool_confirmations.get(call_id) if answer is not None else None
        refusal = await _refusal(tool, tool_args, tool_context)
        asks = call_id in tool_context.actions.requested_tool_confirmations
        if asks and asked is None and answer is not None:
            raise self._call_differs(tool_context, tool, f"now {tool.name} needs an approval first")
        if asks:
            return refusal
        if refusal is not None and not was_refused:
            lines = str(refusal.get("error")).splitlines()
            raise self._call_differs(tool_context, tool, f"now {' '.join(lines)}")
        if asked is not None and asked.hint == approval_hint(tool.name):
            raise self._call_differs(tool_context, tool, f"now {tool.name} needs no approval")

        return self._answered(tool, tool_context, answer)

    def _answered(self, tool: BaseTool, tool_context: ToolContext, answer: _Answer | None) -> JsonObject:
        call_id = tool_context.function_call_id or ""
        if isinstance(tool, AgentTool):
            self.answered_agent_calls.add(call_id)

        if answer is None:
            if tool.is_long_running:
                return {}
            if call_id in self._long_running:
                raise self._call_differs(tool_context, tool, f"now {tool.name} is no long-running tool")
            if self._is_unfinished and not isinstance(tool, AgentTool):
                self.has_reached_end = True
            raise UnwrappedError(ToolCallPending())

        actions = copy.deepcopy(answer.actions)
        tool_context.state.update(actions.state_delta)
        actions.state_delta = {}
        tool_context.actions.merge(actions)
        if answer.error is not None:
            raise UnwrappedError(answer.error)
        return copy.deepcopy(answer.response) or {"result": None}

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> Any:
        """Keeps the result of the log from the callbacks of the agent."""
        return result

    async def execute(self, node: Any, path: str, emit: Any) -> bool:
        """Gives the recorded results of a node. False where its code is to run: it runs other nodes.

        Raises ReplayVerificationError, and the recorded error of the node.
        """
        if not node.runs_own_code or any(other.startswith(path + "/") for other in self._by_path):
            return False
        recorded = self._by_path.get(path)
        if recorded is None:
            raise self._stopped(f"node {path!r} runs")

        asked = {call.id for event in recorded for call in event.get_function_calls()}
        if isinstance(node, FunctionNode) and not node.require_confirmation and confirmation_id(path) in asked:
            raise self._stopped(f"node {path!r} needs no approval")

        results = [event for event in recorded if event.actions.agent_state is None or event.content is not None]
        for event in results:
            if event.error_code is not None:
                if event is results[-1]:
                    raise error_of(event.error_code, event.error_message or "")
                continue  # the node was tried again

            actions = EventActions(state_delta=event.actions.state_delta, route=event.actions.route)
            await emit(
                Event(
                    author=event.author,
                    content=copy.deepcopy(event.content),
                    output=copy.deepcopy(event.output),
                    long_running_tool_ids=event.long_running_tool_ids,
                    actions=copy.deepcopy(actions),
                )
            )
        return True

    @property
    def has_stopped(self) -> bool:
        """Whether it ended the replay early."""
        return self.difference is not None or self.stopped_before is not None or self.has_reached_end

    def _stopped(self, what: str) -> ReplayVerificationError:
        """Ends the replay where the log says no more."""
        self.stopped_before = what
        self.has_reached_end = self._is_unfinished
        return ReplayVerificationError("", "stops here", "")

    def _call_differs(self, tool_context: ToolContext, tool: BaseTool, now: str) -> UnwrappedError:
        seq, call = self._calls[tool_context.function_call_id or ""]
        names = ", ".join(sorted(call.args or {}))
        if self.difference is None or seq < self.difference.seq:
            text = f"agent {tool_context.agent_name!r} calls {call.name}({names}); {now}"
            self.difference = VersionDifference(seq=seq, text=text)
        return UnwrappedError(ToolCallPending())


def _answer_in(event: Event, response: FunctionResponse, *, is_first: bool) -> _Answer:
    call_id = response.id or ""
    actions = copy.deepcopy(event.actions) if is_first else EventActions()
    for name in ("requested_tool_confirmations", "requested_auth_configs"):
        requested: JsonObject = getattr(event.actions, name)
        setattr(actions, name, {call_id: copy.deepcopy(requested[call_id])} if call_id in requested else {})

    error: Exception | None = None
    if event.error_code is not None and (response.response or {}).keys() == {"error"}:
        error = raised_error(event.error_code, event.error_message or "")
    return _Answer(response.response or {}, actions, error)


def _runs_agents(tool: BaseTool) -> bool:
    """Whether the tool runs agents or nodes, which are answered from the log themselves."""
    if isinstance(tool, AgentTool):
        return tool.include_plugins
    return tool.runs_nodes


async def _refusal(tool: BaseTool, args: JsonObject, tool_context: ToolContext) -> JsonObject | None:
    """The response in place of a result: to invalid arguments, or while a call waits for an approval."""
    if isinstance(tool, FunctionTool):
        return await tool.refusal(args=args, tool_context=tool_context)
    if await tool.check_require_confirmation(args, tool_context):
        return confirmation_response(tool.name, tool_context)
    return None


def _fault_of(tool: BaseTool, args: JsonObject) -> str | None:
    """Describes why the tool does not take a call that was made; None if it does."""
    if isinstance(tool, UnknownTool):
        return "now it has no tool of this name"

    declaration = tool._get_declaration()  # pyright: ignore[reportPrivateUsage]
    schema = declaration.json_schema() if declaration is not None else None
    if not schema:
        return None
    properties: JsonObject = schema.get("properties") or {}
    required: Iterable[str] = schema.get("required") or ()

    missing = [name for name in required if name not in args]
    if missing:
        return f"now {tool.name} requires {', '.join(map(repr, missing))}"
    unknown = [name for name in args if name not in properties]
    if unknown and not schema.get("additionalProperties"):
        return f"now {tool.name} takes no {', '.join(map(repr, unknown))}"
    return None


def _is_refusal(tool: BaseTool, response: JsonObject) -> bool:
    """Whether the call was refused then, too: the tool was unknown, or did not take the arguments."""
    error = str(response.get("error"))
    return error.startswith((f"There is no tool {tool.name!r}", f"{tool.name} was not called, because"))
