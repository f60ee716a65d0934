"""The loop of an LLM agent: model, tools, model … until it has said its last word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from greenroom.agents.closing import closing
from greenroom.agents.turn.build_request import build_request
from greenroom.agents.turn.call_model import call_model
from greenroom.agents.turn.call_tools import call_tools
from greenroom.agents.turn.hand_over import handed_over_to
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
        ctx.is_resumed = False  # nobody to whom it hands over from here has begun
        stored = ctx.last_event()
        if stored is not None and stored.author == agent.name:
            answer = final_answer(agent, stored)
            if answer is not None:
                save_output(agent, answer)
                yield answer
                return
            calls = stored.get_function_calls()
            steps = _replies(agent, ctx) - bool(calls)
            if steps == agent.max_steps:
                return
    cut_off = bool(calls)
    while True:
        request = await build_request(agent, ctx, model)
        last: Event | None = None
        if not calls:
            async with closing(call_model(agent, ctx, model, request)) as events:
                async for event in events:
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
                target = handed_over_to(agent, outcome.event)
                if target is not None:
                    async with closing(target.run_async(ctx)) as events:
                        async for event in events:
                            yield event
                    return
        steps += 1
        if last is None or last.is_final_response() or ctx.end_invocation or steps == agent.max_steps:
            return


def _replies(agent: LlmAgent, ctx: InvocationContext) -> int:
    """How often this agent's model has replied since the agent was entered."""
    count = 0
    for event in reversed(ctx.session.events):
        if event.invocation_id == ctx.invocation_id and event.branch == ctx.branch:
            if event.author != agent.name:
                break
            count += event.content is not None and event.content.role == "model"
    return count
