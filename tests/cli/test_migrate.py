"""Apps written for ADK, moved over by their imports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.app_check.rewrite import rewritten
from greenroom.cli.app_check.source import PythonFile
from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[2]


def rewrite(tmp_path: Path, text: str) -> str:
    path = tmp_path / "agent.py"
    path.write_bytes(text.encode())
    return rewritten(PythonFile(path)).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from google.adk.agents import LlmAgent  # why", "from greenroom import LlmAgent  # why"),
        (
            "from google.adk.agents import (\n    LlmAgent,  # one\n    LoopAgent as L,\n)",
            "from greenroom import (\n    LlmAgent,  # one\n    LoopAgent as L,\n)",
        ),
        (
            "from google.adk.agents import LlmAgent, NoSuchAgent as N",
            "from google.adk.agents import NoSuchAgent as N\nfrom greenroom import LlmAgent",
        ),
        ("if 1:\n    from google.genai import types, errors", "if 1:\n    from google.genai import errors\n    from greenroom import types"),
        ("if 1: from google.genai import types, errors", "if 1: from google.genai import errors; from greenroom import types"),
        ("x = 1\r\nfrom google.genai import errors, types\r\n", "x = 1\r\nfrom google.genai import errors\r\nfrom greenroom import types\r\n"),
        ("from google.genai.types import Part", "from greenroom.types import Part"),
        ("import google.genai.types as t", "import greenroom.types as t"),
        ("from google.adk.tools import agent_tool\nagent_tool.AgentTool", "from greenroom import agent_tool\nagent_tool.AgentTool"),
        ("from google.adk import agents as a\na.llm_agent.LlmAgent", "import greenroom as a\na.LlmAgent"),
        ("import google.adk.agents\ng = 'ü'; google.adk.agents.LlmAgent()", "import greenroom\ng = 'ü'; greenroom.LlmAgent()"),
        ("import google.adk.tools as t\nt.FunctionTool", "import greenroom as t\nt.FunctionTool"),
        ("import google.adk.tools as t\nt.FunctionTool, t.NoSuchTool", None),
        ("from google.adk.tools.apihub_tool import APIHubToolset", "from greenroom import APIHubToolset"),
        ("from google.adk.agents import *", None),
        ("from google.cloud import storage\nimport google.auth", None),
        ("from .google.adk import LlmAgent", None),
        ("'from google.adk.agents import LlmAgent'", None),
        ("\ufefffrom google.adk.agents import LlmAgent\n", "\ufefffrom greenroom import LlmAgent\n"),
    ],
)  # fmt: skip
def test_imports_and_names_are_replaced_in_their_places(tmp_path: Path, before: str, after: str | None) -> None:
    assert rewrite(tmp_path, before) == (before if after is None else after)


def test_another_encoding_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_bytes("# coding: latin-1\ns = 'ü'; from google.adk.agents import LlmAgent\n".encode("latin-1"))
    new = "# coding: latin-1\ns = 'ü'; from greenroom import LlmAgent\n".encode("latin-1")
    assert rewritten(PythonFile(path)) == new


SHOP = """\
import google.adk.agents
from google.adk.tools import FunctionTool
from google.genai import types


def pay(amount: int) -> dict:
    return {"paid": amount}


root_agent = google.adk.agents.LlmAgent(
    name="shop",
    tools=[FunctionTool(pay)],
    generate_content_config=types.GenerateContentConfig(temperature=0.5),
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    app = tmp_path / "adk" / "shop"
    app.mkdir(parents=True)
    (app / "agent.py").write_text(SHOP)
    (tmp_path / "adk" / "requirements.txt").write_text("google-adk[eval]>=1.2,<3  # the framework\nhttpx\n")
    return tmp_path / "adk"


def test_the_diff_is_shown_and_nothing_written(cli: Cli, folder: Path) -> None:
    done = cli("migrate", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-import google.adk.agents\n" in done.stdout
    assert "+import greenroom\n" in done.stdout
    assert "+greenroom  # the framework\n" in done.stdout
    assert "2 files would change" in done.stderr
    assert (folder / "shop" / "agent.py").read_text() == SHOP


def test_the_written_app_can_be_loaded(cli: Cli, folder: Path) -> None:
    assert cli("migrate", str(folder), "--write").returncode == 0
    assert DirectoryAppLoader(folder).load("shop").root_agent.name == "shop"
    assert (folder / "requirements.txt").read_text() == "greenroom  # the framework\nhttpx\n"
    again = cli("migrate", str(folder))
    assert (again.returncode, again.stdout) == (0, "")


def test_a_copy_is_written_and_the_folder_stays(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / ".venv").mkdir()
    (folder / "data.json").write_text("{}")
    assert cli("migrate", str(folder), "--to", str(tmp_path / "copy")).returncode == 0
    assert (folder / "shop" / "agent.py").read_text() == SHOP
    assert "google.adk" not in (tmp_path / "copy" / "shop" / "agent.py").read_text()
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["data.json", "requirements.txt", "shop"]
    assert "exists already" in cli("migrate", str(folder), "--to", str(tmp_path / "copy")).stderr


def test_imports_that_stay_are_named(cli: Cli, folder: Path) -> None:
    (folder / "shop" / "agent.py").write_text(SHOP + "from google.adk.events._branch_path import _BranchPath\n")
    done = cli("migrate", str(folder))
    assert done.returncode == 1
    expected = f"{folder}/shop/agent.py:15: greenroom has nothing in place of google.adk.events._branch_path import _BranchPath"
    assert expected in done.stdout


def test_agents_of_the_conformance_suite_are_moved_without_a_rest(tmp_path: Path) -> None:
    """They are written for ADK, and run in both."""
    files = [
        path for path in (ROOT / "tests" / "adk" / "agents").rglob("*.py") if "from google.adk" in path.read_text()
    ]
    assert len(files) > 10
    for path in files:
        text = rewritten(PythonFile(path)).decode()
        assert not re.search(r"^\s*(from|import) google\.adk", text, re.MULTILINE), path
