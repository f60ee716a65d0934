"""Answers at once with the user's own words; the model is given the whole conversation."""

from collections.abc import AsyncIterator

from greenroom import BaseLlm, LlmAgent, LlmRequest, LlmResponse, types

USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=20, candidates_token_count=10, total_token_count=30
)


def reply(text: str) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), usage_metadata=USAGE)


class Echo(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        contents = llm_request.contents
        parts = contents[-1].parts if contents else None
        yield reply((parts[-1].text if parts else None) or "")


root_agent = LlmAgent(name="echo", model=Echo(model="echo"), instruction="Repeat what the user says.")
