"""Judges of live runs."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject, Record
from greenroom.records.feedback import FEEDBACK_NAME

METRICS = (
    "response_evaluation_score",
    "safety_v1",
    "hallucinations_v1",
    "rubric_based_final_response_quality_v1",
    "rubric_based_tool_use_quality_v1",
    "rubric_based_multi_turn_trajectory_quality_v1",
    "multi_turn_task_success_v1",
    "multi_turn_trajectory_quality_v1",
    "multi_turn_tool_use_quality_v1",
)
"""The metrics of evaluations in which a model judges, and that need neither an expected answer nor a scenario."""


class RunJudge(Record, kw_only=True, gc=True):
    """A metric of evaluations that scores a sample of an app's succeeded runs, in the background.

    Its score becomes feedback of a service on the run's answer. Raises AgentConfigError.
    """

    metric: str
    """One of `METRICS`. Those of rubrics need `rubrics` in `criterion`."""
    name: str = msgspec.field(default_factory=str)
    """The name of the feedback; by default the metric's."""
    threshold: float = 0.5
    """The lowest score that passes: the label of the feedback is `passed` or `failed`."""
    criterion: JsonObject = msgspec.field(default_factory=dict[str, Any])
    """The metric's options, such as `rubrics` and `judge_model_options`."""
    share: float = 0.1
    """The share of the runs that are judged, above 0 up to 1."""
    max_tokens_per_day: int | None = None
    """The tokens on a day (UTC) after which the judge judges no run until the next one."""
    max_cost_per_day: float | None = None
    """The same for its cost, in the currency of the price table. At least one of the two is required."""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise AgentConfigError(f"A judge's metric is one of {', '.join(METRICS)}, not {self.metric[:100]!r}")
        self.name = self.name or self.metric
        if not re.fullmatch(FEEDBACK_NAME, self.name):
            raise AgentConfigError(f"The name of a judge has letters, digits, _, - and ., not {self.name[:100]!r}")
        if not 0 < self.share <= 1:
            raise AgentConfigError(f"The share of the judge {self.name!r} is above 0, up to 1, not {self.share:g}")
        limits = [one for one in (self.max_tokens_per_day, self.max_cost_per_day) if one is not None]
        if not limits or min(limits) < 0:
            raise AgentConfigError(f"The judge {self.name!r} needs max_tokens_per_day or max_cost_per_day, from 0 on")
