from google.adk.agents import LlmAgent
from google.adk.tools import LongRunningFunctionTool
from google.genai import types


def ask_boss(amount: int) -> dict:
    return {"status": "pending", "ticket": 1}


def answer(events):
    call = next(
        part.function_call for e in events for part in (e.content.parts if e.content else []) if part.function_call
    )
    response = types.FunctionResponse(id=call.id, name=call.name, response={"status": "approved"})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


root_agent = LlmAgent(name="a", model="scripted", tools=[LongRunningFunctionTool(func=ask_boss)])
REPLIES = [types.Part.from_function_call(name="ask_boss", args={"amount": 5}), "Waiting.", "Approved."]
MESSAGES = ["5 please", answer]
