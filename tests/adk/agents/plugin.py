from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types


class Count(BasePlugin):
    def __init__(self):
        super().__init__(name="count")
        self.models = 0

    async def on_user_message_callback(self, *, invocation_context, user_message):
        return types.Content(role="user", parts=[types.Part(text=user_message.parts[0].text + "!")])

    async def before_model_callback(self, *, callback_context, llm_request):
        self.models += 1
        callback_context.state["models"] = self.models

    async def after_tool_callback(self, *, tool, tool_args, tool_context, result):
        return {"wrapped": result}

    async def on_event_callback(self, *, invocation_context, event):
        event.custom_metadata = {"seen": True}
        return event


def ping() -> str:
    return "pong"


app = App(name="app", root_agent=LlmAgent(name="a", model="scripted", tools=[ping]), plugins=[Count()])
REPLIES = [types.Part.from_function_call(name="ping", args={}), "pong"]
MESSAGES = ["ping"]
