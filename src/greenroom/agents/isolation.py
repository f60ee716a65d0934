"""Which events belong to an agent that runs as the tool of another one.

They are stored in the same session, in a branch of their own that is named after the call, and with that name as their
isolation scope: only agents of the same scope are shown them. Source: ADK's `isolationScope`.
"""

from __future__ import annotations

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.records.calls import RunRecord, ledger_of
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
    run = ledger_of(events).run(event.invocation_id)
    while event.isolation_scope is not None:
        calling = _calling(run, event.isolation_scope)
        if calling is None or calling is event:
            break
        event = calling
    return event


def _calling(run: RunRecord, scope: str) -> Event | None:
    """The newest event with the call that a scope is named after. Ids may hold an `@`, as the scope does before its
    call's id."""
    end = len(scope)
    while (end := scope.rfind("@", 0, end)) >= 0:
        made = [
            (record.made_at, record.event)
            for record in run.calls_with_id(scope[end + 1 :])
            if record.event is not None and scope.startswith(_prefix(record.event.branch, record.event.author))
        ]
        if made:
            return max(made, key=lambda one: one[0])[1]
    return None


def _call_place(ctx: InvocationContext, call_id: str | None) -> int:
    record = ledger_of(ctx.session.events).run(ctx.invocation_id).call(call_id, ctx.agent.name, ctx.branch)
    if record is None or record.event is None:
        raise AgentConfigError(f"Agent {ctx.agent.name!r} made no call {call_id!r} that another agent could do")
    return record.made_at


def _prefix(branch: str | None, caller: str) -> str:
    return f"{branch}.{caller}." if branch else f"{caller}."
