"""Whether a run waits for an answer to one of its calls."""

from __future__ import annotations

from greenroom.agents.branches import is_within
from greenroom.agents.turn.history import is_last_word
from greenroom.invocation.context import InvocationContext


def is_waiting(ctx: InvocationContext, since: int, *, branch: str | None = None) -> bool:
    """Whether a call that was made from this place of the log on, in this branch or below it, waits for an answer."""
    branch = branch or ctx.branch
    waiting: set[str] = set()
    for event in ctx.session.events[since:]:
        for response in event.get_function_responses():
            if is_last_word(event, response):
                waiting.discard(response.id or "")
        if event.invocation_id == ctx.invocation_id and is_within(event.branch, branch):
            waiting.update(event.long_running_tool_ids or ())
    return bool(waiting)
