"""Distributions kept as counts say what the raw values say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtgauge.analysis.distribution import TAIL_SAMPLES, Distribution, ccdf, merge, samples_needed

SHARES = [0.0, 0.001, 0.07, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0]


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=300))
def test_quantiles_equal_numpy_on_the_raw_values(values: list[int]) -> None:
    raw = np.array(values, dtype=np.int64)
    expected = np.quantile(raw, SHARES, method="inverted_cdf")
    assert Distribution.of(raw).quantiles(SHARES).tolist() == expected.tolist()


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=200))
def test_mad_is_the_median_distance_from_the_median(values: list[int]) -> None:
    raw = np.array(values, dtype=np.int64)
    median = np.quantile(raw, 0.5, method="inverted_cdf")
    expected = np.quantile(np.abs(raw - median), 0.5, method="inverted_cdf")
    assert Distribution.of(raw).mad == expected


def test_half_iqr_is_what_the_timing_paper_calls_mad() -> None:
    distribution = Distribution.of(np.array([1, 2, 3, 4, 100, 200, 300, 400], dtype=np.int64))
    assert distribution.half_iqr == (200 - 2) / 2
    assert distribution.mad != distribution.half_iqr


def test_quantiles_stay_within_the_exact_extremes_though_bins_are_coarse() -> None:
    binned = Distribution(np.array([100, 200]), np.array([5, 5], dtype=np.uint64), 103.0, 197.0, 150.0)
    assert binned.quantiles([0.0, 1.0]).tolist() == [103.0, 197.0]


@pytest.mark.parametrize(("share", "needed"), [(0.9, 100), (0.99, 1_000), (0.999, 10_000), (0.9999, 100_000)])
def test_a_tail_quantile_needs_ten_values_beyond_it(share: float, needed: int) -> None:
    assert samples_needed(share) == needed
    for samples, enough in ((needed, True), (needed - 1, False)):
        beyond = np.count_nonzero(np.arange(samples) > Distribution.of(np.arange(samples)).quantile(share))
        assert bool(beyond >= TAIL_SAMPLES) is enough


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=40), min_size=1, max_size=6))
def test_merging_equals_counting_together(parts: list[list[int]]) -> None:
    together = Distribution.of(np.array([value for part in parts for value in part], dtype=np.int64))
    merged = merge(Distribution.of(np.array(part, dtype=np.int64)) for part in parts)
    assert merged.values.tolist() == together.values.tolist()
    assert merged.counts.tolist() == together.counts.tolist()
    assert (merged.minimum, merged.maximum) == (together.minimum, together.maximum)
    assert merged.mean == pytest.approx(together.mean)


def test_nothing_has_no_quantile_and_cannot_be_merged() -> None:
    empty = Distribution(np.array([], dtype=np.int64), np.array([], dtype=np.uint64), 0, 0, 0)
    with pytest.raises(ValueError, match="no quantiles"):
        empty.quantile(0.5)
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([empty])


def test_every_ccdf_point_is_a_true_one() -> None:
    raw = np.random.default_rng(3).lognormal(10, 1, 50_000).astype(np.int64)
    values, shares = ccdf(Distribution.of(raw), 300)
    assert len(values) <= 300
    assert np.all(np.diff(values) > 0)
    assert np.all(np.diff(shares) <= 0)
    for value, share in zip(values[:-1], shares[:-1], strict=True):
        assert share == pytest.approx((raw > value).mean(), abs=1e-12)
    assert (values[-1], shares[-1]) == (raw.max(), 1 / raw.size)


def test_thinning_keeps_the_tail_of_a_million() -> None:
    rng = np.random.default_rng(4)
    raw = rng.normal(20_000, 300, 1_000_000).astype(np.int64)
    outliers = np.array([10**6, 10**7, 10**8, 10**9])
    raw[: outliers.size] = outliers
    values, shares = ccdf(Distribution.of(raw), 300)
    assert set(outliers) <= set(values.astype(int))
    decades = [np.sum((shares <= 10.0**-k) & (shares > 10.0 ** -(k + 1))) for k in range(5)]
    assert min(decades) >= 8, decades


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (10, 10), (100, 99), (1000, 997)])
def test_what_a_quantile_is_at_least_is_an_order_statistic(n: int, rank: int) -> None:
    assert Distribution.of(np.arange(1, n + 1)).quantile_at_least(0.999, 0.95) == rank


def test_what_a_quantile_is_at_least_is_so_as_often_as_stated() -> None:
    rng = np.random.default_rng(3)
    least = [Distribution.of(rng.integers(0, 10**6, 200)).quantile_at_least(0.99, 0.9) for _ in range(1000)]
    assert 0.9 <= np.mean(np.array(least) <= 0.99e6) < 0.99


def test_few_distinct_values_are_all_drawn() -> None:
    values, shares = ccdf(Distribution.of(np.array([1, 1, 1, 5])), 300)
    assert values.tolist() == [1, 5]
    assert shares.tolist() == [0.25, 0.25]


@pytest.mark.parametrize("cost", [8.0, 10.0, 13.0, 17.7, 24.0, 25.4, 25.6, 41.5])
@pytest.mark.parametrize("step", [1.0, 10.0])
def test_the_median_of_a_cost_read_from_a_coarse_clock_is_not_that_clocks_step(cost, step):
    """Successive readings of a clock that advances in steps: their differences are multiples of the step."""
    rng = np.random.default_rng(5)
    times = np.cumsum(np.full(200_000, cost) + rng.normal(0, 0.02 * cost, 200_000))
    readings = np.floor(times / step) * step
    distribution = Distribution.of(np.rint(np.diff(readings) * 1000).astype(np.int64))
    assert distribution.interpolated_median / 1000 == pytest.approx(cost, abs=0.16 * step)


@pytest.mark.parametrize(("values", "step"), [((10_000, 20_000), 10_000), ((20_300, 47_100), 0), ((20_300, 26_000), 0)])
def test_two_modes_are_no_steps_of_a_coarse_clock_unless_both_are_multiples_of_one(values, step):
    distribution = Distribution.of(np.repeat(values, [8000, 2000]))
    assert distribution.step == step
    assert (distribution.interpolated_median != distribution.median) == bool(step)


def test_other_modes_too_far_away_to_tell_leave_a_clock_coarse():
    values = np.repeat([10_000, 20_000, 30_000, 5_002_000], [4000, 3000, 500, 500])
    assert Distribution.of(values).step == 10_000


def test_whole_microseconds_and_zeros_are_steps():
    common = ([3, 4, 5], [0, 10_000], [40, 50])
    assert [Distribution.of(np.repeat(values, 500)).step for values in common] == [1, 10_000, 10]


def test_the_spread_that_a_coarse_clock_shows_grows_with_how_much_is_in_other_steps():
    shares = (99, 97, 90, 75, 70, 60, 50)
    spreads = [Distribution.of(np.repeat([10_000, 20_000], [10 * one, 1000 - 10 * one])).half_iqr for one in shares]
    assert spreads == sorted(spreads)
    assert spreads[0] > 2500
    assert Distribution.of(np.repeat([10_000, 20_000], [995, 5])).half_iqr == 0  # of which no step is known


def test_the_interpolated_median_of_fine_values_is_the_median():
    distribution = Distribution.of(np.random.default_rng(1).lognormal(10, 0.5, 50_000).astype(np.int64))
    assert distribution.interpolated_median == distribution.median


def test_a_single_value_is_its_own_interpolated_median():
    assert Distribution.of(np.full(100, 7, dtype=np.int64)).interpolated_median == 7
