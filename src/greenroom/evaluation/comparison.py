"""Summaries of results, and the differences between two sets of results: the cases that got better or worse, and the
metrics.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import msgspec

from greenroom.evaluation.records import EvalCaseResult, EvalMetricResult, EvalStatus, Invocation, text_of
from greenroom.evaluation.statistics import Difference, PassRate, compare, paired, pass_rate
from greenroom.records.base import Record, empty_map

COUNTED = (EvalStatus.PASSED, EvalStatus.FAILED)
"""Other results neither pass nor fail."""

Verdict = Literal["better", "worse", "unchanged", "edited", "removed", "added"]
"""`edited`: the case itself isn't the same in both, so that its results say nothing about the agents."""


class MetricSummary(Record, kw_only=True, omit_defaults=False):
    """A metric over all results."""

    metric_name: str
    threshold: float | None
    passed: PassRate | None
    """None for metrics that only inform."""

    scores: list[float]
    """The scores of the results, without missing ones."""

    @property
    def mean(self) -> float | None:
        return fmean(self.scores) if self.scores else None


class CaseComparison(Record, kw_only=True, omit_defaults=False):
    """A case in two sets of results.

    first, second: its pass rates; None where it was not evaluated.

    first_scores, second_scores: the mean by metric.
    """

    eval_id: str
    verdict: Verdict
    """By these."""

    first: PassRate | None
    second: PassRate | None
    first_scores: dict[str, float] = msgspec.field(default_factory=empty_map)
    second_scores: dict[str, float] = msgspec.field(default_factory=empty_map)
    diff: str
    """A unified diff of two of its conversations, calls and texts; empty if they are the same. Of a
    case that got worse, one that passed and one that did not are compared.
    """


class Comparison(Record, kw_only=True, omit_defaults=False):
    """The differences between two runs of the same cases."""

    passed: Difference | None
    """The difference of the pass rates; None without results in both."""

    scores: dict[str, Difference]
    """That of each metric's scores."""

    cases: list[CaseComparison]

    def of(self, *verdicts: Verdict) -> list[CaseComparison]:
        return [case for case in self.cases if case.verdict in verdicts]


def counted(results: Sequence[EvalCaseResult]) -> PassRate:
    """The pass rate of the results that passed or failed."""
    return _pass_rate([one.final_eval_status for one in results])


def _pass_rate(statuses: Sequence[EvalStatus]) -> PassRate:
    passed, failed = (statuses.count(status) for status in COUNTED)
    return pass_rate(passed, passed + failed)


def by_case(results: Sequence[EvalCaseResult]) -> dict[str, list[EvalCaseResult]]:
    by_id: dict[str, list[EvalCaseResult]] = {}
    for result in results:
        by_id.setdefault(result.eval_id, []).append(result)
    return by_id


def metric_summaries(results: Sequence[EvalCaseResult]) -> list[MetricSummary]:
    """Summaries in the order in which the metrics were computed."""
    by_name: dict[str, list[EvalMetricResult]] = {}
    for result in results:
        for metric in result.overall_eval_metric_results:
            by_name.setdefault(metric.metric_name, []).append(metric)
    return [_summary(name, computed) for name, computed in by_name.items()]


def _summary(name: str, computed: Sequence[EvalMetricResult]) -> MetricSummary:
    rate = _pass_rate([metric_result.eval_status for metric_result in computed])
    return MetricSummary(
        metric_name=name,
        threshold=computed[0].threshold,
        passed=rate if rate.total else None,
        scores=[metric_result.score for metric_result in computed if metric_result.score is not None],
    )


def compare_results(
    first: Sequence[EvalCaseResult],
    second: Sequence[EvalCaseResult],
    *,
    seed: int = 0,
) -> Comparison:
    """Compares case by case, sample by sample. Cases that aren't the same in both are left out of the differences.

    seed: of the bootstrap and the permutations.
    """
    before = by_case(first)
    after = by_case(second)
    names = [one.metric_name for one in metric_summaries([*first, *second])]
    cases = [_case(name, before.get(name, []), after.get(name, [])) for name in dict.fromkeys([*before, *after])]
    for case in cases:
        if case.verdict == "edited":
            del before[case.eval_id]
    scores = {name: _difference(before, after, lambda result, name=name: _score(result, name), seed) for name in names}

    return Comparison(
        passed=_difference(before, after, _passed, seed),
        scores={name: difference for name, difference in scores.items() if difference is not None},
        cases=cases,
    )


def _difference(
    before: Mapping[str, Sequence[EvalCaseResult]],
    after: Mapping[str, Sequence[EvalCaseResult]],
    value: Callable[[EvalCaseResult], float | None],
    seed: int,
) -> Difference | None:
    def values(results: Mapping[str, Sequence[EvalCaseResult]]) -> dict[str, list[float]]:
        numbers_by_id: dict[str, list[float]] = {}
        for name, of_case in results.items():
            numbers = [value(result) for result in of_case]
            numbers_by_id[name] = [number for number in numbers if number is not None]
        return numbers_by_id

    first, second = paired(values(before), values(after))
    return compare(first, second, seed=seed) if first else None


def _passed(result: EvalCaseResult) -> float | None:
    if result.final_eval_status in COUNTED:
        return float(result.final_eval_status is EvalStatus.PASSED)
    return None


def _score(result: EvalCaseResult, name: str) -> float | None:
    return next((one.score for one in result.overall_eval_metric_results if one.metric_name == name), None)


def _case(
    name: str,
    before: Sequence[EvalCaseResult],
    after: Sequence[EvalCaseResult],
) -> CaseComparison:
    first = counted(before) if before else None
    second = counted(after) if after else None
    if first is None or second is None:
        verdict: Verdict = "added" if first is None else "removed"
    elif _are_different(before, after):
        verdict = "edited"
    elif first.rate == second.rate or not (first.total and second.total):
        verdict = "unchanged"
    else:
        verdict = "better" if second.rate > first.rate else "worse"

    shown = {
        "better": (EvalStatus.FAILED, EvalStatus.PASSED),
        "worse": (EvalStatus.PASSED, EvalStatus.FAILED),
    }.get(verdict, (None, None))

    return CaseComparison(
        eval_id=name,
        verdict=verdict,
        first=first,
        second=second,
        first_scores=_means(before),
        second_scores=_means(after),
        diff=diff(_lines_of(before, shown[0]), _lines_of(after, shown[1])),
    )


def _are_different(before: Sequence[EvalCaseResult], after: Sequence[EvalCaseResult]) -> bool:
    """Whether the results are of two cases that have one id. Results of ADK don't tell."""
    first = {result.eval_case_digest for result in before if result.eval_case_digest is not None}
    second = {result.eval_case_digest for result in after if result.eval_case_digest is not None}
    return bool(first and second) and first != second


def _means(results: Sequence[EvalCaseResult]) -> dict[str, float]:
    return {one.metric_name: one.mean for one in metric_summaries(results) if one.mean is not None}


def _lines_of(results: Sequence[EvalCaseResult], wanted: EvalStatus | None) -> list[str]:
    """The conversation of the first result with a status, or of the first one."""
    if not results:
        return []
    result = next((one for one in results if one.final_eval_status is wanted), results[0])
    lines = conversation_lines([one.actual_invocation for one in result.eval_metric_result_per_invocation])
    return [*lines, f"error: {result.error}"] if result.error else lines


def conversation_lines(invocations: Sequence[Invocation]) -> list[str]:
    """Messages, calls and responses, a line each; longer texts have several."""
    lines: list[str] = []
    for turn in invocations:
        lines += _message_lines("user", text_of(turn.user_content) or "")

        for author, part in turn.steps.parts():
            if part.text and not part.thought:
                lines += _message_lines(author, part.text)
            if part.function_call is not None:
                lines.append(f"call {part.function_call.name} {_json(part.function_call.args)}")
            if part.function_response is not None:
                lines.append(f"result {part.function_response.name} {_json(part.function_response.response)}")

        if turn.steps.invocation_events is None:
            lines += [f"call {call.name} {_json(call.args)}" for call in turn.calls()]

        if (text := turn.text()) is not None:
            lines += _message_lines("agent", text)

    return lines


def _message_lines(author: str, text: str) -> list[str]:
    first, *more = text.splitlines() or [""]
    return [f"{author}: {first}", *(f"  {line}" for line in more)]


def _json(value: object) -> str:
    return msgspec.json.encode(msgspec.to_builtins(value or {}, order="sorted")).decode()


def diff(before: Sequence[str], after: Sequence[str]) -> str:
    """A unified diff without file names; empty when there is none."""
    return "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=3))[2:])


def failures_of(result: EvalCaseResult) -> list[str]:
    """Lists why a case did not pass: its error, or its failed metrics."""
    if result.error:
        return [result.error]
    return [
        f"{one.metric_name}: {number(one.score)}, at least {number(one.threshold)}"
        for one in result.overall_eval_metric_results
        if one.eval_status is EvalStatus.FAILED
    ]


def mismatch(result: EvalCaseResult) -> str:
    """Returns a diff from the expected conversation to the actual one, or the actual one if nothing is expected."""
    turns = result.eval_metric_result_per_invocation
    actual = conversation_lines([one.actual_invocation for one in turns])
    expected = [one.expected_invocation for one in turns if one.expected_invocation is not None]
    if expected:
        return diff(conversation_lines(expected), actual)
    return "\n".join(actual)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def percent(rate: PassRate) -> str:
    if rate.total:
        return f"{rate.rate:.0%} of {rate.total} ({rate.low:.0%}–{rate.high:.0%})"
    return "–"


def describe_difference(difference: Difference, *, is_rate: bool) -> str:
    """A comparison in words."""

    def signed(value: float) -> str:
        return f"{value * 100:+.1f} points" if is_rate else f"{value:+.3f}"

    interval = f"({signed(difference.low)} to {signed(difference.high)})"
    noun = "pair" if difference.pairs == 1 else "pairs"
    text = f"{signed(difference.difference)} {interval}, {difference.pairs} {noun}, p = {difference.p_value:.3f}"

    if difference.is_significant:
        return f"{text}: more than chance"

    needed = difference.pairs_needed
    if needed is None:
        return f"{text}: no difference"
    if needed > difference.pairs:
        return f"{text}: may be chance; about {needed} pairs of results would tell"

    return f"{text}: may be chance"
