"""Models behind an Apigee gateway: which path and headers the gateway sees."""

from __future__ import annotations

import pytest

from greenroom.errors import AgentConfigError, ModelError
from greenroom.models.apigee import ApigeeLlm
from greenroom.models.by_name import LLMRegistry
from greenroom.records.content import UserContent
from greenroom.records.model_exchange import LlmRequest
from tests.models.wire.gemini import GeminiServer
from tests.models.wire.openai_chat import ChatServer


async def text(model: ApigeeLlm) -> str:
    request = LlmRequest(model=model.model, contents=[UserContent("Hi")])
    *_, whole = [reply async for reply in model.generate_content_async(request)]
    assert whole.content is not None
    return whole.content.text()


async def test_chat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with ChatServer().serving() as server:
        monkeypatch.setenv("APIGEE_PROXY_URL", server.url)
        model = LLMRegistry.new_llm("apigee/openai/v1/gpt-4o")
        assert isinstance(model, ApigeeLlm)
        assert await text(model) == "hello"
        assert server.seen[0]["model"] == "gpt-4o"
        await model.close()


async def test_gemini_with_the_gateways_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    async with GeminiServer().serving() as server:
        model = ApigeeLlm("apigee/gemini/v1/gemini-2.5-flash", proxy_url=server.url, custom_headers={"x-team": "desk"})
        assert await text(model) == "hello"
        assert server.paths == ["/v1/models/gemini-2.5-flash:generateContent"]
        assert server.headers[0]["x-team"] == "desk"
        await model.close()


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("APIGEE_PROXY_URL", raising=False)
    with pytest.raises(ModelError, match="APIGEE_PROXY_URL"):
        ApigeeLlm("apigee/gemini/gemini-2.5-flash")
    assert "APIGEE_PROXY_URL" in (LLMRegistry.fault("apigee/gemini/gemini-2.5-flash") or "")
    with pytest.raises(AgentConfigError, match=r"apigee/\[provider/\]\[version/\]name"):
        ApigeeLlm("apigee/nobody/v1/gpt-4o", proxy_url="http://127.0.0.1:1")
