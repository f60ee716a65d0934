from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow
from google.genai import types


def check():
    return None


async def note_the_message(callback_context):
    callback_context.state["said"] = callback_context.user_content.parts[0].text


booker = LlmAgent(
    name="booker", model="scripted", mode="task", instruction="Book.", before_agent_callback=note_the_message
)
root_agent = Workflow(name="wf", edges=[("START", check, booker)])
REPLIES = [types.Part.from_function_call(name="finish_task", args={"result": "done"})]
MESSAGES = ["Book a table"]
REQUESTS = "contents"
