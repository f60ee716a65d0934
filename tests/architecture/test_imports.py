"""Modules that each import loads; packages import lower layers only, without cycles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SDKS = {
    "anthropic", "asyncpg", "cyclopts", "docstring_parser", "google", "httpx", "litellm", "mcp", "nats", "numpy",
    "obstore", "openai", "opentelemetry", "prometheus_client", "pydantic", "rich", "sqlite3", "starlette",
    "temporalio", "uvicorn", "xllamacpp",
}  # fmt: skip

UNUSED_TOOLS = tuple(f"greenroom.tools.{room}" for room in ("login", "mcp", "openapi", "web"))


def loaded_by(statement: str) -> set[str]:
    """Names of all modules, and of the packages they are in, that a fresh process has after a statement."""
    script = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    names = done.stdout.split()
    return {*names, *(name.partition(".")[0] for name in names)}


def packages(loaded: set[str]) -> set[str]:
    return {name for name in loaded if name.startswith("greenroom.")}


def test_importing_greenroom_loads_no_package_and_no_sdk() -> None:
    loaded = loaded_by("import greenroom")
    assert packages(loaded) == {"greenroom.version"}
    assert not loaded & (SDKS | {"msgspec", "asyncio"})


def test_an_agent_needs_no_server_no_store_on_disk_and_no_sdk() -> None:
    loaded = loaded_by("from greenroom import LlmAgent, InMemoryRunner, types")
    assert not loaded & SDKS
    assert not {name for name in packages(loaded) if name.startswith(("greenroom.server", "greenroom.cli"))}
    assert "greenroom.models.local.llm" not in loaded
    assert (
        not {f"greenroom.models.{name}" for name in ("anthropic.llm", "fallback", "gemini.llm", "openai.chat")} & loaded
    )


def test_model_classes_load_no_sdk() -> None:
    loaded = loaded_by("from greenroom import Claude, FallbackModel, Gemini, OpenAILlm, OpenAIResponsesLlm")
    assert not loaded & (SDKS - {"google"})
    assert not {name for name in loaded if name.startswith("google.genai")}


def test_the_server_loads_no_model_no_driver_and_no_pydantic() -> None:
    loaded = loaded_by("from greenroom.server import create_app")
    assert not loaded & (SDKS - {"starlette"})
    assert not loaded & {"greenroom.sessions.sqlite", "yaml", "email.parser"}
    assert not {name for name in packages(loaded) if name.startswith(UNUSED_TOOLS)}


def test_serving_an_app_without_models_loads_no_sdk() -> None:
    loaded = loaded_by(
        """
import asyncio, json, urllib.request, uvicorn
from greenroom import BaseAgent, Event
from greenroom.server import create_app

class Greeter(BaseAgent):
    async def _run_async_impl(self, ctx):
        yield Event(author=self.name, message="Hello")

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))

async def main():
    server = uvicorn.Server(uvicorn.Config(create_app(agents=[Greeter(name="desk")]), port=0, log_level="critical"))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        session = await asyncio.to_thread(post, f"{url}/apps/desk/users/ann/sessions", {})
        where = {"appName": "desk", "userId": "ann", "sessionId": session["id"]}
        message = {"role": "user", "parts": [{"text": "Hi"}]}
        [event] = await asyncio.to_thread(post, f"{url}/run", {**where, "newMessage": message})
        assert event["author"] == "desk"
        server.should_exit = True

asyncio.run(main())
"""
    )
    assert loaded & SDKS == {"starlette", "uvicorn"}


def test_the_command_line_answers_before_the_server_is_loaded() -> None:
    loaded = loaded_by("import greenroom.cli.commands")
    assert not loaded & {"starlette", "uvicorn", "openai", "xllamacpp", "pydantic", "obstore"}


def test_a_server_starts_without_the_library_for_command_lines() -> None:
    loaded = loaded_by("import greenroom.cli.serving, greenroom.cli.http_server, greenroom.server.application")
    assert not loaded & {"cyclopts", "rich", "websockets"}


def test_packages_import_lower_layers_only_and_without_cycles() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    if not command.exists():
        pytest.fail("import-linter is not installed: uv sync")
    done = subprocess.run(
        [command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
