"""Which events belong to an agent that runs as the tool of another one.

They are stored in the same session, in a branch of their own that is named after the call, and with that name as their
isolation scope: only agents of the same scope are shown them. Source: ADK's `isolationScope`.
"""

from __future__ import annotations

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.run import StreamingMode


def isolated(
    ctx: InvocationContext, *, agent: str, call_id: str | None, request: Content, number: int
) -> InvocationContext:
    """The run as an agent sees it that does this call. number: which one within the call, from 1.

    What the agent did before a crash, or before somebody was asked, is taken up.
    """
    at = _call_place(ctx, call_id)
    again = f"#{number}" if number > 1 else ""
    scope = f"{_prefix(ctx.branch, ctx.agent.name)}{agent}{again}@{call_id}"
    inner = ctx.for_agent(ctx.agent, branch=scope)
    inner.isolation_scope = scope
    inner.scope_begins_at = at + 1
    inner.user_content = request
    inner.run_config = msgspec.structs.replace(ctx.run_config, streaming_mode=StreamingMode.NONE)
    was_begun = any(is_inside(event.isolation_scope, scope) for event in ctx.session.events[at + 1 :])
    inner.resumed_from = at + 1 if was_begun else None
    return inner


def is_inside(scope: str | None, outer: str) -> bool:
    """Whether a scope is the other one, or below it."""
    return scope is not None and (scope == outer or scope.startswith(outer + "."))


def caller_of(events: CopyOnWriteList[Event], event: Event) -> Event:
    """The event with the call, outside of all scopes, that led to this one; the event itself when it is outside."""
    while event.isolation_scope is not None:
        calling = _calling(events, event)
        if calling is None:
            break
        event = calling
    return event


def _calling(events: CopyOnWriteList[Event], inner: Event) -> Event | None:
    scope = inner.isolation_scope or ""
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.invocation_id == inner.invocation_id and scope.startswith(_prefix(event.branch, event.author)):
            for call in event.get_function_calls():
                if event is not inner and scope.endswith(f"@{call.id}"):
                    return event
    return None


def _call_place(ctx: InvocationContext, call_id: str | None) -> int:
    events = ctx.session.events
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if (event.author, event.invocation_id, event.branch) == (ctx.agent.name, ctx.invocation_id, ctx.branch) and any(
            call.id == call_id for call in event.get_function_calls()
        ):
            return index
    raise AgentConfigError(f"Agent {ctx.agent.name!r} made no call {call_id!r} that another agent could do")


def _prefix(branch: str | None, caller: str) -> str:
    return f"{branch}.{caller}." if branch else f"{caller}."
