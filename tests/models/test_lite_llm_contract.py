"""LiteLLM against the contract of models, with a server of OpenAI's format behind it.

Its pins conflict with those of other extras, so it is tested in an environment of its own: `make test-litellm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("litellm", reason="LiteLLM is installed in an environment of its own: make test-litellm")

from greenroom.errors import ModelError
from greenroom.models.lite_llm import LiteLlm, LiteLLMClient
from greenroom.records.content import Content, Part, UserContent
from greenroom.records.generation import GenerateContentConfig
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


@pytest.mark.parametrize("length", ["transfer-encoding: chunked", "content-length: 10000"])
@pytest.mark.parametrize("prefix", ["openai", "anthropic"])
async def test_a_cut_stream_is_an_error_of_the_network(prefix: str, length: str) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{length}\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = LiteLlm(f"{prefix}/some", api_base=url, api_key="k")
        config = GenerateContentConfig(http_options={"retry_options": {"attempts": 1}})
        request = LlmRequest(model=model.model, contents=[UserContent("Hi")], config=config)
        with pytest.raises(ModelError) as caught:
            async for _ in model.generate_content_async(request, True):
                pass
        assert (caught.value.category, caught.value.http_status) == ("NETWORK_ERROR", None)
        await model.close()
