"""Measurements and their report: figures in tables, medians of the rounds, targets met or missed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """One bound. times_better: than the peer. at_most, at_least: on our own figure, in its unit."""

    times_better: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    def text(self) -> str:
        if self.times_better is not None:
            return f"≥ {self.times_better:g}×"
        return f"≤ {self.at_most:,g}" if self.at_most is not None else f"≥ {self.at_least:,g}"

    def is_met(self, ours: float, times_better: float) -> bool:
        if self.times_better is not None:
            return times_better >= self.times_better
        return ours <= self.at_most if self.at_most is not None else ours >= (self.at_least or 0)


@dataclass
class Figure:
    """One row: a value per round for each side. A side without values was not measured."""

    label: str
    unit: str
    peer: Sequence[float] = ()
    ours: Sequence[float] = ()
    higher_is_better: bool = False
    target: Target | None = None

    def times_better(self) -> float:
        """Ratio by which ours is better; nan when it can't be computed."""
        peer, ours = median(self.peer), median(self.ours)
        above, below = (ours, peer) if self.higher_is_better else (peer, ours)
        return above / below if below > 0 else math.nan

    def verdict(self) -> str:
        """A figure that should exist and doesn't has missed its target."""
        if self.target is None:
            return ""
        ours, times_better = median(self.ours), self.times_better()
        needed = times_better if self.target.times_better is not None else ours
        if math.isnan(needed):
            return "not measured"
        return "met" if self.target.is_met(ours, times_better) else "**missed**"


@dataclass
class Table:
    title: str
    figures: list[Figure] = field(default_factory=list[Figure])
    notes: list[str] = field(default_factory=list[str])
    peer_name: str = "ADK"
    ours_name: str = "greenroom"

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        if self.figures:
            lines += [
                f"| | {self.peer_name} | {self.ours_name} | times better | target | |",
                "|---|--:|--:|--:|--:|---|",
            ]
        for figure in self.figures:
            target = figure.target.text() if figure.target else ""
            sides = f"{amount(median(figure.peer), figure.unit)} | {amount(median(figure.ours), figure.unit)}"
            ratio = amount(figure.times_better(), "×")
            lines.append(f"| {figure.label} | {sides} | {ratio} | {target} | {figure.verdict()} |")
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines)


@dataclass
class Report:
    """facts: name and text of what was measured where. Tables come in as they are finished."""

    title: str
    facts: list[tuple[str, str]]
    method: list[str]
    tables: list[Table] = field(default_factory=list[Table])

    def markdown(self) -> str:
        parts = [f"# {self.title}", "\n".join(f"- {name}: {text}" for name, text in self.facts)]
        parts.append("\n".join(f"- {line}" for line in self.method))
        parts.append(self._targets())
        parts += [table.markdown() for table in self.tables]
        return "\n\n".join(parts) + "\n"

    def _targets(self) -> str:
        lines = ["## Targets", "", "| | target | measured | |", "|---|--:|--:|---|"]
        for table in self.tables:
            for figure in table.figures:
                if figure.target is not None:
                    is_ratio = figure.target.times_better is not None
                    measured = figure.times_better() if is_ratio else median(figure.ours)
                    cells = (
                        f"{table.title}: {figure.label}",
                        figure.target.text(),
                        amount(measured, "×" if is_ratio else figure.unit),
                        figure.verdict(),
                    )
                    lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        path.write_text(self.markdown())


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def amount(value: float, unit: str) -> str:
    """About three digits; a dash for what was not measured."""
    if math.isnan(value):
        return "–"
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()
