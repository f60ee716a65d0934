"""Formats the metrics of runs as Prometheus text. Imported on the first scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family

from greenroom.runs.engine import RunLoad
from greenroom.telemetry.run_metrics import QUEUED, RUNNING, RunMetric, RunMetrics


def metrics_in_text(metrics: RunMetrics, load: Mapping[str, RunLoad], *, shows: Callable[[str], bool]) -> bytes:
    """The metrics as Prometheus text. shows: True for an app whose metrics are included."""
    return generate_latest(_MetricsCollector(metrics, load, shows))


class _MetricsCollector:
    def __init__(self, metrics: RunMetrics, load: Mapping[str, RunLoad], shows: Callable[[str], bool]) -> None:
        self._metrics = metrics
        self._load = {app: load[app] for app in load if shows(app)}
        self._shows = shows

    def collect(self) -> Iterable[Family]:
        for metric, series in self._metrics.series.items():
            family = HistogramMetricFamily if metric.kind == "histogram" else CounterMetricFamily
            numbers = family(metric.name, metric.help, labels=metric.labels)
            for labels, values in series.items():
                if not self._shows(labels[0]):
                    continue
                if isinstance(numbers, CounterMetricFamily):
                    numbers.add_metric(labels, values[0])
                else:
                    bounds = [*(str(float(bound)) for bound in metric.bounds), "+Inf"]
                    numbers.add_metric(labels, list(zip(bounds, accumulate(values[:-1]), strict=True)), values[-1])
            yield numbers

        yield self._gauge(RUNNING, {app: load.running for app, load in self._load.items()})
        yield self._gauge(QUEUED, {app: load.queued for app, load in self._load.items()})

    def _gauge(self, metric: RunMetric, values: Mapping[str, int]) -> Family:
        gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for app, value in values.items():
            gauge.add_metric((app,), value)
        return gauge
