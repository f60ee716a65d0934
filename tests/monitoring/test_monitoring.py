"""The dashboard and the alerts of `greenroom deploy monitoring`, with Prometheus and its tool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from greenroom.cli.deploy import TEMPLATES
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.server.application import create_app
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.telemetry.run_metrics import METRICS
from scripts.dashboard import FILE, dashboard_json
from tests.cli.conftest import Cli
from tests.requirements import prometheus_path, promtool_path
from tests.server.agents import Gate, asking_echo, echo, gated, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving, run_body, serving, until

FILES = TEMPLATES / "monitoring"
ALERTS = FILES / "greenroom-alerts.yaml"
WINDOW = "5s"
"""Takes the place of Grafana's `$__rate_interval`."""


@pytest.fixture
def store() -> Store:
    return "sqlite"


def expressions() -> dict[str, str]:
    """The queries of the dashboard, by panel and legend, as Grafana sends them for all apps."""
    panels: list[Any] = json.loads(FILE.read_text("utf-8"))["panels"]
    return {
        f"{panel['title']}: {target['legendFormat']}": target["expr"]
        .replace("$__rate_interval", WINDOW)
        .replace("$app", ".*")
        for panel in panels
        for target in panel.get("targets", ())
    }


def promtool(*arguments: str) -> str:
    done = subprocess.run([promtool_path(), *arguments], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_dashboard_is_what_its_script_builds() -> None:
    assert FILE.read_text("utf-8") == dashboard_json()
    ids = [panel["id"] for panel in json.loads(dashboard_json())["panels"]]
    assert len(ids) == len(set(ids))


def test_promtool_accepts_all_files_and_queries(tmp_path: Path) -> None:
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    promtool("check", "config", str(tmp_path / "prometheus.yaml"))
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(expressions().values())]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(tmp_path / "queries.yaml"))


def test_alerts_fire_in_trouble_only(tmp_path: Path) -> None:
    for file in (ALERTS, Path(__file__).with_name("alerts.test.yaml")):
        shutil.copy(file, tmp_path)
    promtool("test", "rules", str(tmp_path / "alerts.test.yaml"))

    # Each alert is among the tests, and no metric is made up.
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"][0]["rules"]
    tested = (tmp_path / "alerts.test.yaml").read_text("utf-8")
    assert [rule["alert"] for rule in rules if tested.count(f"alertname: {rule['alert']}") != 2] == []


def test_queries_and_alerts_name_metrics_that_exist() -> None:
    known = {metric.name + suffix for metric in METRICS for suffix in ("", "_bucket")}
    text = " ".join(expressions().values()) + ALERTS.read_text("utf-8")
    assert set(re.findall(r"greenroom_\w+", text)) - known == set()
    assert {metric.name for metric in METRICS} - set(re.findall(r"greenroom_\w+?(?=_bucket|\b)", text)) == {
        "greenroom_model_cached_tokens_total",
        "greenroom_database_runs_running",
        "greenroom_database_runs_queued",
    }


def test_files_are_written_once(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "monitoring"
    done = cli("deploy", "monitoring", str(folder))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(str(folder / file.name) for file in FILES.iterdir())
    (folder / "greenroom-alerts.yaml").write_text("mine")
    assert "exists already and stays as it is" in cli("deploy", "monitoring", str(folder)).stderr
    assert (folder / "greenroom-alerts.yaml").read_text() == "mine"


@contextlib.asynccontextmanager
async def prometheus(folder: Path, *targets: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A Prometheus that scrapes these servers five times a second, and a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = yaml.safe_load((FILES / "prometheus.yaml").read_text("utf-8"))
    config["global"]["scrape_interval"] = "200ms"
    config["scrape_configs"][0]["static_configs"][0]["targets"] = list(targets)
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(ALERTS, folder)

    process = await asyncio.create_subprocess_exec(
        prometheus_path(),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}/api/v1", timeout=5) as client:

            async def scrapes() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    reply = await client.get("/query", params={"query": 'sum(up{job="greenroom"})'})
                    if reply.status_code == 200:
                        return [each["value"][1] for each in reply.json()["data"]["result"]] == [str(len(targets))]
                return False

            await until(scrapes)
            yield client
    finally:
        process.terminate()
        await process.wait()


def priced_reply(request: LlmRequest) -> Any:
    """Calls the tool that fails for "fail", fails itself for "break", and answers anything else."""
    text = request.contents[-1].text()
    if text == "break":
        raise TimeoutError
    if text == "fail":
        return FunctionCall(name="broken_tool")
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=70, candidates_token_count=30)
    return LlmResponse(content=Content(role="model", parts=[Part(text="hello")]), usage_metadata=usage)


def broken_tool() -> str:
    """Fails."""
    raise LookupError


async def load(server: Serving, round_number: int) -> None:
    for message in ("hello", "fail", "break"):
        session = f"{message}-{round_number}"
        await server.new_session("desk", session=session)
        await server.run("desk", message, sessionId=session)


async def test_each_panel_shows_data_of_real_servers(serve: Serve, tmp_path: Path, postgres_uri: str) -> None:
    gate = Gate()
    desk = scripted("desk", priced_reply, tools=[broken_tool], model="gpt-5")
    server = await serve(desk, asking_echo(), gated(gate))
    on_postgres = create_app(agents=[echo()], session_service=PostgresSessionService(postgres_uri))
    async with serving(on_postgres) as second:
        targets = [server.url.removeprefix("http://"), second.url.removeprefix("http://")]
        async with prometheus(tmp_path, *targets) as client:
            await server.new_session("echo")
            await server.run("echo", "ask me")
            await server.new_session("gated")
            for _ in range(2):  # one is running, one is queued
                await server.client.post("/apps/gated/users/ann/sessions/s-1/runs", json=run_body("gated"))

            missing = expressions()
            round_number = 0

            async def have_data() -> bool:
                nonlocal round_number
                round_number += 1
                await load(server, round_number)
                for name, expression in list(missing.items()):
                    reply = (await client.get("/query", params={"query": expression})).json()
                    assert reply["status"] == "success", (expression, reply)
                    values = [float(each["value"][1]) for each in reply["data"]["result"]]
                    if any(not math.isnan(value) for value in values):
                        del missing[name]
                return not missing

            try:
                await until(have_data, seconds=20)
            except TimeoutError:
                pytest.fail(f"no data: {missing}")
            gate.open()
