"""The calls of one model reply: run side by side, answered in one event.

Source: ADK's tool call pipeline. Every call is settled with a response before an error ends the run, so that the
history stays valid and no finished work is forgotten.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.callbacks import first_answer
from greenroom.agents.turn.relay import CallStaysOpen
from greenroom.errors import GreenroomError, ToolError, as_exception
from greenroom.invocation.context import Hooks, InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.calls import INTERRUPTED, REFUSED
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.credential_request import CredentialRequest
from greenroom.records.event import Event, EventActions, ToolConfirmation
from greenroom.telemetry.span import current
from greenroom.telemetry.tool_call import ToolCallSpan, note_response_event
from greenroom.tools.result import take_media, to_response
from greenroom.tools.tool import BaseTool

_log = logging.getLogger("greenroom.tools")


class ToolOutcome(NamedTuple):
    """event: the responses; without content, or None, when all calls stay open. error: what must end the run once the
    event is stored. is_waiting: an agent below one of the calls waits for somebody, so the run halts. credentials: what
    calls asked for, by call id."""

    event: Event | None
    error: Exception | None
    is_waiting: bool
    credentials: dict[str, CredentialRequest]


class _Due(NamedTuple):
    """A call that is to be settled. tool: None when there is none of that name."""

    call: FunctionCall
    tool: BaseTool | None
    is_cut_off: bool
    confirmation: ToolConfirmation | None


class _Settled(NamedTuple):
    response: Part | None
    actions: EventActions
    error: Exception | None
    is_waiting: bool = False
    span: ToolCallSpan | None = None
    credential: CredentialRequest | None = None


async def call_tools(
    agent: BaseLlmAgent,
    ctx: InvocationContext,
    calls: list[FunctionCall],
    tools: dict[str, BaseTool],
    *,
    cut_off: Collection[str | None] = (),
    confirmations: Mapping[str | None, ToolConfirmation] | None = None,
) -> ToolOutcome:
    """Run the calls and gather their responses, in the order of the calls.

    cut_off: ids of calls that a crash cut off before their outcome was stored, so that each tool's `on_interrupt`
    decides.
    confirmations: what a person decided, by call id.
    """
    answers = confirmations or {}
    all_due = [_Due(call, tools.get(call.name or ""), call.id in cut_off, answers.get(call.id)) for call in calls]
    if len(calls) == 1 or ctx.run_config.tool_execution_mode == "SEQUENTIAL":
        settled = [await _settle(agent, ctx, due, tools) for due in all_due]
    else:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_settle(agent, ctx, due, tools)) for due in all_due]
        settled = [task.result() for task in tasks]
    parts = [outcome.response for outcome in settled if outcome.response is not None]
    error = next((outcome.error for outcome in settled if outcome.error is not None), None)
    actions = settled[0].actions
    for outcome in settled[1:]:
        actions.take_in(outcome.actions)
    is_waiting = any(outcome.is_waiting for outcome in settled)
    if not parts and actions == EventActions():
        return ToolOutcome(None, error, is_waiting, {})
    event = Event(
        invocation_id=ctx.invocation_id,
        author=agent.name,
        branch=ctx.branch,
        content=Content(role="user", parts=parts) if parts else None,
        actions=actions,
    )
    if ctx.span is not None:
        note_response_event(ctx.span, [outcome.span for outcome in settled if outcome.span is not None], event)
    credentials = {
        call.id or "": outcome.credential
        for call, outcome in zip(calls, settled, strict=True)
        if outcome.credential is not None
    }
    return ToolOutcome(event, error, is_waiting, credentials)


async def _settle(agent: BaseLlmAgent, ctx: InvocationContext, due: _Due, tools: Mapping[str, BaseTool]) -> _Settled:
    """One call to its response, whatever happens in it."""
    if ctx.span is None:
        return await _answer(agent, ctx, due, tools)
    tool = due.tool
    description, kind = (tool.description, type(tool).__name__) if tool is not None else ("", None)
    span = ToolCallSpan(ctx.span, due.call, description=description, kind=kind)
    with span, current(span):
        settled = await _answer(agent, ctx, due, tools)
        response = settled.response.function_response if settled.response is not None else None
        span.note_response(response.response if response is not None else None, settled.error)
        return settled._replace(span=span)


async def _answer(agent: BaseLlmAgent, ctx: InvocationContext, due: _Due, tools: Mapping[str, BaseTool]) -> _Settled:
    call, tool, is_cut_off, confirmation = due
    name = call.name or ""
    tool_context = ToolContext(ctx, function_call_id=call.id, args=call.args, tool_confirmation=confirmation)
    error: Exception | None = None
    response: JsonValue
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        response = {"error": f"There is no tool {name!r}. Tools that exist: {known}."}
    elif confirmation is not None and not confirmation.confirmed:
        response = dict(REFUSED)
    elif is_cut_off and tool.on_interrupt == "report":
        response = dict(INTERRUPTED)
    else:
        try:
            args: JsonObject = copy.deepcopy(call.args) if call.args else {}  # fails when nested too deeply
            response = await _run(agent, ctx.plugins, tool, args, tool_context)
        except CallStaysOpen:
            return _Settled(None, tool_context.settle(), None, is_waiting=True)
        except Exception as raised:  # a tool may raise anything; its siblings must still be settled
            _log.warning("tool %s of agent %s failed", name, agent.name, exc_info=raised)
            error = raised if isinstance(raised, GreenroomError) else _as_tool_error(name, raised)
            response = {"error": str(error)}
    if tool is not None and tool.is_long_running and error is None and not response:
        return _Settled(None, tool_context.settle(), None, credential=tool_context.requested_credential)
    response, media = take_media(response)
    try:
        result = to_response(response)
    except ToolError as unfit:
        error = ToolError(f"Tool {name!r}: {unfit.detail}")
        result = {"error": error.detail}
    part = Part(function_response=FunctionResponse(id=call.id, name=name, response=result, parts=media or None))
    return _Settled(part, tool_context.settle(), error, credential=tool_context.requested_credential)


def _as_tool_error(name: str, raised: Exception) -> ToolError:
    error = ToolError(f"Tool {name!r} raised {type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error


async def _run(
    agent: BaseLlmAgent, plugins: Hooks, tool: BaseTool, args: JsonObject, tool_context: ToolContext
) -> JsonValue:
    """The result, after everybody was asked: first the plugins, then the agent's callbacks, at each point."""
    mine = {"tool": tool, "args": args, "tool_context": tool_context}
    theirs = {"tool": tool, "tool_args": args, "tool_context": tool_context}
    response: JsonValue = await first_answer(
        plugins, "before_tool_callback", agent.before_tool_callback, for_plugins=theirs, **mine
    )
    if response is None:
        try:
            try:
                response = await tool.run_async(args=args, tool_context=tool_context)
            except Exception:
                raise
            except BaseException as raised:
                raise as_exception(raised) from raised
        except CallStaysOpen:
            raise
        except Exception as error:  # a tool may raise anything; callbacks decide what becomes of it
            response = await first_answer(
                plugins,
                "on_tool_error_callback",
                agent.on_tool_error_callback,
                for_plugins={**theirs, "error": error},
                **mine,
                error=error,
            )
            if response is None:
                raise
    changed = await first_answer(
        plugins,
        "after_tool_callback",
        agent.after_tool_callback,
        for_plugins={**theirs, "result": response},
        **mine,
        tool_response=response,
    )
    return response if changed is None else changed
