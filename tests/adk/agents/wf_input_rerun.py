from google.adk.agents import Context
from google.adk.events import RequestInput
from google.adk.workflow import Workflow, node
from google.genai import types


@node(rerun_on_resume=True)
async def ask(ctx: Context, node_input: str):
    found = ctx.resume_inputs.get("guests")
    if found is None:
        yield RequestInput(
            interrupt_id="guests",
            message="How many?",
            response_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
        )
    else:
        yield {"order": node_input, "guests": found["n"]}


def answer(events):
    response = types.FunctionResponse(id="guests", name="adk_request_input", response={"n": 3})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


root_agent = Workflow(name="wf", edges=[("START", ask)])
REPLIES = []
MESSAGES = ["party", answer]
