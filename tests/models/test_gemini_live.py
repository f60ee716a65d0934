"""Gemini's Live API: the contract of live connections, and what only it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from greenroom.errors import MessageConversionError, ModelError
from greenroom.models.gemini.llm import Gemini
from greenroom.records.content import (
    ActivityEnd,
    ActivityStart,
    Blob,
    Content,
    FunctionResponse,
    ModelContent,
    Part,
    UserContent,
)
from greenroom.records.generation import GenerateContentConfig, LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import Tool
from greenroom.testing.contracts.model.live import *  # noqa: F403
from greenroom.testing.contracts.model.provider import GET_WEATHER
from tests.models.wire.gemini_live import GeminiLiveServer


class Live(GeminiLiveServer):
    live_model: Gemini


@pytest.fixture(params=["gemini-live-2.5-flash-preview", "gemini-3.1-flash-live-preview", "vertex"])
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    async with Live().serving() as server:
        if request.param == "vertex":
            server.live_model = server.on_vertex("gemini-live-2.5-flash")
        else:
            server.live_model = server.model(request.param)
        yield server
        await server.live_model.close()


@pytest.fixture
async def flash(live_server: Live) -> Live:
    live_server.live_model = live_server.model("gemini-live-2.5-flash-preview")
    return live_server


@pytest.fixture
async def live_server() -> AsyncIterator[Live]:
    async with Live().serving() as server:
        yield server
        await server.live_model.close()


async def next_of(replies: AsyncIterator[LlmResponse]) -> LlmResponse:
    async with asyncio.timeout(5):
        return await anext(replies)


async def test_settings_of_the_run_and_the_agent_open_the_connection(flash: Live) -> None:
    connect = LiveConnectConfig(
        response_modalities=["AUDIO"],
        input_audio_transcription={},
        session_resumption={"handle": "h-1"},
        context_window_compression={"sliding_window": {}},
        realtime_input_config={"automaticActivityDetection": {"disabled": True}},
        explicit_vad_signal=True,
    )
    config = GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[Tool(function_declarations=[GET_WEATHER]), Tool(google_search={})],
        temperature=0.5,
        speech_config={"voice_config": {"prebuilt_voice_config": {"voice_name": "Kore"}}},
        http_options={"headers": {"x-team": "desk"}},
    )
    async with flash.live_model.connect(LlmRequest(config=config, live_connect_config=connect)):
        pass
    setup = flash.setups[0]
    assert setup["model"] == "models/gemini-live-2.5-flash-preview"
    assert setup["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert {name for tool in setup["tools"] for name in tool} == {"functionDeclarations", "googleSearch"}
    assert setup["sessionResumption"] == {"handle": "h-1"}
    assert setup["realtimeInputConfig"] == {"automatic_activity_detection": {"disabled": True}}
    assert setup["generationConfig"]["temperature"] == 0.5
    assert setup["generationConfig"]["speechConfig"]["voice_config"]["prebuilt_voice_config"] == {"voice_name": "Kore"}
    assert "explicitVadSignal" not in setup
    assert flash.headers[0]["x-team"] == "desk"
    assert ".v1alpha." in flash.paths[0]


async def test_what_it_does_not_take_is_refused_before_the_connection(flash: Live) -> None:
    connect = LiveConnectConfig(session_resumption={"transparent": True})
    with pytest.raises(MessageConversionError, match="transparent"):
        async with flash.live_model.connect(LlmRequest(live_connect_config=connect)):
            pass
    assert flash.connections == []


async def test_bookkeeping_of_the_session(flash: Live) -> None:
    update = {"newHandle": "h-1", "resumable": True}
    flash.answer(LlmResponse(live_session_resumption_update=update), LlmResponse(go_away={"timeLeft": "9.5s"}))
    async with flash.live_model.connect(LlmRequest()) as connection:
        await connection.send_realtime(ActivityStart())
        await connection.send_realtime(Blob(data=b"\xff\xd8", mime_type="image/jpeg"))
        await connection.send_realtime(ActivityEnd())
        replies = aiter(connection.receive())
        assert (await next_of(replies)).live_session_resumption_update == update
        assert (await next_of(replies)).go_away == {"timeLeft": "9.5s"}
    image = {"data": "_9g=", "mime_type": "image/jpeg"}
    assert [message["realtime_input"] for message in flash.seen] == [
        {"activityStart": {}}, {"video": image}, {"activityEnd": {}}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "reason", "category", "retryable"),
    [
        (1008, "The operation was aborted.", "NETWORK_ERROR", True),
        (1011, "Deadline expired before operation could complete.", "SERVER_ERROR", True),
        (1007, "Request contains an invalid argument.", "CLIENT_ERROR", False),
        (1007, "API key not valid. Please pass a valid API key.", "AUTH_ERROR", False),
    ],
)
async def test_close_codes(flash: Live, code: int, reason: str, category: str, retryable: bool) -> None:
    async with flash.live_model.connect(LlmRequest()) as connection:
        await flash.connections[0].socket.close(code, reason)
        with pytest.raises(ModelError, match=reason) as caught:
            await next_of(aiter(connection.receive()))
    assert (caught.value.category, caught.value.retryable, caught.value.http_status) == (category, retryable, None)


async def test_a_call_that_an_interruption_cancelled_gets_no_response(flash: Live) -> None:
    async with flash.live_model.connect(LlmRequest()) as connection:
        await flash.connections[0].send({"toolCallCancellation": {"ids": ["c-1"]}})
        cancelled = await next_of(aiter(connection.receive()))
        for call_id in ("c-1", "c-2"):
            response = FunctionResponse(id=call_id, name="get_weather", response={})
            await connection.send_content(Content(role="user", parts=[Part(function_response=response)]))
        await flash.connections[0].more(1 - len(flash.seen))
    assert cancelled.custom_metadata == {"gemini": {"toolCallCancellation": {"ids": ["c-1"]}}}
    assert [one["id"] for message in flash.seen for one in message["tool_response"]["functionResponses"]] == ["c-2"]


async def test_gemini_3_gets_the_history_apart_from_what_it_is_to_answer(live_server: Live) -> None:
    live_server.live_model = live_server.model("gemini-3.1-flash-live-preview")
    live_server.answer("Three?")
    live_server.answer("Four?")
    history = [UserContent("One"), ModelContent("Two"), UserContent("Three")]
    request = LlmRequest(contents=list(history))
    async with live_server.live_model.connect(request) as connection:
        await connection.send_history(history)
        photo = Blob(data=b"\x01", mime_type="image/png")
        await connection.send_content(Content(role="user", parts=[Part(inline_data=photo), Part(text="Four")]))
        await live_server.connections[0].more(4 - len(live_server.seen))
    assert live_server.setups[0]["historyConfig"] == {"initial_history_in_client_content": True}
    first, *rest = live_server.seen
    assert [turn["parts"][0]["text"] for turn in first["client_content"]["turns"]] == ["One", "Two"]
    assert first["client_content"]["turnComplete"] is True
    assert [next(iter(message["realtime_input"])) for message in rest] == ["text", "video", "text"]
    assert rest[0]["realtime_input"] == {"text": "Three"}
