"""LangChain's chat models of OpenAI against the contract of models, in the environment of LiteLLM's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

chat = pytest.importorskip("langchain_openai", reason="it is installed in an environment of its own: make test-litellm")

from greenroom.errors import MessageConversionError  # noqa: E402
from greenroom.models.langchain import LangchainLlm  # noqa: E402
from greenroom.records.content import Content, Part  # noqa: E402
from greenroom.testing.contracts.model import *  # noqa: E402, F403
from greenroom.testing.contracts.model.provider import ModelProvider, _ask, _request  # noqa: E402
from tests.models.wire.openai_chat import ChatServer  # noqa: E402
from tests.models.wire.server import frame  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Chat(ChatServer):
    model: LangchainLlm
    metadata_key: str | None = "langchain"
    lacks = ChatServer.lacks | {"schema with tools"}


@pytest.fixture
async def provider() -> AsyncIterator[Chat]:
    async with Chat().serving() as server:
        chat_model = chat.ChatOpenAI(
            model="gpt-4o-mini",
            base_url=f"{server.url}/v1",
            api_key=server.secret,
            max_retries=0,
            stream_usage=True,
        )
        server.model = LangchainLlm(chat_model)
        yield server


async def test_video(provider: ModelProvider) -> None:  # pyright: ignore[reportRedeclaration]
    """Only the chat model knows what it takes: what it refuses is refused in earlier turns, too."""
    video = Part.from_bytes(data=b"frames", mime_type="video/mp4")
    with pytest.raises(MessageConversionError, match="video/mp4"):
        await _ask(provider, _request(Content(role="user", parts=[video])))


@pytest.mark.parametrize("stream", [False, True])
async def test_no_call_runs_beside_a_malformed_one(provider: Chat, stream: bool) -> None:
    entries = [
        {"index": index, "id": f"c{index}", "type": "function", "function": {"name": "look", "arguments": text}}
        for index, text in enumerate(['{"a": ', '{"a": 1}'])
    ]
    if stream:
        frames, _ = provider.frames((), "STOP")
        choice = {"index": 0, "delta": {"tool_calls": entries}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
        chunks = [frame({"id": "c1", "object": "chat.completion.chunk", "choices": [one]}) for one in (choice, end)]
        provider.raw = [*frames, *chunks, "data: [DONE]\n\n"]
    else:
        provider.raw = provider.whole((), "STOP")
        provider.raw["choices"][0] |= {"message": {"role": "assistant", "tool_calls": entries}}
    whole = (await _ask(cast("ModelProvider", provider), _request(), stream=stream))[-1]
    assert whole.error_code == "MALFORMED_FUNCTION_CALL"
    assert whole.content is not None
    assert not [part for part in whole.content.parts or () if part.function_call]
