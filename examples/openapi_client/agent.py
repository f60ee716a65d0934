"""An agent that operates a greenroom server, with tools made of the server's own OpenAPI document.

The document is fetched from `GREENROOM_URL` when the first question is asked, so the app loads without a server.
`GREENROOM_MODEL` names another model.
"""

from __future__ import annotations

import os

from greenroom import LlmAgent
from greenroom.tools.openapi.toolset import OpenAPIToolset

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
URL = os.environ.get("GREENROOM_URL") or "http://127.0.0.1:8000"

server = OpenAPIToolset(
    spec_url=f"{URL.rstrip('/')}/openapi.json",
    # a small model can't choose among all that a server can do
    tool_filter=["list_apps", "list_sessions", "create_session", "get_session", "delete_session", "run"],
    # the server may run on this machine
    allow_private_network_access=True,
)

root_agent = LlmAgent(
    name="operator",
    model=MODEL,
    description="Operates a greenroom server: its apps, their sessions and runs.",
    instruction="You operate a server that hosts agents. Find out which apps there are before you name one, and create "
    "a session before you run an app in it. Say what the agent answered. Delete a session only if you are told to.",
    tools=[server],
)
