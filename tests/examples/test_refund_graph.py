from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from greenroom.agents.frameworks.langgraph.agent import LangGraphAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.http_protocol import DEFAULT_LIMITS
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.serving import Serving, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = "refund_graph"


@asynccontextmanager
async def served(folder: Path, *script: str) -> AsyncGenerator[Serving]:
    loader = DirectoryAppLoader(EXAMPLES / APP)
    agent = loader.load(APP).root_agent
    assert isinstance(agent, LangGraphAgent)
    node: Any = agent.graph.nodes["write"].bound
    node.afunc.__globals__["model"].model = ScriptedModel(list(script))
    app = create_app(app_loader=loader, session_service=SqliteSessionService(folder / "sessions.db"))
    async with serving(app, DEFAULT_LIMITS) as server:
        yield server


async def say(server: Serving, part: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"appName": APP, "userId": "ada", "sessionId": "s", "newMessage": {"role": "user", "parts": [part]}}
    reply = await server.client.post("/run", json=body)
    assert reply.status_code == 200, reply.text
    events: list[dict[str, Any]] = reply.json()
    return events


def texts(events: list[dict[str, Any]]) -> list[str]:
    parts = [part for event in events for part in event.get("content", {}).get("parts", [])]
    return [part["text"] for part in parts if "text" in part]


async def test_a_small_sum_is_refunded_at_once(tmp_path: Path) -> None:
    async with served(tmp_path, "Your 19 EUR are on their way.") as server:
        await server.client.post(f"/apps/{APP}/users/ada/sessions/s")
        assert texts(await say(server, {"text": "Please refund order 70."})) == [
            "Which order? I know the numbers 7 and 8."
        ]
        assert texts(await say(server, {"text": "Order 7."})) == ["Your 19 EUR are on their way."]


async def test_a_large_sum_waits_for_a_person_through_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        await server.client.post(f"/apps/{APP}/users/ada/sessions/s")
        events = await say(server, {"text": "Please refund order 8."})
        [call] = [part["functionCall"] for event in events for part in event.get("content", {}).get("parts", [])]
        assert call["args"]["payload"]["question"] == "Refund 250.00 EUR for order 8?"

    async with served(tmp_path, "I am sorry.") as server:
        answer = {"id": call["id"], "name": call["name"], "response": {"result": "refused"}}
        assert texts(await say(server, {"functionResponse": answer})) == ["I am sorry."]
        session = (await server.client.get(f"/apps/{APP}/users/ada/sessions/s")).json()
        assert session["state"] == {"order": "8", "amount": 250.0, "decision": "refused"}
