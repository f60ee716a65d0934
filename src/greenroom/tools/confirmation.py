"""Confirmation: calls that run only after a person has approved them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

from greenroom.invocation.user_context import ToolContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject

ConfirmationPredicate: TypeAlias = Callable[..., bool | ApprovalPolicy | Awaitable[bool | ApprovalPolicy]]
"""Called with those arguments of the tool, and the `tool_context`, that its parameters name; or
with the map of all arguments, if it has a single parameter that names none of them. Returns whether
a person must approve the call, or the policy that says who.
"""


def confirmation_response(
    name: str, tool_context: ToolContext, approvals: ApprovalPolicy | None = None
) -> JsonObject | None:
    """The response of a call that needs approval and may not run: nobody has approved it yet, which
    requests a confirmation, or a person has rejected it. None for a call that was approved.

    approvals: the tool's policy, in place of the app's.
    """
    answer = tool_context.tool_confirmation
    if answer is None:
        tool_context.request_confirmation(hint=approval_hint(name), approvals=approvals)
        tool_context.actions.skip_summarization = True
        return awaiting_confirmation(name)

    if answer.confirmed:
        return None

    return rejected_response(name)


def rejected_response(name: str) -> JsonObject:
    """The response of a call that a person has rejected."""
    return {"error": f"{name} has not run: a person rejected the call."}


def approval_hint(name: str) -> str:
    """The hint of a request for an approval that the tool's own code doesn't make."""
    return (
        f"{name} wants to run. Approve or reject this call by answering with a function response that holds a "
        "ToolConfirmation."
    )


def awaiting_confirmation(name: str) -> JsonObject:
    """The preliminary response of a call until a person has decided."""
    return {"error": f"{name} has not run yet: the call needs approval or rejection by a person first."}


async def is_confirmation_required(
    predicate: ConfirmationPredicate, arguments: dict[str, Any], tool_context: ToolContext, parameters: Collection[str]
) -> bool | ApprovalPolicy:
    """Whether a person must approve a call, or the policy that says who.

    parameters: names of the tool's parameters.
    """
    declared = inspect.signature(predicate).parameters
    available = {"tool_context": tool_context, **arguments}

    named = {name: available[name] for name in declared if name in available}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in declared.values()):
        verdict = predicate(**{**arguments, **named})
    elif len(declared) == 1 and declared.keys().isdisjoint({*parameters, "tool_context"}):
        verdict = predicate(arguments)
    else:
        verdict = predicate(**named)

    if inspect.isawaitable(verdict):
        verdict = await verdict

    return verdict if isinstance(verdict, ApprovalPolicy) else bool(verdict)


def policy_in(required: bool | ApprovalPolicy) -> ApprovalPolicy | None:
    """The policy, where a call needs an approval by one."""
    return required if isinstance(required, ApprovalPolicy) else None
