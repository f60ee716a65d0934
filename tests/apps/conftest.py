from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENT = """
from greenroom import LlmAgent
root_agent = LlmAgent(name="{name}", model="scripted")
"""


class AgentsDir:
    """A folder of apps that a test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, file: str, text: str) -> Path:
        path = self.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        is_rewritten = path.exists()
        path.write_text(textwrap.dedent(text))
        if is_rewritten:
            # Never the same mtime as before, however coarse the file system's clock is.
            later = path.stat().st_mtime_ns + 1_000_000
            os.utime(path, ns=(later, later))
        return path

    def agent(self, app: str) -> None:
        self.write(f"{app}/agent.py", AGENT.format(name=app))


@pytest.fixture
def agents_dir(tmp_path: Path) -> Iterator[AgentsDir]:
    path = tmp_path / "agents"
    path.mkdir()
    before = dict(os.environ)
    yield AgentsDir(path)
    os.environ.clear()
    os.environ.update(before)
