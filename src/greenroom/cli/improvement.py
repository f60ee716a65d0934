"""`greenroom eval compare`, `greenroom eval scenarios` and `greenroom optimize`: what comes before and after a run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.evaluation import find_set, read_config, read_record
from greenroom.cli.parameters import AgentPath, Report
from greenroom.cli.run import find_app, find_loader
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.evaluation.comparison import Comparison
    from greenroom.evaluation.optimize import Candidate
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

    found = compare_results(_cases(before), _cases(after))
    _show(found)
    for path in report:
        write_report(path, after, found)
        note(f"Wrote {path}")
    if found.passed is not None and found.passed.is_significant and found.passed.difference < 0:
        sys.exit(1)


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


def _show(found: Comparison) -> None:
    from greenroom.evaluation.comparison import said

    for verdict in ("worse", "better"):
        for case in found.of(verdict):
            print_line(f"{verdict}: {case.eval_id}\n{case.diff}")

    counts = {verdict: len(found.of(verdict)) for verdict in ("better", "worse", "unchanged", "added", "removed")}
    print_line(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    if found.passed is not None:
        print_line(f"pass rate: {said(found.passed, is_rate=True)}")
    for name, score in found.scores.items():
        print_line(f"{name}: {said(score, is_rate=False)}")


def scenarios(
    agent: AgentPath,
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
    """Add scenarios to an evaluation set: conversations in which a model plays the user.

    The scenarios come from a file, or a model generates them.

        greenroom eval scenarios examples/weather cities --scenarios-file scenarios.json

        greenroom eval scenarios examples/weather cities --generate 10 --about "People who name no city"

    Parameters
    ----------
    set_id
        The ID of the set. It is created if it doesn't exist.
    scenarios_file
        A JSON file: `{"scenarios": [{"starting_prompt": …, "conversation_plan": …}]}`.
    session_input_file
        A JSON file with `app_name`, `user_id` and `state` of the sessions.
    generate
        How many scenarios to generate.
    model
        The model that generates them.
    about
        What the generated scenarios should be about.
    environment
        A text file that describes the data of the agent's tools.
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
        print_line(f"{len(new)} scenarios added to {set_id}, {len(cases) - len(new)} already existed")

    asyncio.run(add())


def optimize(
    agent: AgentPath,
    sampler: Annotated[Path, Parameter(name="SAMPLER")],
    /,
    *,
    optimizer_config_file_path: Path | None = None,
    model: str | None = None,
    max_metric_calls: int | None = None,
    to: Path | None = None,
) -> None:
    """Search for a better instruction: a model proposes candidates; held-out cases pick the winner.

    The best instruction is printed.

        greenroom optimize examples/weather sampler.json --model gemini-2.5-pro --to instruction.txt

    Parameters
    ----------
    sampler
        A JSON file in ADK's format: `app_name`, `train_eval_set`, `validation_eval_set`, `eval_config`.
    optimizer_config_file_path
        A JSON file with `optimizer_model`, `max_metric_calls` and `reflection_minibatch_size`.
    model
        The model that proposes candidates.
    max_metric_calls
        The maximum number of cases to run.
    to
        A file to write the best instruction to.
    """
    from greenroom.evaluation.optimize import OptimizerConfig, SamplerConfig, Search
    from greenroom.models.by_name import LLMRegistry

    loader, name = find_loader(agent)
    chosen = read_record(sampler, SamplerConfig)
    if optimizer_config_file_path is None:
        config = OptimizerConfig()
    else:
        config = read_record(optimizer_config_file_path, OptimizerConfig)
    config.optimizer_model = model or config.optimizer_model
    config.max_metric_calls = max_metric_calls or config.max_metric_calls

    set_ids = {chosen.train_eval_set, chosen.validation_eval_set or chosen.train_eval_set}
    sets = {set_id: find_set(loader, name, set_id)[0] for set_id in set_ids}
    train, held_out = chosen.cases(sets, seed=config.seed)

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

    scores: list[str] = []
    if candidate.minibatch is not None:
        scores.append(f"{percent(candidate.minibatch)} failed cases")
    if candidate.held_out is not None:
        scores.append(f"{percent(candidate.held_out)} held-out cases")

    mark = "✓" if candidate.is_kept else "✗"
    lines = candidate.instruction.strip().splitlines()
    print_line(f"{mark} {', '.join(scores) or 'not tried'}: {lines[0] if lines else ''}")
