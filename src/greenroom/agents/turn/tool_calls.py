"""The tool calls of one model reply: run side by side, answered in one event.

Source: ADK's tool call pipeline. Every call gets a response before an error ends the run, so that the history stays
valid and no finished work is lost.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.callbacks import first_answer
from greenroom.agents.events import ToolCallPending
from greenroom.errors import GreenroomError, ToolError, as_exception, message_of
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.calls import INTERRUPTED, REFUSED
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions, ToolConfirmation
from greenroom.telemetry.agent_spans import ToolCallSpan, note_response_event
from greenroom.telemetry.span import current
from greenroom.tools.result import make_storable, take_media, to_response
from greenroom.tools.tool import BaseTool

_log = logging.getLogger("greenroom.tools")


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call on its way to its response.

    confirmation: a person's decision. is_cut_off: a crash may have interrupted it, so that the tool's `on_interrupt`
    decides. context: as its tool saw it. response: None while it stays open. shown: its result as text. error: ends the
    run once the responses are stored. is_waiting: an agent that this call runs waits for somebody: the run halts.
    """

    call: FunctionCall
    confirmation: ToolConfirmation | None = None
    is_cut_off: bool = False
    context: ToolContext | None = None
    response: Part | None = None
    shown: Part | None = None
    error: Exception | None = None
    is_waiting: bool = False
    span: ToolCallSpan | None = None


def error_in(calls: Sequence[PendingCall]) -> Exception | None:
    return next((call.error for call in calls if call.error is not None), None)


def may_send_events(calls: Sequence[PendingCall], tools: Mapping[str, BaseTool]) -> bool:
    return any((tool := tools.get(call.call.name or "")) is not None and tool.sends_events for call in calls)


async def call_tools(
    agent: BaseLlmAgent, ctx: InvocationContext, calls: Sequence[PendingCall], tools: Mapping[str, BaseTool]
) -> Event | None:
    """Runs the calls and gathers their responses, in the order of the calls.

    Returns their event; it has no content, or there is none, when all calls stay open.
    """
    if len(calls) == 1 or ctx.run_config.tool_execution_mode == "SEQUENTIAL":
        for call in calls:
            await _complete(agent, ctx, call, tools)
    else:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_complete(agent, ctx, call, tools))

    parts = [part for call in calls for part in (call.response, call.shown) if part is not None]
    actions = EventActions()
    for call in calls:
        if call.context is not None and call.context.actions != actions:
            actions.merge(call.context.actions)

    if not parts:
        actions.skip_summarization = None  # there is no result yet
        if actions == EventActions():
            return None

    event = ctx.new_event(content=Content(role="user", parts=parts) if parts else None, actions=actions)
    if ctx.span is not None:
        note_response_event(ctx.span, [call.span for call in calls if call.span is not None], event)
    return event


async def _complete(
    agent: BaseLlmAgent, ctx: InvocationContext, call: PendingCall, tools: Mapping[str, BaseTool]
) -> None:
    """Brings one call to its response, whatever happens in it."""
    if ctx.span is None:
        await _respond(agent, ctx, call, tools)
        return
    tool = tools.get(call.call.name or "")
    description, kind = (tool.description, type(tool).__name__) if tool is not None else ("", None)
    call.span = span = ToolCallSpan(ctx.span, call.call, description=description, kind=kind)
    with span, current(span):
        await _respond(agent, ctx, call, tools)
        response = call.response.function_response if call.response is not None else None
        span.note_response(response.response if response is not None else None, call.error)


async def _respond(
    agent: BaseLlmAgent, ctx: InvocationContext, call: PendingCall, tools: Mapping[str, BaseTool]
) -> None:
    name = call.call.name or ""
    tool = tools.get(name)
    call.context = context = ToolContext(
        ctx, function_call_id=call.call.id, args=call.call.args, tool_confirmation=call.confirmation
    )
    result: JsonValue
    is_rejected = call.confirmation is not None and not call.confirmation.confirmed
    if is_rejected and tool is not None and not tool.handles_rejection:
        result = dict(REFUSED)
    elif call.is_cut_off and tool is not None and tool.on_interrupt == "report":
        result = dict(INTERRUPTED)
    else:
        try:
            args: JsonObject = copy.deepcopy(call.call.args) if call.call.args else {}  # fails if nested too deeply
            result = await run_tool(agent, ctx, tool or UnknownTool(name, tools), args, context)
        except ToolCallPending:
            call.is_waiting = True
            result = None
        except Exception as raised:  # a tool may raise anything; the calls beside it must still get their responses
            _log.warning("tool %s of agent %s failed", name, agent.name, exc_info=raised)
            call.error = raised
            result = {"error": _describe_error(name, raised)}

    try:
        make_storable(context.collect_actions())
        if call.is_waiting or (tool is not None and tool.is_long_running and call.error is None and not result):
            return
        result, media = take_media(result)
        response = to_response(result)
    except (ToolError, RecursionError) as unfit:
        detail = unfit.detail if isinstance(unfit, ToolError) else "its result is nested too deeply"
        unfit_error = ToolError(f"Tool {name!r}: {detail}")
        call.error = call.error or unfit_error
        call.is_waiting = False
        response = {"error": unfit_error.detail}
        media = None
        _drop_actions(context)

    call.response = Part(
        function_response=FunctionResponse(
            id=call.call.id,
            name=name,
            response=response,
            parts=media or None,
            scheduling=tool.response_scheduling if tool is not None else None,
        )
    )
    if tool is not None and tool.shows_result and context.actions.skip_summarization and "error" not in response:
        call.shown = _as_text(response)


def _as_text(response: JsonObject) -> Part | None:
    """A result for clients that don't show function responses."""
    result: JsonValue = response["result"] if response.keys() == {"result"} else response
    if result is None or result == "":
        return None
    return Part(text=result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))


def _drop_actions(context: ToolContext) -> None:
    for key in context.actions.state_delta:
        context.session.state.pop(key, None)
    context.actions = EventActions()


def _describe_error(name: str, raised: Exception) -> str:
    if isinstance(raised, GreenroomError):
        return message_of(raised)
    return f"Tool {name!r} raised {type(raised).__name__}: {message_of(raised)}"


class UnknownTool(BaseTool):
    """Replaces a tool that a model calls and nobody declared, so that callbacks see the call."""

    def __init__(self, name: str, tools: Mapping[str, BaseTool]) -> None:
        super().__init__(name=name, description="")
        known = ", ".join(sorted(tools)) or "none"
        self.error = ToolError(f"There is no tool {name!r}. Tools that exist: {known}.")

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        raise self.error


async def run_tool(
    agent: object, ctx: InvocationContext, tool: BaseTool, args: JsonObject, context: ToolContext
) -> JsonValue:
    """Runs the tool with its before, error and after callbacks: the plugins' first, then the agent's.

    agent: the agent that makes the call; a node has no callbacks.
    """
    callback_args = {"tool": tool, "args": args, "tool_context": context}
    plugin_args = {"tool": tool, "tool_args": args, "tool_context": context}
    result: JsonValue = await first_answer(agent, ctx, "before_tool_callback", for_plugins=plugin_args, **callback_args)
    if result is None:
        try:
            result = await tool.run_async(args=args, tool_context=context)
        except ToolCallPending:
            raise
        except BaseException as raised:  # a tool may raise anything; callbacks decide what becomes of it
            error = as_exception(raised)
            result = await first_answer(
                agent,
                ctx,
                "on_tool_error_callback",
                for_plugins={**plugin_args, "error": error},
                **callback_args,
                error=error,
            )
            if result is None and isinstance(tool, UnknownTool) and error is tool.error:
                return {"error": tool.error.detail}
            if result is None:
                raise error from error.__cause__

    changed = await first_answer(
        agent,
        ctx,
        "after_tool_callback",
        for_plugins={**plugin_args, "result": result},
        **callback_args,
        tool_response=result,
    )
    return result if changed is None else changed
