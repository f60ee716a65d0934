"""ADK's `get_fast_api_app`, in a process that uvicorn runs, as ADK's guide to Cloud Run has it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from greenroom import StaticAppLoader, get_fast_api_app
from greenroom.cli.fast_api import _pool_size
from greenroom.errors import AgentConfigError, CallerError, ConfigurationError
from greenroom.server.application import GreenroomApp
from tests.cli.conftest import Cli
from tests.processes import END_WITH_PARENT
from tests.server.live_client import talking
from tests.server.serving import TIMEOUT_SECONDS, frames_of, run_body

LIVE_AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedLiveModel

root_agent = LlmAgent(name="desk", model=ScriptedLiveModel(["Written."]))
"""

MAIN = """
import os
import sys
from contextlib import asynccontextmanager

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.responses import PlainTextResponse
from google.adk.cli.fast_api import get_fast_api_app

AGENT_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agents")


@asynccontextmanager
async def lifespan(app):
    app.state.pool = "open"
    print("lifespan entered", flush=True)
    yield
    print("lifespan left", flush=True)


app: FastAPI = get_fast_api_app(
    agents_dir=AGENT_DIR,
    session_service_uri="sqlite+aiosqlite:///./sessions.db",
    allow_origins=["http://localhost", "http://localhost:8080"],
    web=True,
    lifespan=lifespan,
)
router = APIRouter(prefix="/shop")


@app.get("/health2")
def health(name: str = "nobody") -> dict[str, str]:
    return {"status": app.state.pool, "name": name}


@router.post("/orders")
async def order(count: int) -> int:
    return count


@app.middleware("http")
async def mark(request, call_next):
    response = await call_next(request)
    response.headers["x-marked"] = "yes"
    return response


async def hello(scope, receive, send):
    await PlainTextResponse("hello from " + scope["root_path"])(scope, receive, send)


app.include_router(router)
app.mount("/static", hello)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", 8080)), timeout_graceful_shutdown=2)
"""


@asynccontextmanager
async def deployed(cli: Cli) -> AsyncGenerator[tuple[httpx.AsyncClient, int, asyncio.subprocess.Process]]:
    """Runs `main.py` in a process of its own, on a free port."""
    process = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT,
        sys.executable,
        "main.py",
        cwd=cli.folder,
        env={**cli.environment, "PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        said = ""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while "Uvicorn running on" not in said:
                line = await process.stderr.readline()
                said += line.decode()
                assert line, said
        port = int(said.rpartition("127.0.0.1:")[2].split()[0])
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_SECONDS) as client:
            yield client, port, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_server_of_adks_guide_runs_after_the_migration(cli: Cli) -> None:
    cli.write("agents/desk/agent.py", LIVE_AGENT)
    cli.write("main.py", MAIN)
    assert cli("migrate", ".", "--write").returncode == 0
    assert "from greenroom import get_fast_api_app" in (cli.folder / "main.py").read_text()

    async with deployed(cli) as (client, port, process):
        assert (await client.get("/list-apps")).json() == ["desk", "parrot"]

        await client.post("/apps/parrot/users/ann/sessions/s-1", json={})
        body = run_body("parrot", "two words", streaming=True)
        async with client.stream("POST", "/run_sse", json=body) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            frames = frames_of(await reply.aread())
        assert [frame.text for frame in frames] == ["two ", "words ", "two words "]

        page = await client.get("/dev-ui/", follow_redirects=True)
        assert page.headers["content-type"].startswith("text/html")
        interface = (await client.get("/openapi.json")).json()
        assert "/run_sse" in interface["paths"]
        assert "/health2" not in interface["paths"]

        assert (await client.get("/health2", params={"name": "ann"})).json() == {"status": "open", "name": "ann"}
        assert (await client.post("/shop/orders", params={"count": 3})).json() == 3
        assert (await client.post("/shop/orders", params={"count": "x"})).status_code == 422
        assert (await client.get("/static/a.txt")).text == "hello from /static"
        assert (await client.get("/list-apps")).headers["x-marked"] == "yes"
        assert (await client.get("/no/such/path")).status_code == 404
        origin = {"origin": "http://localhost:8080"}
        allowed = await client.get("/list-apps", headers=origin)
        assert allowed.headers["access-control-allow-origin"] == origin["origin"]

        await client.post("/apps/desk/users/ann/sessions/s-1", json={})
        async with talking(port) as live:
            await live.say("And in writing?")
            written = await live.turn()
        assert written[-2]["content"]["parts"] == [{"text": "Written."}]

        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            said, errors = await process.communicate()
    lines = said.decode().splitlines()
    assert [line for line in lines if line.startswith("lifespan")] == ["lifespan entered", "lifespan left"]
    assert "Traceback" not in errors.decode()
    assert (cli.folder / "sessions.db").is_file()


def made(folder: Path, **parameters: Any) -> GreenroomApp:
    """Returns the application behind the routes of FastAPI's."""
    server = get_fast_api_app(agents_dir=folder, web=True, **parameters).router.default
    assert isinstance(server, GreenroomApp)
    return server


def test_parameters_become_settings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_KEEP_ALIVE_SECONDS", "7")
    monkeypatch.setenv("GREENROOM_GATES", "openai")
    settings = made(
        cli.folder / "agents",
        url_prefix="/agents",
        allow_origins=["https://a.example"],
        auto_create_session=True,
        max_llm_calls=3,
        a2a=True,
        trigger_sources=["pubsub", "eventarc"],
        gemini_enterprise_app_name="parrot",
        use_local_storage=False,
        bind_host="127.0.0.1",
        port=8123,
    ).settings
    assert settings.gates == ("openai", "a2a", "agent_engine", "triggers")
    assert settings.cors.origins == ("https://a.example",)
    assert (settings.url_prefix, settings.auto_create_session, settings.max_llm_calls) == ("/agents", True, 3)
    assert (settings.default_app, settings.keep_alive_seconds) == ("parrot", 7)
    assert settings.allowed_hosts != ()
    assert not (cli.folder / "agents/.greenroom").exists()


async def test_apps_of_a_loader_are_served(tmp_path: Path) -> None:
    from greenroom import LlmAgent

    loader = StaticAppLoader([LlmAgent(name="solo", model="local/none")])
    app = get_fast_api_app(agents_dir=tmp_path, web=True, agent_loader=loader, use_local_storage=False)
    with TestClient(app) as client:
        assert client.get("/list-apps").json() == ["solo"]
    with pytest.raises(AgentConfigError, match="agent_loader must be"):
        get_fast_api_app(agents_dir=tmp_path, web=True, agent_loader=object())  # type: ignore[arg-type]


def test_replicas_on_postgres_have_an_address(cli: Cli) -> None:
    server = made(cli.folder / "agents", session_service_uri="postgresql://db.example/agents", port=8123)
    assert str(server.settings.replica_address).endswith(":8123")


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"extra_plugins": ["guards.Guard"]}, "extra_plugins .* not offered: list the plugins in App"),
        ({"trigger_oidc_audience": "https://a.example"}, "trigger_oidc_audience .*TOKENS"),
        ({"trigger_auth_verifier": object()}, "trigger_auth_verifier .*TOKENS"),
        ({"trigger_sources": ["pubsub", "kafka"]}, "not kafka"),
        ({"session_db_kwargs": {"connect_args": {"ssl": True}}}, "connect_args: write options"),
        ({"max_llm_calls": -1}, "max_llm_calls must be"),
        ({"bind_host": "0.0.0.0"}, "Anyone who can reach 0.0.0.0"),
    ],
)
def test_a_parameter_that_must_not_be_ignored_is_refused(cli: Cli, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises((ConfigurationError, CallerError), match=text):
        made(cli.folder / "agents", **parameters)


def test_parameters_without_effect_are_reported(cli: Cli, caplog: pytest.LogCaptureFixture) -> None:
    get_fast_api_app(
        agents_dir=cli.folder / "agents",
        web=False,
        trace_to_cloud=True,
        logo_text="us",
        session_db_kwargs={"pool_size": 3, "pool_pre_ping": True},
        trigger_sources=["pubsub"],
        use_local_storage=False,
    )
    said = [record.getMessage().partition(" has no effect")[0] for record in caplog.records]
    assert said[:3] == [
        "web of get_fast_api_app",
        "trace_to_cloud of get_fast_api_app",
        "logo_text of get_fast_api_app",
    ]
    assert "session_db_kwargs: pool_pre_ping" in said
    assert any("also accepts messages of eventarc" in line for line in said)
    assert any(line.startswith("anyone who can reach this server") for line in said)


def test_the_pool_size_is_passed_on() -> None:
    assert _pool_size({"pool_size": 3, "pool_recycle": 60}) == 3
    assert _pool_size({}) is None
