"""Looks up metrics by name, including users' own."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from greenroom.errors import InvalidRequest
from greenroom.evaluation.metrics.counts import COUNTS, Count
from greenroom.evaluation.metrics.judged import JUDGED
from greenroom.evaluation.metrics.match import ResponseMatch, ToolTrajectory
from greenroom.evaluation.metrics.metric import EvaluationMetric, EvaluationResult, ScoredConversation, metric_info
from greenroom.evaluation.records import EvalMetric, MetricInfo

_CLASSES: dict[str, type[EvaluationMetric]] = {
    kind.info.metric_name: kind for kind in (ToolTrajectory, ResponseMatch, *JUDGED)
}

MetricFunction = Callable[..., Any]
"""Of the metric, the actual invocations, the expected ones or None, and the scenario or None: an
EvaluationResult, or an awaitable of one.
"""


def metric_infos() -> list[MetricInfo]:
    """Lists all metrics in the order of their names."""
    infos = [*(kind.info for kind in _CLASSES.values()), *(info for info, _ in COUNTS.values())]
    return sorted(infos, key=lambda info: info.metric_name)


def metrics_of(wanted: Sequence[EvalMetric]) -> list[EvaluationMetric]:
    """Returns the requested metrics, and all counts, which only inform. Raises InvalidRequest for unknown names and
    wrong options.
    """
    names = {metric.metric_name for metric in wanted}
    extra = [EvalMetric(metric_name=name) for name in COUNTS if name not in names]
    return [_metric(metric) for metric in (*wanted, *extra)]


def _metric(metric: EvalMetric) -> EvaluationMetric:
    if metric.custom_function_path:
        return CustomMetric(metric, _function(metric.custom_function_path))
    if metric.metric_name in COUNTS:
        return Count(metric, *COUNTS[metric.metric_name])

    kind = _CLASSES.get(metric.metric_name)
    if kind is None:
        names = ", ".join(info.metric_name for info in metric_infos())
        raise InvalidRequest(f"There is no metric {metric.metric_name!r}. Known: {names}")

    return kind(metric)


class CustomMetric(EvaluationMetric):
    """A function that a user wrote."""

    def __init__(self, metric: EvalMetric, function: MetricFunction) -> None:
        self.info = metric_info(metric.metric_name, inspect.getdoc(function) or metric.metric_name)
        super().__init__(metric)
        self._metric = metric
        self._function = function

    async def evaluate(self, conversation: ScoredConversation) -> EvaluationResult:
        actual, expected, scenario = conversation
        result = self._function(
            self._metric,
            list(actual),
            None if expected is None else list(expected),
            scenario,
        )
        if inspect.isawaitable(result):
            result = await result

        if not isinstance(result, EvaluationResult):
            raise InvalidRequest(f"{self._metric.custom_function_path} returned no EvaluationResult")

        return result


def _function(path: str) -> MetricFunction:
    module, _, name = path.rpartition(".")
    try:
        function: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"There is no function {path!r} to measure with: {error}") from error
    return cast("MetricFunction", function)
