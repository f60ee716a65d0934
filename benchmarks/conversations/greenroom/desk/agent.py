"""Answers at once with the user's own words, in chunks if they are asked for, and in live connections."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from greenroom import BaseLlm, LlmAgent, LlmRequest, LlmResponse, types
from greenroom.models.model import BaseLlmConnection, RealtimeInput

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=20, candidates_token_count=10, total_token_count=30
)


def said(text: str, *, partial: bool = False) -> LlmResponse:
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, partial=True) if partial else LlmResponse(content=content, usage_metadata=USAGE)


def last_text(contents: Sequence[types.Content]) -> str:
    parts = contents[-1].parts if contents else None
    return (parts[-1].text if parts else None) or ""


class LiveEcho(BaseLlmConnection):
    def __init__(self) -> None:
        self._turns: asyncio.Queue[str | None] = asyncio.Queue()

    async def send_history(self, history: Sequence[types.Content]) -> None:
        if history and history[-1].role == "user":
            self._turns.put_nowait(last_text(history))

    async def send_content(self, content: types.Content) -> None:
        self._turns.put_nowait(last_text([content]))

    async def send_realtime(self, data: RealtimeInput) -> None:
        """Hears nothing."""

    async def receive(self) -> AsyncIterator[LlmResponse]:
        while (text := await self._turns.get()) is not None:
            yield said(text)
            yield LlmResponse(turn_complete=True)

    async def close(self) -> None:
        self._turns.put_nowait(None)


class Echo(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        text = last_text(llm_request.contents)
        if stream:
            for word in text.split(" "):
                await asyncio.sleep(0)
                yield said(f"{word} ", partial=True)
        yield said(text)

    @asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[LiveEcho]:
        connection = LiveEcho()
        try:
            yield connection
        finally:
            await connection.close()


root_agent = LlmAgent(name="desk", model=Echo(model="echo"), instruction="Repeat what the user says.")
