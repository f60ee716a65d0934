"""The decisions of guardrails, and where they are recorded: in events, in the trace, and in the audit trail."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from greenroom.invocation.context import InvocationContext
from greenroom.plugins.guardrails.check import Action, Where
from greenroom.records.audit import AuditAction, AuditEntry, new_entry
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import PlainSpan
from greenroom.telemetry.span import AttributeValue, Span

GUARDRAILS = "greenroom:guardrails"
"""Key in the custom metadata of events: the decisions since the run's event before."""

_AUDIT_ACTIONS: dict[Action, AuditAction] = {
    "block": "guardrail.blocked",
    "redact": "guardrail.redacted",
    "ask": "guardrail.asked",
}


class GuardrailDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A violation and its consequence, without the text."""

    id: str
    """The same in the event, the trace and the audit trail."""
    check: str
    where: Where
    action: Action
    labels: list[str]
    function_call_id: str | None = None


DecisionHook: TypeAlias = Callable[[GuardrailDecision, InvocationContext], Awaitable[None] | None]
"""Called with each decision before it takes effect. An error in it fails the run."""


async def record_decisions(
    decisions: Sequence[GuardrailDecision],
    ctx: InvocationContext,
    *,
    on_decision: DecisionHook | None,
    tool: str | None = None,
) -> None:
    """Records decisions before they take effect: in the trace, in the audit trail if there is one, and with the hook.

    tool: the name of the tool whose call or result was checked.
    """
    for decision in decisions:
        if ctx.span is not None:
            _trace(ctx.span, decision)

    if decisions and ctx.services.audit is not None:
        await ctx.services.audit([_audit_entry(decision, ctx, tool) for decision in decisions])

    if on_decision is not None:
        for decision in decisions:
            outcome = on_decision(decision, ctx)
            if inspect.isawaitable(outcome):
                await outcome


def _trace(span: Span, decision: GuardrailDecision) -> None:
    attributes: dict[str, AttributeValue] = {
        names.GUARDRAIL_ID: decision.id,
        names.GUARDRAIL_CHECK: decision.check,
        names.GUARDRAIL_WHERE: decision.where,
        names.GUARDRAIL_ACTION: decision.action,
        names.GUARDRAIL_LABELS: decision.labels,
    }
    PlainSpan(span, f"{names.GUARDRAIL} {decision.check}", attributes).end()


def _audit_entry(decision: GuardrailDecision, ctx: InvocationContext, tool: str | None) -> AuditEntry:
    caller = ctx.caller
    return new_entry(
        _AUDIT_ACTIONS[decision.action],
        outcome="refused" if decision.action == "block" else "success",
        subject=caller.user_id if caller is not None else None,
        key_id=caller.key_id if caller is not None else None,
        app_name=ctx.app_name,
        user_id=ctx.user_id,
        session_id=ctx.session.id,
        run_id=ctx.invocation_id,
        check=decision.check,
        where=decision.where,
        decision_id=decision.id,
        call_id=decision.function_call_id,
        tool=tool,
    )
