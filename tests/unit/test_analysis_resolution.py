"""The smallest difference that a comparison could have shown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from virtgauge.analysis.comparison import (
    Comparison,
    Difference,
    Judgement,
    compare,
    compare_differences,
    is_coarse,
    paired_ratio,
    resolution,
)
from virtgauge.analysis.estimate import Estimate


def estimate(point: float, low: float | None, high: float | None, unit: str = "ratio") -> Estimate:
    return Estimate(point, low, high, None if low is None else 0.95, 6, unit, "given")


def comparison(point: float, low: float | None, high: float | None, band: float | None) -> Comparison:
    return Comparison(estimate(point, low, high), band, Judgement.INCONCLUSIVE, "", Estimate.missing("ns", ""))


@pytest.mark.parametrize(
    ("found", "higher", "lower", "reason"),
    [
        (comparison(1.0, 0.9, 1.05, 1.02), 1 / 0.9, 1.05, "interval of 6 repetitions"),
        (comparison(1.0, 0.9, 1.05, 1.07), 1 / 0.9, 1.07, "interval of 6 repetitions"),
        (comparison(1.0, 0.9, 1.05, 51.0), 51.0, 51.0, "A/A band"),
        (comparison(1.0, None, None, 1.1), None, None, "given"),
        (comparison(1.0, 0.9, 1.1, None), None, None, "no A/A interval"),
        (Difference(estimate(0.01, -0.02, 0.05, "share"), 0.005, Judgement.INCONCLUSIVE, ""), 0.03, 0.04,
         "interval of 6 repetitions"),
    ],
)  # fmt: skip
def test_the_interval_or_the_band_limits_each_direction(
    found: Difference, higher: float | None, lower: float | None, reason: str
) -> None:
    known = resolution(found)
    assert known.higher == (None if higher is None else pytest.approx(higher))
    assert known.lower == (None if lower is None else pytest.approx(lower))
    assert known.reason == reason


@pytest.mark.parametrize("repetitions", [1, 2, 3, 5])
def test_of_too_few_repetitions_no_difference_has_a_chance(repetitions: int) -> None:
    blocks = range(repetitions)
    tenfold, reference = ({block: of * (1 + block / 100) for block in blocks} for of in (10.0, 1.0))
    found = compare(tenfold, reference, estimate(1.0, 1 / 1.01, 1.01), "ns", 0.95)
    assert found.judgement is Judgement.INCONCLUSIVE
    assert resolution(found).smallest is None
    assert resolution(compare_differences(tenfold, reference, 0.01, "ns", 0.95)).smallest is None


def test_too_few_repetitions_are_named_as_what_limits_a_comparison() -> None:
    found = compare(dict.fromkeys(range(5), 2.0), dict.fromkeys(range(5), 1.0), estimate(1.0, 0.99, 1.01), "ns", 0.95)
    assert resolution(found).reason == "5 repetitions give 93.8 % confidence at most"


def test_an_outlier_upward_leaves_the_resolution_upward_as_it_is() -> None:
    logs = [0.0, 0.001, -0.001, 0.002, -0.002, 3.8]
    reference = dict.fromkeys(range(6), 1.0)
    aa = estimate(1.0, 1 / 1.01, 1.01)

    def times(factor: float) -> Comparison:
        return compare({block: factor * math.exp(log) for block, log in enumerate(logs)}, reference, aa, "ns", 0.95)

    found = resolution(times(1))
    assert found.higher is not None and found.lower is not None
    assert found.higher < 1.02 < 40 < found.lower
    assert times(1.03).judgement is Judgement.HIGHER
    assert times(1 / 1.03).judgement is Judgement.INCONCLUSIVE
    assert not is_coarse(times(1))


def test_a_ratio_says_nothing_where_only_large_differences_could_have_been_shown() -> None:
    assert is_coarse(comparison(1.3, 0.4, 30, 51))
    assert not is_coarse(comparison(1.0, 0.9, 1.05, 1.02))
    assert not is_coarse(comparison(1.0, None, None, 51))  # without an interval that is what has to be said


@pytest.mark.parametrize("spread", [0.02, 0.2, 0.6])
def test_differences_well_above_it_are_shown_and_those_well_below_it_are_not(spread: float) -> None:
    shown = {above: 0 for above in (False, True)}
    for seed in range(60):
        rng = np.random.default_rng(seed)

        def arm(factor: float, rng: np.random.Generator = rng) -> dict[int, float]:
            return {block: factor * math.exp(rng.normal(0, spread)) for block in range(12)}

        reference, again = arm(1), arm(1)
        aa = paired_ratio(again, reference, 0.95)
        smallest = resolution(compare(arm(1), reference, aa, "ns", 0.95)).higher
        assert smallest is not None
        for above, factor in ((True, smallest**2), (False, math.sqrt(math.sqrt(smallest)))):
            shown[above] += compare(arm(factor), reference, aa, "ns", 0.95).distinguishable
    assert shown[True] >= 54
    assert shown[False] <= 6


def test_differences_of_figures_that_may_be_zero_have_one_too() -> None:
    blocks = range(8)
    found = compare_differences({b: 0.01 * (b % 3) for b in blocks}, dict.fromkeys(blocks, 0.0), 0.001, "share", 0.95)
    assert resolution(found).higher == pytest.approx(found.estimate.point - found.estimate.low)
    assert resolution(found).lower == pytest.approx(found.estimate.high - found.estimate.point)
