"""Has google-adk write an evaluation set, and score it: `scores.json`. Run in an environment with google-adk[eval]."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SET, SCORES, CONFIG = HERE / "same.evalset.json", HERE / "scores.json", HERE / "config.json"


def _turn(number: int, text: str, reference: str, *cities: str) -> dict[str, Any]:
    return {
        "invocation_id": f"i-{number}",
        "user_content": {"role": "user", "parts": [{"text": text}]},
        "final_response": {"role": "model", "parts": [{"text": reference}]},
        "intermediate_data": {"tool_uses": [{"name": "get_weather", "args": {"city": city}} for city in cities]},
    }


CASES: dict[str, list[dict[str, Any]]] = {
    "exact": [_turn(1, "Oslo ?", "It snows a lot in the city today.", "Oslo")],
    "stems": [_turn(2, "Oslo", "Snowing in cities today", "Oslo")],
    "other_arguments": [_turn(3, "Oslo today", "It snows", "Rome")],
    "no_call_expected": [_turn(4, "Oslo please", "It snows a lot")],
    "two_turns": [
        _turn(5, "Oslo now", "It snows a lot in the city today.", "Oslo"),
        _turn(6, "Rome now", "Sun", "Rome", "Rome"),
    ],
    "other_words": [_turn(7, "Bergen", "Rain, rain, and the rain", "Bergen")],
}


def main() -> None:
    adk_sets: Any = importlib.import_module("google.adk.evaluation.eval_set")
    session = {"app_name": "desk", "user_id": "ann", "state": {}}
    cases = [{"eval_id": name, "conversation": turns, "session_input": session} for name, turns in CASES.items()]
    SET.write_text(
        adk_sets.EvalSet.model_validate({"eval_set_id": "same", "eval_cases": cases}).model_dump_json(indent=2) + "\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "desk"
        agent.mkdir()
        (agent / "__init__.py").write_text("from . import agent\n")
        (agent / "agent.py").write_text((HERE / "desk" / "agent.py").read_text())
        adk = Path(sys.executable).parent / "adk"
        subprocess.run(
            [adk, "eval", agent, SET, "--config_file_path", CONFIG], cwd=folder, check=False
        )  # some cases fail
        [result] = (agent / ".adk" / "eval_history").iterdir()
        found = json.loads(result.read_text())
    found = json.loads(found) if isinstance(found, str) else found
    scores = {
        case["eval_id"]: {
            "status": case["final_eval_status"],
            **{one["metric_name"]: one["score"] for one in case["overall_eval_metric_results"] if one.get("threshold")},
        }
        for case in found["eval_case_results"]
    }
    SCORES.write_text(json.dumps(scores, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
