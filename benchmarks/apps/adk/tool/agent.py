"""Calls one trivial tool, then says what it found: two model calls a turn."""

# pyright: basic, reportMissingImports=false
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types


def lookup(key: str) -> dict:
    """Look a key up.

    Args:
        key: What to look for.
    """
    return {"key": key, "value": 42}


USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=20, candidates_token_count=10, total_token_count=30
)


def reply(part: types.Part) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=USAGE)


class CallsLookup(BaseLlm):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        contents = llm_request.contents
        parts = contents[-1].parts if contents else None
        result = parts[-1].function_response if parts else None
        if result is None:
            yield reply(types.Part(function_call=types.FunctionCall(name="lookup", args={"key": "answer"})))
        else:
            yield reply(types.Part(text=f"looked up: {result.response}"))


root_agent = LlmAgent(
    name="tool",
    model=CallsLookup(model="calls-lookup"),
    instruction="Look up what the user asks for.",
    tools=[lookup],
)
