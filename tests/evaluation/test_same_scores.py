"""A set that google-adk wrote gets the scores here that `adk eval` gave it; `make conformance` records them anew."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from greenroom import App, EvalConfig
from greenroom.evaluation.config import read_config
from greenroom.evaluation.evaluate import evaluate_set, load_eval_set
from tests.adk.record import SUBSTITUTIONS
from tests.evaluation.adk.record import CONFIG, HERE, SCORES, SET

EXPECTED: dict[str, dict[str, Any]] = json.loads(SCORES.read_text())


async def test_scores_are_those_of_adk() -> None:
    source = (HERE / "desk" / "agent.py").read_text()
    for pattern, replacement in SUBSTITUTIONS:
        source = re.sub(pattern, replacement, source)
    names: dict[str, Any] = {"__name__": "desk"}
    exec(compile(source, "agent.py", "exec"), names)
    config: EvalConfig = read_config(CONFIG.read_bytes())
    result = await evaluate_set(App(name="desk", root_agent=names["root_agent"]), load_eval_set(SET), config)
    assert len(result.eval_case_results) == len(EXPECTED) > 5
    for case in result.eval_case_results:
        expected = EXPECTED[case.eval_id]
        found = {one.metric_name: one.score for one in case.overall_eval_metric_results if one.threshold is not None}
        assert {"status": int(case.final_eval_status), **found} == pytest.approx(expected)
