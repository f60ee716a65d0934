"""A report in one HTML file, light and dark, without scripts or anything to load."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape

from greenroom.evaluation.comparison import (
    CaseComparison,
    Comparison,
    MetricSummary,
    by_case,
    counted,
    describe_difference,
    failures_of,
    metric_summaries,
    mismatch,
    number,
    percent,
)
from greenroom.evaluation.records import EvalCaseResult, EvalSetResult, EvalStatus
from greenroom.evaluation.statistics import Difference

BINS = 20
MAX_DETAILS = 500
"""Conversations shown in full per set; a table has the others."""

_STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1a1d21; --muted: #59616a; --line: #d7dbe0; --panel: #f5f6f8;
  --bar: #2f6fde; --good: #1a7a3c; --bad: #bf2c2c; --added: #e4f5e9; --removed: #fbe7e7 }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --fg: #e6e9ec; --muted: #9ba4ae; --line: #363c43;
  --panel: #1d2126; --bar: #6ea0ff; --good: #5fcf87; --bad: #ff8585; --added: #15351f; --removed: #401b1b } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem } h3 { font-size: 1rem; margin-top: 1.75rem }
.muted, figcaption { color: var(--muted) } .good { color: var(--good) } .bad { color: var(--bad) }
.tiles { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; list-style: none }
.tiles li { background: var(--panel); border-radius: .5rem; padding: .6rem 1rem; min-width: 8rem }
.tiles b { display: block; font-size: 1.6rem; font-weight: 600 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word } th { font-weight: 600; color: var(--muted) }
figure { margin: 0 } figcaption { margin-bottom: .25rem }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1.5rem }
svg { display: block; width: 100%; height: auto; overflow: visible } svg text { fill: var(--muted); font-size: 11px }
.bar { fill: var(--bar) } .axis { stroke: var(--line) } .whisker { stroke: var(--fg); stroke-width: 1.5; fill: none }
.limit { stroke: var(--muted); stroke-dasharray: 3 3 } .dot { fill: var(--bar); stroke: var(--bg); stroke-width: 2 }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .5rem .9rem }
summary { cursor: pointer; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, monospace; margin: .5rem 0 0 }
ins, del { text-decoration: none; display: inline-block; width: 100% }
ins { background: var(--added) } del { background: var(--removed) }
"""


def html_report(results: Sequence[EvalSetResult], comparison: Comparison | None = None) -> str:
    title = "Evaluation of " + ", ".join(result.eval_set_id for result in results)
    parts = [_set(result) for result in results]
    if comparison is not None:
        parts.insert(0, _comparison(comparison))

    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>\n"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def _set(set_result: EvalSetResult) -> str:
    results = set_result.eval_case_results
    rate = counted(results)
    metrics = metric_summaries(results)
    failed = [result for result in results if result.final_eval_status is EvalStatus.FAILED]
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(set_result.creation_timestamp))
    tiles = [
        (f"{rate.rate:.0%}" if rate.total else "–", f"passed, {rate.low:.0%} to {rate.high:.0%}"),
        (str(len(by_case(results))), "cases"),
        (str(len(results)), "results"),
        (str(sum(bool(result.error) for result in results)), "errors"),
    ]
    tile_list = "".join(f"<li><b>{escape(value)}</b>{escape(label)}</li>" for value, label in tiles)

    shown = failed[:MAX_DETAILS]
    if len(failed) > len(shown):
        more = f"<p>{len(failed) - len(shown)} more are only in the table.</p>"
    else:
        more = ""

    return "\n".join(
        (
            f'<h2>{escape(set_result.eval_set_id)}</h2><p class="muted">{at}</p><ul class="tiles">{tile_list}</ul>',
            f"<h3>Metrics</h3>{_metric_table(metrics)}",
            f'<h3>Scores</h3><div class="charts">{"".join(map(_histogram, metrics))}</div>',
            f"<h3>What failed</h3>{''.join(map(_failure, shown)) or '<p>Nothing.</p>'}{more}",
            f"<h3>Cases</h3>{_case_table(results)}",
        )
    )


def _metric_table(metrics: Sequence[MetricSummary]) -> str:
    rows = (
        (
            escape(summary.metric_name),
            number(summary.mean),
            number(summary.threshold),
            _interval(summary.passed.low, summary.passed.rate, summary.passed.high)
            if summary.passed is not None
            else "–",
            percent(summary.passed) if summary.passed is not None else "only informs",
        )
        for summary in metrics
    )
    return _table(("metric", "mean", "threshold", "passed, with 95 % interval", ""), rows)


def _case_table(results: Sequence[EvalCaseResult]) -> str:
    rows: list[tuple[str, ...]] = []
    for name, samples in by_case(results).items():
        rate = counted(samples)
        marks = "".join(_mark(one.final_eval_status) for one in samples)
        means = ", ".join(f"{one.metric_name} {number(one.mean)}" for one in metric_summaries(samples) if one.scores)
        rows.append((escape(name), marks, f"{rate.passed} of {rate.total}", escape(means)))
    return _table(("case", "samples", "passed", "mean scores"), rows)


def _mark(status: EvalStatus) -> str:
    kind, sign = {EvalStatus.PASSED: ("good", "✓"), EvalStatus.FAILED: ("bad", "✗")}.get(status, ("muted", "–"))
    return f'<span class="{kind}" title="{status.name.lower()}">{sign}</span>'


def _failure(result: EvalCaseResult) -> str:
    reasons = "; ".join(failures_of(result))
    body = "" if result.error else _diff(mismatch(result))
    return (
        f'<details><summary><span class="bad">✗</span> <b>{escape(result.eval_id)}</b>: {escape(reasons)}</summary>'
        f"{body}</details>"
    )


def _diff(text: str) -> str:
    if not text:
        return '<p class="muted">The conversations are the same.</p>'
    tags = {"+": "ins", "-": "del"}
    lines = (
        f"<{tag}>{escape(line)}</{tag}>" if (tag := tags.get(line[:1])) else escape(line) for line in text.splitlines()
    )
    return "<pre>" + "\n".join(lines) + "</pre>"


def _comparison(comparison: Comparison) -> str:
    differences = ({"pass rate": comparison.passed} if comparison.passed is not None else {}) | comparison.scores
    counts = ", ".join(f"{len(cases)} {verdict}" for verdict in _VERDICTS if (cases := comparison.of(verdict)))
    rows = (
        (
            escape(name),
            _difference_chart(difference),
            escape(describe_difference(difference, is_rate=difference is comparison.passed)),
        )
        for name, difference in differences.items()
    )
    changed = "".join(_changed(case) for case in comparison.of("worse", "better", "edited", "added", "removed"))

    return (
        f"<h2>Compared with the earlier results</h2><p>{escape(counts) or 'No cases.'}</p>"
        f"{_table(('', 'difference, with 95 % interval', ''), rows)}{changed}"
    )


_VERDICTS = ("better", "worse", "unchanged", "edited", "added", "removed")


def _changed(case: CaseComparison) -> str:
    kind = {"better": "good", "worse": "bad"}.get(case.verdict, "muted")
    rates = " → ".join(
        "none" if rate is None else f"{rate.passed} of {rate.total}" for rate in (case.first, case.second)
    )
    return (
        f'<details><summary><span class="{kind}">{case.verdict}</span> <b>{escape(case.eval_id)}</b>: '
        f"{rates} passed</summary>{_diff(case.diff)}</details>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(_row(row) for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: Sequence[str]) -> str:
    cells = "".join(f"<td>{cell}</td>" for cell in row)
    return f"<tr>{cells}</tr>"


def _interval(low: float, value: float, high: float) -> str:
    """A bar from 0 to a rate, with the interval as a whisker."""
    left = 4 + low * 192
    right = 4 + high * 192
    return (
        f'<svg viewBox="0 0 200 16" role="img" aria-label="{value:.0%}, from {low:.0%} to {high:.0%}">'
        f'<line class="axis" x1="4" x2="196" y1="15" y2="15"/>'
        f'<rect class="bar" x="4" y="4" width="{value * 192:.1f}" height="8" rx="2"/>'
        f'<path class="whisker" d="M{left:.1f} 4v8m0-4H{right:.1f}m0-4v8"/></svg>'
    )


def _difference_chart(difference: Difference) -> str:
    """A point with its interval around zero, which is the middle."""
    scale = 94 / (max(abs(difference.low), abs(difference.high), abs(difference.difference)) or 1)
    left, at, right = (100 + value * scale for value in (difference.low, difference.difference, difference.high))
    return (
        f'<svg viewBox="0 0 200 16" role="img" aria-label="{difference.low:+.3f} to {difference.high:+.3f}">'
        f'<line class="limit" x1="100" x2="100" y1="0" y2="16"/>'
        f'<path class="whisker" d="M{left:.1f} 4v8m0-4H{right:.1f}m0-4v8"/>'
        f'<circle class="dot" cx="{at:.1f}" cy="8" r="4"/></svg>'
    )


def _histogram(metric: MetricSummary) -> str:
    """Renders the number of scores in each range, with the threshold."""
    if not metric.scores:
        return ""

    low = min(0.0, *metric.scores)
    high = max(1.0, metric.threshold or 0.0, *metric.scores)
    counts = [0] * BINS
    for score in metric.scores:
        counts[min(int((score - low) / (high - low) * BINS), BINS - 1)] += 1

    most = max(counts)
    width = 300 / BINS
    bars = "".join(
        f'<rect class="bar" x="{index * width + 1:.1f}" y="{90 - count / most * 80:.1f}" width="{width - 2:.1f}" '
        f'height="{count / most * 80:.1f}" rx="1"><title>{count}</title></rect>'
        for index, count in enumerate(counts)
        if count
    )

    limit = ""
    if metric.threshold is not None:
        x = (metric.threshold - low) / (high - low) * 300
        limit = f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="90"/>'

    name = escape(metric.metric_name)

    return (
        f"<figure><figcaption>{name}, {len(metric.scores)} scores</figcaption>"
        f'<svg viewBox="0 0 300 106" role="img" aria-label="{name}: mean {number(metric.mean)}">{bars}'
        f'<line class="axis" x1="0" x2="300" y1="90" y2="90"/>{limit}<text x="0" y="103">{number(low)}</text>'
        f'<text x="300" y="103" text-anchor="end">{number(high)}</text>'
        f'<text x="0" y="10">{most}</text></svg></figure>'
    )
