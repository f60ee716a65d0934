"""A live model whose connection has ADK's signatures: whole turns only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from greenroom.agents.llm_agent import LlmAgent
from greenroom.models.model import BaseLlm, BaseLlmConnection, RealtimeInput
from greenroom.records.content import Content, ModelContent, UserContent
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from tests.agents.live.calls import calling


class EchoConnection(BaseLlmConnection):
    """Answers each turn with its text, in upper case."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self._answers: asyncio.Queue[str | None] = asyncio.Queue()

    async def send_history(self, history: Sequence[Content]) -> None:
        pass

    async def send_content(self, content: Content) -> None:
        self.turns.append(content.text())
        self._answers.put_nowait(content.text().upper())

    async def send_realtime(self, data: RealtimeInput) -> None:
        pass

    async def receive(self) -> AsyncGenerator[LlmResponse]:
        while (answer := await self._answers.get()) is not None:
            yield LlmResponse(content=ModelContent(answer), turn_complete=True)

    async def close(self) -> None:
        self._answers.put_nowait(None)


class EchoModel(BaseLlm):
    model: str = "echo"

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        raise NotImplementedError
        yield

    @contextlib.asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[BaseLlmConnection]:
        connection = EchoConnection()
        CONNECTIONS.append(connection)
        yield connection


CONNECTIONS: list[EchoConnection] = []


async def test_typed_messages_reach_a_connection_that_takes_content_alone() -> None:
    CONNECTIONS.clear()
    async with calling(LlmAgent(name="echo", model=EchoModel())) as call:
        call.say("hello")
        await call.turns(1)
        call.say("again")
        await call.turns(2)
        events = await call.end()
    assert CONNECTIONS[0].turns == ["hello", "again"]
    said = [event.content.text() for event in events if event.author == "echo" and event.content]
    assert said == ["HELLO", "AGAIN"]


async def test_pieces_of_a_turn_are_sent_with_the_last_one() -> None:
    CONNECTIONS.clear()
    async with calling(LlmAgent(name="echo", model=EchoModel())) as call:
        call.say("hello")
        await call.turns(1)
        for piece in ("one ", "two "):
            call.queue.send_content(UserContent(piece), partial=True)
        call.queue.send_content(UserContent("three"))
        await call.turns(2)
        call.say("four")
        await call.turns(3)
        await call.end()
    assert CONNECTIONS[0].turns == ["hello", "one two three", "four"]
