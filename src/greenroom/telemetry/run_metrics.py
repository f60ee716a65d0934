"""What the runs of a server add up to, counted as each ends.

Counted here and not by a client library: it costs some microseconds a run, needs no package, and whoever asks is shown
the numbers of the apps it reaches and of no other.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, Literal, NamedTuple, TypeAlias

from greenroom.telemetry.agent_spans import ModelCallSpan, ToolCallSpan, input_tokens, output_tokens
from greenroom.telemetry.span import CANCELLED, Trace

NO_TOOL = "(unknown)"
"""Stands for the names that models make up."""

OTHER = "(other)"
MOST_SERIES = 2_000
"""Of one metric. What has labels that are new then is counted under OTHER, so that a scrape stays small."""

_NO_ERRORS = (CANCELLED, "CancelledError")
_SECOND = 1e9

Labels: TypeAlias = tuple[str, ...]


class Metric(NamedTuple):
    """bounds: of a histogram's buckets, in seconds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels
    help: str
    bounds: tuple[float, ...] = ()


RUNS: Final = Metric(
    "greenroom_runs_total", "counter", ("app", "status"),
    "Runs that have ended; one that waits for a person has ended as `waiting`, and is counted again when it goes on.",
)  # fmt: skip
RUN_SECONDS: Final = Metric(
    "greenroom_run_duration_seconds", "histogram", ("app",), "How long runs took from their turn on.",
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900),
)  # fmt: skip
FIRST_REPLY_SECONDS: Final = Metric(
    "greenroom_first_reply_seconds", "histogram", ("app",),
    "How long a run took from its turn on to the first piece of a model's reply.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)  # fmt: skip
MODEL_CALLS: Final = Metric("greenroom_model_calls_total", "counter", ("app", "model"), "Calls of models.")
MODEL_ERRORS: Final = Metric(
    "greenroom_model_errors_total", "counter", ("app", "model", "error"),
    "Calls of models that failed, by the class or the code of the error; those that were cancelled are none.",
)  # fmt: skip
INPUT_TOKENS: Final = Metric(
    "greenroom_model_input_tokens_total", "counter", ("app", "model"), "Tokens that models were sent, as they say."
)
OUTPUT_TOKENS: Final = Metric(
    "greenroom_model_output_tokens_total", "counter", ("app", "model"),
    "Tokens that models wrote, their thoughts among them, as they say.",
)  # fmt: skip
TOOL_CALLS: Final = Metric(
    "greenroom_tool_calls_total", "counter", ("app", "tool"), f"Calls of tools; `{NO_TOOL}`: of tools that don't exist."
)
TOOL_ERRORS: Final = Metric(
    "greenroom_tool_errors_total", "counter", ("app", "tool", "error"),
    "Calls of tools that failed, by the class of the error; those that were cancelled are none.",
)  # fmt: skip
RUNNING: Final = Metric("greenroom_runs_running", "gauge", ("app",), "Runs that are going on now.")
QUEUED: Final = Metric(
    "greenroom_runs_queued", "gauge", ("app",), "Runs that wait now until the one before them in their session ends."
)

METRICS: Final = (
    RUNS, RUN_SECONDS, FIRST_REPLY_SECONDS, MODEL_CALLS, MODEL_ERRORS, INPUT_TOKENS, OUTPUT_TOKENS, TOOL_CALLS,
    TOOL_ERRORS, RUNNING, QUEUED,
)  # fmt: skip


class Counter:
    """A counter by its labels."""

    __slots__ = ("_most", "metric", "series")

    def __init__(self, metric: Metric, most_series: int) -> None:
        self._most = most_series
        self.metric = metric
        self.series: dict[Labels, int] = {}

    def add(self, labels: Labels, number: int = 1) -> None:
        series = self.series
        try:
            series[labels] += number
        except KeyError:
            if len(series) >= self._most:
                labels = (OTHER,) * len(labels)
            series[labels] = series.get(labels, 0) + number


class Distribution:
    """counts: by bucket, the last one without a bound; not added up."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


class Histogram:
    """A histogram by its labels."""

    __slots__ = ("_most", "metric", "series")

    def __init__(self, metric: Metric, most_series: int) -> None:
        self._most = most_series
        self.metric = metric
        self.series: dict[Labels, Distribution] = {}

    def add(self, labels: Labels, value: float) -> None:
        series, bounds = self.series, self.metric.bounds
        found = series.get(labels)
        if found is None:
            if len(series) >= self._most:
                labels = (OTHER,) * len(labels)
            found = series.setdefault(labels, Distribution(len(bounds) + 1))
        found.counts[bisect_left(bounds, value)] += 1
        found.total += value


class RunMetrics:
    """The first label of each metric is the app."""

    def __init__(self, *, most_series: int = MOST_SERIES) -> None:
        self._runs = Counter(RUNS, most_series)
        self._run_seconds = Histogram(RUN_SECONDS, most_series)
        self._first_reply_seconds = Histogram(FIRST_REPLY_SECONDS, most_series)
        self._model_calls = Counter(MODEL_CALLS, most_series)
        self._model_errors = Counter(MODEL_ERRORS, most_series)
        self._input_tokens = Counter(INPUT_TOKENS, most_series)
        self._output_tokens = Counter(OUTPUT_TOKENS, most_series)
        self._tool_calls = Counter(TOOL_CALLS, most_series)
        self._tool_errors = Counter(TOOL_ERRORS, most_series)
        self.counters = (
            self._runs, self._model_calls, self._model_errors, self._input_tokens, self._output_tokens,
            self._tool_calls, self._tool_errors,
        )  # fmt: skip
        self.histograms = (self._run_seconds, self._first_reply_seconds)

    def trace_ended(self, trace: Trace) -> None:
        app = trace.run.key.app_name
        self._runs.add((app, trace.status))
        if trace.root is None:
            return
        first_reply = 0
        for span, _ in trace.spans():
            if type(span) is ModelCallSpan:  # isinstance is slow for what has abstract methods
                self._count_model_call(app, span)
                if span.first_reply_time and (not first_reply or span.first_reply_time < first_reply):
                    first_reply = span.first_reply_time
            elif type(span) is ToolCallSpan:
                self._count_tool_call(app, span)
        begun = trace.root.start_time
        self._run_seconds.add((app,), (trace.end_time - begun) / _SECOND)
        if first_reply:
            self._first_reply_seconds.add((app,), (first_reply - begun) / _SECOND)

    def _count_model_call(self, app: str, span: ModelCallSpan) -> None:
        labels = (app, span.model)
        self._model_calls.add(labels)
        if span.error is not None and span.error not in _NO_ERRORS:
            self._model_errors.add((*labels, span.error))
        if span.usage is not None:
            self._input_tokens.add(labels, input_tokens(span.usage))
            self._output_tokens.add(labels, output_tokens(span.usage))

    def _count_tool_call(self, app: str, span: ToolCallSpan) -> None:
        labels = (app, span.tool_name if span.is_of_a_tool else NO_TOOL)
        self._tool_calls.add(labels)
        if span.error is not None and span.error not in _NO_ERRORS:
            self._tool_errors.add((*labels, span.error))
