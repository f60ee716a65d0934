from google.adk.events import RequestInput
from google.adk.workflow import Workflow
from google.genai import types


def ask(node_input: str):
    yield RequestInput(interrupt_id="ok", message="Sure?", payload={"text": node_input})


def use(node_input):
    return {"answer": node_input}


def answer(events):
    response = types.FunctionResponse(id="ok", name="adk_request_input", response={"result": "yes"})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


root_agent = Workflow(name="wf", edges=[("START", ask, use)])
REPLIES = []
MESSAGES = ["x", answer]
