"""A server on encrypted stores: `python -m tests.encryption.server_app FOLDER SOCKET`.

GREENROOM_URI is the database of the sessions, GREENROOM_KEYS the keys, empty for none; GREENROOM_ARTIFACTS is the store
of the artifacts. The model makes the calls that the user's message names.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.encryption.from_uri import key_provider_from_uri
from greenroom.invocation.user_context import ToolContext
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.records.auth import AuthCredential, AuthCredentialTypes
from greenroom.records.content import FunctionCall, Part
from greenroom.runs.engine import credential_service_beside
from greenroom.server.application import create_app
from greenroom.server.settings import EncryptionSettings, ServerSettings
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.testing.scripted_model import Said
from greenroom.tools.builtin.sleep import wait_for
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.scripts import model_of

APP = "desk"
USER = "ann"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    keys_uri = os.environ["GREENROOM_KEYS"] or None
    keys = None if keys_uri is None else key_provider_from_uri(keys_uri)
    uri = os.environ["GREENROOM_URI"]
    sessions = session_service_from_uri(uri, keys=keys)
    credentials = credential_service_beside(sessions)

    async def keep(texts: list[str], tool_context: ToolContext) -> dict[str, str]:
        """Stores the texts wherever a tool can."""
        state, user_state, app_state, artifact, credential, result = texts
        tool_context.state["note"] = [state]
        tool_context.state["user:note"] = user_state
        tool_context.state["app:note"] = app_state
        await tool_context.save_artifact("report", Part(text=artifact), {"about": artifact})
        await credentials.save_credential(
            app_name=APP,
            user_id=USER,
            credential_key="bank",
            credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=credential),
        )
        return {"kept": result}

    def pay(to: str) -> str:
        """Pays."""
        return f"paid to {to}"

    def fail(because: str) -> str:
        """Fails."""
        raise ValueError(because)

    tools = [keep, FunctionTool(pay, require_confirmation=True), fail, wait_for]
    agent = LlmAgent(name=APP, model=model_of(_call, _answer), tools=tools)
    app = create_app(
        agents=[App(name=APP, root_agent=agent)],
        session_service=sessions,
        memory_service=memory_service_from_uri(uri, keys=keys),
        artifact_service=artifact_service_from_uri(os.environ["GREENROOM_ARTIFACTS"], keys=keys),
        credential_service=credentials,
        settings=ServerSettings(
            grace_seconds=0.5,
            encryption=EncryptionSettings(keys=keys_uri),
            allow_private_webhooks=True,
            webhook_secrets=str(folder / "webhooks.toml"),
        ),
    )
    config = uvicorn.Config(app, lifespan="on", log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def _call(message: str) -> Said:
    """Makes the call in the user's message: a name and arguments as JSON. Answers a message without one."""
    name, _, args = message.partition(" ")
    if not args.startswith("{"):
        return _answer(message)
    return FunctionCall(name=name, args=json.loads(args))


def _answer(message: str) -> Said:
    return f"Noted: {message[-200:]}"


if __name__ == "__main__":
    main()
