"""The kinds of nodes besides functions and workflows, and the conversion of other objects to nodes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.node import BaseNode, NodeExecution, RetryConfig
from greenroom.agents.turn.output import SCHEMA_MISMATCH, rejection_of
from greenroom.agents.turn.tool_calls import run_tool
from greenroom.agents.workflow.engine import first_message
from greenroom.agents.workflow.errors import NodeWaiting, WorkflowConfigurationError
from greenroom.agents.workflow.execution import NodeRun
from greenroom.agents.workflow.function_node import FunctionNode, ParameterBinding
from greenroom.agents.workflow.position import NodeStatus, text_of
from greenroom.agents.workflow.requests import (
    REJECTED,
    ask_for_credential,
    confirmation_id,
    confirmation_request,
    has_granted,
    read_decision,
)
from greenroom.agents.workflow.values import as_content, as_text, output_value
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import Context
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject
from greenroom.records.event import Event, NodeInfo
from greenroom.telemetry.span import Span
from greenroom.tools.confirmation import ConfirmationPredicate
from greenroom.tools.tool import BaseTool, OnInterrupt
from greenroom.tools.value_types.answer_text import value_in

START_NAME = "__START__"


class JoinNode(BaseNode):
    """Runs when all nodes before it have run since it ran last. Its output: their outputs by their
    names.
    """

    on_interrupt: OnInterrupt = "retry"

    converts_input = True
    runs_own_code = False

    @property
    def is_one_event(self) -> bool:
        return True

    async def execute(self, execution: NodeExecution) -> None:
        values: JsonObject = execution.node_input
        if self.input_schema is not None:
            values = {name: output_value(value, self.input_schema) for name, value in values.items()}
        await execution.emit(copy.deepcopy(values))


class Node(BaseNode):
    """A node to subclass: `run_node_impl` is an async generator of outputs and events."""

    parallel_worker: bool = False
    """It runs once for each item of its input, and its output is the list of their outputs."""

    max_parallel_workers: int | None = None
    """The number of them that run at a time."""

    def __post_init__(self) -> None:
        check_workers(self.name, self.parallel_worker, self.max_parallel_workers)

    def run_node_impl(self, *, ctx: Context, node_input: Any) -> AsyncIterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no run_node_impl")

    def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncIterator[Any]:
        return self.run_node_impl(ctx=ctx, node_input=node_input)


def check_workers(name: str, parallel_worker: bool, max_parallel_workers: int | None) -> None:
    if max_parallel_workers is None:
        return
    if not parallel_worker:
        raise WorkflowConfigurationError(f"Node {name!r}: max_parallel_workers needs parallel_worker=True")
    if max_parallel_workers < 1:
        raise WorkflowConfigurationError(f"Node {name!r}: max_parallel_workers must be 1 or more")


class ParallelWorker(BaseNode):
    """Runs a node once for each item of a list, at most `max_workers` at a time. The output has the
    input's order.

    A failure cancels the others. When one waits for a person, no further items are started; running
    ones continue.
    """

    node: BaseNode
    max_workers: int | None = None
    rerun_on_resume: bool = True
    on_interrupt: OnInterrupt = "retry"

    runs_own_code = False

    async def execute(self, execution: NodeExecution) -> None:
        run = cast("NodeRun", execution)
        items = _items(run.node_input)
        outputs: list[Any] = [None] * len(items)
        waiting = iter(enumerate(items))
        is_suspended = False

        async def work() -> None:
            nonlocal is_suspended

            for index, item in waiting:
                try:
                    outputs[index] = await run.run_numbered_child(self.node, item, index + 1)
                except NodeWaiting:
                    is_suspended = True
                    if self.max_workers is not None:
                        return

                if is_suspended and self.max_workers is not None:
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(items), self.max_workers or len(items))):
                    group.create_task(work())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__

        if is_suspended:
            raise NodeWaiting

        await run.emit(outputs)


def _items(value: Any) -> list[Any]:
    text = as_text(value)
    if text is not None:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
    return cast("list[Any]", value) if isinstance(value, list) else [value]


class ToolNode(BaseNode):
    """A tool as a node: its input becomes the tool's arguments, its result the output. Plugins see
    the call.
    """

    tool: BaseTool
    rerun_on_resume: bool = True

    @property
    def is_one_event(self) -> bool:
        return True

    async def execute(self, execution: NodeExecution) -> None:
        ctx = execution.ctx
        tool = self.tool
        args = self._arguments(ctx, execution.node_input)
        ctx.function_call_id = ctx.node_path

        answer = ctx.resume_inputs.get(confirmation_id(ctx.node_path))
        if answer is not None:
            ctx.tool_confirmation = read_decision(answer)
            if not ctx.tool_confirmation.confirmed:
                await execution.emit({"error": REJECTED})
                return

        if not await has_granted(execution):
            return

        result = await run_tool(self, ctx.invocation_context, tool, args, ctx)
        confirmation = ctx.actions.requested_tool_confirmations.pop(ctx.node_path, None)
        if ctx.requested_credential is not None:
            ctx.actions.requested_auth_configs.pop(ctx.node_path, None)
            await ask_for_credential(execution, ctx.requested_credential)
        elif confirmation is not None:
            ctx.actions.skip_summarization = None
            approvals = ctx.approvals or ctx.invocation_context.services.approvals
            await execution.emit(confirmation_request(ctx.node_path, tool.name, args, confirmation, approvals))
        else:
            await execution.emit(result)

    def _arguments(self, ctx: Context, value: Any) -> JsonObject:
        """Raises TypeError for missing arguments, and for a value that no parameter can take."""
        declaration = self.tool._get_declaration()
        schema = (declaration.json_schema() if declaration is not None else None) or {}
        names: list[str] = [*(schema.get("properties") or {})]
        required: list[str] = schema.get("required") or []

        text = as_text(value)
        if text is not None or isinstance(value, str):
            text = text if text is not None else value
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                value = text

        if isinstance(value, dict) and (len(names) != 1 or names[0] in value):
            args: JsonObject = dict(cast("JsonObject", value))
        elif value is None or not names:
            args = {}
        elif len(single := required if len(required) == 1 else names) == 1:
            args = {single[0]: value}
        else:
            raise TypeError(f"Tool {self.tool.name!r} takes {', '.join(names)}; its input must be a map of them")

        for name in required:
            if name not in args and name in ctx.state:
                args[name] = ctx.state[name]

        missing = [name for name in required if name not in args]
        if missing:
            raise TypeError(f"Tool {self.tool.name!r} lacks the arguments {', '.join(missing)}")

        return args


class AgentNode(BaseNode):
    """An agent as a node. Its events pass through.

    An LLM agent in mode `single_turn` has its final text as output; one in mode `task` the
    arguments of `finish_task`, and waits for the user's next message when it ends without having
    called it.
    """

    agent: BaseAgent
    on_interrupt: OnInterrupt = "retry"

    converts_input = True
    runs_own_code = False

    @classmethod
    def of(cls, agent: BaseAgent, **options: Any) -> AgentNode:
        shared = {name: getattr(agent, name) for name in _SHARED}
        return cls(agent=agent, rerun_on_resume=True, **{**shared, **options})

    @property
    def is_task(self) -> bool:
        return isinstance(self.agent, BaseLlmAgent) and self.agent.mode == "task"

    def begin_span(self, parent: Span) -> None:
        return None

    async def execute(self, execution: NodeExecution) -> None:
        run = cast("NodeRun", execution)
        agent = self.agent
        ctx = run.invocation
        is_finished = False
        is_single_turn = isinstance(agent, BaseLlmAgent) and agent.mode == "single_turn"
        ctx.resumed_from = run.record.began_at

        if ctx.resumed_from is None:
            ctx.scope_start = len(ctx.session.events)
        else:
            ctx.scope_start = ctx.resumed_from

        if isinstance(agent, BaseLlmAgent):
            self._set_input(ctx, run)

        async with aclosing(agent.run_async(ctx)) as events:
            async for event in events:
                for handled in ctx.take_handled():
                    await run.send(handled)

                if event.node_path.startswith(f"{run.path}/"):  # of a node that a tool runs
                    await run.engine.send(event)
                    continue

                if is_single_turn and event.author == agent.name:
                    self._set_output(run, event, cast("BaseLlmAgent", agent))
                elif event.output is not None:
                    is_finished = True
                    event.node_info = NodeInfo(output_for=run.output_for)

                if event.error_code is not None and event.content is None:
                    await run.send(
                        event, run.mark(NodeStatus.RUNNING)
                    )  # a model's error, after which the agent continues
                else:
                    await run.send(event)

        for handled in ctx.take_handled():
            await run.send(handled)

        if self.is_task and not is_finished:
            raise NodeWaiting

    def _set_input(self, ctx: InvocationContext, run: NodeRun) -> None:
        """Sets the input of the agent's model: the node's input, or the user's request if there is none.

        Source: ADK, whose callbacks and tools see the input as the user's message in tasks only.
        """
        is_empty = run.node_input is None or run.node_input == ""
        if is_empty:
            request = first_message(run.engine.ctx)
        else:
            request = as_content(run.node_input)

        ctx.request = request
        if self.is_task:
            ctx.user_content = request

    def _set_output(self, run: NodeRun, event: Event, agent: BaseLlmAgent) -> None:
        if event.error_code not in (None, SCHEMA_MISMATCH) or rejection_of(event) is not None:
            return
        if event.get_function_calls() or event.get_function_responses():
            return

        text = text_of(event)
        if not text or not (event.partial or event.is_final_response()):
            return

        info = NodeInfo(output_for=run.output_for)
        event.node_info = info
        if agent.output_type is None:
            info.message_as_output = True
        elif not event.partial:
            event.output = value_in(text, agent.output_type)


_SHARED = ("name", "description", "retry_config", "timeout", "state_schema", "on_interrupt", "wait_for_output")


def build_node(item: Any) -> BaseNode:
    """Makes a node of an item of a graph. Raises WorkflowConfigurationError for other objects."""
    if isinstance(item, Node) and item.parallel_worker:
        inner = item.model_copy(update={"parallel_worker": False, "max_parallel_workers": None})
        return _parallel(inner, item.max_parallel_workers)

    if isinstance(item, BaseAgent) and not item.is_graph:
        return _agent_node(item)
    if isinstance(item, BaseNode):
        return item
    if isinstance(item, BaseTool):
        return ToolNode(
            name=item.name,
            description=item.description,
            tool=item,
            on_interrupt=item.on_interrupt,
        )
    if callable(item) and not isinstance(item, type):
        return FunctionNode(func=item)

    raise WorkflowConfigurationError(
        f"{item!r} can't be a node; nodes are functions, agents, tools, workflows, other nodes and START"
    )


def _agent_node(agent: BaseAgent) -> BaseNode:
    if not isinstance(agent, BaseLlmAgent):
        return AgentNode.of(agent)
    mode = agent.mode or "single_turn"
    waits = agent.wait_for_output or mode != "single_turn"
    node = AgentNode.of(agent.clone(update={"mode": mode}), wait_for_output=waits)
    return _parallel(node, None) if agent.parallel_worker else node


def _parallel(inner: BaseNode, max_workers: int | None) -> ParallelWorker:
    return ParallelWorker(
        name=inner.name,
        description=inner.description,
        node=inner,
        max_workers=max_workers,
    )


def node(
    item: Any = None,
    *,
    name: str | None = None,
    rerun_on_resume: bool | None = None,
    retry_config: RetryConfig | None = None,
    timeout: float | None = None,
    parallel_worker: bool = False,
    max_parallel_workers: int | None = None,
    auth_config: Any = None,
    require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
    parameter_binding: ParameterBinding = "state",
    on_interrupt: OnInterrupt | None = None,
) -> Any:
    """A node of a function, or a copy of a node or tool with other options; also a decorator,
    `@node` or `@node(…)`.

    require_confirmation turns `rerun_on_resume` on. parallel_worker: see `Node`. The rest: see `BaseNode`, and
    `FunctionNode`.
    """
    if item is None:

        def decorate(func: Callable[..., Any]) -> BaseNode:
            return cast("BaseNode", node(func, **options))

        options = {key: value for key, value in locals().items() if key not in ("item", "decorate")}
        return decorate

    changes: dict[str, Any] = {
        "name": name, "rerun_on_resume": rerun_on_resume, "retry_config": retry_config, "timeout": timeout,
        "on_interrupt": on_interrupt,
    }  # fmt: skip
    changes = {key: value for key, value in changes.items() if value is not None}
    if require_confirmation and rerun_on_resume is None:
        changes["rerun_on_resume"] = True

    check_workers(str(name or getattr(item, "name", item)), parallel_worker, max_parallel_workers)

    if isinstance(item, BaseNode | BaseTool):
        built = build_node(item)
        for option, value in (("require_confirmation", require_confirmation), ("auth_config", auth_config)):
            if value:
                if not isinstance(built, FunctionNode):
                    raise WorkflowConfigurationError(f"Node {built.name!r}: {option} of node() is for functions")
                changes[option] = value
        built = _updated(built, changes) if changes else built
    else:
        built = FunctionNode(
            func=item, auth_config=auth_config, require_confirmation=require_confirmation,
            parameter_binding=parameter_binding, **changes,
        )  # fmt: skip

    if parallel_worker:
        return _parallel(built, max_parallel_workers)

    return built


def _updated(built: BaseNode, changes: dict[str, Any]) -> BaseNode:
    if isinstance(built, BaseAgent):
        return built.clone(update=changes)
    return built.model_copy(update=changes)
