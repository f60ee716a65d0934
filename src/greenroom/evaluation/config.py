"""Configuration of an evaluation, from a JSON file as ADK's `test_config.json`."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.evaluation.records import EvalMetric, MetricInfo
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record, empty_map

_DEFAULT: JsonObject = {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8}


class CodeConfig(Record, kw_only=True):
    """A reference to a function in code."""

    name: str
    """`package.module.function`."""


class CustomMetricConfig(Record, kw_only=True):
    code_config: CodeConfig
    metric_info: MetricInfo | None = None
    description: str | None = None


class EvalConfig(Record, kw_only=True):
    """The metrics of an evaluation, and the models that simulate users."""

    criteria: JsonObject = msgspec.field(default_factory=_DEFAULT.copy)
    """By metric, the threshold, or an object with `threshold` and options."""

    custom_metrics: dict[str, CustomMetricConfig] = msgspec.field(default_factory=empty_map)
    """Functions by the names under which `criteria` has them."""

    user_simulator_config: JsonObject | None = None
    """See `user_simulator`."""

    live_model_config: JsonObject | None = None

    def metrics(self) -> list[EvalMetric]:
        """Raises InvalidRequest."""
        return [self._metric(name, criterion) for name, criterion in self.criteria.items()]

    def _metric(self, name: str, criterion: Any) -> EvalMetric:
        custom = self.custom_metrics.get(name)

        path = custom.code_config.name if custom is not None else None
        if isinstance(criterion, dict):
            options = cast("JsonObject", criterion)
            return EvalMetric(
                metric_name=name, threshold=options.get("threshold"), criterion=options, custom_function_path=path
            )

        if criterion is None or (isinstance(criterion, (int, float)) and not isinstance(criterion, bool)):
            return EvalMetric(metric_name=name, threshold=criterion, custom_function_path=path)

        raise InvalidRequest(f"The criterion of {name!r} is a number or an object, not {criterion!r}")


def read_config(data: bytes) -> EvalConfig:
    """Raises InvalidRequest."""
    return wire.client_decoder(EvalConfig)(data)
