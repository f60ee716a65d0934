"""LangChain's chat models of OpenAI against the contract of models, in the environment of LiteLLM's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

chat = pytest.importorskip("langchain_openai", reason="it is installed in an environment of its own: make test-litellm")

from greenroom.errors import MessageConversionError  # noqa: E402
from greenroom.models.langchain import LangchainLlm  # noqa: E402
from greenroom.records.content import Content, Part  # noqa: E402
from greenroom.testing.contracts.model import *  # noqa: E402, F403
from greenroom.testing.contracts.model.provider import ModelProvider, _ask, _request  # noqa: E402
from tests.models.wire.openai_chat import ChatServer  # noqa: E402

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
