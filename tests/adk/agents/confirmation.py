from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool
from google.genai import types


def pay(amount: int) -> dict:
    return {"paid": amount}


def answer(events):
    call = [
        part.function_call for e in events for part in (e.content.parts if e.content else []) if part.function_call
    ][-1]
    response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


root_agent = LlmAgent(name="a", model="scripted", tools=[FunctionTool(pay, require_confirmation=True)])
REPLIES = [types.Part.from_function_call(name="pay", args={"amount": 5}), "Paid."]
MESSAGES = ["pay 5", answer]
