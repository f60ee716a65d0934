"""Chat completions against the contract of models."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.models.openai.chat import OpenAILlm
from greenroom.testing.contracts.model import *  # noqa: F403
from tests.models.wire.openai_chat import ChatServer


class Chat(ChatServer):
    model: OpenAILlm


@pytest.fixture
async def provider() -> AsyncIterator[Chat]:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    async with Chat().serving() as server:
        client = AsyncOpenAI(
            api_key=server.secret,
            base_url=f"{server.url}/v1",
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=False),
        )
        server.model = OpenAILlm("openai/gpt-4o-mini", client=client)
        yield server
        await client.close()
