"""Agents written for ADK 2.13 do here what they do there.

`recorded.json` is what ADK did; `make conformance` records it anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
AGENTS = sorted((HERE / "agents").glob("*.py"))
RECORDED: dict[str, Any] = json.loads((HERE / "recorded.json").read_text())
DIFFERENT = {
    "missing_variable": "the error is MissingVariable, a KeyError",
    "resumable": "only workflow agents write checkpoints",
    "streaming": "the state changes with the complete event, not with partial ones",
    "tool_raises": "the call is answered with its error before the run fails",
}


@pytest.fixture(scope="session")
def here() -> dict[str, Any]:
    command = [sys.executable, str(HERE / "record.py"), "greenroom", *map(str, AGENTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [file.stem for file in AGENTS])
def test_agent_does_what_it_does_in_adk(name: str, here: dict[str, Any]) -> None:
    assert "failed" not in here[name]
    assert "failed" not in RECORDED[name]
    if name in DIFFERENT:
        assert here[name] != RECORDED[name], "it does not differ any more"
    else:
        assert here[name] == RECORDED[name]
