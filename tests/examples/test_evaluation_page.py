"""The five minutes of docs/evaluation.md, command by command, with the local model."""

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
from tests.processes import END_WITH_PARENT

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^```sh\n(greenroom .*?)\n```", (ROOT / "docs" / "evaluation.md").read_text(), re.MULTILINE)


@pytest.mark.model
def test_the_commands_lead_to_a_check_that_fails(tmp_path: Path) -> None:
    local_files.pull("smollm2-135m")
    shutil.copytree(ROOT / "examples" / "weather", tmp_path / "examples" / "weather")

    def run(command: str) -> subprocess.CompletedProcess[str]:
        main = [sys.executable, "-c", "from greenroom.cli.main import main; main()"]
        arguments = [*END_WITH_PARENT, *main, *shlex.split(command)[1:]]
        return subprocess.run(arguments, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)

    assert len(COMMANDS) == 4
    for command in COMMANDS[:-1]:
        done = run(command)
        assert done.returncode == 0, (command, done.stderr)
    done = run(COMMANDS[-1])
    assert (done.returncode, "100% of 1" in done.stdout) == (0, True), done.stderr
    agent = tmp_path / "examples" / "weather" / "agent.py"
    agent.write_text(agent.read_text().replace("[get_weather, get_current_time]", "[get_current_time]"))
    done = run(COMMANDS[-1])
    assert (done.returncode, "0% of 1" in done.stdout) == (1, True), done.stderr
    assert "get_weather" in (tmp_path / "report.html").read_text()
