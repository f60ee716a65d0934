import google.genai.types as genai
from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent
from google.adk.events import Event
from google.adk.models import LlmResponse


def set_up(callback_context, llm_request):
    llm_request.config = genai.GenerateContentConfig(temperature=0.3, tools=llm_request.config.tools)
    llm_request.contents[0].parts.append(genai.Part(text="Be brief."))
    llm_request.contents.append(genai.UserContent("Now."))


def correct(callback_context, llm_response):
    if llm_response.content.parts[0].text == "First":
        call = genai.Part.from_function_call(name="find", args={"word": "tea"})
        return LlmResponse(content=genai.Content(role="model", parts=[genai.Part(text="Corrected"), call]))
    if llm_response.content.parts[0].text == "Last":
        llm_response.content.parts[0] = genai.Part(text="Changed in place")
    return None


def find(word: str) -> dict:
    return {"found": genai.Content(role="user", parts=[genai.Part(text=word)]), "all": [genai.Part(text="more")]}


async def save(tool_context):
    return await tool_context.save_artifact("a.txt", genai.Part.from_bytes(data=b"abc", mime_type="text/plain"))


def close(callback_context):
    return genai.Content(role="model", parts=[genai.Part(text="Closed.")])


class Own(BaseAgent):
    async def _run_async_impl(self, ctx):
        content = genai.Content(role="model", parts=[genai.Part(text="My own.")])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)
        event = Event(author=self.name, invocation_id=ctx.invocation_id)
        event.content = genai.ModelContent("Later.")
        yield event


assistant = LlmAgent(
    name="assistant",
    model="scripted",
    instruction="Help.",
    generate_content_config=genai.GenerateContentConfig(
        temperature=0.2,
        safety_settings=[genai.SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="OFF")],
    ),
    tools=[find, save],
    before_model_callback=set_up,
    after_model_callback=correct,
    after_agent_callback=close,
)
root_agent = SequentialAgent(name="team", sub_agents=[assistant, Own(name="own")])
REPLIES = ["First", genai.Part.from_function_call(name="save", args={}), "Last"]
MESSAGES = [genai.Content(role="user", parts=[genai.Part(text="go")])]
REQUESTS = ("contents", "tools")
