"""OpenAI's Realtime API: the contract of live connections, and what only it has."""

from __future__ import annotations

import asyncio
import base64
import math
from array import array
from collections.abc import AsyncIterator

import pytest

from greenroom.errors import MessageConversionError, ModelError
from greenroom.models.openai.chat import OpenAILlm
from greenroom.records.content import (
    ActivityEnd,
    ActivityStart,
    Blob,
    Content,
    FunctionCall,
    FunctionResponse,
    ModelContent,
    Part,
    UserContent,
)
from greenroom.records.generation import GenerateContentConfig, LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import Tool
from greenroom.testing import Listens, Says
from greenroom.testing.contracts.model.live import *  # noqa: F403
from greenroom.testing.contracts.model.provider import GET_WEATHER
from tests.models.wire.live import Json
from tests.models.wire.openai_realtime import RealtimeServer


class Live(RealtimeServer):
    live_model: OpenAILlm


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with Live().serving() as server:
        server.live_model = server.model()
        yield server
        await server.live_model.close()


async def next_of(replies: AsyncIterator[LlmResponse]) -> LlmResponse:
    async with asyncio.timeout(5):
        return await anext(replies)


async def sent(live: Live, kind: str, *, count: int = 1) -> list[Json]:
    """The client's messages of this type, once there are so many."""
    async with asyncio.timeout(5):
        while len(found := [message for message in live.seen if message["type"] == kind]) < count:
            await live.connections[-1].more(1)
    return found


async def test_settings_of_the_run_and_the_agent_open_the_session(live: Live) -> None:
    connect = LiveConnectConfig(
        response_modalities=["AUDIO"],
        input_audio_transcription={"languageCodes": ["de-DE"]},
        realtime_input_config={
            "automaticActivityDetection": {"silenceDurationMs": 300}, "activityHandling": "NO_INTERRUPTION"
        },
    )  # fmt: skip
    config = GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[Tool(function_declarations=[GET_WEATHER])],
        max_output_tokens=200,
        speech_config={"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "marin"}}},
        http_options={"headers": {"x-team": "desk"}},
    )
    async with live.live_model.connect(LlmRequest(config=config, live_connect_config=connect)):
        pass
    session = live.session
    assert (session["type"], session["instructions"], session["max_output_tokens"]) == ("realtime", "Be brief.", 200)
    assert (session["output_modalities"], session["tool_choice"]) == (["audio"], "auto")
    assert [(tool["type"], tool["name"]) for tool in session["tools"]] == [("function", "get_weather")]
    heard, said = session["audio"]["input"], session["audio"]["output"]
    assert heard["transcription"] == {"model": "gpt-4o-mini-transcribe", "language": "de"}
    assert heard["turn_detection"] == {
        "type": "server_vad", "silence_duration_ms": 300, "interrupt_response": False
    }  # fmt: skip
    assert said == {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"}
    assert live.headers[0]["x-team"] == "desk"
    assert "model=gpt-realtime" in live.paths[0]


async def test_what_it_does_not_take_is_refused(live: Live) -> None:
    request = LlmRequest(config=GenerateContentConfig(tools=[Tool(google_search={})]))
    with pytest.raises(MessageConversionError, match="google_search"):
        async with live.live_model.connect(request):
            pass
    async with live.live_model.connect(LlmRequest()) as connection:
        with pytest.raises(MessageConversionError, match="audio/webm"):
            await connection.send_realtime(Blob(data=b"\x00", mime_type="audio/webm"))


async def test_a_refused_session_is_an_error(live: Live) -> None:
    live.refusal_of_session = {"type": "invalid_request_error", "code": "invalid_value", "message": "No such voice"}
    with pytest.raises(ModelError, match="No such voice") as caught:
        async with live.live_model.connect(LlmRequest()):
            pass
    assert (caught.value.category, caught.value.retryable) == ("CLIENT_ERROR", False)


@pytest.mark.parametrize("size", [2, 3, 320, 801])
async def test_audio_of_other_rates_is_resampled(live: Live, size: int) -> None:
    """A tone of 16 kHz comes as the same tone of 24 kHz, however it is cut."""
    samples = [round(8000 * math.sin(2 * math.pi * 440 * n / 16_000)) for n in range(1600)]
    wave = array("h", samples).tobytes()
    async with live.live_model.connect(LlmRequest()) as connection:
        for at in range(0, len(wave), size):
            await connection.send_realtime(Blob(data=wave[at : at + size], mime_type="audio/pcm;rate=16000"))
        pieces = await sent(live, "input_audio_buffer.append", count=-(-len(wave) // size))
    got = array("h", b"".join(base64.b64decode(piece["audio"]) for piece in pieces))
    assert abs(len(got) - 2400) <= 2
    wanted = [8000 * math.sin(2 * math.pi * 440 * n / 24_000) for n in range(len(got))]
    assert max(abs(a - b) for a, b in zip(got, wanted, strict=True)) < 8000 * 0.02


async def test_telephone_audio_goes_as_it_is(live: Live) -> None:
    async with live.live_model.connect(LlmRequest()) as connection:
        await connection.send_realtime(Blob(data=b"\x7f\x00", mime_type="audio/pcmu;rate=8000"))
        piece = (await sent(live, "input_audio_buffer.append"))[0]
    assert base64.b64decode(piece["audio"]) == b"\x7f\x00"
    assert live.session["audio"]["input"]["format"] == {"type": "audio/pcmu"}


async def test_what_was_not_heard_is_cut_from_the_item(live: Live) -> None:
    """A second of speech comes at once; the user interrupts it, typing."""
    live.answer(Says("word " * 100), Listens(99))
    live.answer("Yes?")
    async with live.live_model.connect(LlmRequest()) as connection:
        replies = aiter(connection.receive())
        await connection.send_content(UserContent("Talk"))
        for _ in range(100):
            assert (await next_of(replies)).content
        await connection.send_content(UserContent("Stop"))
        cut = (await sent(live, "conversation.item.truncate"))[0]
        ends: list[LlmResponse] = []
        while len(ends) < 2:
            reply = await next_of(replies)
            ends += [reply] * bool(reply.interrupted or reply.turn_complete)
        await sent(live, "response.create", count=2)
    assert (cut["item_id"], cut["content_index"]) == ("item_r1", 0)
    assert 0 <= cut["audio_end_ms"] < 1000
    assert [(end.interrupted, end.turn_complete) for end in ends] == [(True, None), (None, True)]


async def test_without_detection_the_client_says_when_its_user_speaks(live: Live) -> None:
    live.answer("Hello")
    off = {"automatic_activity_detection": {"disabled": True}}
    connect = LiveConnectConfig(response_modalities=["TEXT"], realtime_input_config=off)
    async with live.live_model.connect(LlmRequest(live_connect_config=connect)) as connection:
        for data in (ActivityStart(), Blob(data=bytes(4800), mime_type="audio/pcm;rate=24000"), ActivityEnd()):
            await connection.send_realtime(data)
        assert (await next_of(aiter(connection.receive()))).content == ModelContent("Hello")
    assert live.session["audio"]["input"]["turn_detection"] is None
    kinds = [message["type"] for message in live.seen]
    assert kinds == ["session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "response.create"]


async def test_a_call_has_one_output_and_what_follows_is_sent_as_text(live: Live) -> None:
    live.answer(FunctionCall(id="c-1", name="watch", args={}))
    live.answer("Watching")
    async with live.live_model.connect(LlmRequest()) as connection:
        replies = aiter(connection.receive())
        await connection.send_content(UserContent("Watch"))
        assert (await next_of(replies)).get_function_calls()
        for value, scheduling in (("started", None), ("100", "SILENT")):
            response = FunctionResponse(id="c-1", name="watch", response={"value": value}, scheduling=scheduling)
            await connection.send_content(Content(role="user", parts=[Part(function_response=response)]))
        _, output, more = [one["item"] for one in await sent(live, "conversation.item.create", count=3)]
    assert (output["type"], output["call_id"]) == ("function_call_output", "c-1")
    assert (more["type"], more["role"]) == ("message", "system")
    assert "100" in more["content"][0]["text"]
    assert len(await sent(live, "response.create")) == 2


async def test_an_expired_session_is_lost_and_other_errors_leave_it_open(live: Live) -> None:
    async with live.live_model.connect(LlmRequest()) as connection:
        replies = aiter(connection.receive())
        error = {"type": "server_error", "code": None, "message": "The server had an error"}
        await live.connections[0].send({"type": "error", "event_id": "e", "error": error})
        reply = await next_of(replies)
        assert (reply.error_code, reply.error_message) == ("SERVER_ERROR", "gpt-realtime: The server had an error")
        failed = {"id": "r", "status": "failed", "status_details": {"error": {"code": "insufficient_quota"}}}
        await live.connections[0].send({"type": "response.done", "event_id": "e", "response": failed})
        reply = await next_of(replies)
        assert (reply.turn_complete, reply.error_message) == (True, "gpt-realtime: insufficient_quota")
        error = {"type": "invalid_request_error", "code": "session_expired", "message": "60 minutes"}
        await live.connections[0].send({"type": "error", "event_id": "e", "error": error})
        with pytest.raises(ModelError, match="60 minutes") as caught:
            await next_of(replies)
    assert caught.value.retryable
