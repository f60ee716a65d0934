"""The arguments of every scenario: the contenders, how much to measure, and a directory for files."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import Outcome
from benchmarks.servers import APPS, Contender, Server, Store


@dataclass(frozen=True)
class Scale:
    """Extent of a measurement. seconds: aimed at per measurement of turns or chunks. peer_events: where ADK stops."""

    rounds: int = 3
    seconds: float = 2.0
    concurrencies: tuple[int, ...] = (1, 16, 64)
    stored_events: tuple[int, ...] = (10, 100, 1_000, 5_000, 50_000)
    peer_events: int = 5_000
    history_turns: int = 40
    peer_history_turns: int = 10
    sessions: int = 1_000
    waiting_runs: int = 1_000
    concurrent_runs: int = 4_000
    lasting_runs: int = 100_000
    starts: int = 5
    requests: int = 200
    forwarded_streams: int = 2_000
    big_sessions: int = 100_000
    big_apps: int = 500


QUICK = Scale(
    rounds=1,
    seconds=0.5,
    concurrencies=(1, 16),
    stored_events=(10, 1_000, 5_000),
    peer_events=1_000,
    history_turns=20,
    peer_history_turns=5,
    sessions=200,
    waiting_runs=200,
    concurrent_runs=200,
    lasting_runs=5_000,
    starts=1,
    requests=40,
    forwarded_streams=500,
    big_sessions=5_000,
    big_apps=50,
)


@dataclass(frozen=True)
class Pair:
    """Two contenders driven in turn; either may be left out."""

    peer: Contender | None
    ours: Contender | None

    def present(self) -> list[Contender]:
        return [contender for contender in (self.peer, self.ours) if contender is not None]


@dataclass
class Bench:
    """against_adk, against_tuned_adk, against_ceiling: the pairs that exist; the second of each is greenroom."""

    scale: Scale
    scratch: Path
    against_adk: Pair
    against_tuned_adk: Pair
    against_ceiling: Pair
    _directories: itertools.count[int] = field(default_factory=itertools.count)

    def server(
        self, contender: Contender, store: Store, environment: Mapping[str, str] | None = None, *, apps: Path = APPS
    ) -> Server:
        directory = self.scratch / f"{next(self._directories)}"
        return Server(contender, directory, store=store, apps=apps, environment=environment)

    @asynccontextmanager
    async def both(self, pair: Pair, store: Store) -> AsyncGenerator[list[Server], None]:
        async with AsyncExitStack() as running:
            yield [await running.enter_async_context(self.server(contender, store)) for contender in pair.present()]


@dataclass
class Tally:
    """Values by server and figure, and what went wrong, over the rounds of a table."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list[float]))
    errors: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    generator_busy: float = 0.0

    def add(self, server: Server, figure: str, value: float) -> None:
        """Not a number: nothing was answered."""
        if not math.isnan(value):
            self.values[server.name, figure].append(value)

    def of(self, contender: Contender | None, figure: str) -> list[float]:
        return self.values.get((contender.name, figure), []) if contender else []

    def count_errors(self, server: Server, outcome: Outcome) -> None:
        self.errors[server.name] += outcome.errors
        self.generator_busy = max(self.generator_busy, outcome.generator_busy)

    def count_locks(self, server: Server) -> None:
        locked = server.logged("database is locked")
        if locked:
            self.errors[server.name]["log lines with `database is locked`"] += locked

    def notes(self) -> list[str]:
        lines = [
            f"{name}: {', '.join(f'{times:,} × {error}' for error, times in errors.items())}"
            for name, errors in self.errors.items()
            if errors
        ]
        lines.append(f"The generator was busy for at most {self.generator_busy:.0%} of the time.")
        return lines
