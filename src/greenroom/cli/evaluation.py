"""`greenroom eval`: measures an agent on sets of cases."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter

from greenroom.cli import data_folder, sessions
from greenroom.cli.run import find_loader
from greenroom.cli.terminal import note, print_line, printable
from greenroom.errors import CallerError, InvalidRequest

if TYPE_CHECKING:
    from greenroom.apps.load_directory import DirectoryAppLoader
    from greenroom.evaluation.config import EvalConfig
    from greenroom.evaluation.files import EvalFiles
    from greenroom.evaluation.records import EvalCaseResult, EvalSet, EvalSetResult
    from greenroom.sessions.service import BaseSessionService

T = TypeVar("T")

app = App(name="eval", help="Measure an agent on sets of cases.")

_Agent = Annotated[str, Parameter(name="AGENT")]


@app.default
def evaluate(
    agent: _Agent,
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
    report: tuple[Path, ...] = (),
    print_detailed_results: bool = False,
    restart: bool = False,
) -> None:
    """Run the cases of evaluation sets, and score what the agent did.

    Results are kept beside the agent, in `.adk/eval_history`. A run that was interrupted is continued by the same
    command. Ends with 1 if a case failed or, with `--fail-under`, if less passed than that.

        greenroom eval examples/weather examples/weather/cities.evalset.json

        greenroom eval examples:weather cities:oslo,rome --samples 5 --fail-under 0.9 --report report.html

    Parameters
    ----------
    agent
        A folder with an `agent.py`, or a folder of such folders with the name of the one that is meant:
        `agents:weather`.
    sets
        Files, or ids of sets beside the agent; after a colon the ids of the cases to run.
    config_file_path
        Metrics with their thresholds: a JSON file as ADK's `test_config.json`.
    metrics
        `NAME` or `NAME=THRESHOLD`, in place of the file's.
    samples
        How often each case is run.
    parallel
        How many cases run at once.
    max_tokens
        Begin no further case once the agent has used so many tokens.
    max_cost
        Begin no further case once the agent's model calls have cost so much.
    max_seconds
        Begin no further case after so many seconds.
    fail_under
        The least share of cases that must pass, from 0 to 1. Without it, all must.
    report
        Files to write: `.xml` (JUnit), `.md` or `.html`.
    print_detailed_results
        Show the score of each metric in each case.
    restart
        Run all cases, also those that an interrupted run finished.
    """
    from greenroom.evaluation.comparison import counted
    from greenroom.evaluation.evaluate import evaluate_set
    from greenroom.evaluation.files import HISTORY, EvalFiles
    from greenroom.evaluation.reports import report_format, write_report
    from greenroom.evaluation.run import RunOptions

    if not sets:
        raise CallerError("Name an evaluation set: a file, or the id of one beside the agent")
    if fail_under is not None and not 0 <= fail_under <= 1:
        raise CallerError(f"--fail-under is a share from 0 to 1, not {fail_under:g}")
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
    rate = counted([one for result in results for one in result.eval_case_results])
    expected = sum(len(ids or eval_set.eval_cases) for eval_set, ids in wanted) * samples
    if (missing := expected - sum(len(result.eval_case_results) for result in results)) > 0:
        note(f"The budget is used up: {missing} of {expected} cases were not run", "red")
        sys.exit(1)
    if not rate.total:
        note("Nothing was evaluated: there are no cases, or no metric could judge them", "red")
        sys.exit(1)
    if fail_under is not None and rate.rate < fail_under:
        note(f"{rate.rate:.1%} passed, {fail_under:.1%} wanted", "red")
        sys.exit(1)
    if fail_under is None and rate.passed < rate.total:
        sys.exit(1)


@app.command
def collect(
    agent: _Agent,
    set_id: Annotated[str, Parameter(name="SET")],
    /,
    *,
    user: str | None = None,
    session: tuple[str, ...] = (),
    session_service: str | None = None,
    limit: int = 50,
) -> None:
    """Add stored conversations to an evaluation set, as they went; the set is made if it is not there.

    The agent's replies and calls of then are expected of it. Conversations that are in the set already, and those of
    evaluations, are left out.

        greenroom eval collect examples:weather cities --user ada --limit 20

        greenroom eval collect examples:weather cities --session 0198c1b2 --session-service sqlite:///chats.db

    Parameters
    ----------
    agent
        A folder with an `agent.py`, or a folder of such folders with the name of the one that is meant:
        `agents:weather`.
    set_id
        The id of the set: letters, digits and `_`.
    user
        Only conversations of this user.
    session
        Only these: their ids, or how these begin.
    session_service
        Where they are kept: `sqlite:///file.db`. Else: in `.greenroom/greenroom.db` of the folder that was served.
    limit
        At most so many, the latest.
    """
    from greenroom.evaluation.files import EvalFiles

    loader, name = find_loader(agent)
    store = sessions.open_store(loader.folder(name).parent, session_service)
    added = asyncio.run(_collect(store, name, EvalFiles(loader.folder), set_id, user, session, limit))
    note(f"Added {added} cases to {set_id}; run them with: greenroom eval {agent} {set_id}")


async def _collect(
    store: BaseSessionService, app_name: str, files: EvalFiles, set_id: str, user: str | None, wanted: tuple[str, ...],
    limit: int,
) -> int:  # fmt: skip
    from greenroom.evaluation.invocations import case_of_session, invocations_of
    from greenroom.evaluation.run import SESSION_PREFIX

    added = 0
    known = {case.eval_id for case in (await files.get_or_create_set(app_name, set_id)).eval_cases}
    async with data_folder.closing(store):
        found = (
            [await sessions.find_session(store, [app_name], user, one) for one in wanted]
            if wanted
            else [one async for one in sessions.newest(store, app_name, user, limit)]
        )
        for listed in found:
            eval_id = re.sub(r"\W", "_", listed.id)
            if eval_id in known or listed.id.startswith(SESSION_PREFIX):
                continue
            session = await store.get_session(**listed.key._asdict())
            if session is not None and invocations_of(session.events):
                await files.add_case(app_name, set_id, case_of_session(session, eval_id))
                added += 1
    return added


def read_config(path: Path | None) -> EvalConfig:
    """The defaults without a file. Raises CallerError."""
    from greenroom.evaluation.config import EvalConfig

    return EvalConfig() if path is None else read_record(path, EvalConfig)


def read_record(path: Path, record: type[T]) -> T:
    """A JSON file of a user. Raises CallerError, which names the file."""
    from greenroom.records import wire

    try:
        return wire.client_decoder(record)(path.read_bytes())
    except OSError as error:
        raise CallerError(f"{path} can't be read: {error.strerror}") from error
    except InvalidRequest as error:
        raise CallerError(f"{path}: {error.detail}") from error


def _criterion(given: str) -> tuple[str, float | None]:
    name, separator, threshold = given.partition("=")
    try:
        return name, float(threshold) if separator else 1.0
    except ValueError:
        raise CallerError(f"The threshold of {name} is a number, not {threshold!r}") from None


def find_set(loader: DirectoryAppLoader, app_name: str, given: str) -> tuple[EvalSet, list[str]]:
    """The set that `greenroom eval AGENT GIVEN` means, and the ids of the cases to run; none: all."""
    from greenroom.evaluation.evaluate import load_eval_set
    from greenroom.evaluation.files import EvalFiles

    path, separator, cases = given.rpartition(":")
    if not separator or Path(given).exists():
        path, cases = given, ""
    ids = [name for name in cases.split(",") if name]
    if path.endswith(".json") or Path(path).is_file():
        return load_eval_set(Path(path)), ids
    return asyncio.run(EvalFiles(loader.folder).get_set(app_name, path)), ids


async def _evaluate_all(
    run: Callable[..., Awaitable[EvalSetResult]],
    wanted: list[tuple[EvalSet, list[str]]],
    files: EvalFiles,
    app_name: str,
) -> list[EvalSetResult]:
    """run: `evaluate_set` with all that the sets have in common."""
    from rich.progress import Progress, TaskID

    from greenroom.cli.terminal import notes
    from greenroom.models.by_name import LLMRegistry

    results: list[EvalSetResult] = []
    async with data_folder.closing(LLMRegistry):
        with Progress(console=notes, transient=True) as bar:
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
        mark = "–" if not rate.total else "✓" if rate.passed == rate.total else "✗"
        times = f" {rate.passed} of {rate.total}" if rate.total > 1 else ""
        reasons = sorted({reason for one in runs for reason in failures_of(one)})
        print_line(f"{mark} {name}{times}" + "".join(f"\n    {reason}" for reason in reasons))
        if detailed:
            for metric in runs[-1].overall_eval_metric_results:
                print_line(f"    {metric.metric_name}: {json.dumps(metric.score)}")
    rate = counted(result.eval_case_results)
    print_line(f"{result.eval_set_id}: {percent(rate)} passed, {rate.total - rate.passed} failed")
    note(f"Kept as {result.eval_set_result_id}")
