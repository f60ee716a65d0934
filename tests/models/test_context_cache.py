"""Providers cache the stable prefix of an app's prompts; the log carries the cache over runs and restarts (rows 3.8 and 3.9 of ADK)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.models.anthropic.llm import AnthropicLlm
from greenroom.models.gemini.llm import Gemini
from greenroom.records.content import Content, Part, UserContent
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import ContextCacheConfig, LlmRequest
from greenroom.runner.runner import Runner
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.tools.functions.function_tool import FunctionTool
from tests.models.wire.anthropic import AnthropicServer
from tests.models.wire.gemini import GeminiServer

RULES = "Be kind. " * 2_000


class CachingServer(GeminiServer):
    """Keeps cached contents, and counts tokens. lost: caches that it has forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.counted: list[dict[str, Any]] = []
        self.lost = False
        self.refuses = False

    def whole(self, parts: tuple[Part, ...], finish_reason: str) -> dict[str, Any]:
        reply = super().whole(parts, finish_reason)
        return {**reply, "usageMetadata": {**reply["usageMetadata"], "promptTokenCount": 5_000}}

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        if request.method == "DELETE":
            self.deleted.append(path.rpartition("/")[2])
            return JSONResponse({})
        if path.endswith("/cachedContents"):
            if self.refuses:
                return JSONResponse(self.error(400, "too small"), 400)
            self.made.append(await request.json())
            return JSONResponse({"name": f"cachedContents/c{len(self.made)}", "model": self.made[-1]["model"]})
        if path.endswith(":countTokens"):
            self.counted.append(await request.json())
            return JSONResponse({"totalTokens": 42})
        if self.lost and b"cachedContent" in await request.body():
            return JSONResponse(self.error(403, "CachedContent not found"), 403)
        return await super().__call__(request)


@pytest.fixture
async def server() -> AsyncIterator[CachingServer]:
    async with CachingServer().serving() as running:
        yield running


def look() -> str:
    """Looks."""
    return "nothing"


class Desk:
    """Runs in one session; each with a new process's objects, as after a restart."""

    def __init__(self, server: CachingServer, file: Path, **config: Any) -> None:
        self._server, self._file, self._config = server, file, ContextCacheConfig(**config)

    async def say(self, text: str) -> list[Event]:
        model = Gemini("gemini-2.5-pro", api_key=self._server.secret, base_url=self._server.url)
        agent = LlmAgent(name="desk", model=model, instruction=RULES, tools=[look])
        sessions = SqliteSessionService(self._file)
        app = App(name="desk", root_agent=agent, context_cache_config=self._config)
        runner = Runner(app=app, session_service=sessions, auto_create_session=True)
        events = [
            event async for event in runner.run_async(user_id="ann", session_id="s-1", new_message=UserContent(text))
        ]
        await model.close()
        await sessions.close()
        return events


def metadata(events: list[Event]) -> dict[str, Any]:
    assert events[-1].cache_metadata is not None
    return events[-1].cache_metadata


@pytest.fixture
def desk(server: CachingServer, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path / "x.db", cache_intervals=2, ttl_seconds=600)


async def test_the_second_call_with_the_same_prefix_makes_a_cache_and_later_ones_use_it(
    server: CachingServer, desk: Desk
) -> None:
    first = metadata(await desk.say("one"))
    assert list(first) == ["fingerprint", "contents_count"]
    assert (first["contents_count"], server.made) == (0, [])
    second = metadata(await desk.say("two"))
    assert (second["cache_name"], second["invocations_used"], second["contents_count"]) == ("cachedContents/c1", 1, 2)
    assert 590 < second["expire_time"] - time.time() <= 600
    assert server.made[0]["ttl"] == "600s"
    assert server.made[0]["displayName"].endswith("-2contents")
    assert RULES[:100] in json.dumps(server.made[0]["systemInstruction"])
    assert server.made[0]["tools"][0]["functionDeclarations"][0]["name"] == "look"
    assert metadata(await desk.say("three"))["invocations_used"] == 2
    for sent in server.seen[1:]:
        assert sent["cachedContent"] == "cachedContents/c1"
        assert not {"systemInstruction", "tools", "toolConfig"} & set(sent)
    assert len(server.made) == 1


async def test_a_cache_is_renewed_after_so_many_runs(server: CachingServer, desk: Desk) -> None:
    names = [metadata(await desk.say(text)).get("cache_name") for text in ("one", "two", "three", "four")]
    assert names == [None, "cachedContents/c1", "cachedContents/c1", "cachedContents/c2"]
    assert server.deleted == ["c1"]


async def test_each_cache_takes_in_the_history_so_far(server: CachingServer, desk: Desk) -> None:
    counts = [metadata(await desk.say(f"message {n}"))["contents_count"] for n in range(6)]
    assert counts == [0, 2, 2, 6, 6, 10]
    for made, count in zip(server.made, (2, 6, 10), strict=True):
        said = [content["parts"][0]["text"] for content in made["contents"]]
        assert len(said) == count
        assert said[::2] == [f"message {n}" for n in range(count // 2)]
    sent = [[content["role"] for content in body["contents"]] for body in server.seen]
    assert sent == [["user"], ["user"], ["user", "model", "user"], ["user"], ["user", "model", "user"], ["user"]]


async def test_a_cache_that_could_not_be_made_is_made_with_the_history_later(server: CachingServer, desk: Desk) -> None:
    await desk.say("one")
    server.refuses = True
    assert metadata(await desk.say("two"))["contents_count"] == 2
    server.refuses = False
    third = metadata(await desk.say("three"))
    assert (third["cache_name"], third["contents_count"]) == ("cachedContents/c1", 4)


async def test_an_expired_cache_is_not_used(server: CachingServer, tmp_path: Path) -> None:
    desk = Desk(server, tmp_path / "x.db", ttl_seconds=1)
    await desk.say("one")
    expires = metadata(await desk.say("two"))["expire_time"]
    while time.time() <= expires:
        await desk.say("on")
    assert metadata(await desk.say("three"))["cache_name"] != "cachedContents/c1"


@pytest.mark.parametrize("how", ["refuses", "lost"])
async def test_without_a_cache_the_request_is_sent_whole(server: CachingServer, desk: Desk, how: str) -> None:
    await desk.say("one")
    setattr(server, how, True)
    events = await desk.say("two")
    assert events[-1].content is not None
    assert list(metadata(events)) == ["fingerprint", "contents_count"]
    assert "systemInstruction" in server.seen[-1]


async def test_small_prompts_are_not_cached(server: CachingServer, tmp_path: Path) -> None:
    desk = Desk(server, tmp_path / "x.db", min_tokens=6_000)
    for text in ("one", "two", "three"):
        assert "cache_name" not in metadata(await desk.say(text))
    assert server.made == []


@pytest.mark.parametrize("wrong", [{"cache_intervals": 0}, {"ttl_seconds": 0}, {"min_tokens": -1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cache_intervals must be"):
        ContextCacheConfig(**wrong)


def asked(**more: Any) -> LlmRequest:
    contents = [UserContent("Hi"), Content(role="model", parts=[Part(text="Yes?")]), UserContent("Look!")]
    request = LlmRequest(contents=contents, config=GenerateContentConfig(system_instruction="Be brief."), **more)
    request.append_tools([FunctionTool(look)])
    return request


async def test_gemini_counts_tokens(server: CachingServer) -> None:
    model = Gemini("gemini-2.5-pro", api_key=server.secret, base_url=server.url)
    assert await model.count_tokens(asked()) == 42
    assert "Be brief." in json.dumps(server.counted[0])
    await model.close()


async def test_claude_marks_the_prefix_and_counts_tokens() -> None:
    class Counting(AnthropicServer):
        path = "/v1/{rest:path}"

        async def __call__(self, request: Request) -> Response:
            if not request.url.path.endswith("/count_tokens"):
                return await super().__call__(request)
            self.seen.append(await request.json())
            return JSONResponse({"input_tokens": 7})

    async with Counting().serving() as server:
        model = AnthropicLlm("claude-sonnet-5", api_key=server.secret, base_url=server.url)
        for config, tokens, mark in (
            (None, None, None),
            (ContextCacheConfig(), None, {"type": "ephemeral"}),
            (ContextCacheConfig(ttl_seconds=3600), None, {"type": "ephemeral", "ttl": "1h"}),
            (ContextCacheConfig(min_tokens=100), 99, None),
            (ContextCacheConfig(min_tokens=100), 100, {"type": "ephemeral"}),
        ):
            request = asked(cache_config=config, cacheable_contents_token_count=tokens)
            async for _ in model.generate_content_async(request):
                pass
            sent = server.seen[-1]
            marked = [block.get("cache_control") for block in sent["messages"][-1]["content"]]
            assert marked == [mark]
            assert [one.get("cache_control") for one in sent["system"] if isinstance(one, dict)] == [mark] * bool(mark)
            assert sent["tools"][-1].get("cache_control") == mark
            assert "cache_control" not in json.dumps(sent["messages"][:-1])
        assert await model.count_tokens(asked()) == 7
        assert server.seen[-1]["system"] == "Be brief."
        assert "max_tokens" not in server.seen[-1]
        await model.close()
