"""Records a run of the OpenAI Agents SDK: the responses of its models, and what its tools have returned.

A response is held back until it is known what comes next: the first call of a tool, another response, or the end of
the turn. So an answer that a guardrail refuses isn't stored, and the calls of a response in the log are made, and made
once: each result is stored when its tool returns, and is given again to a run that was cut off.

The SDK runs copies of the app's agents, whose models, tools and hand-offs report to the recorder.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    Handoff,
    LocalShellTool,
    Model,
    ModelProvider,
    RunConfig,
    ShellTool,
    Tool,
    handoff,
)
from agents.exceptions import ModelBehaviorError
from agents.items import ModelResponse, ToolApprovalItem
from agents.run_context import RunContextWrapper
from agents.tool_context import ToolContext
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall
from pydantic_core import to_jsonable_python

from greenroom.agents.frameworks.hosted import HostedTurn
from greenroom.agents.frameworks.model_call import HostedModelCall
from greenroom.agents.frameworks.openai_agents.messages import (
    dump_result,
    output_value,
    reply_of,
    response_part,
    to_call,
    to_request,
)
from greenroom.agents.frameworks.openai_agents.progress import (
    Progress,
    RecordedResponse,
    awaits_output,
    call_of,
    is_output,
    output_item,
    to_state,
)
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import StreamingMode
from greenroom.tools.confirmation import approval_hint, rejected_response

_OPENAI = "openai"
_UNRECORDED = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool)


class Recorder:
    """Stores what a run of the SDK reports, in one turn."""

    def __init__(
        self,
        turn: HostedTurn,
        progress: Progress,
        context: CallbackContext,
        *,
        root: Agent[Any],
        run_config: RunConfig,
    ) -> None:
        self.turn = turn
        self.progress = progress
        self.streams = turn.ctx.run_config.streaming_mode is StreamingMode.SSE
        self._context = context
        self._root = root
        self._run_config = run_config
        self._agents = agents_from(root)
        self._copies: dict[int, Agent[Any]] = {}

        self._recorded: deque[RecordedResponse] = deque(progress.responses)
        """The responses that the run gets again."""
        self._response: Event | None = None
        """The event of the newest response, until it is stored."""
        self._state: JsonObject = {}
        """The state for it."""
        self._calls: dict[str, str] = {}
        """Calls of the newest response, and the names of their tools, in order."""
        self._unanswered: set[str] = set()
        """The ids of those that have no event with their answer yet."""
        self._lock = asyncio.Lock()

    # agents

    @property
    def first_agent(self) -> Agent[Any]:
        """The agent that the turn begins with."""
        return self._recorded_agent(self._agents.get(self.progress.first_agent or "", self._root))

    def _recorded_agent(self, agent: Agent[Any]) -> Agent[Any]:
        """The copy of an agent that reports to this recorder."""
        known = self._copies.get(id(agent))
        if known is not None:
            return known

        async def get_all_tools(run_context: RunContextWrapper[Any]) -> list[Tool]:
            tools = await type(agent).get_all_tools(recorded, run_context)
            return [self._recorded_tool(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]

        check_tools(agent, hosted_by=self.turn.agent.name)
        recorded = copy.copy(agent)
        recorded.model = RecordedModel(self, agent.name, self._model_of(agent))
        recorded.handoffs = [self._recorded_handoff(one) for one in agent.handoffs]
        setattr(recorded, "get_all_tools", get_all_tools)  # noqa: B010 - a method, which pyright doesn't let assign
        self._copies[id(agent)] = recorded
        return recorded

    def _model_of(self, agent: Agent[Any]) -> Model:
        model = self._run_config.model or agent.model
        return model if isinstance(model, Model) else self._run_config.model_provider.get_model(model)

    def _recorded_handoff(self, given: Agent[Any] | Handoff[Any, Any]) -> Handoff[Any, Any]:
        original = given if isinstance(given, Handoff) else handoff(given)

        async def invoke(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            await self.store_response()
            call_id = next((one for one, name in self._calls.items() if name == original.tool_name), "")
            agent = self._agents.get(self.progress.handoffs.get(call_id, ""))
            if agent is None:
                agent = await original.on_invoke_handoff(context, arguments)
                await self._store_handoff(call_id, agent, original.get_transfer_message(agent))
            self._unanswered.discard(call_id)
            return self._recorded_agent(agent)

        recorded = copy.copy(original)
        recorded.on_invoke_handoff = invoke
        return recorded

    async def _store_handoff(self, call_id: str, agent: Agent[Any], message: str) -> None:
        self._agents.setdefault(agent.name, agent)
        item = output_item(call_id, message)
        event = self._answer_event([item])
        await self._store(event, state={"outputs": [item], "handoffs": {call_id: agent.name}})

    # models

    def recorded_response(self, agent_name: str) -> ModelResponse | None:
        """The response that the turn has recorded for this call of a model."""
        if not self._recorded:
            return None
        recorded = self._recorded.popleft()
        if recorded.agent != agent_name:
            raise AgentConfigError(
                f"{self.turn.agent.name}: this run was cut off in agent {recorded.agent!r}, and now reaches "
                f"{agent_name!r} instead: the app has changed. Begin a new run"
            )
        response = recorded.to_response()
        self._note_calls(recorded.output)
        self._unanswered -= self.progress.outputs.keys()
        return response

    async def before_call(self, items: str | Sequence[JsonObject]) -> None:
        """Stores what is known before another call of a model. items: its input."""
        await self.store_response()
        if self._unanswered and not isinstance(items, str):
            await self._store_answers(items)

    async def after_call(self, call: HostedModelCall, agent_name: str, response: ModelResponse) -> None:
        event = await call.end(reply_of(response))
        self._name_agent(event, agent_name)
        self._response = event
        self._state = to_state(agent_name, response)
        self._note_calls(self._state["response"])

    def _name_agent(self, event: Event, agent_name: str) -> None:
        if agent_name != self._root.name:
            event.custom_metadata = {**(event.custom_metadata or {}), "agent": agent_name}

    def _note_calls(self, output: Iterable[JsonObject]) -> None:
        self._calls = {str(call_of(item)): str(item.get("name") or "") for item in output if awaits_output(item)}
        self._unanswered = set(self._calls)

    async def store_response(self) -> None:
        """Stores the newest response, if it isn't stored yet."""
        async with self._lock:
            if self._response is None:
                return
            event = self._response
            self._response = None
            await self._store(event, state=self._state)

    def drop_response(self) -> GenerateContentResponseUsageMetadata | None:
        """Drops the newest response, which a guardrail has refused. Returns its usage."""
        if self._response is None:
            return None
        usage = self._response.usage_metadata
        self._response = None
        return usage

    def state_with_input(self, state: JsonObject) -> JsonObject:
        """A state to store; the turn's first one has its input."""
        if self.progress.is_begun:
            return state
        self.progress.is_begun = True
        return {"input": self.progress.input, **state}

    async def _store(self, *events: Event, state: JsonObject, is_end: bool = False) -> None:
        """Stores events, and with the first of them what the app's code has changed through the agent's context."""
        actions = self._context.collect_actions()
        if events and (actions.state_delta or actions.artifact_delta):
            events[0].actions.state_delta.update(actions.state_delta)
            events[0].actions.artifact_delta.update(actions.artifact_delta)
            actions.state_delta.clear()
            actions.artifact_delta.clear()
        await self.turn.store(*events, state=self.state_with_input(state), is_end=is_end)

    async def end(self, items: Sequence[JsonObject], output: Event | None) -> None:
        """Stores the end of the turn.

        items: those of the turn. output: the event of an output that no response had as text.
        """
        if self._unanswered:
            await self.store_response()
            await self._store_answers(items)
        state = self._state if self._response is not None else {}
        events = [event for event in (self._response, output) if event is not None]
        self._response = None
        await self._store(*events, state=state, is_end=True)

    @property
    def ends_with_calls(self) -> bool:
        """Whether the newest response has calls, so that its text isn't the output of the turn."""
        return bool(self._calls)

    # tools

    def _recorded_tool(self, tool: FunctionTool) -> FunctionTool:
        recorded = copy.copy(tool)
        invoke = recorded.on_invoke_tool
        is_guarded = bool(tool.tool_output_guardrails)

        async def on_invoke_tool(context: ToolContext[Any], arguments: str) -> Any:
            await self.store_response()
            call_id = context.tool_call_id
            if call_id in self.progress.results:
                if not is_guarded:
                    self._unanswered.discard(call_id)
                return self.progress.results[call_id]

            result = await invoke(context, self._approved_arguments(call_id, arguments))
            if result is not None:  # None may be an agent as a tool that waits for an approval
                await self._store_result(tool.name, call_id, result, is_guarded=is_guarded)
            return result

        recorded.on_invoke_tool = on_invoke_tool
        if callable(tool.needs_approval):
            recorded.needs_approval = _policy(tool, invoke, tool.needs_approval)
        return recorded

    def _approved_arguments(self, call_id: str, arguments: str) -> str:
        """The arguments of a call as a person has approved them."""
        approved = self.progress.decided.get(call_id, {}).get("args")
        if approved is None or approved == json.loads(arguments or "{}"):
            return arguments
        return json.dumps(approved)

    async def _store_result(self, name: str, call_id: str, result: object, *, is_guarded: bool) -> None:
        """Stores what a tool has returned. A guardrail may replace it, so its event may have to wait."""
        stored = dump_result(result)
        state: JsonObject = {"results": {call_id: stored}}
        if is_guarded:
            await self._store(state=state)
            return
        self._unanswered.discard(call_id)
        event = self.turn.new_event(response_part(name, call_id, result), role="user")
        await self._store(event, state=state)

    async def _store_answers(self, items: Sequence[JsonObject]) -> None:
        """Stores the answers to calls that no tool has given: of refused calls, and of tools that guardrails check."""
        answers: list[JsonObject] = []
        for item in reversed(items):
            if awaits_output(item) and call_of(item) in self._calls:
                break  # before it are those of earlier responses, whose calls may have the same ids
            if is_output(item) and call_of(item) in self._unanswered:
                answers.insert(0, item)

        if answers:
            self._unanswered -= {str(call_of(item)) for item in answers}
            await self._store(self._answer_event(answers), state={"outputs": answers})

    def _answer_event(self, answers: Iterable[JsonObject]) -> Event:
        parts: list[Part] = []
        for item in answers:
            call_id = str(call_of(item))
            parts.append(response_part(self._calls.get(call_id, ""), call_id, output_value(item)))
        return self.turn.new_event(*parts, role="user")

    # people

    async def ask(self, items: Sequence[ToolApprovalItem]) -> None:
        """Asks a person whether calls may be made."""
        await self.store_response()
        calls = [self._call_in(item) for item in items]
        hints = [approval_hint(call.name or "") for call in calls]
        await self._store(*self.turn.request_approvals(calls, hints=hints), state={})

    def refusal(self, item: ToolApprovalItem) -> str | None:
        """The message for a call that a person has rejected. None if it is made."""
        decision = self.progress.decided[item.call_id or ""]
        if not decision["confirmed"]:
            return rejected_response(item.name or "")["error"]
        call = self._call_in(item)
        if decision["args"] != call.args and not isinstance(item.raw_item, ResponseFunctionToolCall):
            return f"{call.name} has not run: a person wants other arguments: {json.dumps(decision['args'])}"
        return None

    def _call_in(self, item: ToolApprovalItem) -> FunctionCall:
        if item.call_id not in self._calls:
            raise AgentConfigError(
                f"{self.turn.agent.name}: tool {item.name!r} of an agent that is itself a tool needs an approval, "
                "which can't be continued after a restart. Let the agent as a tool need the approval, or hand off to it"
            )
        return to_call(to_jsonable_python(item.raw_item))


class RecordedModel(Model):
    """A model of an agent in the turn."""

    def __init__(self, recorder: Recorder, agent_name: str, model: Model) -> None:
        self._recorder = recorder
        self._agent_name = agent_name
        self._model = model

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        recorder = self._recorder
        recorded = recorder.recorded_response(self._agent_name)
        if recorded is not None:
            return recorded

        request = _RequestOf(self._model, args, kwargs)
        await recorder.before_call(request.items)
        call = recorder.turn.model_call(model=request.model, provider_name=request.provider)
        await call.begin(request.convert)
        try:
            if recorder.streams:
                response = await self._stream(call, args, kwargs)
            else:
                response = await self._model.get_response(*args, **kwargs)
        except BaseException as error:
            await call.fail(error, request.convert)
            raise
        await recorder.after_call(call, self._agent_name, response)
        return response

    async def _stream(self, call: HostedModelCall, args: Any, kwargs: Any) -> ModelResponse:
        """Shows the pieces of a streamed response, and returns the complete one."""
        items: list[Any] = []
        async with aclosing(cast("Any", self._model.stream_response(*args, **kwargs))) as events:
            async for event in events:
                match event.type:
                    case "response.output_text.delta" | "response.refusal.delta":
                        self._recorder.turn.publish(call.chunk(Part(text=event.delta)))
                    case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                        self._recorder.turn.publish(call.chunk(Part(text=event.delta, thought=True)))
                    case "response.output_item.done":
                        items.append(event.item)
                    case "response.completed":
                        return _response_of(event.response, items)
                    case "response.failed" | "response.incomplete" | "error":
                        raise ModelBehaviorError(f"The model's response has ended with {_failure(event)}")
                    case _:
                        pass
        raise ModelBehaviorError("The model's stream has ended without a response")

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError("The run itself isn't streamed: its events are those of the turn")

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)  # pyright: ignore[reportPrivateUsage] - as the runner does


class CountingProvider(ModelProvider):
    """Gives their models to the agents that are tools of other agents: counted, limited and traced."""

    def __init__(self, turn: HostedTurn, provider: ModelProvider) -> None:
        self._turn = turn
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        return _CountedModel(self._turn, self._provider.get_model(model_name))


class _CountedModel(Model):
    def __init__(self, turn: HostedTurn, model: Model) -> None:
        self._turn = turn
        self._model = model

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        request = _RequestOf(self._model, args, kwargs)
        call = self._turn.model_call(model=request.model, provider_name=request.provider)
        await call.begin(request.convert)
        try:
            response = await self._model.get_response(*args, **kwargs)
        except BaseException as error:
            await call.fail(error, request.convert)
            raise
        await self._end(call, response)
        return response

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        request = _RequestOf(self._model, args, kwargs)
        call = self._turn.model_call(model=request.model, provider_name=request.provider)
        await call.begin(request.convert)
        response: ModelResponse | None = None
        try:
            async with aclosing(cast("Any", self._model.stream_response(*args, **kwargs))) as events:
                async for event in events:
                    if event.type == "response.completed":
                        response = _response_of(event.response, [])
                        await self._end(call, response)
                    yield event
        except BaseException as error:
            if response is None:
                await call.fail(error, request.convert)
            raise

    async def _end(self, call: HostedModelCall, response: ModelResponse) -> None:
        """Stores the usage. What the agent says is the result of the tool that it is."""
        event = await call.end(reply_of(response))
        event.content = None
        await self._turn.store(event, state={})

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)


class _RequestOf:
    """The arguments of a model's call."""

    def __init__(self, model: Model, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        names = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs")
        self._given: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
        named: Any = getattr(model, "model", None)
        self.model = named if isinstance(named, str) else type(model).__name__
        self.provider: str = getattr(model, "provider_name", _OPENAI)

    @property
    def items(self) -> str | Sequence[JsonObject]:
        return self._given["input"]

    def convert(self) -> LlmRequest:
        schema = self._given["output_schema"]
        return to_request(
            self._given["system_instructions"],
            self.items,
            model=self.model,
            settings=self._given["model_settings"],
            tools=self._given["tools"],
            handoffs=self._given["handoffs"],
            schema=None if schema is None or schema.is_plain_text() else schema.json_schema(),
        )


def agents_from(root: Agent[Any]) -> dict[str, Agent[Any]]:
    """An agent and those that it can hand over to, by their names."""
    found: dict[str, Agent[Any]] = {}
    waiting: deque[Agent[Any]] = deque([root])
    while waiting:
        agent = waiting.popleft()
        if agent.name in found:
            continue
        found[agent.name] = agent
        for one in agent.handoffs:
            reference = one._agent_ref if isinstance(one, Handoff) else None  # pyright: ignore[reportPrivateUsage]
            target = reference() if reference is not None else one
            if isinstance(target, Agent):
                waiting.append(cast("Agent[Any]", target))
    return found


def check_tools(agent: Agent[Any], *, hosted_by: str) -> None:
    """Raises AgentConfigError for a tool whose results can't be recorded: it would run again with each approval."""
    for tool in agent.tools:
        if isinstance(tool, _UNRECORDED) or (isinstance(tool, ShellTool) and tool.executor is not None):
            raise AgentConfigError(
                f"{hosted_by}: agent {agent.name!r} has a {type(tool).__name__}, which runs on this machine and whose "
                "results can't be recorded. Use a function tool"
            )


def _policy(
    tool: FunctionTool, invoke: Any, needs_approval: Callable[..., Awaitable[bool]]
) -> Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]:
    """The tool's policy. As in the SDK, arguments that are read as others than they are need an approval."""
    prepare: Any = getattr(invoke, "prepare_arguments", None)

    async def policy(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        prepared = prepare(json.dumps(arguments), tool.name) if prepare is not None else None
        if prepared is not None and not prepared.unchanged:
            return True
        return await needs_approval(context, arguments, call_id)

    return policy


def _response_of(response: Any, items: list[Any]) -> ModelResponse:
    """The complete response of a stream."""
    usage = Usage(requests=1)
    if response.usage is not None:
        usage = Usage(
            requests=1,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            total_tokens=response.usage.total_tokens,
            input_tokens_details=response.usage.input_tokens_details,
            output_tokens_details=response.usage.output_tokens_details,
        )
    return ModelResponse(response.output or items, usage, response.id)


def _failure(event: Any) -> str:
    response: Any = getattr(event, "response", None)
    error = getattr(response, "error", None) or getattr(response, "incomplete_details", None)
    return f"{event.type}: {error or getattr(event, 'message', '')}"
