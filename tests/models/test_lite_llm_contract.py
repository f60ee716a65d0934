"""LiteLLM against the contract of models, with a server of OpenAI's format behind it.

Its pins conflict with those of other extras, so it is tested in an environment of its own: `make test-litellm`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("litellm", reason="LiteLLM is installed in an environment of its own: make test-litellm")

from greenroom.models.lite_llm import LiteLlm
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
