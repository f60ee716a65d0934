"""The example of a human approval, driven over HTTP; the page about it says what the server really answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import GreenroomApp, create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.documentation.transcript import Transcript
from tests.server.serving import Json, Serving, serving

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "approvals.md"
WHERE: Json = {"appName": "approval", "userId": "ada", "sessionId": "s-1"}


def scripted_app(folder: Path) -> GreenroomApp:
    """The example with a model that always follows its instruction, over sessions in a file."""
    loader = DirectoryAppLoader(ROOT / "examples" / "approval")
    agent = loader.load("approval").root_agent
    assert isinstance(agent, LlmAgent)
    agent.model = ScriptedModel(_obey)
    sessions = SqliteSessionService(Path(folder) / "sessions.db")
    return create_app(app_loader=loader, session_service=sessions, settings=ServerSettings())


def _obey(request: LlmRequest) -> str | FunctionCall:
    asked, last = request.contents[0].text(), request.contents[-1]
    response = next((part.function_response for part in last.parts or () if part.function_response), None)
    if response is not None:
        outcome = response.response or {}
        if "error" in outcome:
            return "It was refused, so I left it."
        return f"Done: {json.dumps({key: value for key, value in outcome.items() if key != 'reference'})}"
    if found := re.search(r"Pay (\d+) to (.+)\.", asked):
        return FunctionCall(name="pay", args={"to": found[2], "amount": int(found[1])})
    if found := re.search(r"Close account (\S+)\.", asked):
        return FunctionCall(name="close_account", args={"account": found[1]})
    return "Good day."


async def say(server: Serving, part: Json) -> list[Json]:
    message = {"role": "user", "parts": [part]}
    reply = await server.client.post("/run", json={**WHERE, "newMessage": message})
    assert reply.status_code == 200, reply.text
    return reply.json()


def answer(events: list[Json], **response: Any) -> Json:
    request: Json = events[1]["content"]["parts"][0]["functionCall"]
    return {"functionResponse": {"id": request["id"], "name": request["name"], "response": response}}


def responses(events: list[Json]) -> list[Json]:
    parts: list[Json] = [part for event in events for part in event["content"]["parts"]]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


async def new_session(server: Serving) -> None:
    await server.new_session("approval", user="ada")


async def test_a_small_amount_is_paid_at_once(tmp_path: Path) -> None:
    async with serving(scripted_app(tmp_path)) as server:
        await new_session(server)
        (paid,) = responses(await say(server, {"text": "Pay 40 to Paper & Co."}))
        assert (paid["status"], paid["amount"]) == ("paid", 40)


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"confirmed": True}, {"status": "paid", "to": "Roof Repairs", "amount": 4200}),
        (
            {"confirmed": True, "payload": {"to": "Roof Repairs", "amount": 4000}},
            {"status": "paid", "to": "Roof Repairs", "amount": 4000},
        ),
        ({"confirmed": False}, {"error": "A person refused this call; it was not made."}),
    ],
)
async def test_a_large_amount_waits_for_a_person_through_a_restart(
    tmp_path: Path, decision: Json, expected: Json
) -> None:
    async with serving(scripted_app(tmp_path)) as server:
        await new_session(server)
        asked = await say(server, {"text": "Pay 4200 to Roof Repairs."})
        await server.wait_for_status(asked[0]["invocationId"], "waiting")
    async with serving(scripted_app(tmp_path)) as server:
        (outcome,) = responses(await say(server, answer(asked, **decision)))
        assert {key: value for key, value in outcome.items() if key != "reference"} == expected
        await server.wait_for_status(asked[0]["invocationId"], "succeeded")


async def test_a_person_says_what_a_tool_needs_to_know(tmp_path: Path) -> None:
    async with serving(scripted_app(tmp_path)) as server:
        await new_session(server)
        asked = await say(server, {"text": "Close account A-1."})
        request = asked[1]["content"]["parts"][0]["functionCall"]["args"]["toolConfirmation"]
        assert request["payload"] == {"move_to": ""}
        answered = await say(server, answer(asked, confirmed=True, payload={"move_to": "A-2"}))
        assert responses(answered) == [{"status": "closed", "account": "A-1", "moved_to": "A-2"}]


async def test_the_page_shows_what_the_server_answers(tmp_path: Path) -> None:
    page = Transcript(PAGE.read_text())
    assert len(page.exchanges) >= 4
    async with serving(scripted_app(tmp_path)) as server:
        for exchange in page.exchanges:
            await page.check(server, exchange)
    assert page.real
