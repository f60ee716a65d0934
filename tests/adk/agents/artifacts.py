from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext, load_artifacts
from google.genai import types


async def save(text: str, tool_context: ToolContext) -> dict:
    part = types.Part.from_bytes(data=text.encode(), mime_type="text/plain")
    version = await tool_context.save_artifact("note.txt", part)
    return {"version": version, "names": await tool_context.list_artifacts()}


def call(text):
    return types.Part.from_function_call(name="save", args={"text": text})


root_agent = LlmAgent(name="a", model="scripted", tools=[save, load_artifacts])
REPLIES = [call("one"), call("two"), "Saved."]
MESSAGES = ["save"]
