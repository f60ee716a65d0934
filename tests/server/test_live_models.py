"""A client of `/run_live`, a server, and a vendor's live service in its wire format, all over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.models.model import BaseLlm
from greenroom.records.content import FunctionCall
from greenroom.testing import INTERRUPTED, Drops, Hears, Listens, Says
from tests.models.wire.gemini_live import GeminiLiveServer
from tests.models.wire.live import LiveServer
from tests.models.wire.openai_realtime import RealtimeServer
from tests.server.conftest import Serve
from tests.server.live_client import LiveClient, talking, texts
from tests.server.serving import Serving, until

SPEECH = b"\x10\x00" * 160


@pytest.fixture(params=[GeminiLiveServer, RealtimeServer])
async def vendor(request: pytest.FixtureRequest) -> AsyncIterator[LiveServer]:
    async with request.param().serving() as server:
        yield server


@pytest.fixture
async def model(vendor: LiveServer) -> AsyncIterator[BaseLlm]:
    model = vendor.model()
    yield model
    await model.close()


def look(place: str) -> dict[str, str]:
    """Looks at a place."""
    return {"seen": f"a cat in the {place}"}


async def desk(serve: Serve, model: BaseLlm) -> Serving:
    server = await serve(LlmAgent(name="desk", model=model, tools=[look]))
    await server.new_session("desk")
    return server


async def speak(client: LiveClient) -> None:
    await client.speak(SPEECH)
    await client.send({"audio_stream_end": True})


def heard(frames: list[dict[str, Any]], name: str) -> list[str]:
    return [frame[name]["text"] for frame in frames if frame.get(name, {}).get("finished")]


def audio(frames: list[dict[str, Any]]) -> int:
    parts = [part for frame in frames for part in frame.get("content", {}).get("parts", [])]
    return sum(part["inlineData"]["mimeType"] == "audio/pcm;rate=24000" for part in parts if "inlineData" in part)


async def test_audio_both_ways_with_a_tool_in_between(serve: Serve, vendor: LiveServer, model: BaseLlm) -> None:
    vendor.answer(Hears("what is there"), FunctionCall(id="call_1", name="look", args={"place": "garden"}))
    vendor.answer(Says("a cat"))
    server = await desk(serve, model)
    async with talking(server.port) as client:
        await speak(client)
        frames = await client.turn()
    assert audio(frames) == 2
    assert heard(frames, "inputTranscription") == ["what is there"]
    assert heard(frames, "outputTranscription") == ["a cat"]
    parts = [part for frame in frames for part in frame.get("content", {}).get("parts", [])]
    assert [part["functionCall"]["args"] for part in parts if "functionCall" in part] == [{"place": "garden"}]
    seen = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    assert seen == [{"seen": "a cat in the garden"}]
    assert "a cat in the garden" in json.dumps(vendor.seen)
    assert frames[-1]["usageMetadata"]["candidatesTokenCount"] == 5


async def test_an_interruption(serve: Serve, vendor: LiveServer, model: BaseLlm) -> None:
    vendor.answer(Says("one two three"), Listens(1), INTERRUPTED)
    vendor.answer(Hears("stop"), Says("yes"))
    server = await desk(serve, model)
    async with talking(server.port) as client:
        await speak(client)
        while audio(client.frames) < 3:
            await client.next()
        await client.speak(SPEECH)
        first = await client.turn()
        await speak(client)
        second = await client.turn()
    ends = [name for frame in first for name in ("interrupted", "turnComplete") if frame.get(name)]
    assert ends == ["interrupted", "turnComplete"]
    assert heard(client.frames, "outputTranscription") == ["one two three", "yes"]
    assert audio(second) == 1


async def test_a_session_past_its_time_continues_in_another(serve: Serve, vendor: LiveServer, model: BaseLlm) -> None:
    vendor.answer("one")
    vendor.answer("two")
    server = await desk(serve, model)
    async with talking(server.port, modalities="TEXT", enable_session_resumption="true") as client:
        await client.say("first")
        await client.turn()
        await vendor.send_away(vendor.connections[0])
        await until(lambda: len(vendor.connections) == 2)
        await client.say("second")
        assert texts(await client.turn()) == ["two"]
        await until(lambda: "second" in json.dumps(vendor.seen))
    again = json.dumps(vendor.connections[1].seen)
    if isinstance(vendor, GeminiLiveServer):
        assert vendor.setups[1]["sessionResumption"] == {"handle": "h-1"}
        assert "first" not in again
    else:
        assert "first" in again


async def test_a_connection_that_is_lost_is_opened_with_the_history(
    serve: Serve, vendor: LiveServer, model: BaseLlm
) -> None:
    vendor.answer("one")
    vendor.answer(Hears("more"), Drops(), "two")
    server = await desk(serve, model)
    async with talking(server.port, modalities="TEXT") as client:
        await client.say("first")
        await client.turn()
        await client.say("second")
        assert texts(await client.turn()) == ["two"]
    again = json.dumps(vendor.connections[1].seen)
    assert all(said in again for said in ("first", "one", "second"))


async def test_a_client_that_comes_back_continues(serve: Serve, vendor: LiveServer, model: BaseLlm) -> None:
    vendor.answer("one")
    vendor.answer("two")
    server = await desk(serve, model)
    async with talking(server.port, modalities="TEXT") as client:
        await client.say("first")
        seen = await client.until(lambda frame: frame.get("seq"))
        await client.turn()
        client.socket.transport.abort()
    async with talking(server.port, modalities="TEXT", after=seen["seq"]) as client:
        await client.say("second")
        async with asyncio.timeout(5):
            while "two" not in texts(client.frames):
                await client.turn()
    assert [text for text in texts(client.frames) if text in ("one", "two")][-1] == "two"
    again = json.dumps(vendor.connections[1].seen)
    assert all(said in again for said in ("first", "one", "second"))


async def test_a_refused_key_ends_the_run_with_the_vendors_words(
    serve: Serve, vendor: LiveServer, model: BaseLlm
) -> None:
    vendor.refuse(401, f"Incorrect key: {vendor.secret}")
    server = await desk(serve, model)
    async with talking(server.port) as client:
        code, reason = await client.closed()
    assert code == 1011
    assert "Authentication error" in reason
    assert vendor.secret not in json.dumps(client.frames)
