"""Builds a request to the model: instructions with their variables filled in, contents, tools and output schema."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import MutableSequence, Sequence

from greenroom.agents.base_llm_agent import BaseLlmAgent, Instruction, static_parts
from greenroom.agents.planning import BasePlanner, BuiltInPlanner, PlanReActPlanner, remove_thought_marks
from greenroom.agents.transfer import TransferTool, transfer_targets
from greenroom.agents.turn.code import name_files, show_code
from greenroom.agents.turn.output import FinishTaskTool, SetModelResponseTool
from greenroom.agents.turn.prompt import prompt_contents
from greenroom.code_executors.executor import BaseCodeExecutor, BuiltInCodeExecutor
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.template import fill_template
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.log.state import events_of_run
from greenroom.models.model import BaseLlm
from greenroom.records.content import INSTRUCTIONS_PREFIX, Content, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset

CACHE_LOOKBACK = 1000
"""Number of events in which the agent's last reply is looked for; older caches have expired anyway."""


async def _resolve(instruction: Instruction, ctx: InvocationContext, agent_name: str) -> str:
    if isinstance(instruction, str):
        return await fill_template(instruction, ctx, agent_name=agent_name)
    text = instruction(ReadonlyContext(ctx))
    if inspect.isawaitable(text):
        text = await text
    return text


async def system_text(agent: BaseLlmAgent, ctx: InvocationContext) -> str:
    """Returns the instructions, stable ones first so that providers' prompt caches hold, and the agent's identity."""
    texts: list[str] = []
    if agent.shared_instruction:
        texts.append(await _resolve(agent.shared_instruction, ctx, agent.root_agent.name))
    if agent.static_instruction:
        media = 0
        for part in static_parts(agent.static_instruction):
            if part.text is None:
                media += 1
            texts.append(part.text if part.text is not None else f"(See {_media_name(media)} in the first message.)")
    if agent.instruction and not _is_among_contents(agent, ctx):
        texts.append(await _resolve(agent.instruction, ctx, agent.name))
    if ctx.node_runner is not None and agent.mode == "single_turn":
        return "\n\n".join(filter(None, texts))
    identity = f'You are the agent "{agent.name}".'
    if agent.description:
        identity += f" This is what you are for: {agent.description}"
    texts.append(identity)
    return "\n\n".join(filter(None, texts))


async def put_among_contents(agent: BaseLlmAgent, ctx: InvocationContext, contents: MutableSequence[Content]) -> None:
    """Puts the media of a static instruction before all messages, and the other instruction before the newest ones, so
    that it can change from turn to turn while the system text stays as it is. Source: ADK."""
    media = [part for part in static_parts(agent.static_instruction) if part.text is None]
    if media:
        named = ((Part(text=f"{_media_name(number)}:"), part) for number, part in enumerate(media, 1))
        contents.insert(0, Content(role="user", parts=[part for pair in named for part in pair]))
    if not agent.instruction or not _is_among_contents(agent, ctx):
        return
    text = await _resolve(agent.instruction, ctx, agent.name)
    if text:
        fenced = f"<instructions>\n{text}\n</instructions>"
        instruction = Content(role="user", parts=[Part(text=INSTRUCTIONS_PREFIX), Part(text=fenced)])
        contents.insert(_newest_messages_at(contents), instruction)


def _media_name(number: int) -> str:
    return f"attachment {number} of the instructions"


def _is_among_contents(agent: BaseLlmAgent, ctx: InvocationContext) -> bool:
    """False in a live run, which sends its system text once."""
    return bool(agent.static_instruction) and ctx.live_request_queue is None


def _newest_messages_at(contents: Sequence[Content]) -> int:
    """Function responses are a user's contents too, but stay with their calls."""
    for index in range(len(contents) - 1, -1, -1):
        content = contents[index]
        if content.role != "user" or any(part.function_response is not None for part in content.parts or ()):
            return index + 1
    return 0


async def build_request(agent: BaseLlmAgent, ctx: InvocationContext, model: BaseLlm) -> LlmRequest:
    contents = visible_contents(agent, ctx)
    config = agent.generate_content_config
    request = LlmRequest(
        model=model.model,
        contents=contents,
        config=copy.copy(config) if config is not None else GenerateContentConfig(),
        is_on_vertex=model.is_on_vertex,
    )
    request.config.system_instruction = await system_text(agent, ctx)
    if agent.static_instruction:
        await put_among_contents(agent, ctx, request.contents)
    if ctx.run_config.model_input_context:
        _put_input_context(ctx, request.contents)
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
        if not any(tool.name == transfer.name for tool in tools):
            tools = [*tools, transfer]
    if agent.mode == "task":
        request.append_instructions([FinishTaskTool.instruction])
    elif agent.output_type is not None:
        if tools and not model.capabilities.output_schema_and_tools:
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
    if ctx.services.context_cache is not None:
        _continue_cache(agent, ctx, request)
    if agent.planner is not None:
        _plan(agent.planner, ctx, request)
    if agent.code_executor is not None:
        _prepare_for_code(agent.code_executor, ctx, request)
    return request


def _continue_cache(agent: BaseLlmAgent, ctx: InvocationContext, request: LlmRequest) -> None:
    """Takes over the provider's cache and the prompt's size from the agent's newest reply; a new run counts as a
    use."""
    request.cache_config = ctx.services.context_cache
    events = ctx.session.events
    for index in range(len(events) - 1, max(len(events) - CACHE_LOOKBACK, 0) - 1, -1):
        event = events[index]
        if event.author != agent.name or event.usage_metadata is None:
            continue
        request.cacheable_contents_token_count = event.usage_metadata.prompt_token_count
        known = event.cache_metadata
        if known and known.get("cache_name") and event.invocation_id != ctx.invocation_id:
            known = {**known, "invocations_used": known["invocations_used"] + 1}
        request.cache_metadata = known
        return


def _apply_run_config(run: RunConfig, config: GenerateContentConfig) -> None:
    """Overrides the agent's options with the run's."""
    if run.labels:
        config.labels = {**(config.labels or {}), **run.labels}
    if run.http_options:
        config.http_options = {**(config.http_options or {}), **run.http_options}
    if run.service_tier is not None:
        config.service_tier = run.service_tier


def _put_input_context(ctx: InvocationContext, contents: MutableSequence[Content]) -> None:
    """Adds the run's own context in front of the message that began the run; in front of all if that isn't shown."""
    of_run = events_of_run(ctx.session.events, ctx.invocation_id)
    begun_by = next((event.content for event in of_run if event.author == "user" and event.content is not None), None)
    asked = [content for content in (ctx.request, ctx.user_content, begun_by) if content is not None]
    at = next((i for i in range(len(contents) - 1, -1, -1) if any(contents[i] is one for one in asked)), 0)
    contents[at:at] = ctx.run_config.model_input_context or ()


def visible_contents(agent: BaseLlmAgent, ctx: InvocationContext) -> CopyOnWriteList[Content]:
    events = ctx.session.events
    scope = ctx.isolation_scope
    include = agent.include_contents
    request = ctx.request or ctx.user_content
    runner = ctx.node_runner if agent.mode == "single_turn" else None
    shown: CopyOnWriteList[Event] | list[Event] = events
    before: Sequence[Content] = ()
    if runner is not None:
        of_run = events_of_run(events, ctx.invocation_id, since=ctx.scope_start)
        shown = [event for event in of_run if _is_of_node(event, runner.path)]
        if "include_contents" in agent.model_fields_set and include == "default":
            before = prompt_contents(
                events.first(ctx.scope_start),
                agent=agent.name,
                branch=ctx.branch,
                include=include,
                node_path=runner.path,
            )
        include = "default"
    elif scope is not None:
        shown = events_of_run(events, ctx.invocation_id, since=ctx.scope_start)

    contents = prompt_contents(
        shown,
        agent=agent.name,
        branch=ctx.branch,
        include=include,
        thoughts=ctx.run_config.include_thoughts_from_other_agents,
        scope=scope,
        request=request if shown is not events and request not in before[-1:] else None,
    )
    if before:
        contents[:0] = before
    return contents


def _is_of_node(event: Event, path: str) -> bool:
    """Whether it belongs to the run of a node, or answers a call."""
    return event.author == "user" or event.node_path == path


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
