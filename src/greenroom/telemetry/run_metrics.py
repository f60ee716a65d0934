"""Counters and histograms of a server's runs, updated when a run ends.

Not prometheus_client's: those cost several times as much per run, would have to be imported at the start,
and could not be limited to the apps that a caller reaches. That library formats them at the first scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from greenroom.telemetry.agent_spans import ModelCallSpan, ToolCallSpan
from greenroom.telemetry.span import CANCELLED, Trace

NO_TOOL = "(unknown)"
"""Label for tool names that models make up."""

OTHER = "(other)"
MAX_SERIES = 2_000
"""Of one metric. Further labels are counted under OTHER, so that a scrape stays small."""

_NO_ERRORS = (CANCELLED, "CancelledError")
_SECOND = 1e9

Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RunMetric:
    """The definition of a metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels
    help: str
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in seconds."""


RUNS: Final = RunMetric(
    "greenroom_runs_total", "counter", ("app", "status"),
    "Runs that have ended. One that waits for a person has the status `waiting`, and is counted again when it resumes.",
)  # fmt: skip
RUN_SECONDS: Final = RunMetric(
    "greenroom_run_duration_seconds", "histogram", ("app",), "Duration of runs, without their time in a queue.",
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900),
)  # fmt: skip
FIRST_REPLY_SECONDS: Final = RunMetric(
    "greenroom_first_reply_seconds", "histogram", ("app",),
    "Time to the first chunk of a model's reply, without the time in a queue.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)  # fmt: skip
MODEL_CALLS: Final = RunMetric("greenroom_model_calls_total", "counter", ("app", "model"), "Calls of models.")
MODEL_ERRORS: Final = RunMetric(
    "greenroom_model_errors_total", "counter", ("app", "model", "error"),
    "Failed calls of models by the class or the code of the error, without cancelled ones.",
)  # fmt: skip
INPUT_TOKENS: Final = RunMetric(
    "greenroom_model_input_tokens_total", "counter", ("app", "model"), "Input tokens, as models report them."
)
OUTPUT_TOKENS: Final = RunMetric(
    "greenroom_model_output_tokens_total", "counter", ("app", "model"),
    "Output tokens with those of thoughts, as models report them.",
)  # fmt: skip
CACHED_TOKENS: Final = RunMetric(
    "greenroom_model_cached_tokens_total", "counter", ("app", "model"),
    "Input tokens that came from a provider's cache, as models report them.",
)  # fmt: skip
COST: Final = RunMetric(
    "greenroom_model_cost_total", "counter", ("app", "model", "currency"),
    "Cost of these tokens by the table of prices; only of models whose price is known.",
)  # fmt: skip
TOOL_CALLS: Final = RunMetric(
    "greenroom_tool_calls_total",
    "counter",
    ("app", "tool"),
    f"Calls of tools; `{NO_TOOL}` is used for tools that don't exist.",
)
TOOL_ERRORS: Final = RunMetric(
    "greenroom_tool_errors_total", "counter", ("app", "tool", "error"),
    "Failed calls of tools by the class of the error, without cancelled ones.",
)  # fmt: skip
RUNNING: Final = RunMetric("greenroom_runs_running", "gauge", ("app",), "Runs that are executing.")
QUEUED: Final = RunMetric("greenroom_runs_queued", "gauge", ("app",), "Runs that wait in their session's queue.")
REQUESTS: Final = RunMetric(
    "greenroom_requests_open", "gauge", ("app",),
    "Requests that wait for a person's answer. Each server of a PostgreSQL database reports the same number.",
)  # fmt: skip
BUILD: Final = RunMetric("greenroom_build_info", "gauge", ("version",), "The release of the server; its value is 1.")
DATABASE_BYTES: Final = RunMetric(
    "greenroom_database_bytes", "gauge", (),
    "Size of the SQLite file or of the PostgreSQL database; with PostgreSQL, a minute old at most.",
)  # fmt: skip
DISK_FREE_BYTES: Final = RunMetric(
    "greenroom_disk_free_bytes", "gauge", (), "Free space where the SQLite file is. Not with PostgreSQL."
)
SHARDS: Final = RunMetric(
    "greenroom_shards", "gauge", ("replica",),
    "Shards of sessions that the server owns, of 256, by its id in `GET /replicas`. Only on PostgreSQL.",
)  # fmt: skip
DATABASE_RUNNING: Final = RunMetric(
    "greenroom_database_runs_running", "gauge", ("app",),
    "Runs that are executing on any server of the PostgreSQL database. Each server reports the same number.",
)  # fmt: skip
DATABASE_QUEUED: Final = RunMetric(
    "greenroom_database_runs_queued", "gauge", ("app",),
    "Runs that wait in their session's queue on any server of the PostgreSQL database.",
)  # fmt: skip

COUNTED: Final = (
    RUNS, RUN_SECONDS, FIRST_REPLY_SECONDS, MODEL_CALLS, MODEL_ERRORS, INPUT_TOKENS, OUTPUT_TOKENS,
    CACHED_TOKENS, TOOL_CALLS, TOOL_ERRORS,
)  # fmt: skip
OF_DATABASE: Final = (SHARDS, DATABASE_RUNNING, DATABASE_QUEUED)
"""Only of servers on PostgreSQL."""

OF_SERVER: Final = (COST, RUNNING, QUEUED, REQUESTS, BUILD)
OF_DISK: Final = (DATABASE_BYTES, DISK_FREE_BYTES)
"""Only of servers with a database."""

METRICS: Final = (*COUNTED, *OF_SERVER, *OF_DISK, *OF_DATABASE)


class RunMetrics:
    """Collects metrics of runs.

    series: values by metric and labels, of which the first is the app. A counter has one value; a histogram has the
    counts of its buckets, not cumulative, the last one without a bound, and then the sum.
    """

    def __init__(self, *, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self.series: dict[RunMetric, dict[Labels, list[float]]] = {metric: {} for metric in COUNTED}

    def trace_ended(self, trace: Trace) -> None:
        app = trace.run.key.app_name
        self._add(RUNS, (app, trace.status))
        if trace.root is None:
            return

        first_reply = 0
        for span, _ in trace.spans():
            if type(span) is ModelCallSpan:  # isinstance is slow for abstract classes
                labels = (app, span.model)
                self._count(MODEL_CALLS, MODEL_ERRORS, labels, span.error)
                if span.usage is not None:
                    self._add(INPUT_TOKENS, labels, span.usage.input_tokens)
                    self._add(OUTPUT_TOKENS, labels, span.usage.output_tokens)
                    if span.usage.cached_content_token_count:
                        self._add(CACHED_TOKENS, labels, span.usage.cached_content_token_count)
                if span.first_reply_time and (not first_reply or span.first_reply_time < first_reply):
                    first_reply = span.first_reply_time
            elif type(span) is ToolCallSpan:
                name = span.tool_name if span.is_of_a_tool else NO_TOOL
                self._count(TOOL_CALLS, TOOL_ERRORS, (app, name), span.error)

        begun = trace.root.start_time
        self._add(RUN_SECONDS, (app,), (trace.end_time - begun) / _SECOND)
        if first_reply:
            self._add(FIRST_REPLY_SECONDS, (app,), (first_reply - begun) / _SECOND)

    def _count(self, calls: RunMetric, errors: RunMetric, labels: Labels, error: str | None) -> None:
        self._add(calls, labels)
        if error is not None and error not in _NO_ERRORS:
            self._add(errors, (*labels, error))

    def _add(self, metric: RunMetric, labels: Labels, number: float = 1) -> None:
        series = self.series[metric]
        bounds = metric.bounds
        values = series.get(labels)
        if values is None:
            if len(series) >= self._max_series:
                labels = (OTHER,) * len(labels)
            values = series.setdefault(labels, [0] * (len(bounds) + 2 if bounds else 1))

        if bounds:
            values[bisect_left(bounds, number)] += 1
        values[-1] += number
