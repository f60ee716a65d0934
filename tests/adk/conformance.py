"""Records ADK's names, what the agents of this folder do in ADK and how evaluations score there, and runs the comparison with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers import adk_environment, adk_evaluation_environment

HERE = Path(__file__).parent


def main() -> int:
    python = str(adk_environment() / "python")
    agents = sorted(str(file) for file in (HERE / "agents").glob("*.py"))
    command = [python, str(HERE / "record.py"), "adk", *agents]
    recorded = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    (HERE / "recorded.json").write_bytes(recorded)
    names = subprocess.run([python, str(HERE / "list_names.py")], stdout=subprocess.PIPE, check=True).stdout
    (HERE / "names.json").write_bytes(names)
    evaluation = HERE.parent / "evaluation"
    subprocess.run([str(adk_evaluation_environment() / "python"), str(evaluation / "adk" / "record.py")], check=True)
    tests = (str(HERE), str(evaluation / "test_same_scores.py"))
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
