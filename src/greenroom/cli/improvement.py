"""`greenroom eval compare`, `greenroom eval scenarios` and `greenroom optimize`: what comes before and after a run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.evaluation import find_set, read_config, read_record
from greenroom.cli.run import find_loader
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.evaluation.comparison import Comparison
    from greenroom.evaluation.optimize import Candidate
    from greenroom.evaluation.records import EvalSet, EvalSetResult


def compare(
    first: Annotated[str, Parameter(name="FIRST")],
    second: Annotated[str, Parameter(name="SECOND")],
    /,
    *,
    sets: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    config_file_path: Path | None = None,
    samples: int = 1,
    report: tuple[Path, ...] = (),
) -> None:
    """Say which cases got better or worse, and whether the difference is more than chance.

    Ends with 1 if the second is worse by more than chance.

        greenroom eval compare old.evalset_result.json new.evalset_result.json --report change.html

        greenroom eval compare released/weather agents/weather --set cities --samples 10

    Parameters
    ----------
    first
        A file of results, of those in `.adk/eval_history` beside an agent; with `--set`: an agent.
    second
        What is compared with it.
    sets
        Runs both agents on these sets, side by side: files, or ids of sets beside the second.
    config_file_path
        With `--set`: metrics with their thresholds, as of `greenroom eval`.
    samples
        With `--set`: how often each case is run.
    report
        Files to write: `.xml` (JUnit), `.md` or `.html`.
    """
    from greenroom.evaluation.comparison import compare_results
    from greenroom.evaluation.records import EvalSetResult
    from greenroom.evaluation.reports import report_format, write_report

    for path in report:
        report_format(path)
    if sets:
        wanted = [find_set(*find_loader(second), one) for one in sets]
        before, after = asyncio.run(_run_both(first, second, wanted, config_file_path, samples))
    else:
        before, after = ([read_record(Path(path), EvalSetResult)] for path in (first, second))
    found = compare_results(*([case for one in of for case in one.eval_case_results] for of in (before, after)))
    _show(found)
    for path in report:
        write_report(path, after, found)
        note(f"Wrote {path}")
    if found.passed is not None and found.passed.is_significant and found.passed.difference < 0:
        sys.exit(1)


async def _run_both(
    first: str, second: str, wanted: list[tuple[EvalSet, list[str]]], config: Path | None, samples: int
) -> list[list[EvalSetResult]]:
    from greenroom.evaluation.evaluate import evaluate_set
    from greenroom.evaluation.run import RunOptions
    from greenroom.models.by_name import LLMRegistry

    apps = [loader.load(name) for loader, name in map(find_loader, (first, second))]
    results: list[list[EvalSetResult]] = [[], []]
    async with data_folder.closing(LLMRegistry):
        for eval_set, ids in wanted:
            runs = (
                evaluate_set(app, eval_set, read_config(config), eval_ids=ids, options=RunOptions(samples=samples))
                for app in apps
            )
            for of, result in zip(results, await asyncio.gather(*runs), strict=True):
                of.append(result)
        return results


def _show(found: Comparison) -> None:
    from greenroom.evaluation.comparison import said

    for verdict in ("worse", "better"):
        for case in found.of(verdict):
            print_line(f"{verdict}: {case.eval_id}\n{case.diff}")
    counts = {verdict: len(found.of(verdict)) for verdict in ("better", "worse", "unchanged", "added", "removed")}
    print_line(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    if found.passed is not None:
        print_line(f"pass rate: {said(found.passed, is_rate=True)}")
    for name, one in found.scores.items():
        print_line(f"{name}: {said(one, is_rate=False)}")


def scenarios(
    agent: Annotated[str, Parameter(name="AGENT")],
    set_id: Annotated[str, Parameter(name="SET")],
    /,
    *,
    scenarios_file: Path | None = None,
    session_input_file: Path | None = None,
    generate: int | None = None,
    model: str | None = None,
    about: str | None = None,
    environment: Path | None = None,
) -> None:
    """Add scenarios to an evaluation set: conversations whose user a model plays.

        greenroom eval scenarios examples/weather cities --scenarios-file scenarios.json

        greenroom eval scenarios examples/weather cities --generate 10 --about "People who name no city"

    Parameters
    ----------
    agent
        A folder with an `agent.py`, or a folder of such folders with the name: `agents:weather`.
    set_id
        The id of the set beside the agent; it is created if there is none.
    scenarios_file
        A JSON file with `{"scenarios": [{"starting_prompt": …, "conversation_plan": …}]}`.
    session_input_file
        A JSON file with `app_name`, `user_id` and `state` of the sessions.
    generate
        So many scenarios are invented by a model.
    model
        The model that invents them.
    about
        What they are about.
    environment
        A text file with the data that the agent's tools have.
    """
    from greenroom.evaluation.files import EvalFiles
    from greenroom.evaluation.metrics.judge import DEFAULT_MODEL
    from greenroom.evaluation.records import ConversationScenario, SessionInput
    from greenroom.evaluation.run import app_details
    from greenroom.evaluation.simulation import (
        ConversationGenerationConfig,
        ConversationScenarios,
        generate_scenarios,
        scenario_cases,
    )

    if (scenarios_file is None) == (generate is None):
        raise CallerError("Give either --scenarios-file or --generate")
    loader, name = find_loader(agent)
    files = EvalFiles(loader.folder)
    session_input = read_record(session_input_file, SessionInput) if session_input_file is not None else None
    data = environment.read_text(encoding="utf-8") if environment is not None else None

    async def found() -> list[ConversationScenario]:
        if scenarios_file is not None:
            return read_record(scenarios_file, ConversationScenarios).scenarios
        config = ConversationGenerationConfig(
            count=generate or 0,
            model_name=model or DEFAULT_MODEL,
            generation_instruction=about,
            environment_context=data,
        )
        return await generate_scenarios(config, await app_details(loader.load(name)))

    async def add() -> None:
        cases = scenario_cases(await found(), session_input)
        eval_set = await files.get_or_create_set(name, set_id)
        new = [case for case in cases if eval_set.case(case.eval_id) is None]
        for case in new:
            await files.add_case(name, set_id, case)
        print_line(f"{len(new)} added to {set_id}, {len(cases) - len(new)} were there")

    asyncio.run(add())


def optimize(
    agent: Annotated[str, Parameter(name="AGENT")],
    sampler: Annotated[Path, Parameter(name="SAMPLER")],
    /,
    *,
    optimizer_config_file_path: Path | None = None,
    model: str | None = None,
    max_metric_calls: int | None = None,
    to: Path | None = None,
) -> None:
    """Search a better instruction for an agent: a model proposes, and cases that were held out decide.

        greenroom optimize examples/weather sampler.json --model gemini-2.5-pro --to instruction.txt

    Parameters
    ----------
    agent
        A folder with an `agent.py`, or a folder of such folders with the name: `agents:weather`.
    sampler
        A JSON file as ADK's: `app_name`, `train_eval_set`, `validation_eval_set`, `eval_config`.
    optimizer_config_file_path
        A JSON file with `optimizer_model`, `max_metric_calls` and `reflection_minibatch_size`.
    model
        The model that proposes.
    max_metric_calls
        Run at most so many cases.
    to
        Where to write the best instruction.
    """
    from greenroom.evaluation.optimize import OptimizerConfig, SamplerConfig, Search
    from greenroom.models.by_name import LLMRegistry

    loader, name = find_loader(agent)
    chosen = read_record(sampler, SamplerConfig)
    path = optimizer_config_file_path
    config = OptimizerConfig() if path is None else read_record(path, OptimizerConfig)
    config.optimizer_model = model or config.optimizer_model
    config.max_metric_calls = max_metric_calls or config.max_metric_calls

    ids = {chosen.train_eval_set, chosen.validation_eval_set or chosen.train_eval_set}
    train, held_out = chosen.cases({one: find_set(loader, name, one)[0] for one in ids}, seed=config.seed)

    async def search() -> str:
        async with data_folder.closing(LLMRegistry):
            found = Search(loader.load(name), train, held_out, chosen.eval_config, config, show=_show_candidate)
            return (await found.run()).instruction

    best = asyncio.run(search())
    print_line(f"\n{best}")
    if to is not None:
        to.write_text(best, encoding="utf-8")


def _show_candidate(candidate: Candidate) -> None:
    from greenroom.evaluation.comparison import percent

    mark = "✓" if candidate.is_kept else "✗"
    tried = [("failed cases", candidate.minibatch), ("held-out cases", candidate.held_out)]
    scores = ", ".join(f"{percent(rate)} {what}" for what, rate in tried if rate is not None)
    first = candidate.instruction.strip().splitlines()[:1]
    print_line(f"{mark} {scores or 'not tried'}: {first[0] if first else ''}")
