"""The support agents on a server: the approval of a refund is given after a restart, and goes to the right agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from greenroom.agents.frameworks.openai_agents.agent import OpenAIAgentsAgent
from greenroom.agents.frameworks.openai_agents.model import OpenAIAgentsModel
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.http_protocol import DEFAULT_LIMITS
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.server.serving import Serving, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = "support_agents"
SESSION = f"/apps/{APP}/users/ada/sessions/s"


@asynccontextmanager
async def served(folder: Path, *script: Any) -> AsyncGenerator[Serving]:
    loader = DirectoryAppLoader(EXAMPLES / APP)
    hosted = loader.load(APP).root_agent
    assert isinstance(hosted, OpenAIAgentsAgent)
    hosted.agent.model = hosted.agent.handoffs[0].model = OpenAIAgentsModel(ScriptedModel(list(script)))
    app = create_app(app_loader=loader, session_service=SqliteSessionService(folder / "sessions.db"))
    async with serving(app, DEFAULT_LIMITS) as server:
        yield server


async def say(server: Serving, part: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"appName": APP, "userId": "ada", "sessionId": "s", "newMessage": {"role": "user", "parts": [part]}}
    reply = await server.client.post("/run", json=body)
    assert reply.status_code == 200, reply.text
    events: list[dict[str, Any]] = reply.json()
    return events


async def test_a_refund_is_approved_after_a_restart(tmp_path: Path) -> None:
    steps = call("transfer_to_billing", "c-1"), call("find_invoice", "c-2", number="R-2")
    async with served(tmp_path, *steps, call("refund", "c-3", number="R-2")) as server:
        await server.client.post(SESSION)
        events = await say(server, {"text": "I paid R-2 twice."})
    asked = next(event for event in events if event.get("longRunningToolIds"))
    [request] = [part["functionCall"] for part in asked["content"]["parts"]]
    assert request["args"]["originalFunctionCall"]["name"] == "refund"

    answer = {"id": request["id"], "name": request["name"], "response": {"confirmed": True}}
    async with served(tmp_path, "It is on its way.") as server:
        paid, said = [event for event in await say(server, {"functionResponse": answer}) if event.get("content")]

    assert paid["content"]["parts"][0]["functionResponse"]["response"] == {"result": "60.00 EUR were paid back"}
    assert said["content"]["parts"][0]["text"] == "It is on its way."
    assert said["customMetadata"] == {"agent": "Billing"}
