"""Refusals, broken connections and cancelled calls."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.errors import MessageConversionError, ModelError
from greenroom.records.content import (
    Part,
)
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing.contracts.model.provider import (
    Misbehavior,
    ModelProvider,
    _ask,
    _request,
    _texts,
    _whole,
)

_ERRORS = [
    (400, "CLIENT_ERROR", False),
    (401, "AUTH_ERROR", False),
    (403, "AUTH_ERROR", False),
    (404, "CLIENT_ERROR", False),
    (408, "TIMEOUT_ERROR", True),
    (409, "SERVER_ERROR", True),
    (413, "CLIENT_ERROR", False),
    (429, "RATE_LIMITED", True),
    (500, "SERVER_ERROR", True),
    (503, "SERVER_ERROR", True),
    (529, "SERVER_ERROR", True),
]


@pytest.mark.parametrize(("status", "category", "retryable"), _ERRORS, ids=[str(error[0]) for error in _ERRORS])
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(
    provider: ModelProvider,
    status: int,
    category: str,
    retryable: bool,
    stream: bool,
) -> None:
    provider.fail(status, f"No good: {provider.secret}", headers={"retry-after": "7"})
    with pytest.raises(ModelError, match=f"HTTP {status}.*No good") as caught:
        await _ask(provider, _request(), stream=stream)

    error = caught.value
    assert (error.category, error.retryable, error.http_status) == (category, retryable, status)
    assert (error.model, error.retry_after_seconds) == (provider.model.model, 7)
    assert provider.secret not in error.detail
    provider.say(Part(text="Better."))
    assert _texts([await _whole(provider, _request(), stream=stream)]) == "Better."


@pytest.mark.parametrize("stream", [False, True])
async def test_timeouts(provider: ModelProvider, stream: bool) -> None:
    provider.misbehave("hangs")
    with pytest.raises(ModelError) as caught:
        await _ask(provider, _request(http_options={"timeout": 200}), stream=stream)
    assert (caught.value.category, caught.value.retryable) == ("TIMEOUT_ERROR", True)


@pytest.mark.parametrize(
    ("how", "category"),
    [
        ("cuts", "NETWORK_ERROR"),
        ("ends early", "NETWORK_ERROR"),
        ("sends no JSON", "SERVER_ERROR"),
        ("sends an error", "SERVER_ERROR"),
    ],
)
async def test_broken_streams(provider: ModelProvider, how: Misbehavior, category: str) -> None:
    """Chunks before the failure are shown, and nothing is a whole reply."""
    provider.misbehave(how)
    shown: list[LlmResponse] = []
    with pytest.raises(ModelError) as caught:
        await _ask(provider, _request(), stream=True, shown=shown)

    assert all(response.partial for response in shown)
    assert _texts(shown) == "Half"
    assert (caught.value.category, caught.value.retryable) == (category, True)
    assert isinstance(caught.value, MessageConversionError) is (how == "sends no JSON")


async def test_a_cut_answer(provider: ModelProvider) -> None:
    provider.misbehave("cuts")
    with pytest.raises(ModelError) as caught:
        await _ask(provider, _request())
    assert caught.value.retryable


async def test_a_cancelled_call_is_over(provider: ModelProvider) -> None:
    provider.misbehave("hangs")
    request = _request()
    request.model = provider.model.model

    answers = aiter(provider.model.generate_content_async(request, True))
    async with asyncio.timeout(5):
        assert (await anext(answers)).partial
        rest = asyncio.ensure_future(anext(answers))
        await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rest
