"""The figures of an app's versions beside each other: failures, feedback, times and tokens of their newest runs.

Sessions are compared, not runs: a version is chosen for a session, and the runs of one are alike. A session's share of
failed runs and its mean score count once each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from greenroom.evaluation.statistics import SampleDifference, compare_samples
from greenroom.records.app_version import (
    SOURCE,
    FeedbackScores,
    ListVersionScoresResponse,
    MeanComparison,
    PublishedVersion,
    Shares,
    VersionScores,
)
from greenroom.records.feedback import Feedback
from greenroom.records.run import Run, RunStatus
from greenroom.records.session import SessionKey

MAX_RUNS = 10_000
"""Number of the newest runs of an app that are counted."""
MAX_FEEDBACK = 10_000
"""Number of the newest feedback of an app that is looked at."""


@dataclass(eq=False)
class _Figures:
    """The counts of one version."""

    runs: int = 0
    outcomes: dict[SessionKey, list[float]] = field(default_factory=dict[SessionKey, list[float]])
    """By session: 1 for each failed run, 0 for each succeeded one."""
    sessions: set[SessionKey] = field(default_factory=set[SessionKey])
    seconds: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])
    scores: dict[str, dict[SessionKey, list[float]]] = field(default_factory=dict[str, dict[SessionKey, list[float]]])
    """By name of feedback and session."""

    def add_run(self, run: Run) -> None:
        self.runs += 1
        self.sessions.add(run.session_key)
        if run.status in (RunStatus.SUCCEEDED, RunStatus.FAILED):
            self.outcomes.setdefault(run.session_key, []).append(float(run.status is RunStatus.FAILED))
        if run.status is RunStatus.SUCCEEDED and run.started_at is not None and run.ended_at is not None:
            self.seconds.append(max(run.ended_at - run.started_at, 0.0))
        if run.usage is not None and run.usage.total_token_count:
            self.tokens.append(run.usage.total_token_count)

    def add_feedback(self, feedback: Feedback) -> None:
        score = feedback.score_number
        if score is not None:
            self.scores.setdefault(feedback.name, {}).setdefault(feedback.session_key, []).append(score)


class ScoreCounter:
    """Counts runs, then their feedback."""

    def __init__(self, versions: Sequence[PublishedVersion]) -> None:
        self._names = {one.version: one.name for one in versions}
        self._figures: dict[str, _Figures] = {}
        self._version_of_run: dict[str, str] = {}
        self._runs_from: float | None = None

    @property
    def runs(self) -> int:
        return len(self._version_of_run)

    @property
    def runs_from(self) -> float | None:
        """Unix seconds of the oldest run."""
        return self._runs_from

    def add_runs(self, runs: Sequence[Run]) -> None:
        """Adds a page of runs, newest first."""
        for run in runs:
            name = self._names.get(run.app_version or "", SOURCE)
            self._version_of_run[run.id] = name
            self._figures.setdefault(name, _Figures()).add_run(run)
            self._runs_from = run.created_at

    def add_feedback(self, feedback: Sequence[Feedback]) -> None:
        for one in feedback:
            name = self._version_of_run.get(one.run_id)
            if name is not None:
                self._figures[name].add_feedback(one)

    def result(self, *, baseline: str | None, shares: Shares, is_limited: bool) -> ListVersionScoresResponse:
        """baseline: by default the version with the greatest share that has runs, else the oldest one."""
        names = [name for name in (*self._names.values(), SOURCE) if name in self._figures]
        if baseline not in names:
            baseline = max(reversed(names), key=lambda name: shares.get(name, 0)) if names else None
        base = self._figures.get(baseline or "")
        scores = [_scores(name, self._figures[name], base if name != baseline else None) for name in names]
        return ListVersionScoresResponse(
            baseline=baseline, versions=scores, runs_from=self._runs_from, is_limited=is_limited
        )


def _scores(name: str, figures: _Figures, base: _Figures | None) -> VersionScores:
    outcomes = [outcome for of_session in figures.outcomes.values() for outcome in of_session]
    feedback: dict[str, FeedbackScores] = {}
    for feedback_name, by_session in sorted(figures.scores.items()):
        values = [value for of_session in by_session.values() for value in of_session]
        of_base = base.scores.get(feedback_name, {}) if base is not None else {}
        comparison = _compared(of_base, by_session, is_rate=False)
        feedback[feedback_name] = FeedbackScores(count=len(values), mean=fmean(values), comparison=comparison)
    ordered = sorted(figures.seconds)
    return VersionScores(
        name=name,
        runs=figures.runs,
        sessions=len(figures.sessions),
        ended=len(outcomes),
        failed=int(sum(outcomes)),
        failures=_compared(base.outcomes, figures.outcomes, is_rate=True) if base is not None else None,
        median_seconds=median(ordered) if ordered else None,
        p95_seconds=ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else None,
        mean_tokens=fmean(figures.tokens) if figures.tokens else None,
        feedback=feedback,
    )


def _compared(
    first: Mapping[SessionKey, Sequence[float]], second: Mapping[SessionKey, Sequence[float]], *, is_rate: bool
) -> MeanComparison | None:
    """Compares the means of sessions; None if one of both has none."""
    if not first or not second:
        return None
    difference = compare_samples([fmean(values) for values in first.values()], [fmean(v) for v in second.values()])
    return MeanComparison(
        difference=difference.difference,
        low=difference.low,
        high=difference.high,
        is_significant=difference.is_significant,
        text=_in_words(difference, is_rate=is_rate),
    )


def _in_words(difference: SampleDifference, *, is_rate: bool) -> str:
    def signed(value: float) -> str:
        return f"{value * 100:+.1f} points" if is_rate else f"{value:+.3f}"

    text = f"{signed(difference.difference)} ({signed(difference.low)} to {signed(difference.high)})"
    if difference.is_significant:
        return f"{text}: more than chance"

    needed = difference.scores_needed
    if needed is None:
        return f"{text}: no difference"
    if needed > difference.scores:
        return f"{text}: may be chance; about {needed} sessions of each version would tell"
    return f"{text}: may be chance"
