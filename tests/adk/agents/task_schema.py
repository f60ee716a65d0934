from google.adk.agents import LlmAgent
from google.genai import types
from pydantic import BaseModel


class Table(BaseModel):
    guests: int


class Ask(BaseModel):
    what: str


booker = LlmAgent(
    name="booker",
    model="scripted",
    mode="task",
    description="Books.",
    input_schema=Ask,
    output_schema=Table,
    output_key="booked",
)
root_agent = LlmAgent(name="desk", model="scripted", sub_agents=[booker])
REPLIES = [
    types.Part.from_function_call(name="booker", args={"what": "a table"}),
    types.Part.from_function_call(name="finish_task", args={"guests": "many"}),
    types.Part.from_function_call(name="finish_task", args={"guests": 4}),
    "It is booked.",
]
MESSAGES = ["Book a table"]
