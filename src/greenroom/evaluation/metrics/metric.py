"""The contract of a metric, and its result."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.evaluation.records import (
    ConversationScenario,
    EvalMetric,
    EvalMetricResultDetails,
    EvalStatus,
    Interval,
    Invocation,
    MetricInfo,
    MetricValueInfo,
)
from greenroom.records.base import JsonObject, Record

_SHARE = Interval(min_value=0, max_value=1)


def metric_info(
    name: str, description: str, interval: Interval = _SHARE, *, requires_threshold: bool = True
) -> MetricInfo:
    return MetricInfo(
        metric_name=name,
        description=description,
        metric_value_info=MetricValueInfo(interval=interval),
        requires_threshold=requires_threshold,
    )


class PerInvocationResult(Record, kw_only=True):
    """A metric's result for one invocation."""

    actual_invocation: Invocation
    expected_invocation: Invocation | None = None
    score: float | None = None
    """None when it could not be computed."""

    eval_status: EvalStatus = EvalStatus.NOT_EVALUATED
    details: EvalMetricResultDetails = msgspec.field(default_factory=EvalMetricResultDetails)


class EvaluationResult(Record, kw_only=True):
    """A metric's result for a whole case."""

    overall_score: float | None = None
    """None when no invocation has a score."""

    overall_eval_status: EvalStatus = EvalStatus.NOT_EVALUATED
    per_invocation_results: list[PerInvocationResult] = msgspec.field(default_factory=list[PerInvocationResult])
    details: EvalMetricResultDetails = msgspec.field(default_factory=EvalMetricResultDetails)


class ScoredConversation(NamedTuple):
    """An agent's turns in a case, and the expected ones: a scenario expects none."""

    actual: Sequence[Invocation]
    expected: Sequence[Invocation] | None = None
    scenario: ConversationScenario | None = None

    def turns(self) -> list[PerInvocationResult]:
        """A result for each turn, without a score."""
        if self.expected is None:
            return [PerInvocationResult(actual_invocation=one) for one in self.actual]
        pairs = zip(self.actual, self.expected, strict=True)
        return [PerInvocationResult(actual_invocation=one, expected_invocation=wanted) for one, wanted in pairs]

    def first(self, turns: int) -> ScoredConversation:
        """The conversation up to a turn."""
        expected = None if self.expected is None else self.expected[:turns]
        return ScoredConversation(self.actual[:turns], expected, self.scenario)


class EvaluationMetric(ABC):
    """A metric with its threshold and options. One object scores many cases at once."""

    info: MetricInfo

    def __init__(self, metric: EvalMetric) -> None:
        """Raises InvalidRequest for options that the metric can't have."""
        self.options = in_snake_case({"threshold": metric.threshold, **(metric.criterion or {})})
        self.threshold: float | None = self.options.get("threshold")
        self.criterion = metric.criterion
        if self.info.requires_threshold and self.threshold is None:
            raise InvalidRequest(f"The metric {metric.metric_name!r} needs a threshold")
        if not self.info.requires_threshold and self.threshold is not None:
            raise InvalidRequest(f"The metric {metric.metric_name!r} only informs: it takes no threshold")

    @abstractmethod
    async def evaluate(self, conversation: ScoredConversation) -> EvaluationResult:
        """Raises the errors of the judge's model."""

    def status(self, score: float | None) -> EvalStatus:
        if score is None:
            return EvalStatus.NOT_EVALUATED
        if self.threshold is None:
            return EvalStatus.INFORMATIONAL
        if score >= self.threshold:
            return EvalStatus.PASSED
        return EvalStatus.FAILED

    def result(self, turns: list[PerInvocationResult]) -> EvaluationResult:
        """The mean over the invocations that have a score."""
        for one in turns:
            one.eval_status = self.status(one.score)
        score = mean([one.score for one in turns if one.score is not None])
        return EvaluationResult(
            overall_score=score, overall_eval_status=self.status(score), per_invocation_results=turns
        )


def in_snake_case(options: JsonObject) -> JsonObject:
    """Options whose names may be in camelCase."""
    return {re.sub("([A-Z])", r"_\1", name).lower(): value for name, value in options.items()}


def mean(scores: Sequence[float]) -> float | None:
    return sum(scores) / len(scores) if scores else None
