"""Each turn is one model call that uses fewer tokens than are reserved for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from greenroom import App, BaseLlm, BudgetLimit, BudgetPlugin, LlmAgent, LlmRequest, LlmResponse, types

TOKENS_PER_USER = 2_000
TOKENS_PER_CALL = 100
RESERVED_OUTPUT_TOKENS = 100


class Spender(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        await asyncio.sleep(0.02)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=10, candidates_token_count=TOKENS_PER_CALL - 10, total_token_count=TOKENS_PER_CALL
        )
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="ok")]), usage_metadata=usage)


app = App(
    name="spender",
    root_agent=LlmAgent(name="spender", model=Spender(model="spender")),
    plugins=[
        BudgetPlugin([BudgetLimit(per="user", tokens=TOKENS_PER_USER)], default_output_tokens=RESERVED_OUTPUT_TOKENS)
    ],
)
