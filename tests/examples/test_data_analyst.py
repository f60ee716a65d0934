"""The data analyst: a CSV file comes in over HTTP, code reads it in the default sandbox, and the chart is an artifact."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.artifacts.files import FileArtifactService
from greenroom.records.content import FunctionCall
from greenroom.server.application import GreenroomApp, create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.serving import Json, Serving, serving

EXAMPLES = Path(__file__).parents[2] / "examples"

READ = """
import csv
from collections import Counter

revenue = Counter()
with open("sales.csv", newline="") as file:
    for row in csv.DictReader(file):
        revenue[row["month"]] += float(row["revenue"])
print(dict(revenue))
"""

DRAW = """
bars = "".join(
    f'<rect x="{40 * i}" y="{200 - value / 60:.0f}" width="30" height="{value / 60:.0f}"/>'
    for i, value in enumerate(revenue.values())
)
with open("charts/revenue.svg", "w") as file:
    file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 240 200">{bars}</svg>')
"""


def analyst(folder: Path, model: ScriptedModel) -> GreenroomApp:
    loader = DirectoryAppLoader(EXAMPLES / "data_analyst")
    agent = loader.load("data_analyst").root_agent
    assert isinstance(agent, LlmAgent)
    agent.model = model
    return create_app(
        app_loader=loader,
        session_service=SqliteSessionService(folder / "sessions.db"),
        artifact_service=FileArtifactService(folder / "artifacts"),
        settings=ServerSettings(),
    )


async def say(server: Serving, *parts: Json) -> list[Json]:
    body = {"appName": "data_analyst", "userId": "user", "sessionId": "s-1"}
    reply = await server.client.post(
        "/run", json={**body, "newMessage": {"role": "user", "parts": list(parts)}}, timeout=120
    )
    assert reply.status_code == 200, reply.text
    return reply.json()


def responses(events: list[Json]) -> list[Json]:
    parts: list[Json] = [part for event in events for part in event.get("content", {}).get("parts", [])]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


async def test_a_csv_file_becomes_a_chart_and_both_outlive_the_server(tmp_path: Path) -> None:
    content = (EXAMPLES / "data_analyst" / "sales.csv").read_bytes()
    attached = {"displayName": "sales.csv", "mimeType": "text/csv", "data": base64.b64encode(content).decode()}
    first: list[Any] = [
        FunctionCall(name="run_python", args={"code": READ}),
        FunctionCall(name="run_python", args={"code": 'import os; os.mkdir("charts")\n' + DRAW}),
        "The chart is in charts/revenue.svg.",
    ]
    async with serving(analyst(tmp_path, ScriptedModel(first))) as server:
        await server.new_session("data_analyst", user="user")
        read, drawn = responses(await say(server, {"inlineData": attached}, {"text": "Draw the revenue by month."}))
        assert "'2026-06': 9380.0" in read["stdout"]
        assert drawn == {"status": "ok", "files": ["charts/revenue.svg"]}

        chart = await server.client.get(
            "/apps/data_analyst/users/user/sessions/s-1/artifacts/charts%2Frevenue.svg/versions/0/content"
        )
        assert chart.headers["content-type"].startswith("image/svg+xml")
        assert chart.text.count("<rect") == 6

    again: list[Any] = [FunctionCall(name="list_files", args={}), "Both are still there."]
    async with serving(analyst(tmp_path, ScriptedModel(again))) as server:
        (listed,) = responses(await say(server, {"text": "What is in the workspace?"}))
        assert [file["path"] for file in listed["files"]] == ["charts/revenue.svg", "sales.csv"]


@pytest.mark.model
async def test_the_local_model_runs_code(tmp_path: Path) -> None:
    """It is too small to write a program; it calls the tool, and says something about the result."""
    app = create_app(
        app_loader=DirectoryAppLoader(EXAMPLES / "data_analyst"),
        session_service=SqliteSessionService(tmp_path / "sessions.db"),
        settings=ServerSettings(),
    )
    async with serving(app) as server:
        await server.new_session("data_analyst", user="user")
        events = await say(server, {"text": "What is 12 times 12? Use run_python."})
        assert all(response["status"] in ("ok", "error") for response in responses(events))
        assert responses(events)
        assert events[-1]["content"]["parts"][0]["text"]
