"""The client that MCP's conformance suite drives: `python -m tests.tools.mcp.conformance_client URL`.

An agent calls each tool of the server once, and a person accepts each question without filling in anything, and each
login.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import httpx

from greenroom import AuthCredential, AuthCredentialTypes, OAuth2Auth
from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import Content, FunctionCall
from greenroom.records.human_requests import REQUEST_CREDENTIAL
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.mcp.toolset import McpToolset, StreamableHTTPConnectionParams
from tests.agents.human_input.approvals import decide, requests
from tests.agents.talk import Talk, answer, call

ARGUMENTS = {"add_numbers": {"a": 2, "b": 3}}
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")


def credential() -> AuthCredential:
    """Of an app that is known to the authorization server, or has a document about itself, or is registered there."""
    app = OAuth2Auth(client_id=GIVEN.get("client_id"), client_secret=GIVEN.get("client_secret"))
    if "client-credentials" not in SCENARIO:
        app.client_id = app.client_id or "https://conformance-test.local/client-metadata.json"
        app.redirect_uri = "http://localhost:3000/callback"
    return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=app)


async def answer_of(request: FunctionCall) -> Content:
    """A person's answer: a login, or a yes."""
    if request.name != REQUEST_CREDENTIAL:
        return decide(request.id or "")
    oauth2 = (request.args or {})["authConfig"]["exchangedAuthCredential"]["oauth2"]
    async with httpx.AsyncClient() as browser:
        consent = await browser.get(oauth2["authUri"])
    back = {"authType": "oauth2", "oauth2": {**oauth2, "authResponseUri": consent.headers["location"]}}
    return answer(REQUEST_CREDENTIAL, request.id, back)


async def main(url: str) -> None:
    toolset = McpToolset(
        connection_params=StreamableHTTPConnectionParams(url, timeout=20),
        auth_credential=credential() if SCENARIO.startswith("auth/") else None,
    )
    called: list[str] = []

    def reply(request: LlmRequest) -> FunctionCall | str:
        """Calls the next tool."""
        name = next((one for one in request.tools_dict if one not in called), None)
        if name is None:
            return "done"
        called.append(name)
        return call(name, f"c-{name}", **ARGUMENTS.get(name, {}))

    try:
        talk = Talk(LlmAgent(name="a", model=ScriptedModel(reply), tools=[toolset]))
        events = await talk.say("go")
        while asked := requests(events):
            events = await talk.say(await answer_of(asked[0]))
        print(events)
    finally:
        await toolset.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
