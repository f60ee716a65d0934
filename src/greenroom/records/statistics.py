"""Statistics of runs, calls of models and tools, and the load of servers, over time."""

from __future__ import annotations

from typing import Literal

import msgspec

from greenroom.records.base import Record

StatisticsGrouping = Literal["app", "model", "tool", "user"]

Step = Literal[60, 300, 3600, 86400]
"""The seconds between two points."""


class Latency(Record, kw_only=True, omit_defaults=False):
    """Percentiles of durations in seconds, with a relative error of at most 2.5 %."""

    count: int = 0
    """The number of durations."""
    p50: float | None = None
    """The median; None without durations."""
    p95: float | None = None
    """None without durations."""
    p99: float | None = None
    """None without durations."""


class Figures(Record, kw_only=True, omit_defaults=False):
    """Figures of a time, or of a whole period. Groups of models and tools have those of their calls, and no runs."""

    runs: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Runs that ended, by status: `succeeded`, `failed`, `cancelled`."""
    errors: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Runs that failed, by the code of their error; of models and tools, calls that failed."""
    first_text: Latency = msgspec.field(default_factory=Latency)
    """From a request to the first text of a model, of runs that ended."""
    duration: Latency = msgspec.field(default_factory=Latency)
    """From a request to the end, of runs that ended; of models and tools, the duration of calls."""
    model_calls: int = 0
    """Answers of models."""
    tool_calls: int = 0
    """Results of tools."""
    input_tokens: int = 0
    """Tokens of prompts, with the cached ones."""
    output_tokens: int = 0
    """Tokens of answers, with those of thoughts."""
    cached_tokens: int = 0
    """Tokens of prompts that were read from a cache."""
    unpriced_tokens: int = 0
    """Tokens of models without a known price, which are not in `cost`."""
    cost: float = 0.0
    """In `currency`."""


class StatisticsPoint(Figures, kw_only=True, omit_defaults=False):
    """Figures of the `step` seconds from `time` on."""

    time: float
    """Unix seconds, a multiple of `step`."""


class StatisticsGroup(Record, kw_only=True, omit_defaults=False):
    """The figures of one app, model, tool or user over time."""

    key: str | None = None
    """The name of the app, model or tool, or the id of the user; None without grouping, and for the sum of groups."""
    total: Figures
    """Of the whole period."""
    points: list[StatisticsPoint]
    """By time; times without figures have no point."""


class Statistics(Record, kw_only=True, omit_defaults=False):
    """Statistics over time."""

    currency: str = "USD"
    """The currency of all costs."""
    start: float
    """Unix seconds, included: `start` of the request, rounded down to a multiple of `step`."""
    end: float
    """Unix seconds, not included: `end` of the request, rounded up to a multiple of `step`."""
    step: int
    """The seconds between two points."""
    groups: list[StatisticsGroup]
    """Those with most runs first, or with most calls; at most `limit`."""
    others: StatisticsGroup | None = None
    """The sum of all other groups; None if there are none."""
    other_groups: int = 0
    """The number of groups in `others`."""


class Level(Record, kw_only=True, omit_defaults=False):
    """A number that was measured each minute."""

    average: float
    """Over the minutes of the point."""
    maximum: int
    """Of all its minutes. Of several apps, the sum of their maxima."""


class LoadPoint(Record, kw_only=True, omit_defaults=False):
    """The load of the `step` seconds from `time` on."""

    time: float
    """Unix seconds, a multiple of `step`."""
    running: Level
    """Runs that were executing."""
    queued: Level
    """Runs in the queue of their session, or waiting for their turn."""
    open_requests: Level
    """Requests that waited for a person's answer."""
    replicas: Level | None = None
    """Servers; None in the load of single apps."""


class LoadStatistics(Record, kw_only=True, omit_defaults=False):
    """The load of all servers over time."""

    start: float
    """Unix seconds, included: `start` of the request, rounded down to a multiple of `step`."""
    end: float
    """Unix seconds, not included: `end` of the request, rounded up to a multiple of `step`."""
    step: int
    """The seconds between two points."""
    points: list[LoadPoint]
    """By time; times at which no server ran have no point."""
