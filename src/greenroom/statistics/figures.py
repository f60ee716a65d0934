"""Sums of figures, and histograms of durations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from greenroom.records.statistics import Latency

Key = TypeVar("Key", str, int)

RELATIVE_ERROR = 0.025
"""Of percentiles, at most."""

_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
PER_LOG = 1 / math.log(_GAMMA)
SHORTEST_SECONDS = 1e-6
"""Shorter durations are in its bucket."""

COST_UNITS = 10**12
"""Costs are summed as whole numbers of this fraction of the currency: floats would depend on the order."""

MAX_CODES = 50
"""Maximum number of error codes in a sum; further ones are counted under OTHER."""
MAX_CODE_LENGTH = 100
OTHER = "(other)"

Histogram = dict[int, int]
"""Number of durations by bucket, which is the logarithm of the seconds times PER_LOG, rounded up. Source: DDSketch
(Masson, Rim, Lee, 2019), whose percentiles have a relative error that does not depend on the durations."""


def _seconds_of(bucket: int) -> float:
    """The number with the smallest relative error for all durations of a bucket."""
    return 2 * _GAMMA**bucket / (_GAMMA + 1)


def latency_of(histogram: Mapping[int, int] | None) -> Latency:
    if not histogram:
        return Latency()
    count = sum(histogram.values())
    p50, p95, p99 = _percentiles(histogram, [math.ceil(count * share) for share in (0.5, 0.95, 0.99)])
    return Latency(count=count, p50=p50, p95=p95, p99=p99)


def _percentiles(histogram: Mapping[int, int], ranks: list[int]) -> list[float]:
    """The durations with these ranks, the shortest of which has the rank 1. ranks: ascending."""
    found: list[float] = []
    passed = 0
    for bucket in sorted(histogram):
        passed += histogram[bucket]
        while len(found) < len(ranks) and ranks[len(found)] <= passed:
            found.append(_seconds_of(bucket))
    return found


class Sum(msgspec.Struct, array_like=True, gc=False):
    """Figures that can be added. As JSON, it is stored; fields that are added later need a default."""

    runs: dict[str, int] | None = None
    """Ended runs by status."""
    errors: dict[str, int] | None = None
    """Failures by code."""
    first_text: Histogram | None = None
    duration: Histogram | None = None
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    unpriced_tokens: int = 0
    cost: int = 0
    """In COST_UNITS."""

    @property
    def weight(self) -> int:
        """By which groups are ordered: the number of runs or, without them, of calls."""
        if self.runs:
            return sum(self.runs.values())
        return self.model_calls + self.tool_calls

    def count_error(self, code: str) -> None:
        code = code[:MAX_CODE_LENGTH]
        if self.errors is None:
            self.errors = {code: 1}
        else:
            _count(self.errors, code, 1)

    def add(self, other: Sum) -> None:
        """Adds another sum."""
        if other.runs is not None:
            self.runs = _added(self.runs, other.runs)
        if other.errors is not None:
            if self.errors is None:
                self.errors = dict(other.errors)
            else:
                for code, number in other.errors.items():
                    _count(self.errors, code, number)
        if other.first_text is not None:
            self.first_text = _added(self.first_text, other.first_text)
        if other.duration is not None:
            self.duration = _added(self.duration, other.duration)

        self.model_calls += other.model_calls
        self.tool_calls += other.tool_calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cached_tokens += other.cached_tokens
        self.unpriced_tokens += other.unpriced_tokens
        self.cost += other.cost

    def fields(self) -> dict[str, Any]:
        """The arguments of `Figures`."""
        return {
            "runs": self.runs or {},
            "errors": self.errors or {},
            "first_text": latency_of(self.first_text),
            "duration": latency_of(self.duration),
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "unpriced_tokens": self.unpriced_tokens,
            "cost": self.cost / COST_UNITS,
        }


def _added(own: dict[Key, int] | None, other: Mapping[Key, int]) -> dict[Key, int]:
    if own is None:
        return dict(other)
    for key, number in other.items():
        own[key] = own.get(key, 0) + number
    return own


def _count(errors: dict[str, int], code: str, number: int) -> None:
    if code not in errors and len(errors) >= MAX_CODES:
        code = OTHER
    errors[code] = errors.get(code, 0) + number
