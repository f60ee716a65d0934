"""The Responses API against the contract of models."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.testing.contracts.model import *  # noqa: F403
from tests.models.wire.openai_responses import ResponsesServer


class Responses(ResponsesServer):
    model: OpenAIResponsesLlm


@pytest.fixture
async def provider() -> AsyncIterator[Responses]:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    async with Responses().serving() as server:
        client = AsyncOpenAI(
            api_key=server.secret,
            base_url=f"{server.url}/v1",
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=False),
        )
        server.model = OpenAIResponsesLlm("gpt-5", client=client)
        yield server
        await client.close()
