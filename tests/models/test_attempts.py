"""Calls that fail for a while are repeated within their deadline, and a service that keeps failing is spared."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from greenroom.errors import ModelError, ModelErrorCategory
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.attempts import CircuitBreaker, RetryPolicy
from greenroom.models.model_errors import new_model_error
from greenroom.models.openai.chat import OpenAILlm
from greenroom.records.base import JsonObject
from greenroom.records.content import Part, UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from tests.models.wire.openai_chat import ChatServer


class Recovering(ChatServer):
    """Says the last of its answers after a number of failures."""

    def fail_first(self, times: int, status: int, **headers: str) -> None:
        self.failures = [(status, headers)] * times

    failures: list[tuple[int, dict[str, str]]]

    async def __call__(self, request: Request) -> Response:
        if self.failures:
            status, headers = self.failures.pop()
            self.fail(status, "for a while", headers=headers)
        else:
            self.say(Part(text="Back again."))
        return await super().__call__(request)


@pytest.fixture
async def server() -> AsyncIterator[Recovering]:
    async with Recovering().serving() as running:
        running.failures = []
        yield running


@pytest.fixture
async def model(server: Recovering) -> AsyncIterator[OpenAILlm]:
    made = OpenAILlm("gpt-4o", base_url=f"{server.url}/v1", api_key=server.secret)
    made.retry_policy = RetryPolicy(initial_delay=0.001, jitter=0.001)
    yield made
    await made.close()


async def ask(model: OpenAILlm, *, stream: bool = False, **http_options: object) -> str:
    options: JsonObject | None = dict(http_options) or None
    asked = LlmRequest(
        model=model.model, contents=[UserContent("Hi")], config=GenerateContentConfig(http_options=options)
    )
    *_, whole = [reply async for reply in model.generate_content_async(asked, stream)]
    assert whole.content is not None
    return whole.content.text()


@pytest.mark.parametrize("status", [408, 500, 503, 529])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_repeated(server: Recovering, model: OpenAILlm, status: int, stream: bool) -> None:
    server.fail_first(2, status)
    assert await ask(model, stream=stream) == "Back again."
    assert len(server.seen) == 3


async def test_after_the_last_attempt_the_error_is_raised(server: Recovering, model: OpenAILlm) -> None:
    server.fail_first(5, 503)
    with pytest.raises(ModelError, match="HTTP 503"):
        await ask(model)
    assert len(server.seen) == 3


async def test_a_request_says_how_often(server: Recovering, model: OpenAILlm) -> None:
    server.fail_first(5, 503)
    with pytest.raises(ModelError):
        await ask(model, retry_options={"attempts": 2, "initial_delay": 0.001, "jitter": 0})
    assert len(server.seen) == 2


async def test_what_a_rate_limit_refused_is_queued(server: Recovering, model: OpenAILlm) -> None:
    server.fail_first(6, 429, **{"retry-after-ms": "1"})
    assert await ask(model) == "Back again."
    assert len(server.seen) == 7


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [(RetryPolicy(), 8), (RetryPolicy(rate_limit_attempts=5), 5), (RetryPolicy(attempts=12), 12)],
)
async def test_a_rate_limit_without_a_time_to_wait_is_tried_so_often(
    server: Recovering, model: OpenAILlm, policy: RetryPolicy, attempts: int
) -> None:
    model.retry_policy = msgspec.structs.replace(policy, initial_delay=0.001, max_delay=0.001, jitter=0.001)
    server.fail_first(20, 429)
    with pytest.raises(ModelError, match="HTTP 429"):
        await ask(model)
    assert len(server.seen) == attempts


async def test_nothing_is_queued_beyond_the_deadline(server: Recovering, model: OpenAILlm) -> None:
    server.fail_first(1, 429, **{"retry-after": "60"})
    began = time.monotonic()
    with pytest.raises(ModelError, match="HTTP 429"):
        await ask(model, timeout=5000)
    assert time.monotonic() - began < 5
    assert len(server.seen) == 1


async def test_a_call_ends_at_its_deadline(server: Recovering, model: OpenAILlm) -> None:
    """Even when pieces keep coming, so that no single read takes long."""
    await model.load()
    model.timeout_seconds = 0.3
    server.raw = [server.frames((Part(text="More."),), "STOP")[0][0]] * 100_000
    with pytest.raises(ModelError, match="no whole answer before the deadline") as caught:
        await ask(model, stream=True)
    assert (caught.value.category, caught.value.retryable) == ("TIMEOUT_ERROR", True)


async def test_a_service_that_keeps_failing_is_spared(server: Recovering, model: OpenAILlm) -> None:
    now = [100.0]
    model.breaker = CircuitBreaker(threshold=3, recovery_seconds=30, clock=lambda: now[0])
    server.fail_first(3, 503)
    with pytest.raises(ModelError, match="HTTP 503"):
        await ask(model)
    with pytest.raises(
        ModelError, match=r"not called for 30 s, because it failed 3 times in a row.*HTTP 503"
    ) as caught:
        await ask(model)
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (True, 30)
    assert len(server.seen) == 3
    now[0] = 131.0
    assert await ask(model) == "Back again."
    assert await ask(model) == "Back again."


def test_a_breaker_lets_one_call_through_and_opens_again() -> None:
    now = [0.0]
    breaker = CircuitBreaker(threshold=1, recovery_seconds=30, clock=lambda: now[0])
    down = new_model_error("down", model="m", category=ModelErrorCategory.NETWORK_ERROR)
    breaker.failed(new_model_error("busy", model="m", category=ModelErrorCategory.RATE_LIMITED))
    breaker.check("m")
    breaker.failed(down)
    now[0] = 31.0
    breaker.check("m")
    with pytest.raises(ModelError, match="down"):
        breaker.check("m")
    breaker.succeeded()
    breaker.check("m")


async def test_sdks_retry_nothing_by_themselves() -> None:
    for model in (OpenAILlm("gpt-4o", api_key="k"), AnthropicLlm("claude-opus-5", api_key="k")):
        client = await model.load()
        assert client.max_retries == 0
        await model.close()
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="k", max_retries=7) as given:
        assert (await OpenAILlm("gpt-4o", client=given).load()).max_retries == 0
        assert given.max_retries == 7
