"""Streams 200 words, each in a loop turn of its own as if from a network, then the whole text."""

import asyncio
from collections.abc import AsyncIterator

from greenroom import BaseLlm, LlmAgent, LlmRequest, LlmResponse, types

WORDS = [f"word{number} " for number in range(200)]


def reply(text: str, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=partial)


class Talks(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        if stream:
            for word in WORDS:
                await asyncio.sleep(0)
                yield reply(word, partial=True)
        yield reply("".join(WORDS) + "end of text")


root_agent = LlmAgent(name="stream", model=Talks(model="talks"), instruction="Talk.")
