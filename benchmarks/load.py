"""The load generator: a number of connections that work through series of requests, and what came of it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.connection import Connection, Reply, connect, connect_many

DEADLINE_SECONDS = 120.0
PREPARATION_SECONDS = 600.0


class RequestSeries(NamedTuple):
    """Requests that must follow one another, as turns of one session must: the same bytes so many times."""

    request: bytes
    repeats: int = 1


class Expected(NamedTuple):
    """A good answer: status 200, the marker so many times, and no event that reports an error."""

    marker: bytes
    times: int = 1

    def fault(self, reply: Reply) -> str | None:
        if reply.status != 200:
            return f"HTTP {reply.status}"
        if b'"errorCode"' in reply.body or b'"error_details"' in reply.body:
            return "error event"
        if reply.body.count(self.marker) < self.times:
            return "incomplete answer"
        return None


@dataclass
class Outcome:
    """latencies, first_bytes (of the head), body_delays: seconds, of good answers only. generator_busy: share of its
    core the generator used.

    server_cpu_seconds: filled in by whoever watches the server.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list[float])
    first_bytes: list[float] = field(default_factory=list[float])
    body_delays: list[float] = field(default_factory=list[float])
    errors: Counter[str] = field(default_factory=Counter[str])
    generator_busy: float = 0.0
    server_cpu_seconds: float = 0.0

    @property
    def completed(self) -> int:
        return len(self.latencies)

    def percentile(self, percent: float) -> float:
        """Seconds; nan when nothing was answered."""
        return _percentile(self.latencies, percent)

    def first_byte_percentile(self, percent: float) -> float:
        return _percentile(self.first_bytes, percent)

    def body_delay_median(self) -> float:
        return _percentile(self.body_delays, 50)


def _percentile(values: list[float], percent: float) -> float:
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


async def drive(
    port: int,
    series: Sequence[RequestSeries],
    *,
    concurrency: int,
    expected: Expected,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Outcome:
    """Work through all series, each on one connection at a time, all connections open before the clock starts.

    A request that isn't answered by the deadline counts as an error, as does a connection that breaks.
    """
    outcome = Outcome()
    connections = await connect_many(port, min(concurrency, len(series)))
    waiting = iter(series)
    gc.collect()
    gc.disable()
    cpu_before, started = time.process_time(), time.perf_counter()
    workers = [asyncio.ensure_future(_work(port, connection, waiting, expected, outcome)) for connection in connections]
    try:
        async with asyncio.timeout(deadline_seconds):
            await asyncio.gather(*workers)
    except TimeoutError:
        planned = sum(one.repeats for one in series)
        outcome.errors["no answer in time"] += planned - outcome.completed - outcome.errors.total()
    finally:
        outcome.seconds = time.perf_counter() - started
        outcome.generator_busy = (time.process_time() - cpu_before) / outcome.seconds
        gc.enable()
        for worker in workers:
            worker.cancel()
        for connection in connections:
            connection.close()
    return outcome


async def _work(
    port: int, connection: Connection, series: Iterator[RequestSeries], expected: Expected, outcome: Outcome
) -> None:
    clock = time.perf_counter
    try:
        for request, repeats in series:
            for _ in range(repeats):
                sent_at = clock()
                try:
                    reply = await connection.exchange(request)
                except OSError:
                    outcome.errors["connection lost"] += 1
                    connection = await connect(port)
                    continue
                answered_at = clock()
                fault = expected.fault(reply)
                if fault is None:
                    outcome.latencies.append(answered_at - sent_at)
                    outcome.first_bytes.append(reply.began_at - sent_at)
                    outcome.body_delays.append(reply.body_began_at - sent_at)
                else:
                    outcome.errors[fault] += 1
    finally:
        connection.close()


async def prepare(port: int, requests: Iterable[bytes], *, concurrency: int = 1) -> None:
    """Send requests whose time is not of interest, by default so that no lock of a database is in dispute.

    Raises RuntimeError unless all are answered with 200.
    """
    series = [RequestSeries(request) for request in requests]
    outcome = await drive(
        port, series, concurrency=concurrency, expected=Expected(b""), deadline_seconds=PREPARATION_SECONDS
    )
    if outcome.errors:
        raise RuntimeError(f"preparing the benchmark failed: {dict(outcome.errors)}")
