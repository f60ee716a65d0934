"""Budgets of an app: limits in its code, and limits that administrators store."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from greenroom.records.base import Record

BudgetWindow: TypeAlias = Literal["day", "ever"]
"""A day (UTC), or all time."""
StoredPer: TypeAlias = Literal["user", "app", "key"]
BudgetPer: TypeAlias = Literal["run", "user", "app", "key"]
_Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^[^\x00]*$")]

DEFAULT_WARN_AT = 0.8


class Budget(Record, kw_only=True, omit_defaults=False):
    """A stored limit of the models' tokens or cost in an app. It takes the place of limits in the app's code with the
    same `per` and `window`, and the limit of one user or key that of each."""

    per: StoredPer
    """The owner of the limited usage: a user in the app, the app, or an API key in all apps."""
    user_id: _Id | None = None
    """The user that it limits; None, with `per` user, for each user."""
    key_id: _Id | None = None
    """The id of the API key that it limits; None, with `per` key, for each key."""
    window: BudgetWindow = "day"
    """The time of which the usage is counted."""
    tokens: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    """Most tokens. It or `money` is required."""
    money: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    """Highest cost, in the currency of the price table."""
    warn_at: _Share | None = DEFAULT_WARN_AT
    """The share of the limit at which a warning is given, once in the window; None: no warning."""

    @property
    def owner(self) -> str:
        """The user or key that it limits; empty for all."""
        return self.user_id or self.key_id or ""


class BudgetUse(Record, kw_only=True, omit_defaults=False):
    """The usage of an owner that counts for a budget."""

    user_id: str | None = None
    """The user, of a budget per user."""
    key_id: str | None = None
    """The API key's id, of a budget per key."""
    tokens: int = 0
    """Spent tokens."""
    money: float = 0.0
    """Spent money."""
    reserved_tokens: int = 0
    """Tokens that are reserved for calls in progress."""
    reserved_money: float = 0.0
    """Money that is reserved for calls in progress."""
    share: float = 0.0
    """The spent share of the limit; of two limits the larger share."""
    warned_at: float | None = None
    """Unix seconds of the warning in this window; None: there was none."""


class BudgetInEffect(Record, kw_only=True, omit_defaults=False):
    """A budget that limits runs, and its use."""

    per: BudgetPer
    """The owner of the limited usage."""
    user_id: str | None = None
    """The user that a stored budget limits; None, with `per` user, for each user that has no budget of its own."""
    key_id: str | None = None
    """The API key that a stored budget limits; None, with `per` key, for each key that has no budget of its own."""
    window: BudgetWindow = "day"
    """The time of which the usage is counted."""
    tokens: int | None = None
    """Most tokens."""
    money: float | None = None
    """Highest cost."""
    warn_at: float | None = None
    """The share of the limit at which a warning is given."""
    source: Literal["app", "stored"]
    """The code of the app, or a stored budget."""
    uses: list[BudgetUse] = msgspec.field(default_factory=list[BudgetUse])
    """The largest uses first, at most 20; none of a budget per run."""


class ListBudgetsResponse(Record, kw_only=True, omit_defaults=False):
    """The budgets of an app that are in effect."""

    currency: str = "USD"
    """Of all amounts of money."""
    budgets: list[BudgetInEffect] = msgspec.field(default_factory=list[BudgetInEffect])
    """Those of the app's code first."""
