"""Sums of the usage of models and its cost."""

from __future__ import annotations

from typing import Literal

import msgspec

from greenroom.records.base import Record

UsageGroup = Literal["user", "session", "run", "model", "day"]


class UsageSum(Record, kw_only=True, omit_defaults=False):
    """The usage of an app, or of one user, session, run, model and day, as grouped; the fields of
    other groups are None.
    """

    user_id: str | None = None
    """None unless grouped by user."""
    session_id: str | None = None
    """None unless grouped by session."""
    run_id: str | None = None
    """None unless grouped by run."""
    model: str | None = None
    """The model's name, as the provider reported it."""
    day: str | None = None
    """Such as 2026-01-31, in UTC."""
    calls: int = 0
    """The number of model calls."""
    prompt_token_count: int = 0
    """Tokens of prompts, with the cached ones."""
    cached_content_token_count: int = 0
    """Tokens of prompts that were read from a cache."""
    tool_use_prompt_token_count: int = 0
    """Tokens of results of the provider's tools."""
    candidates_token_count: int = 0
    """Tokens of answers."""
    thoughts_token_count: int = 0
    """Tokens of the models' reasoning."""
    total_token_count: int = 0
    """All tokens, with the estimated ones of calls whose usage the model did not report; only apps
    with a budget estimate them."""
    estimated_token_count: int = 0
    """Tokens of calls whose usage the model did not report."""
    unpriced_token_count: int = 0
    """Tokens of models without a known price."""
    cost: float | None = None
    """In `currency`; None if any token is unpriced."""


class ListUsageResponse(Record, kw_only=True, omit_defaults=False):
    """A page of sums of usage."""

    currency: str = "USD"
    """The currency of all costs."""
    usage: list[UsageSum] = msgspec.field(default_factory=list[UsageSum])
    """In the order of the groups."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""
