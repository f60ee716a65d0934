"""LiteLLM against the contract of models, with a server of OpenAI's format behind it.

Its pins conflict with those of other extras, so it is tested in an environment of its own: `make test-litellm`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("litellm", reason="LiteLLM is installed in an environment of its own: make test-litellm")

from greenroom.models.lite_llm import LiteLlm, LiteLLMClient
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.contracts.model import *  # noqa: F403
from tests.models.wire.openai_chat import ChatServer

pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM's own


class Chat(ChatServer):
    model: LiteLlm


@pytest.fixture
async def provider() -> AsyncIterator[Chat]:
    async with Chat().serving() as server:
        server.model = LiteLlm("openai/gpt-4o-mini", api_base=f"{server.url}/v1", api_key=server.secret)
        yield server
        await server.model.close()


async def test_a_client_written_for_adk_sees_each_completion(provider: Chat) -> None:
    class Recording(LiteLLMClient):
        def __init__(self) -> None:
            self.seen: list[tuple[str, Any]] = []

        async def acompletion(self, model: Any, messages: Any, tools: Any, **kwargs: Any) -> Any:
            self.seen.append((model, tools))
            return await super().acompletion(model=model, messages=messages, tools=tools, **kwargs)

    client = Recording()
    model = LiteLlm("openai/gpt-4o-mini", llm_client=client, api_base=f"{provider.url}/v1", api_key=provider.secret)
    provider.say(Part(text="hello"))
    request = LlmRequest(contents=[Content(role="user", parts=[Part(text="hi")])])

    responses = [response async for response in model.generate_content_async(request)]

    assert responses[-1].content is not None
    assert client.seen == [("openai/gpt-4o-mini", None)]
