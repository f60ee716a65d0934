"""An agent in google-adk's own A2A server, run with its environment: `python server.py PORT`.

Its model calls a tool for the first message of a turn, and then repeats the message, in two pieces.
"""

import sys
from collections.abc import AsyncGenerator

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types


class Model(BaseLlm):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        newest = llm_request.contents[-1].parts[-1]
        if newest.function_response is None:
            said = [content.parts[0].text for content in llm_request.contents if content.parts[0].text]
            call = types.FunctionCall(name="shout", args={"text": " | ".join(said)})
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
            return
        text = newest.function_response.response["result"]
        if stream:
            for piece in (text[:3], text[3:]):
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


port = int(sys.argv[1])
agent = LlmAgent(name="peer", description="Says it louder.", model=Model(model="scripted"), tools=[shout])
uvicorn.run(to_a2a(agent, host="127.0.0.1", port=port), host="127.0.0.1", port=port, log_level="warning")
