"""An agent that needs a user's access, a server of it, and the user."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    OAuth2Auth,
    OAuthFlow,
    OAuthFlows,
)
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel, Turn
from tests.credentials.authorization_server import CLIENT_ID, CLIENT_SECRET, REDIRECT, AuthorizationServer
from tests.server.serving import Json, Serving, serving

WHERE: Json = {"appName": "desk", "userId": "ann", "sessionId": "s-1"}


def login(provider: AuthorizationServer) -> AuthConfig:
    flow = OAuthFlow(
        authorization_url=f"{provider.url}/authorize", token_url=f"{provider.url}/token", scopes={"read": ""}
    )
    oauth2 = OAuth2Auth(client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
    return AuthConfig(
        auth_scheme=AuthScheme(type="oauth2", flows=OAuthFlows(authorization_code=flow)),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2),
    )


class Desk:
    """calls: what each call of the tool found of a credential."""

    def __init__(self, config: AuthConfig, provider: AuthorizationServer | None = None) -> None:
        self.config = config
        self.provider = provider
        self.calls: list[str | None] = []

    async def who_am_i(self, tool_context: ToolContext) -> JsonObject | None:
        """Returns the name of the user."""
        granted = tool_context.get_auth_response(self.config)
        token = granted and (granted.bearer_token() or granted.api_key)
        self.calls.append(token)
        if token is None:
            tool_context.request_credential(self.config)
            return None
        if self.provider is None:
            return {"name": "Ada"}
        async with httpx.AsyncClient() as client:
            reply = await client.get(f"{self.provider.url}/me", headers={"authorization": f"Bearer {token}"})
        return reply.json() if reply.status_code == 200 else {"error": reply.status_code}

    def agent(self, *script: Turn, **fields: Any) -> LlmAgent:
        turns = script or (call("who_am_i"), "You are Ada.")
        fields.setdefault("tools", [self.who_am_i])
        return LlmAgent(name="desk", model=ScriptedModel(turns), **fields)


def call(name: str, call_id: str = "c-1", **args: Any) -> FunctionCall:
    return FunctionCall(id=call_id, name=name, args=args)


@contextlib.asynccontextmanager
async def serve(agent: BaseAgent, folder: Path) -> AsyncGenerator[Serving]:
    app = create_app(agents=[agent], session_service=SqliteSessionService(folder / "greenroom.db"))
    async with serving(app) as server:
        yield server


async def say(server: Serving, part: Json | str, **more: Any) -> list[Json]:
    reply = await post(server, part, **more)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def post(server: Serving, part: Json | str, **more: Any) -> httpx.Response:
    parts = [{"text": part} if isinstance(part, str) else part]
    return await server.client.post(
        "/run", json={**WHERE, "newMessage": {"role": "user", "parts": parts}, **more}, timeout=10
    )


def requests_of(events: list[Json]) -> list[Json]:
    """The framework's calls that ask for a credential."""
    calls = [part.get("functionCall") for event in events for part in (event.get("content") or {}).get("parts", [])]
    return [found for found in calls if found and found["name"] == "adk_request_credential"]


def responses_of(events: list[Json]) -> list[Json]:
    parts = [part for event in events for part in (event.get("content") or {}).get("parts", [])]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


def answer(request: Json, response: Any) -> Json:
    return {"functionResponse": {"id": request["id"], "name": request["name"], "response": response}}


async def consent(request: Json, *, deny: bool = False) -> Json:
    """Does what ADK's web page does: opens the login with its own redirect, and sends back where it was led to."""
    config = request["args"]["authConfig"]
    oauth2 = config["exchangedAuthCredential"]["oauth2"]
    uri = httpx.URL(oauth2["authUri"]).copy_merge_params({"redirect_uri": REDIRECT, **({"deny": "1"} if deny else {})})
    async with httpx.AsyncClient() as browser:
        page = await browser.get(uri)
    assert page.status_code == 307, page.text
    oauth2 = {**oauth2, "authResponseUri": page.headers["location"], "redirectUri": REDIRECT}
    return answer(request, {**config, "exchangedAuthCredential": {"authType": "oauth2", "oauth2": oauth2}})


async def status(server: Serving, run_id: str) -> str:
    return (await server.client.get(f"/runs/{run_id}")).json()["status"]
