from google.adk.agents.context import Context
from google.adk.auth import AuthConfig, AuthCredential, AuthCredentialTypes
from google.adk.workflow import Workflow, node
from google.genai import types

CONFIG = AuthConfig(
    auth_scheme={"type": "apiKey", "name": "X-Key", "in": "header"},
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
    credential_key="desk",
)


@node(auth_config=CONFIG, rerun_on_resume=True)
def look(ctx: Context, node_input: str) -> str:
    return f"{node_input} {ctx.get_auth_response(CONFIG).api_key}"


def after(node_input: str) -> str:
    return node_input.upper()


def answer(seen):
    call = next(p.function_call for e in reversed(seen) if e.content for p in e.content.parts if p.function_call)
    given = {"auth_type": "apiKey", "api_key": "k-1"}
    part = types.Part(
        function_response=types.FunctionResponse(id=call.id, name="adk_request_credential", response=given)
    )
    return types.Content(role="user", parts=[part])


root_agent = Workflow(name="wf", edges=[("START", look, after)])
REPLIES = []
MESSAGES = ["go", answer]
