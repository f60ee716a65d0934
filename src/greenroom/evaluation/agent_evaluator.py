"""Evaluations in tests, with the names and arguments of ADK's `AgentEvaluator`."""

from __future__ import annotations

import csv
import importlib
import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.evaluation.comparison import by_case, metric_summaries
from greenroom.evaluation.config import EvalConfig, read_config
from greenroom.evaluation.evaluate import evaluate_set, load_eval_set
from greenroom.evaluation.files import write_record
from greenroom.evaluation.records import (
    EvalCaseResult,
    EvalSet,
    EvalSetResult,
    EvalStatus,
    Invocation,
    SessionInput,
    text_of,
)
from greenroom.evaluation.run import RunOptions
from greenroom.records import wire
from greenroom.records.base import JsonObject

NUM_RUNS = 2
TEST_SUFFIX = ".test.json"
CONFIG_FILE = "test_config.json"

_COLUMNS = (
    "eval_set_id", "eval_id", "metric_name", "threshold", "score", "eval_status", "prompt", "expected_response",
    "actual_response", "expected_tool_calls", "actual_tool_calls",
)  # fmt: skip


class AgentEvaluator:
    """Runs each case several times; a metric fails if the mean of its scores is below its threshold."""

    @staticmethod
    async def evaluate(
        agent_module: str,
        eval_dataset_file_path_or_dir: str | Path,
        num_runs: int = NUM_RUNS,
        agent_name: str | None = None,
        initial_session_file: str | Path | None = None,
        print_detailed_results: bool = True,
        output_file: str | Path | None = None,
        app_name: str | None = None,
    ) -> None:
        """Evaluates an agent with the sets in a file or a folder.

        agent_module: has `agent.root_agent`, `agent.app` or `agent.get_agent_async`, or these
            itself. Of a folder all `*.test.json` below it are run, each with the `test_config.json`
            beside it.
        agent_name: a sub-agent, in place of the root.
        initial_session_file: the session of cases that have none.
        output_file: a CSV file to append to.

        Raises AssertionError for cases that fail, and ValueError if there is no file or num_runs is
        less than 1.
        """
        for file in _test_files(Path(eval_dataset_file_path_or_dir)):
            await AgentEvaluator.evaluate_eval_set(
                agent_module,
                _load_with_session(file, initial_session_file),
                eval_config=AgentEvaluator.find_config_for_test_file(file),
                num_runs=num_runs,
                agent_name=agent_name,
                print_detailed_results=print_detailed_results,
                output_file=output_file,
                app_name=app_name,
            )

    @staticmethod
    async def evaluate_eval_set(
        agent_module: str,
        eval_set: EvalSet,
        criteria: JsonObject | None = None,
        eval_config: EvalConfig | None = None,
        num_runs: int = NUM_RUNS,
        agent_name: str | None = None,
        print_detailed_results: bool = True,
        output_file: str | Path | None = None,
        app_name: str | None = None,
    ) -> None:
        """Evaluates an agent with one set.

        criteria: the older form of `eval_config`. Raises as `evaluate`.
        """
        if num_runs < 1:
            raise InvalidRequest(f"num_runs is at least 1, not {num_runs}")

        if eval_config is None:
            if criteria is None:
                eval_config = EvalConfig()
            else:
                eval_config = EvalConfig(criteria=criteria)

        app = await load_app(agent_module, agent_name, app_name)
        result = await evaluate_set(
            app,
            eval_set,
            eval_config,
            options=RunOptions(samples=num_runs),
        )
        if output_file is not None:
            _append_rows(Path(output_file), result)

        failures = [line for name, runs in by_case(result.eval_case_results).items() for line in _failures(name, runs)]
        if print_detailed_results:
            print("\n".join([f"{eval_set.eval_set_id}: {len(failures)} failed", *failures]))

        assert not failures, "\n".join(failures)

    @staticmethod
    def find_config_for_test_file(test_file: str | Path) -> EvalConfig:
        """Returns the configuration beside a file, or the default."""
        path = Path(test_file).parent / CONFIG_FILE
        if path.is_file():
            return read_config(path.read_bytes())
        return EvalConfig()

    @staticmethod
    def migrate_eval_data_to_new_schema(
        old_eval_data_file: str | Path,
        new_eval_data_file: str | Path,
        initial_session_file: str | Path | None = None,
    ) -> None:
        """Writes a file of the older schema in the newer one."""
        write_record(
            Path(new_eval_data_file),
            _load_with_session(Path(old_eval_data_file), initial_session_file),
        )


def _test_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.rglob(f"*{TEST_SUFFIX}"))
    else:
        files = [path]
    if not files:
        raise InvalidRequest(f"There is no *{TEST_SUFFIX} in {path}")
    return files


def _load_with_session(file: Path, session_file: str | Path | None) -> EvalSet:
    """The set; its cases without a session get that of the second file."""
    eval_set = load_eval_set(file)
    if session_file is not None:
        session = wire.client_decoder(SessionInput)(Path(session_file).read_bytes())
        for case in eval_set.eval_cases:
            case.session_input = case.session_input or session
    return eval_set


async def load_app(
    agent_module: str,
    agent_name: str | None = None,
    app_name: str | None = None,
) -> App:
    """Raises AgentConfigError."""
    module: ModuleType = importlib.import_module(agent_module)
    if not hasattr(module, "root_agent"):
        inner: Any = getattr(module, "agent", None)
        if isinstance(inner, ModuleType):
            module = inner
        else:
            module = importlib.import_module(f"{agent_module}.agent")

    app: Any = getattr(module, "app", None)
    root: Any
    if isinstance(app, App):
        root = app.root_agent
    else:
        root = getattr(module, "root_agent", None)

    if root is None and hasattr(module, "get_agent_async"):
        exported = module.get_agent_async()
        exported = await exported if inspect.isawaitable(exported) else exported
        # In ADK's older form the agent comes with what closes it.
        if isinstance(exported, tuple):
            root = cast("tuple[Any, ...]", exported)[0]
        else:
            root = exported

    if not isinstance(root, BaseAgent):
        raise AgentConfigError(f"{agent_module} has no root_agent, no app and no get_agent_async")

    if agent_name is None:
        if isinstance(app, App):
            return app
        return App(name=app_name or root.name, root_agent=root)

    for agent in root.walk():
        if agent.name == agent_name:
            return App(name=app_name or agent_name, root_agent=agent)

    raise AgentConfigError(f"{agent_module} has no agent {agent_name!r}")


def _failures(eval_id: str, runs: Sequence[EvalCaseResult]) -> Iterable[str]:
    """A line for each metric whose mean over the runs is too low, and for each error."""
    for error in sorted({run.error for run in runs if run.error}):
        yield f"{eval_id}: {error}"
    for one in metric_summaries(runs):
        if one.mean is not None and one.threshold is not None and one.mean < one.threshold:
            yield f"{eval_id}: {one.metric_name} is {one.mean:.3g}, at least {one.threshold:.3g} is wanted"


def _append_rows(path: Path, result: EvalSetResult) -> None:
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(_COLUMNS)

        for case in result.eval_case_results:
            for turn in case.eval_metric_result_per_invocation:
                for metric in turn.eval_metric_results:
                    expected = turn.expected_invocation
                    writer.writerow(
                        [
                            case.eval_set_id,
                            case.eval_id,
                            metric.metric_name,
                            metric.threshold,
                            metric.score,
                            EvalStatus(metric.eval_status).name,
                            text_of(turn.actual_invocation.user_content),
                            expected.text() if expected is not None else None,
                            turn.actual_invocation.text(),
                            _calls(expected),
                            _calls(turn.actual_invocation),
                        ]
                    )


def _calls(invocation: Invocation | None) -> str:
    if invocation is None:
        return ""
    return wire.encode(invocation.calls()).decode()
