"""The booking desk on a server: its approval is given after a restart."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from greenroom.agents.frameworks.pydantic_ai.agent import PydanticAiAgent
from greenroom.agents.frameworks.pydantic_ai.chat_model import GreenroomModel
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.http_protocol import DEFAULT_LIMITS
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.server.serving import Serving, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = "booking_desk"
SESSION = f"/apps/{APP}/users/ada/sessions/s"


@asynccontextmanager
async def served(folder: Path, *script: Any) -> AsyncGenerator[Serving]:
    loader = DirectoryAppLoader(EXAMPLES / APP)
    hosted = loader.load(APP).root_agent
    assert isinstance(hosted, PydanticAiAgent)
    hosted.agent.model = GreenroomModel(ScriptedModel(list(script)))
    app = create_app(app_loader=loader, session_service=SqliteSessionService(folder / "sessions.db"))
    async with serving(app, DEFAULT_LIMITS) as server:
        yield server


async def say(server: Serving, part: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"appName": APP, "userId": "ada", "sessionId": "s", "newMessage": {"role": "user", "parts": [part]}}
    reply = await server.client.post("/run", json=body)
    assert reply.status_code == 200, reply.text
    events: list[dict[str, Any]] = reply.json()
    return events


async def test_a_booking_is_approved_after_a_restart(tmp_path: Path) -> None:
    find = call("find_rooms", "c-1", guests=10)
    book = call("book", "c-2", room="library", day="2026-05-01")
    async with served(tmp_path, find, book) as server:
        await server.client.post(SESSION)
        events = await say(server, {"text": "A room for ten on the first of May"})
    asked = next(event for event in events if event.get("longRunningToolIds"))
    [request] = [part["functionCall"] for part in asked["content"]["parts"]]
    assert request["args"]["originalFunctionCall"]["args"] == {"room": "library", "day": "2026-05-01"}

    answer = {"id": request["id"], "name": request["name"], "response": {"confirmed": True}}
    async with served(tmp_path, "The library is yours on the first of May.") as server:
        events = await say(server, {"functionResponse": answer})
        session = (await server.client.get(SESSION)).json()

    assert events[-1]["content"]["parts"][0]["text"] == "The library is yours on the first of May."
    assert session["state"]["bookings"] == [{"room": "library", "day": "2026-05-01"}]
