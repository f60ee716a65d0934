"""Where an LLM agent stands in a run that is taken up again, read from what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from greenroom.agents.agent import BaseAgent
from greenroom.agents.turn.confirmation import REQUEST, Grant, answers_only, granted
from greenroom.agents.turn.hand_over import handed_over_to
from greenroom.agents.turn.structured_output import final_answer
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import LlmAgent


class Standing(NamedTuple):
    """What is left for the agent to do.

    is_done: nothing, or nothing until somebody answers. calls: calls that were begun, and whose outcome is unknown.
    answer: the final answer of which only the tool's part is stored. target: who took over, and from where in the log.
    steps: replies of the model since the user last spoke. grants: calls that the user has just decided on.
    """

    is_done: bool = False
    calls: list[FunctionCall] = []  # noqa: RUF012 - never changed
    answer: Event | None = None
    target: tuple[BaseAgent, int] | None = None
    steps: int = 0
    grants: list[Grant] = []  # noqa: RUF012 - never changed


def where_it_stands(agent: LlmAgent, ctx: InvocationContext) -> Standing:
    newest: Event | None = None
    place = 0
    steps = 0
    spoken_at = _user_spoke_at(ctx)
    for index, event in ctx.share(agent.name):
        if event.content is None and event.error_code is None:
            continue  # a callback's state change
        if any(call.name == REQUEST for call in event.get_function_calls()):
            continue
        if newest is None:
            newest, place = event, index
        if index > spoken_at and event.content is not None and event.content.role == "model":
            steps += 1
    target = handed_over_to(agent, newest) if newest is not None else None
    if target is not None:
        return Standing(target=(target, place + 1))
    if newest is not None and place < spoken_at and answers_only(ctx):
        grants = granted(agent.name, ctx)
        return Standing(is_done=not grants, grants=grants)
    if newest is None or (newest.error_code is not None and newest.content is None):
        return Standing()
    calls = newest.get_function_calls()
    if calls:
        later = [event for event in ctx.session.events[place + 1 :] if event.invocation_id == ctx.invocation_id]
        return _after_calls(newest, later, steps)
    answer = final_answer(agent, newest)
    if answer is not None:
        return Standing(answer=answer)
    is_last_word = newest.is_final_response() and newest.actions.transfer_to_agent is None and place > spoken_at
    return Standing(is_done=is_last_word or steps == agent.max_steps, steps=steps)


def _after_calls(calling: Event, later: list[Event], steps: int) -> Standing:
    """A long-running call may wait; only when nothing of the run came later is it unknown whether it was begun."""
    calls = calling.get_function_calls()
    answered = {response.id for event in later for response in event.get_function_responses()}
    unanswered = [call for call in calls if call.id not in answered]
    waiting = set(calling.long_running_tool_ids or ()) if later else set[str]()
    begun = [call for call in unanswered if call.id not in waiting]
    return Standing(is_done=len(unanswered) == len(calls) and not begun, calls=begun, steps=steps - bool(begun))


def _user_spoke_at(ctx: InvocationContext) -> int:
    events = ctx.session.events
    for index in range(len(events) - 1, -1, -1):
        if events[index].author == "user" and events[index].invocation_id == ctx.invocation_id:
            return index
    return -1
