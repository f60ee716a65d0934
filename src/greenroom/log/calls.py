"""A function call of a log: its author, a person's decision on it, and whether it has its response."""

from __future__ import annotations

from typing import NamedTuple

from greenroom.records.content import FunctionCall, FunctionResponse
from greenroom.records.event import Event, ToolConfirmation

INTERRUPTED: dict[str, str] = {"error": "The call was interrupted. Whether it had any effect is not known."}
REFUSED: dict[str, str] = {"error": "A person refused this call; it was not made."}
PENDING: dict[str, str] = {"status": "pending"}

NEVER = -1
"""In place of an index in the log."""


class DecidedCall(NamedTuple):
    """A call that a person has decided on, with the arguments that were approved."""

    call: FunctionCall
    answer: ToolConfirmation | None
    """None when nobody was asked whether the call may be made, as after a login."""
    author: str
    branch: str | None
    invocation_id: str

    @property
    def key(self) -> tuple[str | None, str, str | None, str]:
        return self.call.id, self.author, self.branch, self.invocation_id


class CallState:
    """A call, with the indexes in the log of the newest events about it; `NEVER` where there is none."""

    __slots__ = (
        "answered_at",
        "asked_at",
        "call",
        "confirmation",
        "decided_at",
        "decision",
        "event",
        "made_at",
        "responded_at",
    )

    def __init__(self) -> None:
        self.call: FunctionCall | None = None
        """As it was made last, in `event`, at `made_at`."""
        self.event: Event | None = None
        self.made_at = NEVER
        self.confirmation: ToolConfirmation | None = None
        """The approval that its tool asked for, at `asked_at`."""
        self.asked_at = NEVER
        self.decision: DecidedCall | None = None
        """The decision of a person, at `decided_at`."""
        self.decided_at = NEVER
        self.responded_at = NEVER
        """The response by the agent that made the call, a placeholder too."""
        self.answered_at = NEVER
        """The response by the user."""

    @property
    def is_answered(self) -> bool:
        """Whether the call has a response: of its agent, though that may be a placeholder, or of the user."""
        return max(self.responded_at, self.answered_at) > self.made_at

    def effective_call(self) -> FunctionCall | None:
        """The call with the arguments that a person approved, or as its agent made it."""
        if self.decision is not None and self.decided_at > self.made_at:
            return self.decision.call
        return self.call


def closes_call(event: Event, response: FunctionResponse) -> bool:
    """Whether a response closes a long-running call. Its tool's own response doesn't, unless the call was interrupted
    or refused."""
    return event.author == "user" or response.response in (INTERRUPTED, REFUSED)


def is_within(branch: str | None, above: str | None) -> bool:
    """True if a branch is the other branch, or below it. Branches are dotted paths."""
    return above is None or branch == above or (branch or "").startswith(above + ".")
