"""An installation of greenroom apart from the checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.packaging.build import ROOT, find_uv
from tests.processes import END_WITH_PARENT


class Installation:
    """An environment with greenroom. Its commands get no variable of this process but those of the network."""

    def __init__(self, folder: Path, python: str) -> None:
        self._folder = folder
        self._bin = folder / "environment" / "bin"
        self.environment = {
            "PATH": f"{self._bin}:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONWARNINGS": "error,ignore:Binding",  # Python 3.12.0 to 3.12.3 warns wrongly of `?1` in SQL
            "COLUMNS": "200",
            "TERM": "dumb",
        }
        self.python = str(self._bin / "python")
        run([find_uv(), "venv", "--quiet", "--no-project", "--python", python, str(folder / "environment")])

    def install(self, requirement: str, constraints: Path) -> None:
        options = ["--quiet", "--no-config", "--python", self.python, "--constraints", str(constraints)]
        run([find_uv(), "pip", "install", *options, requirement])

    def __call__(self, *command: str) -> str:
        """Runs a command of the environment, and returns its output."""
        return run([str(self._bin / command[0]), *command[1:]], cwd=self._folder, env=self.environment)

    def run_code(self, code: str) -> str:
        return self("python", "-I", "-c", code)

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*END_WITH_PARENT, str(self._bin / command[0]), *command[1:]],
            cwd=self._folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def write_constraints(file: Path) -> Path:
    """Writes the locked version of each package; returns the file."""
    options = ["--frozen", "--all-extras", "--no-default-groups", "--no-emit-project", "--no-hashes"]
    run([find_uv(), "export", "--quiet", *options, "--output-file", str(file)], cwd=ROOT)
    return file


def run(command: list[str], **options: Any) -> str:
    """Runs a command that must succeed, and returns its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
