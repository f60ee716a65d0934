"""Errors of any library: their category, whether and when to retry, and their message."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.errors import (
    MappedError,
    MessageConversionError,
    ModelError,
    ModelErrorCategory,
    RetryStrategy,
)
from greenroom.models.model_errors import category_of, model_error


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (None, "UNKNOWN_ERROR"),
        (TimeoutError(), "TIMEOUT_ERROR"),
        (ConnectionResetError("by peer"), "NETWORK_ERROR"),
        (json.JSONDecodeError("bad", "{", 0), "SERVER_ERROR"),
        (RuntimeError("Invalid API key"), "AUTH_ERROR"),
        (RuntimeError("Unauthorized (401)"), "AUTH_ERROR"),
        (RuntimeError("Rate limit reached"), "RATE_LIMITED"),
        (RuntimeError("Quota exceeded"), "RATE_LIMITED"),
        (RuntimeError("model not found"), "CLIENT_ERROR"),
        (RuntimeError("Unsupported value"), "CLIENT_ERROR"),
        (RuntimeError("503 Service Unavailable"), "SERVER_ERROR"),
        (RuntimeError("DNS lookup"), "NETWORK_ERROR"),
        (RuntimeError("This model is deprecated"), "MODEL_ERROR"),
        (RuntimeError("?"), "UNKNOWN_ERROR"),
    ],
)
def test_errors_without_a_status_are_distinguished_by_type_and_words(error: Exception | None, category: str) -> None:
    assert category_of(error) == category


@pytest.mark.parametrize(
    ("category", "strategy", "delays"),
    [
        ("RATE_LIMITED", "EXPONENTIAL_BACKOFF", [1000, 2000, 4000, 8000, 16000, 30000, 30000]),
        ("NETWORK_ERROR", "FIXED_DELAY", [1000, 1000]),
        ("AUTH_ERROR", "NO_RETRY", [-1, -1]),
    ],
)
def test_categories_have_a_strategy_and_strategies_a_delay(category: str, strategy: str, delays: list[int]) -> None:
    found = ModelErrorCategory(category).strategy
    assert found == strategy
    assert [found.delay_ms(attempt) for attempt in range(len(delays))] == delays
    assert ModelErrorCategory(category).is_retryable == (delays[0] >= 0)
    assert RetryStrategy.IMMEDIATE_RETRY.delay_ms(5) == 0


class Refused(Exception):
    status_code = 429

    def __init__(self, headers: dict[str, str], details: Any = None) -> None:
        super().__init__("slow down")
        self.response, self.details = SimpleNamespace(headers=headers), details


def test_when_to_retry_is_taken_from_the_provider() -> None:
    def seconds(headers: dict[str, str], details: Any = None) -> float | None:
        return model_error(Refused(headers, details), model="m").retry_after_seconds

    assert seconds({"retry-after": "7"}) == 7
    assert seconds({"retry-after": "1.5"}) == 1.5
    assert seconds({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert 50 < (seconds({"retry-after": formatdate(time.time() + 60, usegmt=True)}) or 0) <= 60
    assert seconds({"retry-after": "soon"}) is None
    retry_info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    assert seconds({}, {"error": {"details": [{"@type": "other"}, retry_info]}}) == 34.5


def test_the_message_has_a_category_and_no_secret() -> None:
    error = model_error(Refused({}), model="gpt-9", secrets=["slow"])
    assert error.detail == "gpt-9: Rate limited (HTTP 429): … down"
    assert model_error(RuntimeError("Bearer abcdef123"), model="m").detail == "m: Unknown error (RuntimeError): …"


def test_an_error_is_mapped_to_category_strategy_and_message() -> None:
    error = model_error(Refused({}), model="m")
    assert error.mapped == MappedError(
        ModelErrorCategory.RATE_LIMITED, RetryStrategy.EXPONENTIAL_BACKOFF, "m: Rate limited (HTTP 429): slow down"
    )
    assert error.mapped.strategy.delay_ms(2) == 4000

    no_quota = Refused({})
    no_quota.code = "insufficient_quota"  # type: ignore[attr-defined]
    assert model_error(no_quota, model="m").mapped.strategy is RetryStrategy.NO_RETRY
    assert ModelError("?", model="m").mapped.category is ModelErrorCategory.UNKNOWN_ERROR


def test_a_reply_that_cannot_be_read_is_a_conversion_error() -> None:
    broken = json.JSONDecodeError("Unterminated string", '{"a', 3)
    error = model_error(broken, model="m")
    assert isinstance(error, MessageConversionError)
    assert (error.category, error.retryable) == ("SERVER_ERROR", True)

    wrapped = RuntimeError("bad reply")
    wrapped.__cause__ = broken
    assert isinstance(model_error(wrapped, model="m"), MessageConversionError)
    refused = Refused({})
    refused.__cause__ = broken
    assert not isinstance(model_error(refused, model="m"), MessageConversionError)
