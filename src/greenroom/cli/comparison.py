"""`greenroom eval compare`: compares two evaluations."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.evaluation import find_set, read_config, read_record
from greenroom.cli.find_agent import find_app, find_loader
from greenroom.cli.parameters import Report
from greenroom.cli.terminal import note, print_line

if TYPE_CHECKING:
    from greenroom.evaluation.comparison import Comparison
    from greenroom.evaluation.records import EvalCaseResult, EvalSet, EvalSetResult


def compare(
    first: Annotated[str, Parameter(name="FIRST")],
    second: Annotated[str, Parameter(name="SECOND")],
    /,
    *,
    sets: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    config_file_path: Path | None = None,
    samples: int = 1,
    report: Report = (),
) -> None:
    """Compare two evaluations, and test whether the difference is more than chance.

    Shows which cases got better or worse. Exits with 1 if SECOND is worse by more than chance.

        greenroom eval compare old.evalset_result.json new.evalset_result.json --report change.html

        greenroom eval compare released/weather agents/weather --set cities --samples 10

    Parameters
    ----------
    first
        A result file, such as those in an agent's `.adk/eval_history`. With `--set`: an agent.
    second
        The result file or agent to compare with FIRST.
    sets
        Run both agents on this set, side by side: a file, or the ID of a set stored with SECOND. May be repeated.
    config_file_path
        With `--set`: a JSON file with metrics and their thresholds, as for `greenroom eval`.
    samples
        With `--set`: how often to run each case.
    """
    from greenroom.evaluation.comparison import compare_results
    from greenroom.evaluation.records import EvalSetResult
    from greenroom.evaluation.reports import report_format, write_report

    for path in report:
        report_format(path)

    if sets:
        loader, name = find_loader(second)
        wanted = [find_set(loader, name, one) for one in sets]
        before, after = asyncio.run(_run_both(first, second, wanted, config_file_path, samples))
    else:
        before = [read_record(Path(first), EvalSetResult)]
        after = [read_record(Path(second), EvalSetResult)]
        _note_versions(before[0], after[0])

    comparison = compare_results(_cases(before), _cases(after))
    _show(comparison)
    for path in report:
        write_report(path, after, comparison)
        note(f"Wrote {path}")
    if comparison.passed is not None and comparison.passed.is_significant and comparison.passed.difference < 0:
        sys.exit(1)


def _note_versions(before: EvalSetResult, after: EvalSetResult) -> None:
    names = [
        result.eval_set_id if result.eval_set_version is None else f"{result.eval_set_id}@{result.eval_set_version}"
        for result in (before, after)
    ]
    if names[0] != names[1]:
        note(f"The results are of {names[0]} and {names[1]}: only cases that are the same in both are compared")


def _cases(results: list[EvalSetResult]) -> list[EvalCaseResult]:
    return [case for result in results for case in result.eval_case_results]


async def _run_both(
    first: str, second: str, wanted: list[tuple[EvalSet, list[str]]], config_file: Path | None, samples: int
) -> tuple[list[EvalSetResult], list[EvalSetResult]]:
    """Evaluates two agents at the same time, set by set."""
    from greenroom.evaluation.evaluate import evaluate_set
    from greenroom.evaluation.run import RunOptions
    from greenroom.models.by_name import LLMRegistry

    first_app = find_app(first)
    second_app = find_app(second)
    options = RunOptions(samples=samples)
    before: list[EvalSetResult] = []
    after: list[EvalSetResult] = []
    async with data_folder.closing(LLMRegistry):
        for eval_set, ids in wanted:
            old, new = await asyncio.gather(
                evaluate_set(first_app, eval_set, read_config(config_file), eval_ids=ids, options=options),
                evaluate_set(second_app, eval_set, read_config(config_file), eval_ids=ids, options=options),
            )
            before.append(old)
            after.append(new)
    return before, after


def _show(comparison: Comparison) -> None:
    from greenroom.evaluation.comparison import Verdict, describe_difference

    for verdict in ("worse", "better"):
        for case in comparison.of(verdict):
            print_line(f"{verdict}: {case.eval_id}\n{case.diff}")

    counts = {verdict: len(comparison.of(verdict)) for verdict in get_args(Verdict)}
    print_line(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    if comparison.passed is not None:
        print_line(f"pass rate: {describe_difference(comparison.passed, is_rate=True)}")
    for name, score in comparison.scores.items():
        print_line(f"{name}: {describe_difference(score, is_rate=False)}")
