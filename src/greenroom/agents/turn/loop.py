"""The loop of an LLM agent: model, tools, model, until it has given its final response."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.events import EventChannel
from greenroom.agents.human_input.answers import load_granted
from greenroom.agents.human_input.requests import request_for_toolsets, toolset_request, with_requests
from greenroom.agents.transfer import should_return, transfer_target
from greenroom.agents.turn.code import code_to_run, examine_new_files, interrupted_code, run_code
from greenroom.agents.turn.compaction import compact_before_call
from greenroom.agents.turn.model_call import call_model
from greenroom.agents.turn.output import (
    FINISH_TASK_TOOL,
    correction,
    final_answer,
    finish_task,
    rejection_of,
    save_output,
)
from greenroom.agents.turn.request import build_request, visible_contents
from greenroom.agents.turn.resume import resume_point
from greenroom.agents.turn.tool_calls import PendingCall, call_tools, error_in, may_send_events
from greenroom.errors import as_exception, code_of, message_of
from greenroom.invocation.context import InvocationContext
from greenroom.log.retries import FAILED_CALLS
from greenroom.records.base import JsonValue
from greenroom.records.event import Event, NodeInfo
from greenroom.telemetry.agent_spans import model_call_span
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import LoginRequired


class _Turn:
    """The state of a turn.

    calls: to make before the model is called again. steps: replies of the model. last: the reason why the newest step
    ended the turn, or None. rejection: the reason why the newest answer must be repeated. was_corrected: the model has
    been asked again once.
    """

    __slots__ = ("calls", "is_over", "last", "rejection", "steps", "was_corrected")

    def __init__(self) -> None:
        self.calls: list[PendingCall] = []
        self.is_over = False
        self.last: Event | None = None
        self.steps = 0
        self.rejection: str | None = None
        self.was_corrected = False


async def run_steps(agent: BaseLlmAgent, ctx: InvocationContext) -> AsyncGenerator[Event]:
    model = agent.model_in(ctx)
    executor = agent.code_executor
    turn = _Turn()
    if ctx.resumed_from is not None:
        async with aclosing(_resume_turn(agent, ctx, turn)) as events:
            async for event in events:
                yield event

    while not turn.is_over:
        request_event = await request_for_toolsets(agent, ctx)
        if request_event is not None:
            yield request_event
            return
        if executor is not None and executor.optimize_data_file and not turn.calls:
            async with aclosing(examine_new_files(executor, ctx, visible_contents(agent, ctx))) as events:
                async for event in events:
                    yield event
        if ctx.services.compaction is not None and not turn.calls:
            await compact_before_call(agent, ctx)
        steering = ctx.services.steering
        if steering is not None and not turn.calls and ctx.is_in_conversation and steering.is_pending(ctx):
            await steering.read(ctx)
        try:
            request = await build_request(agent, ctx, model)
        except LoginRequired as needed:
            yield await toolset_request(ctx, agent.name, "McpToolset", needed.request)
            return
        except Exception:
            raise
        except BaseException as raised:  # of an instruction, or of a toolset
            raise as_exception(raised) from raised
        turn.last = None
        if not turn.calls:
            last: Event | None = None
            if turn.rejection is not None:
                request.contents.append(correction(turn.rejection))
                turn.rejection = None
                turn.was_corrected = True
            may_correct = not turn.was_corrected and turn.steps + 1 != agent.max_steps
            with model_call_span(ctx.span, agent_name=agent.name, model=request.model, called=model) as span:
                async with aclosing(call_model(agent, ctx, model, request, span)) as events:
                    async for event in events:
                        if agent.output_key is not None and code_to_run(agent, ctx, event) is None:
                            save_output(agent, event, may_correct=may_correct)
                        yield event
                        last = event
            if last is None or last.partial:
                return
            turn.rejection = rejection_of(last)
            turn.calls = [PendingCall(call) for call in last.get_function_calls()]
            code = code_to_run(agent, ctx, last)
            if executor is not None and code is not None:
                last = await run_code(executor, ctx, code)
                yield last
            turn.last = last
        if turn.calls:
            async with aclosing(_make_calls(agent, ctx, turn, request.tools_dict)) as events:
                async for event in events:
                    yield event
            if turn.is_over:
                return
        turn.steps += 1
        if turn.rejection is not None and not ctx.end_invocation:
            continue
        if turn.last is None or turn.last.ends_turn() or ctx.end_invocation or turn.steps == agent.max_steps:
            return


async def _resume_turn(agent: BaseLlmAgent, ctx: InvocationContext, turn: _Turn) -> AsyncGenerator[Event]:
    """Does the remaining work of a resumed run before its next model call."""
    await load_granted(ctx)
    where = resume_point(agent, ctx)
    if where.target is not None:
        target, begins_at = where.target
        transferring = ctx.session.events[begins_at - 1]
        async with aclosing(target.run_async(ctx.entering(begins_at))) as events:
            async for event in events:
                yield event
        if not should_return(agent, ctx, transferring, begins_at):
            turn.is_over = True
            return

    if where.answer is not None:
        save_output(agent, where.answer)
        yield where.answer
        turn.is_over = True
        return

    if where.is_done:
        turn.is_over = True
        return

    if where.code_was_begun:
        yield interrupted_code(ctx)
    turn.steps = where.steps
    turn.rejection = where.rejection
    may_have_begun = ctx.was_cut_off or where.were_begun
    turn.calls = [PendingCall(one.call, one.answer, is_cut_off=may_have_begun) for one in where.decided]
    turn.calls += [PendingCall(call, is_cut_off=True) for call in where.calls]
    ctx.resumed_from = None  # agents that it transfers to from here begin now


async def _make_calls(
    agent: BaseLlmAgent, ctx: InvocationContext, turn: _Turn, tools: dict[str, BaseTool]
) -> AsyncGenerator[Event]:
    """Makes the turn's calls, and acts on their responses: asks a person, returns an answer, or transfers to another
    agent.
    """
    calls = turn.calls
    turn.calls = []
    responses: Event | None = None
    if may_send_events(calls, tools):

        async def work() -> None:
            nonlocal responses
            responses = await call_tools(agent, ctx, calls, tools)

        channel = EventChannel()
        ctx.send = channel.send
        async with aclosing(channel.run(work())) as events:
            async for event in events:
                yield event
        ctx.send = None
    else:
        responses = await call_tools(agent, ctx, calls, tools)
    error = error_in(calls)
    if responses is not None and agent.sub_agents:
        _mark_result_of_task(agent, ctx, responses)
    of_finish = [one.context for one in calls if one.call.name == FINISH_TASK_TOOL]
    turn.is_over = responses is not None and error is None and finish_task(agent, responses, of_finish)
    to_store = await with_requests(ctx, [(one.call, one.context) for one in calls], responses)
    if error is not None:
        if responses is not None:
            responses.error_code = code_of(error)
            responses.error_message = message_of(error)
            if len(calls) > 1:
                failed: list[JsonValue] = [one.call.id for one in calls if one.error is not None]
                responses.custom_metadata = {**(responses.custom_metadata or {}), FAILED_CALLS: failed}
            ctx.unstored += [*(event for event in to_store if event is not responses), responses]
        raise error
    for event in to_store:
        yield event
        turn.last = event
    if turn.is_over:
        return
    if len(to_store) > 1 or any(call.is_waiting for call in calls):
        turn.is_over = True  # the run waits for a person
        return
    if responses is None:
        return
    answer = final_answer(agent, responses)
    if answer is not None:
        save_output(agent, answer)
        yield answer
        turn.is_over = True
        return
    target = transfer_target(agent, responses)
    if target is not None:
        begins_at = len(ctx.session.events)
        async with aclosing(target.run_async(ctx)) as events:
            async for event in events:
                yield event
        turn.is_over = not should_return(agent, ctx, responses, begins_at)


def _mark_result_of_task(agent: BaseLlmAgent, ctx: InvocationContext, responses: Event) -> None:
    """The results of tasks come from the user, with whom they were worked out. Source: ADK."""
    tasks = {child.name for child in agent.sub_agents if isinstance(child, BaseLlmAgent) and child.mode == "task"}
    names = {response.name for response in responses.get_function_responses()}
    if names and names <= tasks:
        responses.author = "user"
        responses.node_info = NodeInfo(path=ctx.node_path or f"{agent.name}@1")
