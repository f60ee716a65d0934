"""Folders of new apps: each template runs as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.init import TEMPLATES, Template
from tests.cli.conftest import Cli


@pytest.mark.parametrize("template", get_args(Template))
def test_each_template_is_an_app_of_that_name(cli: Cli, tmp_path: Path, template: str) -> None:
    done = cli("init", str(tmp_path / "agents" / "desk"), "--template", template)
    assert done.returncode == 0, done.stderr
    written = sorted(str(path) for path in (tmp_path / "agents" / "desk").iterdir())
    assert done.stdout.splitlines() == written

    agent = DirectoryAppLoader(tmp_path / "agents").load("desk").root_agent
    assert agent.name == "desk"
    findings = cli("check", str(tmp_path / "agents" / "desk")).stdout.splitlines()
    assert [line for line in findings if "greenroom models pull smollm2-135m" not in line] == []


@pytest.mark.parametrize("template", ["chat", "yaml"])
def test_agents_use_the_model_that_is_named(cli: Cli, tmp_path: Path, template: str) -> None:
    cli("init", str(tmp_path / "desk"), "--template", template, "--model", "openai/gpt-5-mini")
    agent = DirectoryAppLoader(tmp_path).load("desk").root_agent
    assert isinstance(agent, LlmAgent)
    assert agent.model == "openai/gpt-5-mini"


def test_the_folders_are_those_of_the_option() -> None:
    assert sorted(folder.name for folder in TEMPLATES.iterdir()) == sorted(get_args(Template))


def test_a_workflow_answers_and_an_evaluation_passes_without_a_model(cli: Cli, tmp_path: Path) -> None:
    cli("init", str(tmp_path / "lamps"), "--template", "workflow")
    assert "Accepted: 2 lamps." in cli("run", str(tmp_path / "lamps"), "2 lamps").stdout

    cli("init", str(tmp_path / "prices"), "--template", "evaluation")
    done = cli("eval", str(tmp_path / "prices"), "prices")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_next_commands_are_shown(cli: Cli, tmp_path: Path) -> None:
    shown = cli("init", str(tmp_path / "chat")).stderr
    assert "greenroom models pull smollm2-135m" in shown
    assert f"greenroom run {tmp_path}/chat 'Why is the sky blue?'" in shown
    assert f"greenroom serve {tmp_path}" in shown


def test_an_extra_that_is_missing_is_installed_first(cli: Cli, tmp_path: Path) -> None:
    assert "pip install" not in cli("init", str(tmp_path / "chat"), "--model", "openai/gpt-5-mini").stderr
    shown = cli("init", str(tmp_path / "cloud"), "--model", "bedrock/claude").stderr  # its pins conflict with ours
    assert f"Try it:\n  pip install 'greenroom[litellm]'\n  greenroom run {tmp_path}/cloud" in shown


def test_files_are_not_replaced(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "agent.py").write_text("mine")
    done = cli("init", str(tmp_path / "desk"))
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert (tmp_path / "desk" / "agent.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["my-agent", "a b", "9", "é\n"])
def test_a_name_that_no_app_can_have_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    assert "can't be the name of an app" in cli("init", str(tmp_path / "x" / name)).stderr
    assert not (tmp_path / "x").exists()
