"""Workflows and function nodes as tools of an agent."""

from __future__ import annotations

from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.agents.events import ToolCallPending
from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.edges import START
from greenroom.agents.workflow.errors import DynamicNodeFailError, NodeFailure, NodeWaiting, WorkflowConfigurationError
from greenroom.agents.workflow.execution import Engine, NodeRun, sub_branch
from greenroom.agents.workflow.function_node import INPUT, FunctionNode
from greenroom.agents.workflow.nodes import build_node
from greenroom.agents.workflow.position import NodeStatus
from greenroom.agents.workflow.values import type_schema
from greenroom.agents.workflow.workflow import Workflow
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.calls import ledger_of
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.functions.signature import read_signature
from greenroom.tools.tool import BaseTool

_REQUEST = "request"


class NodeTool(BaseTool):
    """A node as a tool of its name. Its input is the arguments; one that is no object is the argument `request`.

    It runs on the path `AGENT@1/NODE@CALL`, in a branch of its own, and is resumed there. Without an input schema a
    workflow takes that of the nodes behind START, and a function node the parameters of its function.
    """

    def __init__(self, node: BaseNode) -> None:
        """Raises WorkflowConfigurationError for a workflow without an input schema."""
        super().__init__(name=node.name, description=node.description, on_interrupt="retry")
        schema: Any = node.input_schema if node.input_schema is not None else _first_schema(node)
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
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Raises what the node raises, and AgentConfigError outside of an agent's turn."""
        ctx = tool_context.invocation_context
        run_id = f"{self.name}@{tool_context.function_call_id}"
        engine = _engine(ctx)
        run = NodeRun(
            engine,
            self._node,
            f"{_path(ctx)}/{run_id}",
            args.get(_REQUEST) if self._is_wrapped else args,
            branch=sub_branch(ctx.branch, run_id),
            author=self.name,
            parent=None,
            isolation_scope=ctx.isolation_scope,
        )
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


def _engine(ctx: InvocationContext) -> Engine:
    """Of the nodes that a tool runs. Raises AgentConfigError outside of an agent's turn."""
    if ctx.send is None:
        raise AgentConfigError("Nodes can only be run by tools while an agent's turn runs")
    engine = Engine(ctx, ctx.send, build_node)
    events = ctx.session.events
    engine.position.read((index, events[index]) for index in ledger_of(events).run(ctx.invocation_id).indexes)
    return engine


def _path(ctx: InvocationContext) -> str:
    return ctx.node_runner.path if ctx.node_runner is not None else f"{ctx.agent.name}@1"


async def run_node_of_tool(ctx: InvocationContext, item: Any, node_input: Any, **options: Any) -> Any:
    """`Context.run_node` in a tool of an LLM agent."""
    engine = _engine(ctx)
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
    """The input schema that all nodes behind START have."""
    if not isinstance(node, Workflow):
        return None
    schemas = [edge.to_node.input_schema for edge in node.graph.after.get(START.name, ())]
    return schemas[0] if schemas and all(schema == schemas[0] for schema in schemas) else None


def tool_of_node(node: BaseNode) -> NodeTool:
    """Raises AgentConfigError for an agent, which is a tool as an `AgentTool`."""
    if isinstance(node, BaseAgent) and not node.is_graph:
        raise AgentConfigError(f"Agent {node.name!r} is no tool; write AgentTool({node.name})")
    return NodeTool(node)
