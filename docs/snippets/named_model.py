from collections.abc import AsyncIterator

from greenroom import BaseLlm, LlmAgent, LLMRegistry, LlmRequest, LlmResponse, types


class Echo(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        said = llm_request.contents[-1].text()
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"{self.model}: {said}")]))


LLMRegistry.register(r"echo/.+", lambda name: Echo(model=name))

agent = LlmAgent(name="echo", model="echo/loud")
