"""Policies of approvals: who may approve the calls of an app's tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record, as_object
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event

APPROVE_PREFIX = "approve:"
"""Prefix of the scopes that API keys and tokens have for approvals."""

MAX_DEADLINE_SECONDS = 29 * 24 * 3600.0
"""An approval is accepted for 30 days."""

_ARGUMENT = "approvals"
"""The argument of a request's call that holds its policy."""

_METADATA_KEY = "greenroom_approvals"
"""In `custom_metadata` of the event with the responses of calls that need an approval: their policies."""


class ApprovalPolicy(Record, kw_only=True):
    """The people who approve calls, in place of the session's user. A request keeps the policy that it was made with.

    It is approved when `required` of them have approved it. It is refused when as many have refused it, or when those
    who are left are too few to approve it. Each person counts once.
    """

    users: list[str] = msgspec.field(default_factory=list[str])
    """Users who may answer."""
    scope: str | None = None
    """Callers whose API key or token has this scope, `approve:NAME`, may answer, too."""
    required: Annotated[int, Meta(ge=1)] = 1
    """The number of approvals that is needed."""
    excludes_requester: bool = False
    """Whether the session's user may not answer."""
    may_delegate: bool = False
    """Whether those who may answer may name somebody else to answer in their place."""
    sees: Literal["request", "session"] = "request"
    """The reach of those who may answer: the request alone, or its session, too."""
    deadline_seconds: Annotated[float, Meta(gt=0, le=MAX_DEADLINE_SECONDS)] | None = None
    """Time from the request until `default` is its answer; None: it stays open."""
    default: Literal["refuse", "approve"] = "refuse"
    """The answer at the deadline."""

    def __post_init__(self) -> None:
        """Raises AgentConfigError."""
        if isinstance(self.users, str) or not all(self.users):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AgentConfigError("ApprovalPolicy: users is a list of user ids")
        if not self.users and self.scope is None:
            raise AgentConfigError("ApprovalPolicy: it needs users or a scope")
        if self.scope is not None and not self.scope.startswith(APPROVE_PREFIX):
            raise AgentConfigError(f"ApprovalPolicy: the scope {self.scope!r} must begin with {APPROVE_PREFIX!r}")
        self.users = list(dict.fromkeys(self.users))
        if self.required < 1 or (self.scope is None and self.required > len(self.users)):
            raise AgentConfigError(f"ApprovalPolicy: {self.required} of {len(self.users)} users can't be required")
        if self.deadline_seconds is not None and not 0 < self.deadline_seconds <= MAX_DEADLINE_SECONDS:
            raise AgentConfigError("ApprovalPolicy: deadline_seconds must be more than 0, and 29 days at most")


def note_policy(arguments: JsonObject, policy: ApprovalPolicy | None) -> None:
    """Adds the policy to the arguments of a request's call."""
    if policy is not None:
        arguments[_ARGUMENT] = wire.to_plain(policy)


def policy_of(request: FunctionCall) -> ApprovalPolicy | None:
    """The policy of a request's call; None if its session's user answers it."""
    stored = (request.args or {}).get(_ARGUMENT)
    if stored is None:
        return None
    try:
        return wire.from_plain(stored, ApprovalPolicy)
    except InvalidRequest:
        return None


def deadline_of(policy: ApprovalPolicy, asked_at: float) -> float | None:
    """Unix seconds; None without a deadline."""
    return None if policy.deadline_seconds is None else asked_at + policy.deadline_seconds


def note_policies(event: Event, policies: Mapping[str, ApprovalPolicy | None]) -> None:
    """Adds policies by id of the call to the event with its response, from which a lost request can be made again."""
    noted = {call_id: wire.to_plain(policy) for call_id, policy in policies.items() if policy is not None}
    if noted:
        event.custom_metadata = {**(event.custom_metadata or {}), _METADATA_KEY: noted}


def policies_in(event: Event) -> dict[str, ApprovalPolicy]:
    """By id of the call. Empty for metadata of another form, which a client may have imported."""
    stored: Any = (event.custom_metadata or {}).get(_METADATA_KEY)
    try:
        return {call_id: wire.from_plain(plain, ApprovalPolicy) for call_id, plain in as_object(stored).items()}
    except InvalidRequest:
        return {}
