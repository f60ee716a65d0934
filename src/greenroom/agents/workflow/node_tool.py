"""Workflows and function nodes as tools of an agent."""

from __future__ import annotations

from typing import Any, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.events import ToolCallPending
from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.edges import START
from greenroom.agents.workflow.engine import WorkflowEngine
from greenroom.agents.workflow.errors import DynamicNodeFailError, NodeFailure, NodeWaiting, WorkflowConfigurationError
from greenroom.agents.workflow.execution import NodeRun, sub_branch
from greenroom.agents.workflow.function_node import INPUT, FunctionNode
from greenroom.agents.workflow.nodes import AgentNode, build_node
from greenroom.agents.workflow.position import NodeStatus
from greenroom.agents.workflow.values import type_schema
from greenroom.agents.workflow.workflow import Workflow
from greenroom.errors import AgentConfigError, message_of
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.state import log_state_of
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.telemetry.span import current_span
from greenroom.tools.functions.signature import read_signature
from greenroom.tools.tool import BaseTool
from greenroom.tools.value_types.plain_types import InvalidValue

_REQUEST = "request"


class NodeTool(BaseTool):
    """A node as a tool of its name. Its input is the arguments; one that is no object is the
    argument `request`.

    It runs on the path `AGENT@1/NODE@CALL`, in a branch of its own, and is resumed there. Without
    an input schema a workflow takes that of the nodes after START, and a function node the
    parameters of its function.
    """

    shows_result = True
    runs_nodes = True

    def __init__(self, node: BaseNode) -> None:
        """Raises WorkflowConfigurationError for a workflow without an input schema."""
        super().__init__(name=node.name, description=node.description, on_interrupt="retry")

        schema: Any
        if node.input_schema is not None:
            schema = node.input_schema
        else:
            schema = _first_schema(node)

        self._node = node

        if schema is not None:
            self._schema = type_schema(schema).json_schema()
        elif isinstance(node, FunctionNode):
            self._node = node.model_copy(update={"parameter_binding": INPUT})
            self._schema = read_signature(node.func, name=node.name).json_schema() or {"type": "object"}
        else:
            raise WorkflowConfigurationError(f"{node.name!r} needs an input_schema to be a tool")

        self._is_wrapped = self._schema.get("type") != "object"

    def _get_declaration(self) -> FunctionDeclaration:
        schema: JsonObject = self._schema
        if self._is_wrapped:
            schema = {"type": "object", "properties": {_REQUEST: schema}, "required": [_REQUEST]}

        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=schema,
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Raises the node's errors, and AgentConfigError outside of an agent's turn."""
        return await self._run(
            self._input(args),
            tool_context,
            run_id=f"{self.name}@{tool_context.function_call_id}",
        )

    def _input(self, args: JsonObject) -> JsonValue:
        return args.get(_REQUEST) if self._is_wrapped else args

    async def _run(
        self, node_input: Any, tool_context: ToolContext, *, run_id: str, isolation_scope: str | None = None
    ) -> JsonValue:
        ctx = tool_context.invocation_context
        engine = _engine(ctx, tool_context.function_call_id)

        run = NodeRun(
            engine,
            self._node,
            f"{_path(ctx)}/{run_id}",
            node_input,
            branch=sub_branch(ctx.branch, f"{self.name}@{tool_context.function_call_id}"),
            author=self.name,
            parent=None,
            isolation_scope=isolation_scope or ctx.isolation_scope,
        )
        if run.record.completion(is_one_event=self._node.is_one_event) is not None:
            return run.record.output

        try:
            start = run.start_event()
            if start is not None:
                await engine.send(start)
            if not await run.run():
                raise ToolCallPending
        except NodeFailure as failure:
            failed = run.mark(NodeStatus.FAILED)
            await engine.send(*failure.events, failed)
            raise failure.error from failure.error.__cause__

        return run.record.output


class DelegateTool(NodeTool):
    """A sub-agent in mode `task` or `single_turn`, as a tool of its parent. Its output is the
    result, its error a text.

    A task's events have the call's id as their isolation scope, and its call is open until it has
    finished. It is shown the arguments as they are, and an output that is no object is the
    response's `output`. Source: ADK.
    """

    def __init__(self, agent: BaseAgent) -> None:
        if agent.input_schema is not None:
            self._type = type_schema(agent.input_schema)
        else:
            self._type = None
        super().__init__(AgentNode.of(agent, input_schema=agent.input_schema or str))

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        ctx = tool_context.invocation_context
        call_id = tool_context.function_call_id

        try:
            node_input = self._input(args)
            if self._type is not None:
                node_input = self._type.to_json(self._type.convert(node_input))
        except InvalidValue as error:
            return f"{self.name} was not asked, because of these arguments: {error}. Correct them."

        is_task = self._node.is_task
        if is_task and self._is_wrapped:
            node_input = {_REQUEST: node_input}

        run_id = f"{self.name}@{call_id if is_task else self._number(ctx, call_id)}"
        scope = call_id if is_task else None
        try:
            output: JsonValue = await self._run(
                node_input,
                tool_context,
                run_id=run_id,
                isolation_scope=scope,
            )
            return _in_object(output) if is_task else output
        except (ToolCallPending, AgentConfigError):
            raise
        except Exception as error:  # an agent may raise anything, and the caller's model decides what follows
            return f"{self.name} failed: {message_of(error)}"

    def _number(self, ctx: InvocationContext, call_id: str | None) -> int:
        """Returns the number of this call among the caller's calls of the agent in the run, from 1."""
        events = ctx.session.events
        ids = list[str | None]()
        for index in log_state_of(events).run(ctx.invocation_id).indexes:
            if (events[index].author, events[index].branch) == (ctx.agent.name, ctx.branch):
                ids += [call.id for call in events[index].get_function_calls() if call.name == self.name]

        if call_id in ids:
            return len(ids) - ids[::-1].index(call_id)

        return len(ids) + 1


def _in_object(output: JsonValue) -> JsonObject:
    if isinstance(output, dict):
        return cast("JsonObject", output)
    return {"output": output}


def _engine(ctx: InvocationContext, call_id: str | None) -> WorkflowEngine:
    """The engine of the nodes that a tool runs. Raises AgentConfigError outside of an agent's turn."""
    if ctx.send is None:
        raise AgentConfigError("Nodes can only be run by tools while an agent's turn runs")

    engine = WorkflowEngine(ctx, ctx.send, build_node)
    if engine.span is not None:
        engine.span = current_span.get()  # the call's

    events = ctx.session.events
    run = log_state_of(events).run(ctx.invocation_id)
    record = run.call(call_id, ctx.agent.name, ctx.branch)
    since = record.made_at if record is not None else 0  # models repeat ids of calls
    engine.position.read((index, events[index]) for index in run.indexes if index >= since)

    return engine


def _path(ctx: InvocationContext) -> str:
    if ctx.node_runner is not None:
        return ctx.node_runner.path
    return f"{ctx.agent.name}@1"


async def run_node_of_tool(
    ctx: InvocationContext, call_id: str | None, item: Any, node_input: Any, **options: Any
) -> Any:
    """`Context.run_node` in a tool of an LLM agent."""
    engine = _engine(ctx, call_id)
    author = engine.node(item).name  # not the agent's, which finds its own events by their author
    node = BaseNode(name=ctx.agent.name, rerun_on_resume=True, on_interrupt="retry")

    parent = NodeRun(engine, node, _path(ctx), None, branch=ctx.branch, author=author, parent=None)
    try:
        return await parent.run_child(item, node_input, **options)
    except DynamicNodeFailError:
        await parent.flush()
        raise
    except NodeWaiting:
        raise ToolCallPending from None


def _first_schema(node: BaseNode) -> Any:
    """The input schema that all nodes after START have."""
    if not isinstance(node, Workflow):
        return None
    schemas = [edge.to_node.input_schema for edge in node.graph.after.get(START.name, ())]
    if schemas and all(schema == schemas[0] for schema in schemas):
        return schemas[0]
    return None


def tool_of_node(node: BaseNode) -> NodeTool:
    """Raises AgentConfigError for an agent, which is a tool as an `AgentTool`."""
    if isinstance(node, BaseAgent) and not node.is_graph:
        raise AgentConfigError(f"Agent {node.name!r} is no tool; write AgentTool({node.name})")
    return NodeTool(node)
