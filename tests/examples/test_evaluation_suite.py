"""The evaluation suite of the weather agent: it passes, and fails when the agent is broken."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.models.local import files as local_files
from tests.examples.gallery import EXAMPLES, ROOT, check_transcript
from tests.processes import END_WITH_PARENT

(COMMAND,) = re.findall(r"^    greenroom (eval .*)$", (EXAMPLES / "weather" / "agent.py").read_text(), re.MULTILINE)
SCRIPTED = [sys.executable, "-m", "tests.examples.scripted_command", "weather"]
REAL = [sys.executable, "-c", "from greenroom.cli.main import main; main()"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples' folder with the weather agent."""
    shutil.copytree(EXAMPLES / "weather", tmp_path / "examples" / "weather", ignore=shutil.ignore_patterns(".*"))
    return tmp_path


def run(folder: Path, program: list[str], command: str = COMMAND) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*END_WITH_PARENT, *program, *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_suite_passes_and_fails_when_the_agent_is_broken(folder: Path) -> None:
    passed = run(folder, SCRIPTED)
    assert passed.returncode == 0, passed.stderr

    agent = folder / "examples" / "weather" / "agent.py"
    agent.write_text(agent.read_text().replace("[get_weather, get_current_time]", "[get_current_time]"))
    failed = run(folder, SCRIPTED)
    assert failed.returncode == 1, failed.stderr

    shown = f"$ greenroom {COMMAND}\n{passed.stdout.rstrip()}"
    broken = f"$ # without get_weather among the agent's tools\n$ greenroom {COMMAND}\n{failed.stdout.rstrip()}"
    check_transcript("evaluation_suite", f"{shown}\n\n{broken}")


@pytest.mark.model
def test_the_local_model_passes(folder: Path) -> None:
    local_files.pull("smollm2-135m")
    passed = run(folder, REAL, COMMAND.replace("questions", "questions:oslo"))
    assert passed.returncode == 0, passed.stdout + passed.stderr
