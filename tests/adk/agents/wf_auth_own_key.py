from google.adk.agents.context import Context
from google.adk.auth import AuthConfig, AuthCredential, AuthCredentialTypes
from google.adk.workflow import Workflow, node

CONFIG = AuthConfig(
    auth_scheme={"type": "apiKey", "name": "X-Key", "in": "header"},
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="the app's"),
)


@node(auth_config=CONFIG, rerun_on_resume=True)
def look(ctx: Context) -> str:
    return ctx.get_auth_response(CONFIG).api_key


def answer(seen):
    call = next(part.function_call for event in reversed(seen) for part in event.content.parts)
    given = {"auth_type": "apiKey", "api_key": "the user's"}
    response = types.FunctionResponse(id=call.id, name="adk_request_credential", response=given)
    return types.Content(role="user", parts=[types.Part(function_response=response)])


root_agent = Workflow(name="wf", edges=[("START", look)])
REPLIES = []
MESSAGES = ["go", answer]
