from collections.abc import AsyncIterator

from greenroom import BaseLlm, LlmAgent, LlmRequest, LlmResponse, types


class Parrot(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        text = (llm_request.contents[-1].parts or [types.Part()])[-1].text or ""
        if stream:
            for word in text.split():
                yield LlmResponse(
                    content=types.Content(role="model", parts=[types.Part(text=word + " ")]), partial=True
                )
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


agent = LlmAgent(name="parrot", model=Parrot(model="parrot"))
