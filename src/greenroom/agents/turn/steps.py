"""The loop of an LLM agent: model, tools, model … until it has said its last word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from greenroom.agents.agent import BaseAgent
from greenroom.agents.turn.build_request import build_request
from greenroom.agents.turn.call_model import call_model
from greenroom.agents.turn.call_tools import call_tools
from greenroom.agents.turn.hand_over import transfer_targets
from greenroom.agents.turn.structured_output import final_answer, save_output
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import LlmAgent


async def run_steps(agent: LlmAgent, ctx: InvocationContext) -> AsyncIterator[Event]:
    model = agent.canonical_model
    steps = 0
    calls: list[FunctionCall] = []
    if ctx.is_resumed:
        stored = _last_event(agent, ctx)
        answer = final_answer(agent, stored) if stored is not None else None
        if answer is not None:
            save_output(agent, answer)
            yield answer
            return
        calls = _calls_cut_off(agent, ctx)
    cut_off = bool(calls)
    while True:
        request = await build_request(agent, ctx, model)
        last: Event | None = None
        if not calls:
            async for event in call_model(agent, ctx, model, request):
                if agent.output_key is not None:
                    save_output(agent, event)
                yield event
                last = event
            if last is None or last.partial:
                return
            calls = last.get_function_calls()
        if calls:
            outcome = await call_tools(agent, ctx, calls, request.tools_dict, cut_off=cut_off)
            calls, cut_off = [], False
            if outcome.event is not None:
                last = outcome.event
                yield last
            if outcome.error is not None:
                raise outcome.error
            if outcome.event is not None:
                answer = final_answer(agent, outcome.event)
                if answer is not None:
                    save_output(agent, answer)
                    yield answer
                    return
                target = _target(agent, outcome.event)
                if target is not None:
                    async for event in target.run_async(ctx):
                        yield event
                    return
        steps += 1
        if last is None or last.is_final_response() or ctx.end_invocation or steps == agent.max_steps:
            return


def _target(agent: LlmAgent, event: Event) -> BaseAgent | None:
    name = event.actions.transfer_to_agent
    if name is None or name == agent.name:
        return None
    return next((target for target in transfer_targets(agent) if target.name == name), None)


def _last_event(agent: LlmAgent, ctx: InvocationContext) -> Event | None:
    """The newest event of this run, if this agent wrote it."""
    last = ctx.session.events[-1] if len(ctx.session.events) else None
    is_mine = last is not None and last.invocation_id == ctx.invocation_id and last.author == agent.name
    return last if is_mine else None


def _calls_cut_off(agent: LlmAgent, ctx: InvocationContext) -> list[FunctionCall]:
    """Calls that this agent's model made last in this run and that nobody answered."""
    answered: set[str | None] = set()
    for index in range(len(ctx.session.events) - 1, -1, -1):
        event = ctx.session.events[index]
        if event.invocation_id != ctx.invocation_id or event.branch != ctx.branch:
            continue
        answered.update(response.id for response in event.get_function_responses())
        calls = event.get_function_calls()
        if calls and event.author == agent.name:
            return [call for call in calls if call.id not in answered]
    return []
