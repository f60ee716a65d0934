"""Findings about a machine, each with its remedy."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def lines(text: str, subject: str) -> list[str]:
    """The lines about a subject, without the remedies."""
    return [line for line in text.splitlines() if line[9:].startswith(subject)]


@pytest.fixture
def agents(cli: Cli, tmp_path: Path) -> Path:
    cli("init", str(tmp_path / "apps" / "lamps"), "--template", "workflow")
    return tmp_path / "apps"


def test_a_machine_that_can_serve_the_folder(cli: Cli, agents: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (agents / "greenroom.toml").write_text(f"port = {port}")
    done = cli("doctor", str(agents))
    assert done.returncode == 0, done.stdout
    assert lines(done.stdout, "apps") == ["ok       apps       1 files, nothing is missing"]
    assert lines(done.stdout, "port") == [f"ok       port       127.0.0.1:{port} is free"]
    assert "will be made at the first start" in lines(done.stdout, "database")[0]
    assert lines(done.stdout, "sandbox")[0].startswith("ok")
    assert "postgres" in lines(done.stdout, "extras")[0]
    assert sorted(path.name for path in agents.iterdir()) == ["greenroom.toml", "lamps"]


def test_a_model_without_its_key_is_optional(cli: Cli, agents: Path) -> None:
    assert any("OPENAI_API_KEY" in line for line in lines(cli("doctor", str(agents)).stdout, "model"))
    shown = cli("doctor", str(agents), OPENAI_API_KEY="sk-secret").stdout
    assert "ok       model      openai/gpt-5-mini" in shown
    assert "sk-secret" not in shown


def test_a_port_that_is_taken(cli: Cli, agents: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (agents / "greenroom.toml").write_text(f"port = {taken.getsockname()[1]}")
        done = cli("doctor", str(agents))
    assert done.returncode == 1
    assert "Address already in use" in lines(done.stdout, "port")[0]
    assert "→ greenroom serve --port" in done.stdout


def test_a_database_that_does_not_answer(cli: Cli, agents: Path) -> None:
    (agents / "greenroom.toml").write_text('session_service = "postgresql://ada:secret@127.0.0.1:1/greenroom"')
    done = cli("doctor", str(agents))
    assert done.returncode == 1
    assert lines(done.stdout, "database")[0].startswith("missing")
    assert "secret" not in done.stdout


def test_settings_and_apps_that_are_wrong(cli: Cli, agents: Path) -> None:
    (agents / "greenroom.toml").write_text('port = "many"')
    (agents / "lamps" / "agent.py").write_text(
        "from google.adk.tools.apihub_tool import APIHubToolset\nAPIHubToolset()\nroot_agent = 1\n"
    )
    done = cli("doctor", str(agents))
    assert done.returncode == 1
    assert lines(done.stdout, "settings")[0].startswith("missing")
    assert f"→ greenroom check {agents}" in done.stdout


def test_a_folder_without_apps(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    done = cli("doctor", str(folder))
    assert done.returncode == 1
    assert f"→ greenroom init {folder}/my_agent" in done.stdout
