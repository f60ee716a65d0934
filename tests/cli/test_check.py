from __future__ import annotations

from pathlib import Path

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
