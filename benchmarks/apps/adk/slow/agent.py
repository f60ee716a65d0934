"""Answers after BENCH_SLOW_SECONDS (5 unless set)."""

# pyright: basic, reportMissingImports=false
import asyncio
import os
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

SECONDS = float(os.environ.get("BENCH_SLOW_SECONDS", "5"))

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=20, candidates_token_count=10, total_token_count=30
)


def reply(text: str) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), usage_metadata=USAGE)


class Thinks(BaseLlm):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await asyncio.sleep(SECONDS)
        yield reply("thought about it")


root_agent = LlmAgent(name="slow", model=Thinks(model="thinks"), instruction="Think.")
