"""Runs an evaluation in one call, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greenroom.agents.agent import BaseAgent
    from greenroom.apps.app import App
    from greenroom.evaluation.records import EvalSet, EvalSetResult


async def evaluate(
    agent: BaseAgent | App,
    eval_set: EvalSet | str | Path,
    criteria: Mapping[str, Any] | None = None,
    *,
    samples: int = 1,
    fail_under: float = 1.0,
) -> EvalSetResult:
    """Runs an evaluation set against an agent.

    eval_set: a set or its file.
    criteria: metrics with thresholds or options, as in `test_config.json`; ADK's default ones if
        None.
    samples: how often each case is run.
    fail_under: the least share of cases that must pass.

    Raises AssertionError with the differences of each failed case, and InvalidRequest for wrong files and metrics.
    """
    # Scripted models are imported without evaluations, which take four times as long to import.
    from greenroom.apps.app import App
    from greenroom.evaluation.comparison import by_case, counted, failures_of, percent
    from greenroom.evaluation.config import EvalConfig
    from greenroom.evaluation.evaluate import evaluate_set, load_eval_set
    from greenroom.evaluation.records import EvalSet, EvalStatus
    from greenroom.evaluation.run import RunOptions

    if isinstance(agent, App):
        app = agent
    else:
        app = App(name=agent.name, root_agent=agent)

    if isinstance(eval_set, EvalSet):
        cases = eval_set
    else:
        cases = load_eval_set(Path(eval_set))

    if criteria is None:
        config = EvalConfig()
    else:
        config = EvalConfig(criteria=dict(criteria))

    result = await evaluate_set(app, cases, config, options=RunOptions(samples=samples))
    rate = counted(result.eval_case_results)
    if rate.rate < fail_under:
        lines = [f"{cases.eval_set_id}: {percent(rate)} passed, {fail_under:.0%} is wanted"]
        for name, runs in by_case(result.eval_case_results).items():
            failed = [run for run in runs if run.final_eval_status is not EvalStatus.PASSED]
            reasons = sorted({reason for run in failed for reason in failures_of(run)})
            lines += [f"{name}: {'; '.join(reasons) or 'not evaluated'}"] if failed else []
        raise AssertionError("\n".join(lines))

    return result
