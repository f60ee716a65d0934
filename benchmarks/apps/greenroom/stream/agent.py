"""Streams 200 words, each in a loop turn of its own as if from a network, then the whole text."""

import asyncio
from collections.abc import AsyncIterator

from greenroom import BaseLlm, LlmAgent, LlmRequest, LlmResponse, types

WORDS = [f"word{number} " for number in range(200)]

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=20, candidates_token_count=10, total_token_count=30
)


def reply(text: str) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), usage_metadata=USAGE)


def chunk(text: str) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=True)


class Talks(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        if stream:
            for word in WORDS:
                await asyncio.sleep(0)
                yield chunk(word)
        yield reply("".join(WORDS) + "end of text")


root_agent = LlmAgent(name="stream", model=Talks(model="talks"), instruction="Talk.")
