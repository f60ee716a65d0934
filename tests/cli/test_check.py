from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_missing_and_differing_names_stand_with_file_line_and_reason(cli: Cli, tmp_path: Path) -> None:
    agent = tmp_path / "adk" / "shop" / "agent.py"
    agent.parent.mkdir(parents=True)
    agent.write_text(
        "from google.adk.agents import LlmAgent\n"
        "from google.adk.tools.mcp_tool.mcp_toolset import McpToolset\n"
        "from google.adk.tools.bigquery import BigQueryToolset\n"
        "from google.genai import types as t\n"
        "raise SystemExit('checking runs nothing')\n"
        "t.Part, t.NoSuchType\n"
    )
    (tmp_path / "adk" / ".venv").mkdir()
    (tmp_path / "adk" / ".venv" / "broken.py").write_text("def (")
    done = cli("check", str(tmp_path / "adk"))
    assert done.returncode == 1
    assert [line.removeprefix(f"{agent}:") for line in done.stdout.splitlines()] == [
        "2: McpToolset differs: a server that can't be reached fails the run; `on_error=\"warn\"` is ADK's way",
        "3: ADK's BigQueryToolset is not offered yet; it is planned with: Google Cloud tools",
        "6: greenroom has no types.NoSuchType of google.genai",
    ]
    assert done.stderr == "3 of 5 names of ADK are offered; files: 1\n"


def test_app_that_misses_nothing_passes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "from google.adk.agents import LlmAgent\nfrom google.genai.types import Content\n"
    )
    done = cli("check", str(tmp_path / "agent.py"))
    assert (done.returncode, done.stdout) == (0, "")


def test_module_of_adk_and_unreadable_file_are_said(cli: Cli, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("from google.adk.agents import llm_agent\n")
    assert "greenroom has no llm_agent" in cli("check", str(agent)).stdout
    agent.write_text("def (")
    done = cli("check", str(agent))
    assert (done.returncode, done.stdout) == (1, "")
    assert "agent.py is not valid Python" in done.stderr
    assert "There are no Python files" in cli("check", str(tmp_path / "nowhere")).stderr


def test_what_models_need_stands_with_file_and_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "agent.py").write_text(
        "from greenroom import LlmAgent\n"
        "root_agent = LlmAgent(name='desk', model='gpt-4o')\n"
        "other = LlmAgent(name='other', model=['groq/llama', 'ollama/qwen3'])\n"
        "tool(model='claude-not-an-agent')\n"
        "last = LlmAgent(name='last', model=FallbackModel([RetryingLlm('groq/qwen'), 'openai/gpt-5']))\n"
    )
    (tmp_path / "root_agent.yaml").write_text("name: desk\nmodel: no-such-model\n")
    done = cli("check", str(tmp_path))
    assert done.returncode == 1
    faults = done.stdout.splitlines()
    assert [fault.partition(": ")[0].removeprefix(f"{tmp_path}/") for fault in faults] == [
        "agent.py:2", "agent.py:3", "agent.py:5", "agent.py:5", "root_agent.yaml:2"
    ]  # fmt: skip
    assert "OPENAI_API_KEY" in faults[0]
    assert "GROQ_API_KEY" in faults[1]
    assert "openai/gpt-5" in faults[2]
    assert "groq/qwen" in faults[3]
    assert "No model provider knows the name 'no-such-model'" in faults[4]
    (tmp_path / "agent.py").write_text("from greenroom import LLMRegistry\n")
    assert cli("check", str(tmp_path)).returncode == 0
