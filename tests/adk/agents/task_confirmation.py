from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool
from google.genai import types


def pay(amount: int) -> str:
    return "paid"


booker = LlmAgent(
    name="booker",
    model="scripted",
    mode="task",
    description="Books.",
    tools=[FunctionTool(pay, require_confirmation=True)],
)
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[booker])
REPLIES = [
    types.Part.from_function_call(name="booker", args={"request": "one"}),
    types.Part.from_function_call(name="pay", args={"amount": 3}),
    types.Part.from_function_call(name="finish_task", args={"result": "done"}),
    "All done.",
]


def yes(seen):
    call = next(
        p.function_call for e in reversed(seen) for p in (e.content.parts if e.content else []) if p.function_call
    )
    return types.Content(
        role="user",
        parts=[
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
            )
        ],
    )


MESSAGES = ["go", yes]
