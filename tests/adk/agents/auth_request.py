from google.adk.agents import LlmAgent
from google.adk.auth import AuthConfig, AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.tools import ToolContext
from google.genai import types

CONFIG = AuthConfig(
    auth_scheme={
        "type": "oauth2",
        "flows": {
            "authorizationCode": {
                "authorizationUrl": "https://login.example.com/auth",
                "tokenUrl": "https://login.example.com/token",
                "scopes": {"read": ""},
            }
        },
    },
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="id", client_secret="s3cret")
    ),
)


def calendar(tool_context: ToolContext) -> dict:
    if tool_context.get_auth_response(CONFIG) is None:
        tool_context.request_credential(CONFIG)
        return {"pending": True}
    return {"events": []}


root_agent = LlmAgent(name="a", model="scripted", tools=[calendar])
REPLIES = [types.Part.from_function_call(name="calendar", args={}), "Please log in."]
MESSAGES = ["calendar"]
