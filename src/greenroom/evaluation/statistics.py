"""Statistics of repeated evaluations: pass rates with intervals, and whether two differ by more
than chance.

Sources: Wilson, Probable inference, the law of succession, and statistical inference (1927); Efron
and Tibshirani, An introduction to the bootstrap (1993), percentile intervals of paired differences;
Hesterberg, What teachers should know about the bootstrap (2015), their correction for small
samples; Fisher, The design of experiments (1935), the permutation test of pairs, which for results that pass or fail is
McNemar's exact test; Welch, The generalization of Student's problem when several different population variances are
involved (1947), for scores that are no pairs.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, stdev, variance

from greenroom.records.base import Record

RESAMPLES = 2000

_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.975)
"""Quantile of the limits of 95 % intervals."""

_Z_POWER = _NORMAL.inv_cdf(0.8)
"""Quantile of the power in `pairs_needed`: how probably a real difference of the observed size is
found.
"""

MIN_CHANGED = 6
"""Fewer changed pairs are never more than chance: if all five of five improve, the test of pairs gives p = 0.06."""

_MAX_P = 0.05
_MAX_FLIPPED = 12
"""Up to this number of different pairs, all permutations are counted; else as many as there are resamples."""


class PassRate(Record, kw_only=True, omit_defaults=False):
    """A pass rate and its confidence interval.

    passed of total. low, high: the interval of the true rate.
    """

    passed: int
    total: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.passed / self.total if self.total else 0.0


class Difference(Record, kw_only=True, omit_defaults=False):
    """The mean difference of pairs: positive when the second is better.

    low, high: the interval of the true difference.
    """

    pairs: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    """The probability of a difference at least as large, either way, if which of a pair is the second were chance."""
    is_significant: bool
    """Whether it is more than chance: the interval excludes 0, and `p_value` is at most 0.05."""

    pairs_needed: int | None
    """About how many pairs find a difference of this size with a probability of 80 %; None if there
    is no difference.
    """


class SampleDifference(Record, kw_only=True, omit_defaults=False):
    """The difference of the means of two samples: positive when the second is greater."""

    scores: int
    """Number of scores in the smaller sample."""
    difference: float
    low: float
    """The lower end of the difference's 95 % interval."""
    high: float
    """The upper end of the interval."""
    is_significant: bool
    """Whether it is more than chance."""
    scores_needed: int | None
    """About how many scores in each sample find a difference of this size with a probability of 80 %; None if there is
    no difference.
    """


def pass_rate(passed: int, total: int) -> PassRate:
    """The pass rate with Wilson's score interval of 95 %; from 0 to 1 without results."""
    if not 0 <= passed <= total:
        raise ValueError(f"{passed} of {total} results can't have passed")
    if total == 0:
        return PassRate(passed=0, total=0, low=0.0, high=1.0)

    rate = passed / total
    weight = _Z * _Z / total
    center = (rate + weight / 2) / (1 + weight)
    half = _Z / (1 + weight) * math.sqrt(rate * (1 - rate) / total + weight / (4 * total))

    # The limits at 0 and 1 are exact; only rounding moves them.
    return PassRate(
        passed=passed,
        total=total,
        low=0.0 if passed == 0 else center - half,
        high=1.0 if passed == total else center + half,
    )


def paired(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]]
) -> tuple[list[float], list[float]]:
    """The scores of the cases in both, sample by sample; the longer list of a case is cut."""
    pairs = [pair for case in first if case in second for pair in zip(first[case], second[case], strict=False)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def compare(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0
) -> Difference:
    """Compares scores in pairs: a bootstrap of their differences gives intervals of 95 %, and a permutation test
    their probability by chance. Passed is 1, failed 0.

    Pairs are samples of the same case, so that hard and easy cases add no noise. The result depends
    only on the arguments. Raises ValueError without pairs.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"{len(first)} and {len(second)} scores are no pairs")

    differences = [after - before for before, after in zip(first, second, strict=True)]
    count = len(differences)
    mean = fmean(differences)

    low = mean
    high = mean
    if count > 1:
        drawn = random.Random(seed).choices(differences, k=count * resamples)
        sums = sorted(sum(drawn[start : start + count]) for start in range(0, len(drawn), count))
        tail = _tail(count)
        low = sums[int(tail * resamples)] / count
        high = sums[resamples - 1 - int(tail * resamples)] / count

    p_value = _p_value([difference for difference in differences if difference], resamples, seed)

    return Difference(
        pairs=count,
        first=fmean(first),
        second=fmean(second),
        difference=mean,
        low=low,
        high=high,
        p_value=p_value,
        is_significant=p_value <= _MAX_P and (low > 0 or high < 0),
        pairs_needed=_pairs_needed(differences, mean),
    )


def _p_value(differences: Sequence[float], resamples: int, seed: int) -> float:
    """The share of the permutations of pairs whose sum is at least as large as the one of these differences."""
    sizes = [abs(difference) for difference in differences]
    count = len(sizes)
    if not count:
        return 1.0

    if min(sizes) == max(sizes):  # the number of positive differences is binomial
        gained = sum(difference > 0 for difference in differences)
        extreme = max(gained, count - gained)
        return min(1.0, 2 * sum(math.comb(count, k) for k in range(extreme, count + 1)) / 2**count)

    observed = abs(math.fsum(differences)) * (1 - 1e-12)  # sums in another order differ by rounding
    if count <= _MAX_FLIPPED:
        sums = [0.0]
        for size in sizes:
            sums = [total + sign for total in sums for sign in (size, -size)]
        return sum(abs(total) >= observed for total in sums) / len(sums)

    rng = random.Random(seed)
    hits = 0
    for _ in range(resamples):
        signs = rng.getrandbits(count)
        total = sum(size if signs >> index & 1 else -size for index, size in enumerate(sizes))
        hits += abs(total) >= observed
    return (hits + 1) / (resamples + 1)


def compare_samples(first: Sequence[float], second: Sequence[float]) -> SampleDifference:
    """Compares the means of scores that are no pairs, such as those of two groups of users, with an
    interval of 95 %: Welch's, or Student's if that is wider, since a few equal scores in one sample
    say little about how much it varies.

    It is more than chance only with `MIN_CHANGED` scores in each, and as many in both together that
    differ from the most frequent one. Raises ValueError without scores in one of them.
    """
    if not first or not second:
        raise ValueError("There are no scores to compare")

    difference = fmean(second) - fmean(first)
    spreads = [variance(scores) if len(scores) > 1 else 0.0 for scores in (first, second)]
    half = max(_half_of_welch(spreads, first, second), _half_of_student(spreads, first, second))
    low = difference - half
    high = difference + half

    needed: int | None = None
    if difference:
        needed = max(MIN_CHANGED, math.ceil((_Z + _Z_POWER) ** 2 * sum(spreads) / difference**2))

    [(_, most_frequent)] = Counter([*first, *second]).most_common(1)
    changed = len(first) + len(second) - most_frequent
    is_enough = min(len(first), len(second), changed) >= MIN_CHANGED
    return SampleDifference(
        scores=min(len(first), len(second)),
        difference=difference,
        low=low,
        high=high,
        is_significant=is_enough and (low > 0 or high < 0),
        scores_needed=needed,
    )


def _half_of_welch(spreads: Sequence[float], *samples: Sequence[float]) -> float:
    errors = [spread / len(scores) for spread, scores in zip(spreads, samples, strict=True)]
    error = sum(errors)
    if not error:
        return 0.0
    weights = sum(one**2 / max(len(scores) - 1, 1) for one, scores in zip(errors, samples, strict=True))
    return _student(error**2 / weights) * math.sqrt(error)


def _half_of_student(spreads: Sequence[float], *samples: Sequence[float]) -> float:
    degrees = max(sum(len(scores) - 1 for scores in samples), 1)
    pooled = sum(spread * (len(scores) - 1) for spread, scores in zip(spreads, samples, strict=True)) / degrees
    return _student(degrees) * math.sqrt(pooled * sum(1 / len(scores) for scores in samples))


def _pairs_needed(differences: Sequence[float], mean: float) -> int | None:
    if mean == 0:
        return None
    spread = stdev(differences) if len(differences) > 1 else 1.0
    return max(MIN_CHANGED, math.ceil(((_Z + _Z_POWER) * spread / mean) ** 2))


def _tail(count: int) -> float:
    """The share of resamples beyond each limit: less than usual for few pairs, as resamples vary
    too little then.
    """
    degrees = count - 1
    return _NORMAL.cdf(-math.sqrt(count / degrees) * _student(degrees))


def _student(degrees: float) -> float:
    """Student's quantile of the limits of 95 % intervals, by the expansion of Cornish and Fisher."""
    z = _Z
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
