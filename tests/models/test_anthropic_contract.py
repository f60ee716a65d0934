"""Claude against the contract of models."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.testing.contracts.model import *  # noqa: F403
from tests.models.wire.anthropic import AnthropicServer


class Messages(AnthropicServer):
    model: AnthropicLlm


@pytest.fixture
async def provider() -> AsyncIterator[Messages]:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    async with Messages().serving() as server:
        client = AsyncAnthropic(
            api_key=server.secret, base_url=server.url, max_retries=0, http_client=DefaultAsyncHttpxClient(verify=False)
        )
        server.model = AnthropicLlm("claude-sonnet-5", client=client)
        yield server
        await client.close()
