"""Resume point of an LLM agent's turn, read from its events in the run. Its newest event decides:

call c-1 without a response                 make the call again, or report it, as its tool's `on_interrupt` says
response c-1                                call the model
request r-1 (an approval), unanswered       nothing: the run waits
request r-1, then the user's answer         make the call that was decided on, with the arguments that were approved
response of transfer_to_agent               run the target, from after that event
response of set_model_response              write the final answer that is still missing
code without a result                       report it as interrupted
text that doesn't fit the output schema     ask the model once more
text that ends the turn                     nothing: the agent is done
"""

from __future__ import annotations

from typing import NamedTuple, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.human_input.answers import decided_calls
from greenroom.agents.human_input.requests import answers_only, answers_toolset, unanswered_request
from greenroom.agents.transfer import transfer_target
from greenroom.agents.turn.code import code_to_run
from greenroom.agents.turn.output import final_answer, rejection_of
from greenroom.errors import error_of
from greenroom.invocation.context import InvocationContext
from greenroom.log.calls import DecidedCall, is_within
from greenroom.log.state import events_of_run, log_state_of
from greenroom.plugins.plugin import raised_error
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.human_requests import requests_in
from greenroom.records.steering import is_steering


class ResumePoint(NamedTuple):
    """Remaining work of an agent's turn.

    is_done: nothing, or nothing until somebody answers. calls: calls that were begun, and whose outcome is unknown, or
    below which an agent waited.
    answer: the final answer of which only the tool's part is stored. target: who took over, and from where in the log.
    steps: replies of the model since the user last spoke. decided: calls that the user has just decided on; were_begun:
    the user spoke again since, so that nobody knows whether they were. code_was_begun: the newest reply's code, and its
    outcome is unknown. rejection: why the newest answer is to be given again.
    """

    is_done: bool = False
    calls: list[FunctionCall] = []  # noqa: RUF012 - never changed
    answer: Event | None = None
    target: tuple[BaseAgent, int] | None = None
    steps: int = 0
    decided: list[DecidedCall] = []  # noqa: RUF012 - never changed
    were_begun: bool = False
    code_was_begun: bool = False
    rejection: str | None = None


def resume_point(agent: BaseLlmAgent, ctx: InvocationContext) -> ResumePoint:
    """Raises the error of a tool that was to end the run."""
    newest: Event | None = None
    index_of_newest = 0
    steps = 0
    spoken_at = _user_spoke_at(agent, ctx)
    for index, event in ctx.own_events(agent.name):
        if (event.content is None and event.error_code is None) or event.is_cut_off:
            continue  # a callback's state change, or half a message
        if requests_in(event):
            continue
        if newest is None:
            newest = event
            index_of_newest = index
        if index > spoken_at and _is_reply(event):
            steps += 1

    raised = _error_of_tool(newest) if newest is not None and index_of_newest > spoken_at else None
    if raised is not None:
        raise raised
    halted = _halted_calls(agent, ctx) if newest is not None and not newest.get_function_calls() else []
    has_asked, lost_event = unanswered_request(agent.name, ctx, since=spoken_at)
    if has_asked:
        return ResumePoint(is_done=lost_event is None and not halted, answer=lost_event, calls=halted)
    if newest is not None and index_of_newest < spoken_at:
        decided, is_newest = decided_calls(agent.name, ctx, at=spoken_at)
        if decided:
            return ResumePoint(decided=decided, were_begun=not is_newest, calls=halted)

    if halted:
        return ResumePoint(calls=halted, steps=steps)
    target = transfer_target(agent, newest) if newest is not None else None
    if target is not None:
        return ResumePoint(target=(target, index_of_newest + 1), steps=steps)
    if (
        newest is not None
        and index_of_newest < spoken_at
        and answers_only(ctx, at=spoken_at)
        and not answers_toolset(ctx, spoken_at)
    ):
        return ResumePoint(is_done=True)

    if newest is None:
        return ResumePoint()
    if newest.error_code is not None and newest.content is None:
        return ResumePoint(is_done=index_of_newest > spoken_at, steps=steps)
    if index_of_newest > spoken_at and code_to_run(agent, ctx, newest) is not None:
        return ResumePoint(code_was_begun=True, steps=steps)
    if newest.get_function_calls():
        return _after_calls(newest, ctx, steps, has_progressed=_has_progressed(ctx, index_of_newest))
    answer = final_answer(agent, newest)
    if answer is not None:
        return ResumePoint(answer=answer)
    rejection = rejection_of(newest)
    if rejection is not None and index_of_newest > spoken_at:
        return ResumePoint(steps=steps, rejection=rejection)
    is_last_word = newest.ends_turn() and newest.actions.transfer_to_agent is None and index_of_newest > spoken_at
    return ResumePoint(is_done=is_last_word or steps == agent.max_steps, steps=steps)


def _error_of_tool(event: Event) -> Exception | None:
    """The error of a tool that ended the turn of an agent that runs as a tool; in older logs, of any agent."""
    marked = (event.custom_metadata or {}).get("greenroom:raised")
    if isinstance(marked, dict):
        written = cast("JsonObject", marked)
        return error_of(str(written.get("code")), str(written.get("detail")))
    if event.error_code is not None and event.get_function_responses():
        return raised_error(event.error_code, event.error_message or event.error_code)
    return None


def _is_reply(event: Event) -> bool:
    """Whether the model wrote it; the results of its code are shown as its own words, too."""
    content = event.content
    if content is None or content.role != "model":
        return False
    return any(part.code_execution_result is None for part in content.parts or ())


def _after_calls(calling: Event, ctx: InvocationContext, steps: int, *, has_progressed: bool) -> ResumePoint:
    """A long-running call may wait; only when nothing came later is it unknown whether it was begun."""
    calls = calling.get_function_calls()
    unanswered = _unanswered(calling, ctx)
    waiting = (calling.long_running_tool_ids or ()) if has_progressed else ()
    begun = [call for call in unanswered if call.id not in waiting]
    return ResumePoint(is_done=len(unanswered) == len(calls) and not begun, calls=begun, steps=steps - bool(begun))


def _halted_calls(agent: BaseLlmAgent, ctx: InvocationContext) -> list[FunctionCall]:
    """Calls that an agent below them keeps open; their siblings have responses, so nobody takes them for cut off."""
    for _, event in ctx.own_events(agent.name):
        if event.get_function_calls() and not requests_in(event):
            waiting = event.long_running_tool_ids or ()
            return [call for call in _unanswered(event, ctx) if call.id not in waiting]
    return []


def _unanswered(calling: Event, ctx: InvocationContext) -> list[FunctionCall]:
    """The calls of an event that have no response."""
    run = log_state_of(ctx.session.events).run(ctx.invocation_id)
    unanswered: list[FunctionCall] = []
    for call in calling.get_function_calls():
        state = run.call(call.id, calling.author, calling.branch)
        if state is None or not state.is_answered:
            unanswered.append(call)
    return unanswered


def _has_progressed(ctx: InvocationContext, since: int) -> bool:
    """Whether the run has gone on after the event at that index of the log."""
    later = events_of_run(ctx.session.events, ctx.invocation_id, since=since + 1)
    return any(_shows_progress(ctx, event) for event in later)


def _shows_progress(ctx: InvocationContext, event: Event) -> bool:
    """Whether this event of the run could only come when the agent had continued; events of parallel branches
    don't count."""
    if event.isolation_scope != ctx.isolation_scope and event.author != "user":
        return False
    return event.author == "user" or is_within(event.branch, ctx.branch) or is_within(ctx.branch, event.branch)


def _user_spoke_at(agent: BaseLlmAgent, ctx: InvocationContext) -> int:
    """Returns the index of the user's newest message to this agent; answers to calls of others don't count, nor do
    messages that were read within a turn."""
    events = ctx.session.events
    run = log_state_of(events).run(ctx.invocation_id)
    for index in reversed(run.indexes):
        event = events[index]
        if event.author != "user" or event.node_info is not None or is_steering(event):
            continue
        responses = event.get_function_responses()
        if any(run.call(response.id, agent.name, ctx.branch) is not None for response in responses):
            return index
        if not responses and event.isolation_scope in (None, ctx.isolation_scope):
            return index
    return -1
