"""The data analyst: a CSV file comes in over HTTP, code reads it in the default sandbox, and the chart is an artifact."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.models.local import files as local_files
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import EXAMPLES, converse, responses, served
from tests.server.serving import Json, serving

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
    f'<rect x="{20 + 60 * i}" y="{200 - value / 60:.0f}" width="40" height="{value / 60:.0f}" fill="#375a3a"/>'
    f'<text x="{40 + 60 * i}" y="218" font-size="12" text-anchor="middle">{month[-2:]}</text>'
    for i, (month, value) in enumerate(revenue.items())
)
with open("charts/revenue.svg", "w") as file:
    file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 230">{bars}</svg>')
"""

SALES = (EXAMPLES / "data_analyst" / "sales.csv").read_bytes()
ATTACHED: Json = {"displayName": "sales.csv", "mimeType": "text/csv", "data": base64.b64encode(SALES).decode()}
QUESTION: list[Json] = [{"inlineData": ATTACHED}, {"text": "Draw the revenue by month."}]


def charting_model() -> ScriptedModel:
    return ScriptedModel(
        [
            call("run_python", code=READ),
            call("run_python", code='import os; os.mkdir("charts")\n' + DRAW),
            "Revenue rose to 9,380 in June. The chart is in `charts/revenue.svg`.",
        ]
    )


async def test_a_csv_file_becomes_a_chart_and_both_outlive_the_server(tmp_path: Path) -> None:
    async with served("data_analyst", charting_model(), tmp_path) as server:
        read, drawn = responses(await converse(server, "data_analyst", QUESTION))
        assert "'2026-06': 9380.0" in read["stdout"]
        assert drawn == {"status": "ok", "files": ["charts/revenue.svg"]}

        chart = await server.client.get(
            "/apps/data_analyst/users/user/sessions/s-1/artifacts/charts%2Frevenue.svg/versions/0/content"
        )
        assert chart.headers["content-type"].startswith("image/svg+xml")
        assert chart.text.count("<rect") == 6

    listing = ScriptedModel([call("list_files"), "Both are still there."])
    async with served("data_analyst", listing, tmp_path) as server:
        listed = responses(await converse(server, "data_analyst", "What is in the workspace?"))[-1]
        assert [file["path"] for file in listed["files"]] == ["charts/revenue.svg", "sales.csv"]


@pytest.mark.model
async def test_the_local_model_runs_code(tmp_path: Path) -> None:
    """It is too small to write a program; it calls the tool, and says something about the result."""
    local_files.pull("smollm2-135m")
    app = create_app(
        app_loader=DirectoryAppLoader(EXAMPLES / "data_analyst"),
        session_service=SqliteSessionService(tmp_path / "sessions.db"),
        settings=ServerSettings(),
    )
    async with serving(app) as server:
        events = await converse(server, "data_analyst", "What is 12 times 12? Use run_python.")
        assert all(response["status"] in ("ok", "error") for response in responses(events))
        assert responses(events)
        assert events[-1]["content"]["parts"][0]["text"]
