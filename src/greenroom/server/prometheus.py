"""Formats the metrics of runs as Prometheus text. Imported on the first scrape."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family

from greenroom.runs.store import RunLoad, StoreLoad
from greenroom.telemetry.run_metrics import (
    BUILD,
    CACHED_TOKENS,
    COST,
    DATABASE_BYTES,
    DATABASE_QUEUED,
    DATABASE_RUNNING,
    DISK_FREE_BYTES,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    QUEUED,
    REQUESTS,
    RUNNING,
    SHARDS,
    Labels,
    RunMetric,
    RunMetrics,
)
from greenroom.usage.prices import PriceTable
from greenroom.version import __version__


class SqliteSizes(NamedTuple):
    """Sizes of a database with its write-ahead log, and of the space beside it."""

    database_bytes: int
    disk_free_bytes: int

    @classmethod
    def read(cls, path: str) -> SqliteSizes:
        """Raises OSError if there is no file."""
        log = f"{path}-wal"
        log_bytes = os.path.getsize(log) if os.path.exists(log) else 0
        return cls(os.path.getsize(path) + log_bytes, shutil.disk_usage(os.path.dirname(path)).free)


@dataclass(kw_only=True)
class ServerNumbers:
    """The numbers of a scrape."""

    metrics: RunMetrics
    prices: PriceTable
    load: Mapping[str, RunLoad]
    """The runs of this server."""

    requests: Mapping[str, int] | None = None
    """Open requests by app; None if the store doesn't answer."""

    store: StoreLoad | None = None
    """The runs of all servers on the database, if it has several."""

    sqlite: SqliteSizes | None = None
    """Sizes of an SQLite database."""

    def collect(self, shows: Callable[[str], bool]) -> Iterable[Family]:
        """shows: True for an app whose metrics are included."""
        for metric, series in self.metrics.series.items():
            yield _counted(metric, {labels: values for labels, values in series.items() if shows(labels[0])})

        yield _family(COST, {labels: cost for labels, cost in self._costs() if shows(labels[0])})
        yield from _of_runs(RUNNING, QUEUED, self.load, shows)
        if self.requests is not None:
            yield _family(REQUESTS, {(app,): count for app, count in self.requests.items() if shows(app)})
        yield _family(BUILD, {(__version__,): 1})

        if self.sqlite is not None:
            yield _family(DATABASE_BYTES, {(): self.sqlite.database_bytes})
            yield _family(DISK_FREE_BYTES, {(): self.sqlite.disk_free_bytes})
        if self.store is not None:
            yield _family(DATABASE_BYTES, {(): self.store.database_bytes})
            yield _family(SHARDS, {(self.store.replica_id,): self.store.shards})
            yield from _of_runs(DATABASE_RUNNING, DATABASE_QUEUED, self.store.runs, shows)

    def _costs(self) -> Iterable[tuple[Labels, float]]:
        """The cost of the counted tokens, by labels."""
        outputs = self.metrics.series[OUTPUT_TOKENS]
        cached = self.metrics.series[CACHED_TOKENS]
        for labels, (input_tokens,) in self.metrics.series[INPUT_TOKENS].items():
            app, model = labels
            price = self.prices.find(model)
            if price is not None:
                cost = price.cost(
                    input_tokens=int(input_tokens),
                    output_tokens=int(outputs[labels][0]),
                    cached_tokens=int(cached[labels][0]) if labels in cached else 0,
                )
                yield (app, model, self.prices.currency), float(cost)


def metrics_in_text(numbers: ServerNumbers, *, shows: Callable[[str], bool]) -> bytes:
    """The metrics as Prometheus text.

    shows: True for an app whose metrics are included.
    """
    return generate_latest(_Collector(numbers, shows))


@dataclass
class _Collector:
    numbers: ServerNumbers
    shows: Callable[[str], bool]

    def collect(self) -> Iterable[Family]:
        return self.numbers.collect(self.shows)


def _counted(metric: RunMetric, series: Mapping[Labels, Sequence[float]]) -> Family:
    if metric.kind != "histogram":
        return _family(metric, {labels: value for labels, (value,) in series.items()})

    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(str(float(bound)) for bound in metric.bounds), "+Inf"]
    for labels, values in series.items():
        family.add_metric(labels, list(zip(bounds, accumulate(values[:-1]), strict=True)), values[-1])
    return family


def _family(metric: RunMetric, values: Mapping[Labels, float]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _of_runs(
    running: RunMetric, queued: RunMetric, load: Mapping[str, RunLoad], shows: Callable[[str], bool]
) -> Iterable[Family]:
    shown = {(app,): runs for app, runs in load.items() if shows(app)}
    yield _family(running, {labels: runs.running for labels, runs in shown.items()})
    yield _family(queued, {labels: runs.queued for labels, runs in shown.items()})
