"""Sums of the usage of models and its cost."""

from __future__ import annotations

from typing import Literal

import msgspec

from greenroom.records.base import Record

UsageGroup = Literal["user", "session", "run", "model", "day"]


class UsageSum(Record, kw_only=True, omit_defaults=False):
    """The usage of an app, or of one user, session, run, model and day of it, as grouped; the others are None.

    model: as the provider reported it. day: 2026-01-31 (UTC). total_token_count: all tokens, with the estimated ones of
    calls whose usage the model did not report; only apps with a budget estimate them. unpriced_token_count: tokens of
    models without a known price. cost: in `currency`; None if any token is unpriced. user_id: None unless grouped by
    user. session_id: None unless grouped by session. run_id: None unless grouped by run. calls: the number of model
    calls. prompt_token_count: tokens of prompts, with the cached ones. cached_content_token_count: tokens of prompts
    that were read from a cache. tool_use_prompt_token_count: tokens of results of the provider's tools.
    candidates_token_count: tokens of answers. thoughts_token_count: tokens of the models' reasoning.
    estimated_token_count: tokens of calls whose usage the model did not report.
    """

    user_id: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    day: str | None = None
    calls: int = 0
    prompt_token_count: int = 0
    cached_content_token_count: int = 0
    tool_use_prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    total_token_count: int = 0
    estimated_token_count: int = 0
    unpriced_token_count: int = 0
    cost: float | None = None


class ListUsageResponse(Record, kw_only=True, omit_defaults=False):
    """Sums in the order of the groups. currency: of all costs.

    usage: sums in the order of the groups. next_page_token: `page_token` of the next request; None on the last page.
    """

    currency: str = "USD"
    usage: list[UsageSum] = msgspec.field(default_factory=list[UsageSum])
    next_page_token: str | None = None
