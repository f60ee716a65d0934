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

from greenroom.runs.store import RunLoad, StoreLoad
from greenroom.telemetry.run_metrics import (
    DATABASE_QUEUED,
    DATABASE_RUNNING,
    QUEUED,
    RUNNING,
    SHARDS,
    Labels,
    RunMetric,
    RunMetrics,
)


def metrics_in_text(
    metrics: RunMetrics, load: Mapping[str, RunLoad], store: StoreLoad | None, *, shows: Callable[[str], bool]
) -> bytes:
    """The metrics as Prometheus text.

    load: the runs of this server. store: those of all servers on its database, if it has one. shows: True for an app
    whose metrics are included.
    """
    return generate_latest(_MetricsCollector(metrics, load, store, shows))


class _MetricsCollector:
    def __init__(
        self,
        metrics: RunMetrics,
        load: Mapping[str, RunLoad],
        store: StoreLoad | None,
        shows: Callable[[str], bool],
    ) -> None:
        self._metrics = metrics
        self._load = load
        self._store = store
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

        yield from self._runs(RUNNING, QUEUED, self._load)
        if self._store is not None:
            yield _gauge(SHARDS, {(self._store.replica_id,): self._store.shards})
            yield from self._runs(DATABASE_RUNNING, DATABASE_QUEUED, self._store.runs)

    def _runs(self, running: RunMetric, queued: RunMetric, load: Mapping[str, RunLoad]) -> Iterable[Family]:
        shown = {(app,): runs for app, runs in load.items() if self._shows(app)}
        yield _gauge(running, {labels: runs.running for labels, runs in shown.items()})
        yield _gauge(queued, {labels: runs.queued for labels, runs in shown.items()})


def _gauge(metric: RunMetric, values: Mapping[Labels, int]) -> Family:
    gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        gauge.add_metric(labels, value)
    return gauge
