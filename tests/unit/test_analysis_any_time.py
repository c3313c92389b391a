"""The interval that may be looked at after every repetition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from virtgauge.analysis.bounds import decisive_count, fewest_values, log_evidence, median_at_any_time
from virtgauge.analysis.estimate import median_estimate


def test_evidence_is_a_martingale_under_a_fair_coin() -> None:
    for n in (1, 4, 9):
        mean = sum(math.comb(n, k) * 0.5**n * math.exp(log_evidence(k, n)) for k in range(n + 1))
        assert mean == pytest.approx(1.0)


def test_evidence_of_one_sided_values_is_the_closed_form() -> None:
    for n in (1, 8, 30):
        assert log_evidence(n, n) == pytest.approx(math.log((2 ** (n + 1) - 1) / (n + 1)))


def test_the_fewest_values_that_decide() -> None:
    assert fewest_values(0.95) == 8
    assert decisive_count(7, 0.95) is None
    assert decisive_count(8, 0.95) == 8
    assert fewest_values(0.99) > fewest_values(0.95) > fewest_values(0.8)


def test_too_few_values_give_no_interval_and_say_how_many_are_needed() -> None:
    estimate = median_at_any_time([1.0, 2.0, 3.0], "ns", 0.95)
    assert estimate.point == 2.0
    assert not estimate.has_interval
    assert "8 repetitions" in estimate.method
    assert median_at_any_time([], "ns", 0.95).point is None


def _ever_wrong(runs: int, longest: int, wrong_at: object) -> float:
    random = np.random.default_rng(7)
    misses = 0
    for _ in range(runs):
        above = np.cumsum(random.random(longest) < 0.5)
        misses += any(wrong_at(int(above[n - 1]), n) for n in range(2, longest + 1))  # type: ignore[operator]
    return misses / runs


def test_it_holds_however_often_one_looks_while_an_ordinary_interval_does_not() -> None:
    """The true median is 0; a look at n errs when the interval leaves it out, which signs alone tell."""

    def sequence_errs(above: int, n: int) -> bool:
        count = decisive_count(n, 0.95)
        return count is not None and max(above, n - above) >= count

    ends: dict[int, tuple[int, int]] = {}
    for n in range(6, 101):  # which order statistics end the ordinary interval
        estimate = median_estimate(range(n), "ns", 0.95)
        assert estimate.low is not None and estimate.high is not None
        ends[n] = math.floor(estimate.low), math.ceil(estimate.high)

    def ordinary_errs(above: int, n: int) -> bool:
        if n not in ends:
            return False
        low, high = ends[n]
        below = n - above
        return below <= low or below > high

    assert _ever_wrong(600, 100, sequence_errs) <= 0.05
    assert _ever_wrong(600, 100, ordinary_errs) > 0.15


def test_its_ends_are_values_of_the_sample() -> None:
    values = [float(v) for v in (5, 1, 9, 3, 7, 2, 8, 4, 6, 10, 12, 11)]
    estimate = median_at_any_time(values, "ns", 0.95)
    count = decisive_count(12, 0.95)
    assert count is not None
    assert (estimate.low, estimate.high) == (sorted(values)[12 - count], sorted(values)[count - 1])
