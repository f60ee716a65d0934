"""Tests that evaluate an agent, as users of ADK write them."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from greenroom import AgentEvaluator, EvalConfig, LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.evaluation.evaluate import load_eval_set
from greenroom.testing import ScriptedModel, evaluate

_AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedModel

replies = ["It snows.", "It rains."]
root_agent = LlmAgent(name="desk", model=ScriptedModel(lambda request: replies[0]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "evaluated_desk"
    package.mkdir()
    (package / "__init__.py").write_text("from . import agent\n")
    (package / "agent.py").write_text(_AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("evaluated_desk")]:
        monkeypatch.delitem(sys.modules, name)
    return package


def _write(folder: Path, reference: str, **config: Any) -> Path:
    file = folder / "weather.test.json"
    file.write_text(json.dumps([{"query": "Oslo?", "expected_tool_use": [], "reference": reference}]))
    if config:
        (folder / "test_config.json").write_text(json.dumps(config))
    return file


async def test_a_folder_of_tests_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(folder, "It snows.")
    await AgentEvaluator.evaluate("evaluated_desk", folder)
    assert "weather: 0 failed" in capsys.readouterr().out


async def test_a_failure_is_an_assertion_with_its_score(folder: Path) -> None:
    file = _write(folder, "The sun shines.", criteria={"response_match_score": 0.9})
    with pytest.raises(AssertionError, match=r"response_match_score is 0, at least 0.9"):
        await AgentEvaluator.evaluate("evaluated_desk", file, num_runs=1)


async def test_each_score_is_a_row(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.csv"
    file = _write(folder, "It snows.", criteria={"response_match_score": 0.9})
    for _ in range(2):
        await AgentEvaluator.evaluate("evaluated_desk", file, num_runs=1, output_file=out, print_detailed_results=False)
    rows = [row for row in csv.DictReader(out.read_text().splitlines()) if row["metric_name"] == "response_match_score"]
    assert [(row["prompt"], row["score"], row["eval_status"], row["actual_response"]) for row in rows] == [
        ("Oslo?", "1.0", "PASSED", "It snows.")
    ] * 2


async def test_older_criteria_and_wrong_arguments(folder: Path, tmp_path: Path) -> None:
    eval_set = load_eval_set(_write(folder, "It snows."))
    await AgentEvaluator.evaluate_eval_set("evaluated_desk", eval_set, criteria={"response_match_score": 1}, num_runs=1)
    await AgentEvaluator.evaluate_eval_set("evaluated_desk", eval_set, eval_config=EvalConfig(criteria={}), num_runs=1)
    with pytest.raises(ValueError, match="num_runs"):
        await AgentEvaluator.evaluate_eval_set("evaluated_desk", eval_set, num_runs=0)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"no \*\.test\.json"):
        await AgentEvaluator.evaluate("evaluated_desk", empty)
    with pytest.raises(AgentConfigError, match="no agent 'other'"):
        await AgentEvaluator.evaluate_eval_set("evaluated_desk", eval_set, agent_name="other")


def test_the_older_schema_is_migrated(folder: Path) -> None:
    session = folder / "session.json"
    session.write_text('{"state": {"unit": "C"}, "user_id": "ann"}')
    new = folder / "new.evalset.json"
    AgentEvaluator.migrate_eval_data_to_new_schema(_write(folder, "It snows."), new, session)
    [case] = load_eval_set(new).eval_cases
    assert case.session_input is not None
    assert (case.session_input.user_id, case.session_input.state) == ("ann", {"unit": "C"})


async def test_an_agent_is_evaluated_in_one_call(folder: Path) -> None:
    file = _write(folder, "It snows.")
    replies = iter(["It snows.", "The sun shines."] * 2)
    agent = LlmAgent(name="desk", model=ScriptedModel(lambda request: next(replies)))
    result = await evaluate(agent, file, {"response_match_score": 0.9}, samples=2, fail_under=0.5)
    assert len(result.eval_case_results) == 2
    with pytest.raises(AssertionError, match=r"(?s)50% of 2 .* 100% is wanted.*response_match_score: 0, at least 0.9"):
        await evaluate(agent, file, {"response_match_score": 0.9}, samples=2)
