"""Intervals hold what they promise, for simulated agents whose pass rate is known."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import cache
from itertools import product
from statistics import NormalDist, fmean

import pytest

from greenroom.evaluation.statistics import Difference, compare, compare_samples, paired, pass_rate

SEED = 17
DRAWS = 10_000
SAMPLES = [5, 8, 10, 15, 20, 30, 50, 75, 100]
RATES = [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98]


def binomial(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@cache
def wilson_holds(n: int, k: int, p: float) -> bool:
    """Whether Wilson's interval holds p, by the definition: the rates that are not rejected by their own deviation."""
    return abs(k / n - p) <= 1.959963984540054 * math.sqrt(p * (1 - p) / n)


def test_wilson_interval_covers_the_true_rate_as_often_as_its_exact_coverage() -> None:
    rng = random.Random(SEED)
    coverages: list[float] = []
    for n in SAMPLES:
        intervals = [pass_rate(k, n) for k in range(n + 1)]
        for p in RATES:
            chances = binomial(n, p)
            exact = sum(chance for k, chance in enumerate(chances) if wilson_holds(n, k, p))
            draws = Counter(rng.choices(range(n + 1), weights=chances, k=DRAWS))
            covered = sum(times for k, times in draws.items() if intervals[k].low <= p <= intervals[k].high) / DRAWS
            assert abs(covered - exact) <= 0.008, (n, p, covered, exact)
            coverages.append(covered)
    assert 0.94 <= fmean(coverages) <= 0.96


@cache
def called_different(n: int, gained: int, lost: int) -> bool:
    pairs = [(0.0, 1.0)] * gained + [(1.0, 0.0)] * lost + [(0.0, 0.0)] * (n - gained - lost)
    return compare([first for first, _ in pairs], [second for _, second in pairs]).is_significant


@pytest.mark.parametrize(
    ("n", "p"), [(30, 0.02), (30, 0.1), (30, 0.2), (30, 0.3), (30, 0.5), (30, 0.9), (50, 0.2), (100, 0.02)]
)
def test_two_equal_agents_are_seldom_called_different(n: int, p: float) -> None:
    rng = random.Random(f"{SEED} {n} {p}")
    # Pairs are gained, lost or unchanged: first the changed ones of all pairs are drawn, then the gained of these.
    changed = Counter(rng.choices(range(n + 1), weights=binomial(n, 2 * p * (1 - p)), k=DRAWS))
    wrong = 0
    for total, times in changed.items():
        gained = Counter(rng.choices(range(total + 1), weights=binomial(total, 0.5), k=times))
        # Better and worse are symmetric.
        wrong += sum(often for k, often in gained.items() if called_different(n, max(k, total - k), min(k, total - k)))
    assert wrong / DRAWS <= 0.057


def test_the_probability_by_chance_is_that_of_all_permutations() -> None:
    rng = random.Random(SEED)
    for count in (1, 3, 7, 11):
        differences = [rng.choice((-1, 1)) * rng.randint(1, 9) for _ in range(count)]
        sums = [sum(signs) for signs in product(*((one, -one) for one in differences))]
        exact = sum(abs(total) >= abs(sum(differences)) for total in sums) / len(sums)
        assert compare([0.0] * count, [float(one) for one in differences]).p_value == pytest.approx(exact)

    # Of those that passed once, seven improved and one got worse: McNemar's exact test gives 2 (1 + 8) / 2⁸.
    assert compare([0.0] * 7 + [1.0] * 9, [1.0] * 7 + [0.0] + [1.0] * 8).p_value == pytest.approx(18 / 256)
    assert compare([1.0, 0.5], [1.0, 0.5]).p_value == 1

    # With more pairs, permutations are drawn: the normal approximation is close.
    differences = [rng.gauss(0.2, 1) for _ in range(80)]
    z = abs(sum(differences)) / math.sqrt(sum(one * one for one in differences))
    drawn = compare([0.0] * 80, differences, resamples=5_000).p_value
    assert drawn == pytest.approx(2 * (1 - NormalDist().cdf(z)), abs=0.02)


def test_a_real_difference_is_found_with_the_pairs_that_it_needs() -> None:
    rng = random.Random(SEED)

    def trial(n: int) -> Difference:
        return compare(
            [float(rng.random() < 0.5) for _ in range(n)], [float(rng.random() < 0.75) for _ in range(n)], resamples=500
        )

    # Two independent agents of 50 and 75 %: (1.96 + 0.84)² (0.25 + 0.1875) / 0.25² = 55 pairs.
    needed = trial(5_000).pairs_needed
    assert needed is not None
    assert 50 <= needed <= 60
    assert 0.68 <= sum(trial(needed).is_significant for _ in range(200)) / 200 <= 0.86
    assert sum(trial(10).is_significant for _ in range(200)) / 200 <= 0.25


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"), [(0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (5, 10, 0.2366, 0.7634)]
)
def test_limits_of_known_pass_rates(passed: int, total: int, low: float, high: float) -> None:
    found = pass_rate(passed, total)
    assert (found.low, found.high, found.rate) == pytest.approx((low, high, passed / total), abs=1e-4)


def test_without_results_nothing_is_known() -> None:
    assert (pass_rate(0, 0).low, pass_rate(0, 0).high) == (0, 1)
    with pytest.raises(ValueError, match="3 of 2"):
        pass_rate(3, 2)
    with pytest.raises(ValueError, match="no pairs"):
        compare([], [])


def test_few_pairs_are_no_difference_however_large_it_is() -> None:
    assert not compare([0.0] * 5, [1.0] * 5).is_significant
    assert compare([0.0] * 8, [1.0] * 8).is_significant
    assert not compare([0.0], [1.0]).is_significant
    assert compare([0.5, 1.0], [0.5, 1.0]).pairs_needed is None


def test_a_comparison_is_the_same_each_time() -> None:
    first, second = [0.1, 0.9, 0.4, 0.3, 0.77, 0.12], [0.2, 0.8, 0.9, 0.9, 0.34, 0.59]
    assert compare(first, second, seed=3) == compare(first, second, seed=3)
    assert compare(first, second, seed=3) != compare(first, second, seed=4)


def test_samples_are_paired_by_case() -> None:
    assert paired({"a": [1, 0], "b": [1]}, {"a": [0, 0, 1], "c": [1]}) == ([1, 0], [0, 0])


@cache
def samples_differ(n: int, k: int, other_n: int, other_k: int) -> bool:
    first = [1.0] * k + [0.0] * (n - k)
    second = [1.0] * other_k + [0.0] * (other_n - other_k)
    return compare_samples(first, second).is_significant


@pytest.mark.parametrize(("n", "other_n"), [(30, 270), (60, 60), (20, 180)])
def test_samples_of_equal_rates_differ_as_seldom_as_promised(n: int, other_n: int) -> None:
    for p in (0.02, 0.1, 0.5):
        called = sum(
            chance * other_chance
            for k, chance in enumerate(binomial(n, p))
            for other_k, other_chance in enumerate(binomial(other_n, p))
            if chance * other_chance > 1e-7 and samples_differ(n, k, other_n, other_k)
        )
        assert called <= 0.056, (n, other_n, p, called)


def test_samples_are_compared_by_their_means() -> None:
    rng = random.Random(SEED)
    first = [rng.gauss(3.0, 1.0) for _ in range(200)]
    second = [rng.gauss(3.6, 2.0) for _ in range(60)]
    difference = compare_samples(first, second)
    assert difference.low < 0.6 < difference.high
    assert difference.is_significant
    assert (difference.scores, difference.scores_needed is not None) == (60, True)
    error = math.sqrt(1.0 / 200 + 4.0 / 60)
    assert difference.high - difference.low == pytest.approx(2 * 2.0 * error, rel=0.25)
    same = compare_samples(first, first)
    assert (same.difference, same.is_significant, same.scores_needed) == (0.0, False, None)
    few = compare_samples([1.0] * 5, [0.0] * 500)
    assert (few.difference, few.is_significant) == (-1.0, False)
    rare = compare_samples([0.0] * 1000, [1.0] * 5 + [0.0] * 995)
    assert not rare.is_significant
    with pytest.raises(ValueError, match="no scores"):
        compare_samples([], [1.0])
