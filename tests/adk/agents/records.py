"""Records have pydantic's methods."""

from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.genai import types

event = Event(
    author="a",
    content=types.Content(role="model", parts=[types.Part(text="x")]),
    actions=EventActions(state_delta={"k": 1}),
)
copy = Event.model_validate(event.model_dump())
assert copy.content.parts[0].text == "x" and copy.actions.state_delta == {"k": 1}
assert Event.model_validate_json(event.model_dump_json(by_alias=True)).author == "a"
part = types.Part.from_function_response(name="f", response={"r": 1}).model_copy(update={"thought": True})
root_agent = LlmAgent(name="a", model="scripted", instruction=str(part.model_dump(exclude_none=True)["thought"]))
REPLIES = ["ok"]
MESSAGES = ["hi"]
