"""One request to the model: system text, contents, tools, output schema."""

from __future__ import annotations

import contextlib
import copy

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.planning import BasePlanner, BuiltInPlanner, PlanReActPlanner, remove_thought_marks
from greenroom.agents.turn.code_blocks import show_code
from greenroom.agents.turn.data_files import name_files
from greenroom.agents.turn.hand_over import TransferTool, transfer_targets
from greenroom.agents.turn.history import prompt_contents, prompt_of_isolated
from greenroom.agents.turn.instructions import put_among_contents, system_text
from greenroom.agents.turn.structured_output import SetModelResponseTool
from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.code_executors.model_native import BuiltInCodeExecutor
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset


async def build_request(agent: BaseLlmAgent, ctx: InvocationContext, model: BaseLlm) -> LlmRequest:
    contents = visible_contents(agent, ctx)
    config = agent.generate_content_config
    request = LlmRequest(
        model=model.model,
        contents=contents,
        config=copy.copy(config) if config is not None else GenerateContentConfig(),
    )
    request.config.system_instruction = await system_text(agent, ctx)
    if agent.static_instruction:
        await put_among_contents(agent, ctx, request.contents)
    _apply_run_config(ctx.run_config, request.config)

    tools = await agent.canonical_tools(ctx)
    targets = transfer_targets(agent)
    if targets:
        transfer = TransferTool(
            targets,
            can_return=ctx.run_config.streaming_mode is not StreamingMode.BIDI,
            declares_return=agent.offers_transfer_return,
        )
        request.append_instructions([transfer.instruction(agent)])
        tools = [*tools, transfer]
    if agent.output_type is not None:
        if tools:
            answer = SetModelResponseTool(agent.output_type)
            request.append_instructions([answer.instruction])
            tools = [*tools, answer]
        else:
            request.set_output_schema(agent.output_type.json_schema())
    if tools or agent.tools:
        tool_context = ToolContext(ctx)
        toolsets = [toolset for toolset in agent.tools if isinstance(toolset, BaseToolset)]
        edits = toolsets or any(type(tool).process_llm_request is not BaseTool.process_llm_request for tool in tools)
        with request.own_contents() if edits else contextlib.nullcontext():
            for one in (*toolsets, *tools):
                await one.process_llm_request(tool_context=tool_context, llm_request=request)
    if agent.planner is not None:
        _plan(agent.planner, ctx, request)
    if agent.code_executor is not None:
        _prepare_for_code(agent.code_executor, ctx, request)
    return request


def _apply_run_config(run: RunConfig, config: GenerateContentConfig) -> None:
    """What is asked for this run counts before what the agent has."""
    if run.labels:
        config.labels = {**(config.labels or {}), **run.labels}
    if run.http_options:
        config.http_options = {**(config.http_options or {}), **run.http_options}
    if run.service_tier is not None:
        config.service_tier = run.service_tier


def visible_contents(agent: BaseLlmAgent, ctx: InvocationContext) -> CopyOnWriteList[Content]:
    events, thoughts = ctx.session.events, ctx.run_config.include_thoughts_from_other_agents
    if ctx.isolation_scope is None:
        return prompt_contents(
            events, agent=agent.name, branch=ctx.branch, include=agent.include_contents, thoughts=thoughts
        )
    return prompt_of_isolated(
        events[ctx.scope_begins_at :],
        ctx.user_content,
        agent=agent.name,
        branch=ctx.branch,
        scope=ctx.isolation_scope,
        include=agent.include_contents,
        thoughts=thoughts,
    )


def _prepare_for_code(executor: BaseCodeExecutor, ctx: InvocationContext, request: LlmRequest) -> None:
    if isinstance(executor, BuiltInCodeExecutor):
        executor.process_llm_request(request)
        return
    if executor.optimize_data_file:
        name_files(executor, ctx, request)
    show_code(executor, request.contents)


def _plan(planner: BasePlanner, ctx: InvocationContext, request: LlmRequest) -> None:
    if isinstance(planner, BuiltInPlanner):
        planner.apply_thinking_config(request)
        return
    with request.own_contents() if type(planner) is not PlanReActPlanner else contextlib.nullcontext():
        text = planner.build_planning_instruction(ReadonlyContext(ctx), request)
    if text:
        request.append_instructions([text])
    remove_thought_marks(request.contents)
