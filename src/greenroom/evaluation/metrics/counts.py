"""Metrics that only inform: calls, tokens, cost and time of each turn, on average."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from greenroom.evaluation.metrics.metric import (
    EvaluationMetric,
    EvaluationResult,
    ScoredConversation,
    mean,
    metric_info,
)
from greenroom.evaluation.records import EvalMetric, EvalMetricResultDetails, Interval, Invocation, MetricInfo
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content

_TOKENS = {
    "total_tokens": "total_token_count",
    "input_tokens": "prompt_token_count",
    "prompt_tokens": "prompt_token_count",
    "cached_tokens": "cached_content_token_count",
    "tool_use_tokens": "tool_use_prompt_token_count",
    "output_tokens": "candidates_token_count",
    "candidates_tokens": "candidates_token_count",
    "reasoning_tokens": "thoughts_token_count",
}
"""Names in ADK's details, and the fields that they sum up."""


class Count(EvaluationMetric):
    """A number for each turn."""

    def __init__(
        self,
        metric: EvalMetric,
        info: MetricInfo,
        count: Callable[[Invocation], float | None],
    ) -> None:
        self.info = info
        super().__init__(metric)
        self._count = count

    async def evaluate(self, conversation: ScoredConversation) -> EvaluationResult:
        detail = _DETAILS.get(self.info.metric_name)
        turns = conversation.turns()
        for turn in turns:
            turn.score = self._count(turn.actual_invocation)
            if detail is not None:
                turn.details = detail([turn.actual_invocation])

        result = self.result(turns)
        if detail is not None:
            result.details = detail(conversation.actual)

        return result


def _usages(invocation: Invocation) -> list[GenerateContentResponseUsageMetadata]:
    events = invocation.steps.invocation_events or ()
    return [event.usage_metadata for event in events if event.usage_metadata is not None]


def _sum(usages: Sequence[GenerateContentResponseUsageMetadata], field: str) -> int:
    return sum(getattr(usage, field) or 0 for usage in usages)


def _model_calls(invocation: Invocation) -> float:
    """Events that are no responses of tools; that of the final response has no content."""
    events = invocation.steps.invocation_events or ()
    return float(sum(_is_model_call(event.content) for event in events))


def _is_model_call(content: Content | None) -> bool:
    if content is None:
        return True
    return all(part.function_response is None for part in content.parts or ())


def _tokens(invocation: Invocation) -> float | None:
    usages = _usages(invocation)
    return float(_sum(usages, "total_token_count")) if usages else None


def _token_details(invocations: Sequence[Invocation]) -> EvalMetricResultDetails:
    counts: list[JsonObject] = []
    for invocation in invocations:
        usages = _usages(invocation)
        counts.append({name: _sum(usages, field) for name, field in _TOKENS.items()})

    return EvalMetricResultDetails(token_usage_details=_means(counts))


def _duration_details(invocations: Sequence[Invocation]) -> EvalMetricResultDetails:
    seconds: list[JsonObject] = []
    for invocation in invocations:
        total = invocation.duration or 0.0
        model = invocation.model_duration or 0.0
        tool = invocation.tool_duration or 0.0
        framework = max(0.0, total - model - tool)
        seconds.append(
            {"total_seconds": total, "model_seconds": model, "tool_seconds": tool, "framework_seconds": framework}
        )

    return EvalMetricResultDetails(duration_details=_means(seconds))


def _means(rows: list[JsonObject]) -> JsonObject:
    if not rows:
        return {}

    means: JsonObject = {}
    for name in rows[0]:
        means[name] = mean([row[name] for row in rows])
    return means


_DETAILS: dict[str, Callable[[Sequence[Invocation]], EvalMetricResultDetails]] = {
    "token_usage_v1": _token_details,
    "invocation_duration_v1": _duration_details,
}

_COUNTS: tuple[tuple[str, str, Callable[[Invocation], float | None]], ...] = (
    ("tool_call_count_v1", "Tool calls of a turn.", lambda one: float(len(one.calls()))),
    ("inference_call_count_v1", "Model calls of a turn.", _model_calls),
    ("token_usage_v1", "Tokens of a turn; details hold the kinds.", _tokens),
    ("invocation_duration_v1", "Seconds of a turn; details hold the parts.", lambda one: one.duration),
)

_UNBOUNDED = Interval(min_value=0, max_value=sys.float_info.max, open_at_max=True)

COUNTS: dict[str, tuple[MetricInfo, Callable[[Invocation], float | None]]] = {
    name: (metric_info(name, description, _UNBOUNDED, requires_threshold=False), count)
    for name, description, count in _COUNTS
}
