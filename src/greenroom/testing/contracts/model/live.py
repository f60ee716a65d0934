"""Contract of live connections.

Star-import these tests into a test file that has a fixture `live`: a `LiveProvider`, new for each
test.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from greenroom.errors import ModelError
from greenroom.models.model import BaseLlm, BaseLlmConnection
from greenroom.records.base import JsonObject
from greenroom.records.content import (
    Blob,
    Content,
    FunctionCall,
    FunctionResponse,
    ModelContent,
    Part,
    UserContent,
)
from greenroom.records.generation import GenerateContentConfig, LiveConnectConfig
from greenroom.records.model_exchange import AudioStreamEnd, LlmRequest, LlmResponse
from greenroom.records.tool_declaration import Tool
from greenroom.testing.contracts.model.provider import GET_WEATHER
from greenroom.testing.scripted_live_model import CHUNK, INTERRUPTED, Drops, HangsUp, Hears, LiveItem, Says

_MICROPHONE = Blob(data=b"\x10\x00" * 240, mime_type="audio/pcm;rate=24000")


class LiveProvider(Protocol):
    """A model, and the server that it connects to, which speaks its wire format.

    seen: the messages of all clients, oldest first.
    """

    live_model: BaseLlm
    secret: str
    """The key that the model was given."""

    @property
    def seen(self) -> list[JsonObject]: ...

    def answer(self, *items: LiveItem) -> None:
        """Adds a turn of the model, given when a user's turn ends: by content that isn't partial, by the end of an
        audio stream, or by responses to calls. The turn is completed unless it ends with a call or the connection's
        end.
        """

    def refuse(self, status: int, message: str) -> None:
        """Refuses all later connections with this HTTP status."""


def _request(*contents: Content, **settings: object) -> LlmRequest:
    connect: dict[str, object] = {
        "input_audio_transcription": {},
        "output_audio_transcription": {},
        **settings,
    }
    return LlmRequest(
        contents=list(contents),
        config=GenerateContentConfig(system_instruction="Be brief.", tools=[Tool(function_declarations=[GET_WEATHER])]),
        live_connect_config=LiveConnectConfig(**connect),  # type: ignore[arg-type]
    )


async def _turn(replies: AsyncIterator[LlmResponse]) -> list[LlmResponse]:
    """Up to the end of the model's turn, or its calls."""
    turn: list[LlmResponse] = []
    async with asyncio.timeout(10):
        async for reply in replies:
            turn.append(reply)
            if reply.turn_complete or reply.get_function_calls():
                break
    return turn


def _texts(turn: list[LlmResponse], *, partial: bool | None) -> str:
    return "".join(reply.content.text() for reply in turn if reply.content and reply.partial == partial)


async def _speak(connection: BaseLlmConnection) -> None:
    await connection.send_realtime(_MICROPHONE)
    await connection.send_realtime(AudioStreamEnd())


async def test_text_comes_in_pieces_and_whole(live: LiveProvider) -> None:
    live.answer("Hello you there")

    async with live.live_model.connect(_request(response_modalities=["TEXT"])) as connection:
        await connection.send_content(UserContent("Hi, model"))
        turn = await _turn(connection.receive())

    assert _texts(turn, partial=True) == _texts(turn, partial=None) == "Hello you there"
    assert [reply.turn_complete for reply in turn if not reply.partial] == [None, True]
    usage = turn[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count) == (10, 5, 15)
    sent = json.dumps(live.seen)
    assert "Hi, model" in sent


async def test_audio_goes_both_ways_with_transcripts(live: LiveProvider) -> None:
    live.answer(Hears("good day"), Says("hello you"))

    async with live.live_model.connect(_request()) as connection:
        await _speak(connection)
        turn = await _turn(connection.receive())

    assert base64.b64encode(_MICROPHONE.data or b"").decode() in json.dumps(live.seen)
    parts = [part for reply in turn if reply.content for part in reply.content.parts or ()]
    assert [part.inline_data for part in parts] == [Blob(data=CHUNK, mime_type="audio/pcm;rate=24000")] * 2

    for transcripts, text in (
        ([reply.input_transcription for reply in turn if reply.input_transcription], "good day"),
        ([reply.output_transcription for reply in turn if reply.output_transcription], "hello you"),
    ):
        *pieces, complete = transcripts
        assert "".join(piece.text or "" for piece in pieces) == complete.text == text
        assert [piece.finished for piece in transcripts] == [False] * len(pieces) + [True]


async def test_a_history_is_answered_if_the_user_has_the_last_word(live: LiveProvider) -> None:
    live.answer("Second answer")

    history = [UserContent("First"), ModelContent("First answer"), UserContent("Second")]
    async with live.live_model.connect(_request(*history, response_modalities=["TEXT"])) as connection:
        await connection.send_history(history)
        turn = await _turn(connection.receive())

    assert _texts(turn, partial=None) == "Second answer"
    sent = json.dumps(live.seen)
    assert sent.index("First") < sent.index("First answer") < sent.index("Second")


async def test_a_history_that_the_model_ended_waits_for_the_user(live: LiveProvider) -> None:
    live.answer("Second answer")
    call = Part(function_call=FunctionCall(id="c-1", name="get_weather", args={"city": "Oslo"}))
    response = Part(function_response=FunctionResponse(id="c-1", name="get_weather", response={"temperature": 7}))
    picture = Part(inline_data=Blob(data=b"\x01", mime_type="audio/pcm"))
    question = Content(role="user", parts=[picture, Part(text="How warm?")])

    history = [
        question,
        ModelContent(call),
        Content(role="user", parts=[response]),
        ModelContent("7 degrees"),
    ]
    async with live.live_model.connect(_request(*history, response_modalities=["TEXT"])) as connection:
        await connection.send_history(history)
        replies = aiter(connection.receive())
        early = asyncio.ensure_future(anext(replies))
        assert await connection.send_partial_content(UserContent("And"))
        assert not early.done()
        await connection.send_content(UserContent("tomorrow?"))
        turn = [await early, *await _turn(replies)]

    assert _texts(turn, partial=None) == "Second answer"
    sent = json.dumps(live.seen)
    for text in ("How warm?", "Oslo", "temperature", "7 degrees", "And", "tomorrow?"):
        assert text in sent


async def test_calls_and_their_responses(live: LiveProvider) -> None:
    live.answer(FunctionCall(id="c-1", name="get_weather", args={"city": "Oslo"}))
    live.answer("It is 7 degrees")

    async with live.live_model.connect(_request(response_modalities=["TEXT"])) as connection:
        await connection.send_content(UserContent("How warm is it?"))
        replies = aiter(connection.receive())
        turn = await _turn(replies)
        assert [(call.id, call.name, call.args) for call in turn[-1].get_function_calls()] == [
            ("c-1", "get_weather", {"city": "Oslo"})
        ]
        response = FunctionResponse(id="c-1", name="get_weather", response={"temperature": 7})
        await connection.send_content(Content(role="user", parts=[Part(function_response=response)]))
        turn = await _turn(replies)

    assert _texts(turn, partial=None) == "It is 7 degrees"
    assert "temperature" in json.dumps(live.seen[-2:])


async def test_an_interruption_comes_before_the_end_of_its_turn(live: LiveProvider) -> None:
    live.answer(Says("one two"), INTERRUPTED)
    live.answer("Yes?")

    async with live.live_model.connect(_request()) as connection:
        replies = aiter(connection.receive())
        await _speak(connection)
        turn = await _turn(replies)
        await connection.send_content(UserContent("Wait"))
        assert _texts(await _turn(replies), partial=None) == "Yes?"

    ends = [(reply.interrupted, reply.turn_complete) for reply in turn if reply.interrupted or reply.turn_complete]
    assert ends == [(True, None), (None, True)]
    assert [
        reply.output_transcription.text
        for reply in turn
        if reply.output_transcription and reply.output_transcription.finished
    ] == ["one two"]


async def test_a_lost_connection_is_an_error_to_try_again(live: LiveProvider) -> None:
    live.answer(Says("Half"), Drops())

    async with live.live_model.connect(_request()) as connection:
        await _speak(connection)
        with pytest.raises(ModelError) as caught:
            await _turn(connection.receive())
        assert (caught.value.category, caught.value.retryable) == ("NETWORK_ERROR", True)
        with pytest.raises(ModelError) as caught:
            await connection.send_content(UserContent("Are you there?"))
        assert caught.value.retryable


async def test_a_connection_that_the_service_closes_has_ended(live: LiveProvider) -> None:
    live.answer("Bye", HangsUp())
    async with live.live_model.connect(_request(response_modalities=["TEXT"])) as connection:
        await connection.send_content(UserContent("Bye"))
        async with asyncio.timeout(10):
            assert "Bye" in _texts([reply async for reply in connection.receive()], partial=True)


async def test_closing_ends_the_responses(live: LiveProvider) -> None:
    async with live.live_model.connect(_request()) as connection:
        replies = aiter(connection.receive())
        waiting = asyncio.ensure_future(anext(replies, None))
        await asyncio.sleep(0)
        await connection.close()
        async with asyncio.timeout(10):
            assert await waiting is None


@pytest.mark.parametrize(
    ("status", "category", "retryable"),
    [(400, "CLIENT_ERROR", False), (401, "AUTH_ERROR", False), (429, "RATE_LIMITED", True)],
)
async def test_refused_connections(
    live: LiveProvider,
    status: int,
    category: str,
    retryable: bool,
) -> None:
    live.refuse(status, f"No good: {live.secret}")
    with pytest.raises(ModelError, match="No good") as caught:
        async with live.live_model.connect(_request()):
            pass
    error = caught.value
    assert (error.category, error.retryable, error.http_status) == (category, retryable, status)
    assert live.secret not in error.detail
