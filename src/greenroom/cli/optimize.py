"""`greenroom optimize`: searches for a better instruction of an agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.evaluation import find_set, read_record
from greenroom.cli.find_agent import find_loader
from greenroom.cli.parameters import AgentPath
from greenroom.cli.terminal import print_line

if TYPE_CHECKING:
    from greenroom.evaluation.optimize import Candidate


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
