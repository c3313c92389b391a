"""Intervals over repetitions hold the truth as often as they say."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from virtgauge.analysis.estimate import (
    attainable_confidence,
    expanded_tail,
    median_estimate,
    median_weights,
)

SEEDS = 400


@pytest.mark.parametrize("sigma", [0.05, 0.6, 1.5])
@pytest.mark.parametrize("n", [3, 5, 6, 8, 10, 20])
def test_intervals_cover_the_true_median_as_often_as_stated(n: int, sigma: float) -> None:
    covered, stated = 0, 0.0
    for seed in range(SEEDS):
        values = np.random.default_rng([n, seed]).lognormal(math.log(23), sigma, n)
        estimate = median_estimate(values.tolist(), "ns", 0.95)
        assert estimate.low is not None and estimate.high is not None and estimate.confidence is not None
        covered += estimate.low <= 23 <= estimate.high
        stated = estimate.confidence
    tolerance = 2.58 * math.sqrt(stated * (1 - stated) / SEEDS)  # 99 % Monte-Carlo bound
    print(f"n={n:2d} sigma={sigma:4.2f} stated={stated:.4f} covered={covered / SEEDS:.4f} of {SEEDS}")
    assert covered / SEEDS >= stated - tolerance


@pytest.mark.parametrize("nominal", [0.5, 0.8, 0.9, 0.99])
def test_other_confidences_are_covered_too(nominal: float) -> None:
    values = np.random.default_rng(7).lognormal(0, 1, (20_000, 9))
    missed = [median_estimate(some, "ns", nominal).excludes(1) for some in values]
    assert np.mean(missed) <= 1 - nominal + 0.01


def test_the_interval_is_no_wider_than_it_must_be() -> None:
    values = np.random.default_rng(8).normal(100, 1, (2_000, 20))
    found = [median_estimate(some, "ns", 0.95) for some in values]
    ideal = 2 * 1.96 * 1.2533 / math.sqrt(20)  # normal theory for the median of normal values
    assert np.mean([(one.high or math.inf) - (one.low or 0) for one in found]) < 1.35 * ideal


@pytest.mark.parametrize("nominal", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [11, 13, 17, 19, 29, 33, 43])
def test_an_odd_number_of_repetitions_has_the_order_statistics_that_hold_the_median_or_lies_beyond_them(
    n: int, nominal: float
) -> None:
    """They hold it with a known confidence; of less than the nominal one the ends lie between these and the next."""
    found = median_estimate([float(rank) for rank in range(1, n + 1)], "ns", nominal)
    assert found.low is not None and found.high is not None and found.low + found.high == pytest.approx(n + 1)
    inner = math.ceil(found.low)
    held = 1 - 2 * stats.binom.cdf(inner - 1, n, 0.5)
    assert (found.low == inner) == (held >= nominal)
    assert 1 - 2 * stats.binom.cdf(math.floor(found.low) - 1, n, 0.5) >= nominal


def test_between_two_order_statistics_the_end_is_where_hettmansperger_and_sheather_have_it() -> None:
    """Of 11 the second and third hold it with 98.83 and 93.46 %; λ = 9 · 0.7127 / (2 + 7 · 0.7127)."""
    assert median_estimate([*map(float, range(1, 12))], "ns", 0.95).low == pytest.approx(2 + 0.9178, abs=1e-4)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_weights_are_those_of_all_resamples(n: int) -> None:
    values = np.cumsum(np.arange(1, n + 1)).astype(float) ** 1.5
    counted: dict[float, int] = {}
    for resample in itertools.product(range(n), repeat=n):
        median = statistics.median(values[list(resample)])
        counted[round(median, 9)] = counted.get(round(median, 9), 0) + 1
    i, j, weight = median_weights(n)
    ours: dict[float, float] = {}
    for a, b, w in zip(i, j, weight, strict=True):
        median = round((values[a] + values[b]) / 2, 9)
        ours[median] = ours.get(median, 0) + w
    assert ours.keys() == counted.keys()
    for median, times in counted.items():
        assert ours[median] == pytest.approx(times / n**n, rel=1e-6)


@pytest.mark.parametrize("n", [1500, 2200, 5500])
def test_weights_of_many_values_are_alike_on_both_sides_of_the_middle(n: int) -> None:
    """The two draws in the middle are one value with the chance 1/e, and as often above as below."""
    i, j, weight = median_weights(n)
    assert weight[i == j].sum() == pytest.approx(math.exp(-1), rel=0.002)
    assert ((i + j) / 2) @ weight == pytest.approx((n - 1) / 2)


def test_plain_percentiles_agree_with_scipy_bootstrap() -> None:
    values = np.random.default_rng(5).lognormal(3, 0.5, 15)
    tail = expanded_tail(15, 0.95)
    theirs = stats.bootstrap(
        (values,), np.median, confidence_level=1 - 2 * tail, n_resamples=100_000, method="percentile", rng=1
    ).confidence_interval
    ours = median_estimate(values.tolist(), "ns", 0.95)
    assert ours.low == pytest.approx(theirs.low, rel=0.01)
    assert ours.high == pytest.approx(theirs.high, rel=0.01)


@pytest.mark.parametrize("n", [1500, 1501])
def test_many_repetitions_approach_the_order_statistics_interval(n: int) -> None:
    values = np.sort(np.random.default_rng(6).normal(0, 1, n))
    estimate = median_estimate(values.tolist(), "ns", 0.95)
    low = values[int(stats.binom.ppf(0.025, n, 0.5)) - 1]
    high = values[int(stats.binom.ppf(0.975, n, 0.5))]
    assert estimate.low == pytest.approx(low, abs=0.01)
    assert estimate.high == pytest.approx(high, abs=0.01)


def test_few_repetitions_state_the_confidence_they_can_reach() -> None:
    estimate = median_estimate([3.0, 1.0, 2.0], "ns", 0.95)
    assert (estimate.low, estimate.point, estimate.high) == (1.0, 2.0, 3.0)
    assert estimate.confidence == attainable_confidence(3) == 0.75
    assert "75.00%" in estimate.method


def test_one_repetition_has_a_point_and_no_interval() -> None:
    estimate = median_estimate([4.0], "ns", 0.95)
    assert estimate.point == 4.0
    assert (estimate.low, estimate.high, estimate.confidence) == (None, None, None)
    assert "single" in estimate.method


def test_no_repetition_is_missing_and_not_zero() -> None:
    estimate = median_estimate([], "ns", 0.95)
    assert estimate.point is None
    assert estimate.method


def test_equal_repetitions_have_an_interval_of_no_width() -> None:
    estimate = median_estimate([7.0] * 8, "ns", 0.95)
    assert (estimate.low, estimate.point, estimate.high) == (7.0, 7.0, 7.0)


def test_intervals_depend_on_nothing_but_the_values() -> None:
    values = np.random.default_rng(1).lognormal(0, 1, 9).tolist()
    assert median_estimate(values, "ns", 0.95) == median_estimate(values[::-1], "ns", 0.95)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.1, 95.0])
def test_a_confidence_outside_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        median_estimate([1.0, 2.0, 3.0], "ns", confidence)
