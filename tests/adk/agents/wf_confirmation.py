from google.adk.workflow import Workflow, node
from google.genai import types


@node(require_confirmation=True)
def pay(node_input: str):
    return {"paid": node_input}


def answer(events):
    call = [p.function_call for e in events for p in (e.content.parts if e.content else []) if p.function_call][-1]
    response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


root_agent = Workflow(name="wf", edges=[("START", pay)])
REPLIES = []
MESSAGES = ["5", answer]
