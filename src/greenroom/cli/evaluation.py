"""`greenroom eval`: evaluates agents on sets of cases."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.find_agent import find_loader
from greenroom.cli.parameters import AgentPath, Report
from greenroom.cli.terminal import console, note, print_line, printable
from greenroom.errors import CallerError, InvalidRequest

if TYPE_CHECKING:
    from greenroom.apps.load_directory import DirectoryAppLoader
    from greenroom.evaluation.config import EvalConfig
    from greenroom.evaluation.files import EvalFiles
    from greenroom.evaluation.records import EvalCaseResult, EvalSet, EvalSetResult
    from greenroom.evaluation.statistics import PassRate

T = TypeVar("T")

app = App(name="eval")


@app.default
def evaluate(
    agent: AgentPath,
    /,
    *sets: Annotated[str, Parameter(name="SET")],
    config_file_path: Path | None = None,
    metrics: tuple[str, ...] = (),
    samples: int = 1,
    parallel: int = 4,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    max_seconds: float | None = None,
    fail_under: float | None = None,
    report: Report = (),
    print_detailed_results: bool = False,
    restart: bool = False,
) -> None:
    """Evaluate an agent on sets of test cases.

    Results are stored with the agent, in `.adk/eval_history`. If an evaluation was interrupted, the same command
    continues it. Exits with 1 if a case failed or, with `--fail-under`, if the pass rate is too low.

        greenroom eval examples/weather examples/weather/cities.evalset.json

        greenroom eval examples:weather cities:oslo,rome --samples 5 --fail-under 0.9 --report report.html

        greenroom eval examples:weather cities@3

    Parameters
    ----------
    sets
        Files, or IDs of sets stored with the agent. `SET:CASE,CASE` runs only these cases, `SET@VERSION` an earlier
        version of the set.
    config_file_path
        A JSON file with metrics and their thresholds, like ADK's `test_config.json`.
    metrics
        `NAME` or `NAME=THRESHOLD`, used instead of the metrics of that file. May be repeated.
    samples
        How often to run each case.
    parallel
        How many cases run at the same time.
    max_tokens
        Stop starting cases when the agent has used this many tokens.
    max_cost
        Stop starting cases when the cost of the agent's model calls exceeds this amount.
    max_seconds
        Stop starting cases after this many seconds.
    fail_under
        The lowest acceptable pass rate, from 0 to 1. Without it, every case must pass.
    print_detailed_results
        Show the score of every metric in every case.
    restart
        Run all cases, including those that an interrupted evaluation finished.
    """
    from greenroom.evaluation.evaluate import evaluate_set
    from greenroom.evaluation.files import HISTORY, EvalFiles
    from greenroom.evaluation.reports import report_format, write_report
    from greenroom.evaluation.run import RunOptions

    if not sets:
        raise CallerError("Name an evaluation set: a file, or the ID of a set stored with the agent")
    if fail_under is not None and not 0 <= fail_under <= 1:
        raise CallerError(f"--fail-under must be from 0 to 1, not {fail_under:g}")
    for path in report:
        report_format(path)

    loader, name = find_loader(agent)
    config = read_config(config_file_path)
    if metrics:
        config.criteria = dict(map(_criterion, metrics))
    options = RunOptions(
        samples=samples, parallel=parallel, max_tokens=max_tokens, max_cost=max_cost, max_seconds=max_seconds
    )
    wanted = [find_set(loader, name, one) for one in sets]
    journal = loader.folder(name) / HISTORY
    run = partial(evaluate_set, loader.load(name), config=config, options=options, journal=journal, restart=restart)
    results = asyncio.run(_evaluate_all(run, wanted, EvalFiles(loader.folder), name))

    for result in results:
        _show(result, detailed=print_detailed_results)
    for path in report:
        write_report(path, results)
        note(f"Wrote {path}")

    expected = sum(len(ids or eval_set.eval_cases) for eval_set, ids in wanted) * samples
    if not _has_passed(results, expected, fail_under):
        sys.exit(1)


def _has_passed(results: list[EvalSetResult], expected: int, fail_under: float | None) -> bool:
    """Whether the evaluation as a whole passed. Prints the reason if it isn't a failed case."""
    from greenroom.evaluation.comparison import counted

    cases = [case for result in results for case in result.eval_case_results]
    missing = expected - len(cases)
    if missing > 0:
        note(f"The budget is used up: {missing} of {expected} cases were not run", "red")
        return False

    rate = counted(cases)
    if not rate.total:
        note("Nothing was evaluated: there are no cases, or no metric could score them", "red")
        return False
    if fail_under is None:
        return rate.passed == rate.total
    if rate.rate < fail_under:
        note(f"{rate.rate:.1%} passed, {fail_under:.1%} required", "red")
        return False
    return True


def read_config(path: Path | None) -> EvalConfig:
    """Reads an evaluation's configuration; without a file, its defaults. Raises CallerError."""
    from greenroom.evaluation.config import EvalConfig

    return EvalConfig() if path is None else read_record(path, EvalConfig)


def read_record(path: Path, record: type[T]) -> T:
    """Reads a JSON file. Raises CallerError, which names the file."""
    from greenroom.records import wire

    try:
        return wire.client_decoder(record)(path.read_bytes())
    except OSError as error:
        raise CallerError(f"{path} can't be read: {error.strerror}") from error
    except InvalidRequest as error:
        raise CallerError(f"{path}: {error.detail}") from error


def _criterion(given: str) -> tuple[str, float | None]:
    """Reads `NAME` or `NAME=THRESHOLD`."""
    name, separator, threshold = given.partition("=")
    if not separator:
        return name, 1.0
    try:
        return name, float(threshold)
    except ValueError:
        raise CallerError(f"The threshold of {name} must be a number, not {threshold!r}") from None


def find_set(loader: DirectoryAppLoader, app_name: str, path_and_cases: str) -> tuple[EvalSet, list[str]]:
    """Returns the set that a SET argument names, and the ids of its cases to run; none means all."""
    from greenroom.evaluation.evaluate import load_eval_set
    from greenroom.evaluation.files import EvalFiles

    path, separator, cases = path_and_cases.rpartition(":")
    if not separator or Path(path_and_cases).exists():
        path = path_and_cases
        cases = ""

    ids = [name for name in cases.split(",") if name]
    if path.endswith(".json") or Path(path).is_file():
        return load_eval_set(Path(path)), ids

    set_id, separator, wanted = path.partition("@")
    if separator and not wanted.isdecimal():
        raise CallerError(f"A version of a set is a number, as in {set_id}@3, not {wanted!r}")
    version = int(wanted) if separator else None
    return asyncio.run(EvalFiles(loader.folder).get_set_to_run(app_name, set_id, version)), ids


async def _evaluate_all(
    run: Callable[..., Awaitable[EvalSetResult]],
    wanted: list[tuple[EvalSet, list[str]]],
    files: EvalFiles,
    app_name: str,
) -> list[EvalSetResult]:
    """Evaluates the sets one after the other, with progress in the terminal.

    run: `evaluate_set` with the arguments that all sets share.
    """
    from rich.progress import Progress, TaskID

    from greenroom.models.by_name import LLMRegistry

    results: list[EvalSetResult] = []
    async with data_folder.closing(LLMRegistry):
        with Progress(console=console("notes"), transient=True) as bar:
            for eval_set, ids in wanted:
                task: TaskID = bar.add_task(printable(eval_set.eval_set_id), total=None)

                def show(result: EvalCaseResult, total: int, task: TaskID = task) -> None:
                    bar.update(task, total=total, advance=1)

                result = await run(eval_set, eval_ids=ids, progress=show)
                await files.save_result(app_name, result)
                results.append(result)
        return results


def _show(result: EvalSetResult, *, detailed: bool) -> None:
    from greenroom.evaluation.comparison import by_case, counted, failures_of, percent

    for name, runs in by_case(result.eval_case_results).items():
        rate = counted(runs)
        times = f" {rate.passed} of {rate.total}" if rate.total > 1 else ""
        print_line(f"{_mark(rate)} {name}{times}")
        for reason in sorted({reason for run in runs for reason in failures_of(run)}):
            print_line(f"    {reason}")
        if detailed:
            for metric in runs[-1].overall_eval_metric_results:
                print_line(f"    {metric.metric_name}: {json.dumps(metric.score)}")

    rate = counted(result.eval_case_results)
    version = "" if result.eval_set_version is None else f"@{result.eval_set_version}"
    print_line(f"{result.eval_set_id}{version}: {percent(rate)} passed, {rate.total - rate.passed} failed")
    note(f"Stored as {result.eval_set_result_id}")


def _mark(rate: PassRate) -> str:
    if not rate.total:
        return "–"
    return "✓" if rate.passed == rate.total else "✗"
