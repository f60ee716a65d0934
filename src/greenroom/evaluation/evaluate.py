"""An evaluation in one call, for commands and tests: everything but the results is kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from greenroom.apps.app import App
from greenroom.errors import InvalidRequest
from greenroom.evaluation.config import EvalConfig
from greenroom.evaluation.files import SET_SUFFIX, read_eval_set
from greenroom.evaluation.journal import Journal
from greenroom.evaluation.metrics.by_name import metrics_of
from greenroom.evaluation.records import EvalCaseResult, EvalSet, EvalSetResult
from greenroom.evaluation.run import AgentUnderTest, Evaluation, RunOptions, app_details
from greenroom.evaluation.simulation import user_simulator
from greenroom.runner.in_memory import InMemoryRunner

Progress = Callable[[EvalCaseResult, int], None]
"""Called with each result, and the number of all."""


async def evaluate_set(
    app: App,
    eval_set: EvalSet,
    config: EvalConfig | None = None,
    *,
    eval_ids: Sequence[str] = (),
    options: RunOptions | None = None,
    journal: Path | None = None,
    restart: bool = False,
    progress: Progress | None = None,
) -> EvalSetResult:
    """Evaluates an agent with a set, and returns the results.

    journal: a folder. Cases that an interrupted call with the same set, configuration and
    version of the app finished there are not run again, unless `restart`.

    Raises InvalidRequest for unknown cases and metrics.
    """
    config = config or EvalConfig()
    options = options or RunOptions()
    runner = InMemoryRunner(app=app)

    open_journal = None
    if journal is not None:
        open_journal = Journal(
            journal,
            app.name,
            app.version,
            eval_set,
            sorted(eval_ids),
            config,
            options.samples,
        )
        if restart:
            open_journal.delete()

    try:
        evaluation = Evaluation(
            AgentUnderTest.of(runner),
            eval_set,
            metrics_of(config.metrics()),
            eval_ids=eval_ids,
            options=options,
            simulator=user_simulator(config.user_simulator_config),
            journal=open_journal,
            app_details=await app_details(app),
            app=app,
        )
        async with aclosing(evaluation.results()) as results:
            async for result in results:
                if progress is not None:
                    progress(result, evaluation.total)

        if open_journal is not None and not evaluation.not_run:
            open_journal.delete()

        return evaluation.summary()
    finally:
        await runner.close()


def load_eval_set(path: Path) -> EvalSet:
    """A set in either of ADK's schemas. Raises InvalidRequest, which names the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} can't be read: {error.strerror}") from error

    try:
        return read_eval_set(
            data,
            path.name.removesuffix(SET_SUFFIX).removesuffix(".test.json").removesuffix(".json"),
        )
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error.detail}") from error
