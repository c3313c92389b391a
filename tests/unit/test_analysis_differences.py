"""Guarded differences of figures that may be zero, and outliers."""

from __future__ import annotations

from virtgauge.analysis.comparison import Judgement, band_of, compare_differences
from virtgauge.analysis.distribution import LEAST_VALUES, outliers
from virtgauge.analysis.estimate import Estimate

BLOCKS = range(8)


def difference(change: float, band: float | None, scatter: float = 0.001) -> Judgement:
    base = {block: 0.02 + scatter * (block % 3) for block in BLOCKS}
    test = {block: base[block] + change + scatter * (block % 2) for block in BLOCKS}
    return compare_differences(test, base, band, "share", 0.95).judgement


def test_a_difference_needs_an_interval_without_zero_and_more_than_identical_arms_differ_by() -> None:
    assert difference(0.01, band=0.005) is Judgement.HIGHER
    assert difference(-0.01, band=0.005) is Judgement.LOWER
    assert difference(0.01, band=0.02) is Judgement.INCONCLUSIVE
    assert difference(0.01, band=None) is Judgement.INCONCLUSIVE
    assert difference(-0.0005, band=0.0) is Judgement.INCONCLUSIVE


def test_figures_of_zero_can_be_compared() -> None:
    found = compare_differences(dict.fromkeys(BLOCKS, 0.0), dict.fromkeys(BLOCKS, 0.03), 0.001, "share", 0.95)
    assert found.estimate.point == -0.03
    assert found.judgement is Judgement.LOWER
    assert found.distinguishable


def test_one_pair_has_no_interval_and_shows_nothing() -> None:
    found = compare_differences({0: 0.1}, {0: 0.0, 1: 0.0}, 0.001, "share", 0.95)
    assert (found.estimate.point, found.estimate.has_interval) == (0.1, False)
    assert found.judgement is Judgement.INCONCLUSIVE
    assert compare_differences({0: 0.1}, {1: 0.0}, 0.001, "share", 0.95).estimate.point is None


def test_the_band_is_the_widest_end_and_unknown_where_one_is() -> None:
    def identical(low: float, high: float) -> Estimate:
        return Estimate((low + high) / 2, low, high, 0.95, 6, "share", "")

    assert band_of([identical(-0.01, 0.002), identical(-0.003, 0.005)]) == 0.01
    assert band_of([identical(-0.01, 0.002), Estimate.missing("share", "no block")]) is None
    assert band_of([]) is None


def test_outliers_lie_beyond_tukeys_fences_on_either_side() -> None:
    values = [100.0 + step for step in range(-9, 10)] + [500.0]
    assert outliers(values) == (0.0, 0.05)
    assert outliers([*values[:-1], -500.0]) == (0.05, 0.0)
    assert outliers(values[: LEAST_VALUES - 1]) is None
