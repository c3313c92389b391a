"""Shifts between independent samples hold the truth as often as they say, and say how often that is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from virtgauge.analysis.shift import (
    MOST_EXACT,
    interval_place,
    least_p,
    least_size,
    mann_whitney_p,
    paired_shift_estimate,
    shift_estimate,
    signed_rank_p,
)


def within(covered: np.ndarray, confidence: float) -> bool:
    """Whether a share of simulations is the confidence up to 4 standard errors."""
    return abs(covered.mean() - confidence) < 4 * math.sqrt(confidence * (1 - confidence) / covered.size)


def intervals(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Points, low and high ends of the shift of every row of y above that of x, and their confidence."""
    found = [shift_estimate(one, other, "ns", 0.95) for one, other in zip(x, y, strict=True)]
    points, lows, highs = np.array([(one.point, one.low, one.high) for one in found]).T
    return points, lows, highs, found[0].confidence or 0.0


@pytest.mark.parametrize(("m", "n"), [(3, 3), (4, 4), (6, 6), (5, 9), (12, 7)])
@pytest.mark.parametrize("shape", ["normal", "lognormal", "cauchy"])
def test_the_interval_holds_the_shift_exactly_as_often_as_it_says(m: int, n: int, shape: str) -> None:
    rng = np.random.default_rng([m, n])
    draw = {"normal": rng.normal, "lognormal": lambda size: rng.lognormal(0, 1, size), "cauchy": rng.standard_cauchy}
    x, y = draw[shape](size=(2000, m)), draw[shape](size=(2000, n)) + 0.7
    _, low, high, confidence = intervals(x, y)
    assert within((low <= 0.7) & (high >= 0.7), confidence)
    assert confidence >= 0.95 or (m, n) == (3, 3)


def test_large_samples_use_the_normal_distribution_and_keep_their_confidence() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.gumbel(size=(1000, 50)), rng.gumbel(size=(1000, 45)) + 2
    assert MOST_EXACT < 50 + 45
    point, low, high, confidence = intervals(x, y)
    assert within((low <= 2) & (high >= 2), confidence)
    assert confidence == pytest.approx(0.95, abs=0.002)
    assert np.median(point) == pytest.approx(2, abs=0.02)


def test_tied_values_are_held_at_least_as_often() -> None:
    rng = np.random.default_rng(8)
    x, y = rng.poisson(2, (2000, 6)).astype(float), rng.poisson(2, (2000, 6)) + 3.0
    _, low, high, confidence = intervals(x, y)
    assert ((low <= 3) & (high >= 3)).mean() >= confidence


@pytest.mark.parametrize(("m", "n", "confidence"), [(2, 2, 2 / 3), (3, 3, 0.9), (4, 4, 1 - 2 / 70), (1, 9, 0.8)])
def test_few_values_say_which_confidence_they_can_give(m: int, n: int, confidence: float) -> None:
    assert 1 - least_p(m, n) == pytest.approx(confidence)
    assert interval_place(m, n, 0.99) == (0, pytest.approx(confidence))
    estimate = shift_estimate([1.0 + i for i in range(m)], [10.0 + i for i in range(n)], "ns", 0.99)
    assert (estimate.low, estimate.high) == (10 - m, 8 + n)
    assert estimate.confidence == pytest.approx(confidence)
    assert f"{confidence:.2%}" in estimate.method


def test_the_point_is_the_median_of_all_differences() -> None:
    x, y = [1.0, 5.0, 9.0], [2.0, 30.0]
    estimate = shift_estimate(x, y, "ns", 0.95)
    assert estimate.point == np.median([b - a for a, b in itertools.product(x, y)])
    assert estimate.n == 2


def test_one_value_each_has_a_point_and_no_interval() -> None:
    estimate = shift_estimate([2.0], [5.0], "ns", 0.95)
    assert (estimate.point, estimate.has_interval, estimate.confidence) == (3.0, False, None)


def test_no_value_is_missing_with_its_reason() -> None:
    estimate = shift_estimate([], [5.0], "ns", 0.95)
    assert estimate.point is None
    assert "no valid repetition" in estimate.method


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="no rank"):
        shift_estimate([1.0], [bad], "ns", 0.95)
    with pytest.raises(ValueError, match="no rank"):
        mann_whitney_p([1.0], [bad])


def test_p_without_ties_is_that_of_scipy() -> None:
    rng = np.random.default_rng(2)
    for m, n in [(1, 5), (4, 4), (6, 9), (20, 15)]:
        x, y = rng.normal(size=m), rng.normal(0.4, 1, size=n)
        assert mann_whitney_p(x.tolist(), y.tolist()) == pytest.approx(
            stats.mannwhitneyu(x, y, method="exact").pvalue, rel=1e-9
        )


def test_p_with_ties_counts_every_way_to_deal_the_ranks_out() -> None:
    x, y = [1.0, 1.0, 2.0, 3.0], [2.0, 3.0, 3.0, 4.0, 4.0]
    ranks = stats.rankdata(x + y)
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(x))]
    low = np.mean([value <= sum(ranks[:4]) + 1e-9 for value in sums])
    assert mann_whitney_p(x, y) == pytest.approx(2 * low)
    assert mann_whitney_p(y, x) == pytest.approx(2 * low)


def test_p_of_large_samples_is_that_of_scipy_with_ties() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.poisson(9, 60).astype(float), rng.poisson(10, 50).astype(float)
    expected = stats.mannwhitneyu(x, y, method="asymptotic", use_continuity=True).pvalue
    assert mann_whitney_p(x.tolist(), y.tolist()) == pytest.approx(expected, rel=1e-6)


def test_the_interval_excludes_no_shift_where_p_is_below_the_level() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        x, y = rng.normal(size=6), rng.normal(1, 1, size=7)
        excludes = shift_estimate(x.tolist(), y.tolist(), "ns", 0.95).excludes(0)
        assert excludes == (mann_whitney_p(x.tolist(), y.tolist()) <= 1 - interval_place(6, 7, 0.95)[1] + 1e-12)


def test_the_least_size_is_the_first_that_can_reach_a_level() -> None:
    for level in (0.1, 0.05, 0.001, 1e-5):
        n = least_size(level)
        assert least_p(n, n) <= level < least_p(n - 1, n - 1)


def test_values_that_are_all_alike_differ_by_nothing() -> None:
    estimate = shift_estimate([3.0] * 6, [3.0] * 6, "ns", 0.95)
    assert (estimate.point, estimate.low, estimate.high) == (0, 0, 0)
    assert mann_whitney_p([3.0] * 6, [3.0] * 6) == 1
    assert mann_whitney_p([3.0] * 60, [3.0] * 60) == 1


def test_the_paired_interval_holds_the_shift_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    held = []
    for _ in range(1500):
        estimate = paired_shift_estimate(rng.standard_t(3, 7) + 0.5, "ns", 0.95)
        held.append(not estimate.excludes(0.5))
    assert within(np.asarray(held), 1 - 2 * 3 / 128)  # sums of 0, 1 and 2 are cut off at each end


def test_the_paired_p_is_that_of_scipy() -> None:
    rng = np.random.default_rng(7)
    for n in (1, 3, 8, 30):
        d = rng.normal(0.5, 1, n)
        assert signed_rank_p(d.tolist()) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, rel=1e-9)
    assert signed_rank_p([0.0, 0.0]) == 1


def test_few_blocks_say_which_confidence_they_can_give() -> None:
    estimate = paired_shift_estimate([1.0, 2.0, 4.0], "ns", 0.95)
    assert (estimate.low, estimate.high, estimate.confidence) == (1, 4, 0.75)
    assert paired_shift_estimate([1.0], "ns", 0.95).has_interval is False
    assert paired_shift_estimate([], "ns", 0.95).point is None
