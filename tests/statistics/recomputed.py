"""Statistics computed the slow way, from the records of runs and the logs of sessions, and compared with an answer."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from greenroom.records.statistics import Figures, Latency, Statistics
from greenroom.statistics.store import StatisticsQuery
from greenroom.usage.prices import PriceTable, default_prices

TOLERANCE = 0.0251
"""The stated relative error of percentiles, and that of floats."""


@dataclass
class Expected:
    runs: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    first_texts: list[float] = field(default_factory=list[float])
    durations: list[float] = field(default_factory=list[float])
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    unpriced_tokens: int = 0
    cost: Decimal = Decimal(0)


@dataclass(frozen=True)
class Fact:
    """Something that happened, which is in all figures of its app, user, model or tool."""

    kind: str
    app: str
    user: str
    name: str
    time: float
    value: Expected


def facts_of(runs: Iterable[Run], logs: Mapping[str, Sequence[Event]], prices: PriceTable | None = None) -> list[Fact]:
    """logs: by session id, whole."""
    prices = prices or default_prices()
    facts: list[Fact] = []
    for run in runs:
        requested_at = run.requested_at or run.created_at
        if run.status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED):
            assert run.ended_at is not None
            end = Expected(runs=Counter([run.status.value]), durations=[run.ended_at - requested_at])
            if run.status is RunStatus.FAILED and run.error is not None:
                end.errors[run.error.code] += 1
            if run.first_text_at is not None:
                end.first_texts.append(run.first_text_at - requested_at)
            facts.append(Fact("run", run.app_name, run.user_id, "", run.ended_at, end))

        own = [event for event in logs.get(run.session_id, ()) if event.invocation_id == run.id]
        called: dict[str | None, float] = {}
        for position, event in enumerate(own):
            if event.author == "user":
                continue

            def fact(kind: str, name: str | None, value: Expected, event: Event = event, run: Run = run) -> None:
                facts.append(Fact(kind, run.app_name, run.user_id, name or "", event.timestamp, value))

            usage = event.usage_metadata
            if usage is not None or event.model_version is not None:
                call = Expected(model_calls=1, durations=[event.timestamp - own[position - 1].timestamp])
                if event.error_code is not None:
                    call.errors[str(event.error_code)] += 1
                if usage is not None:
                    call.input_tokens = usage.input_tokens
                    call.output_tokens = usage.output_tokens
                    call.cached_tokens = usage.cached_content_token_count or 0
                    price = prices.find(event.model_version or "")
                    if price is None:
                        call.unpriced_tokens = max(usage.total_token_count or 0, call.input_tokens + call.output_tokens)
                    else:
                        call.cost = price.cost_of(usage).money
                fact("model", event.model_version, call)
            for function_call in event.get_function_calls():
                fact("tool", function_call.name, Expected(tool_calls=1))
                called[function_call.id] = event.timestamp
            for response in event.get_function_responses():
                if response.id in called:
                    done = Expected(durations=[event.timestamp - called.pop(response.id)])
                    if (response.response or {}).get("error"):
                        failed: list[str] = (event.custom_metadata or {}).get("greenroom:failed_calls", [])
                        done.errors[str(event.error_code) if response.id in failed else "error"] += 1
                    fact("tool", response.name, done)
    return facts


def expected_of(facts: Iterable[Fact], *, beside_runs: bool) -> Expected:
    """The sum of facts. beside_runs: errors and durations are those of runs."""
    total = Expected()
    for fact in facts:
        value = fact.value
        total.runs += value.runs
        if fact.kind == "run" or not beside_runs:
            total.errors += value.errors
            total.durations += value.durations
        total.first_texts += value.first_texts
        for name in ("model_calls", "tool_calls", "input_tokens", "output_tokens", "cached_tokens", "unpriced_tokens"):
            setattr(total, name, getattr(total, name) + getattr(value, name))
        total.cost += value.cost
    return total


def check(answer: Statistics, query: StatisticsQuery, facts: Iterable[Fact]) -> int:
    """Compares all figures of an answer that has all groups. Returns the number of points."""
    kinds = query.kinds
    beside_runs = "run" in kinds or "user" in kinds
    chosen = [
        fact
        for fact in facts
        if (fact.kind in kinds or "user" in kinds)
        and (query.app_names is None or fact.app in query.app_names)
        and (query.user_id is None or fact.user == query.user_id)
        and (query.model is None or fact.name == query.model)
        and (query.tool is None or fact.name == query.tool)
        and answer.start <= fact.time < answer.end
    ]
    by_group: dict[str | None, list[Fact]] = defaultdict(list)
    for fact in chosen:
        by_group[_key(fact, query)].append(fact)
    if query.group_by is None:
        by_group.setdefault(None, [])
    assert answer.others is None
    assert {group.key for group in answer.groups} == set(by_group)

    points = 0
    for group in answer.groups:
        of_group = by_group[group.key]
        compare(group.total, expected_of(of_group, beside_runs=beside_runs))
        by_time: dict[float, list[Fact]] = defaultdict(list)
        for fact in of_group:
            by_time[fact.time // answer.step * answer.step].append(fact)
        assert [point.time for point in group.points] == sorted(by_time)
        for point in group.points:
            compare(point, expected_of(by_time[point.time], beside_runs=beside_runs))
        points += len(group.points)
    return points


def _key(fact: Fact, query: StatisticsQuery) -> str | None:
    if query.group_by is None:
        return None
    return {"app": fact.app, "user": fact.user}.get(query.group_by, fact.name)


def compare(figures: Figures, expected: Expected) -> None:
    assert figures.runs == dict(expected.runs)
    assert figures.errors == dict(expected.errors)
    for name in ("model_calls", "tool_calls", "input_tokens", "output_tokens", "cached_tokens", "unpriced_tokens"):
        assert getattr(figures, name) == getattr(expected, name), name
    assert figures.cost == float(expected.cost)
    _compare_latency(figures.first_text, expected.first_texts)
    _compare_latency(figures.duration, expected.durations)


def _compare_latency(latency: Latency, seconds: list[float]) -> None:
    assert latency.count == len(seconds)
    for percentile, share in ((latency.p50, 0.5), (latency.p95, 0.95), (latency.p99, 0.99)):
        if not seconds:
            assert percentile is None
            continue
        exact = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
        assert percentile is not None
        assert abs(percentile - exact) <= TOLERANCE * max(exact, 1e-6), (percentile, exact)
