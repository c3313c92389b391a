"""ε² and Cliff's δ: other implementations, coverage of the interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from virtgauge.analysis.ranks import (
    kruskal_wallis,
    magnitude,
    stratified_delta,
)

# The example of R's effsize, which prints for these data: δ = −0.25, 95 % interval −0.7265846 … 0.3890062.
# That is Cliff’s own, which holds less often than it says.
TREATMENT = np.array([10, 10, 20, 20, 20, 30, 30, 30, 40, 50.0])
CONTROL = np.array([10, 20, 30, 40, 40, 50.0])


def cliffs_delta(x, y, confidence):
    return stratified_delta([(dict(enumerate(x)), dict(enumerate(y)))], confidence)


samples = st.lists(st.integers(0, 9).map(float), min_size=2, max_size=12).map(np.array)


def test_delta_changes_its_sign_where_incomplete_sides_change_places() -> None:
    strata = [({1: 1.0, 2: 5.0}, {1: 3.0, 2: 3.0, 4: 0.0}), ({2: 5.0, 3: 4.0}, {2: 3.0, 3: 3.0})]
    forth, back = stratified_delta(strata, 0.95), stratified_delta([(y, x) for x, y in strata], 0.95)
    assert (forth.point, back.point) == (pytest.approx((2 / 6 + 1) / 2), pytest.approx(-(2 / 6 + 1) / 2))
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))


def test_effsizes_example_has_its_delta_and_no_narrower_interval() -> None:
    estimate = cliffs_delta(TREATMENT, CONTROL, 0.95)
    assert estimate.point == -0.25
    assert -0.85 < estimate.low < -0.7265846 and 0.3890062 < estimate.high < 0.55


@given(samples, samples)
def test_delta_is_what_the_mann_whitney_statistic_says(x: np.ndarray, y: np.ndarray) -> None:
    u = stats.mannwhitneyu(x, y, method="asymptotic").statistic
    assert cliffs_delta(x, y, 0.95).point == pytest.approx(2 * u / (len(x) * len(y)) - 1)


@given(samples, samples)
def test_delta_turns_its_sign_with_the_sides(x: np.ndarray, y: np.ndarray) -> None:
    there, back = cliffs_delta(x, y, 0.9), cliffs_delta(y, x, 0.9)
    assert there.point == pytest.approx(-back.point)
    assert there.low == pytest.approx(-back.high)
    assert -1 <= there.low <= there.point + 1e-9 and there.point - 1e-9 <= there.high <= 1


def bursts(rng: np.random.Generator, runs: int, n: int) -> np.ndarray:
    """Nearly the same each time, but in every twelfth repetition far more."""
    return rng.normal(0, 0.03, (runs, n)) + 10 * (rng.random((runs, n)) < 1 / 12)


def normal(rng: np.random.Generator, runs: int, n: int) -> np.ndarray:
    return rng.normal(0, 1, (runs, n))


@pytest.mark.parametrize(
    ("draw", "shift", "truth"),
    [
        (normal, 0.0, 0.0),
        (normal, 0.7, 2 * stats.norm.cdf(0.7 / np.sqrt(2)) - 1),
        (normal, 2.5, 2 * stats.norm.cdf(2.5 / np.sqrt(2)) - 1),
        (bursts, 1.0, 1 - 2 * 11 / 12 / 12),  # only a burst on one side alone lies above what is higher by 1
    ],
)
@pytest.mark.parametrize("sizes", [(5, 5), (10, 10), (30, 30), (20, 5)])
def test_the_interval_holds_the_truth_as_often_as_it_says(draw, shift, truth, sizes) -> None:
    rng, runs = np.random.default_rng(20), 1000
    pairs = zip(shift + draw(rng, runs, sizes[0]), draw(rng, runs, sizes[1]), strict=True)
    held = [(one := cliffs_delta(x, y, 0.95)).low <= truth <= one.high for x, y in pairs]
    assert np.mean(held) > 0.93


def test_where_one_side_varies_alone_it_is_nearly_the_exact_interval_of_a_proportion() -> None:
    """Of a value that lies above two of ten, or eight, or all: Clopper and Pearson's, of ten or one pair less."""
    for above in (2, 8, 10):
        x = np.ones(10)
        y = np.array([0.0] * above + [2.0] * (10 - above))
        estimate = cliffs_delta(x, y, 0.95)
        exact = stats.binomtest(above, 10).proportion_ci(0.95, "exact")
        assert (estimate.low, estimate.high) == pytest.approx((2 * exact.low - 1, 2 * exact.high - 1), abs=0.06)


def test_wholly_separated_samples_are_not_certain() -> None:
    apart = [cliffs_delta(np.arange(n) + 100.0, np.arange(n) + 0.0, 0.95) for n in (4, 6, 12, 50)]
    assert all(estimate.point == 1 and estimate.high == 1 for estimate in apart)
    assert [one.low for one in apart] == pytest.approx([2 * 0.025 ** (1 / n) - 1 for n in (4, 6, 12, 50)])


def test_a_single_repetition_has_no_interval() -> None:
    estimate = cliffs_delta(np.array([2.0]), np.array([1.0]), 0.95)
    assert estimate.point == 1
    assert not estimate.has_interval


def test_within_strata_like_is_compared_with_like() -> None:
    """A platform that is always a little slower is so for every function, however far the functions are apart."""
    fast = {0: 10.0, 1: 10.1, 2: 9.9}, {0: 1000.0, 1: 1010.0, 2: 990.0}
    slow = {0: 11.0, 1: 11.1, 2: 10.9}, {0: 1100.0, 1: 1110.0, 2: 1090.0}
    within = stratified_delta([(slow[0], fast[0]), (slow[1], fast[1])], 0.95)
    pooled = cliffs_delta(
        np.array([*slow[0].values(), *slow[1].values()]), np.array([*fast[0].values(), *fast[1].values()]), 0.95
    )
    assert within.point == 1
    assert pooled.point == pytest.approx(0.5)
    assert within.n == 3


def test_copies_of_a_stratum_add_no_certainty() -> None:
    x, y = dict(enumerate(TREATMENT.tolist())), dict(enumerate(CONTROL.tolist()))
    once, often = stratified_delta([(x, y)], 0.95), stratified_delta([(x, y)] * 9, 0.95)
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_each_stratum_counts_as_much_however_many_repetitions_it_has() -> None:
    full = {0: 5.0, 1: 6.0, 2: 7.0}
    estimate = stratified_delta([(full, {0: 1.0, 1: 2.0}), (full, {0: 1.0, 1: 2.0, 2: 9.0})], 0.95)
    assert estimate.point == pytest.approx((1 + (6 - 3) / 9) / 2)
    assert estimate.n == 3


def test_a_stratum_that_one_side_lacks_changes_nothing() -> None:
    whole = ({0: 1.0, 1: 2.0, 2: 4.0}, {0: 3.0, 1: 0.0})
    assert stratified_delta([whole, ({0: 1.0}, {})], 0.95) == stratified_delta([whole], 0.95)


@pytest.mark.parametrize("n", [4, 10])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("common", [0.0, 1.0])
def test_the_interval_holds_over_strata_whose_repetitions_have_much_in_common_and_gaps(
    common: float, missing: float, n: int
) -> None:
    """What a repetition's values share is counted once, whether or not it has a value in every stratum."""
    rng, held, runs, shift = np.random.default_rng(7), 0, 600, 0.7
    truth = 2 * stats.norm.cdf(shift / np.sqrt(2 * (1 + common))) - 1
    for _ in range(runs):
        draws = rng.normal(0, 1, (2, 4, n)) + np.sqrt(common) * rng.normal(0, 1, (2, 1, n))
        draws[0] += shift
        there = rng.random(draws.shape) >= missing
        strata = [
            tuple({i: v for i, v in enumerate(draws[side, s].tolist()) if there[side, s, i]} for side in (0, 1))
            for s in range(4)
        ]
        estimate = stratified_delta(strata, 0.95)
        held += estimate.low <= truth <= estimate.high
    assert held / runs > 0.93


def test_strata_of_other_repetitions_each_are_independent_samples() -> None:
    """Their δ is a mean of two, whose variance is half that of one."""
    rng, held = np.random.default_rng(5), 0
    truth = 2 * stats.norm.cdf(0.7 / np.sqrt(2)) - 1
    for _ in range(600):
        x, y = rng.normal(0.7, 1, (2, 4)), rng.normal(0, 1, (2, 4))
        strata = [(dict(enumerate(x[s], 4 * s)), dict(enumerate(y[s], 4 * s))) for s in (0, 1)]
        estimate = stratified_delta(strata, 0.95)
        held += estimate.low <= truth <= estimate.high
    assert held / 600 > 0.93


def test_a_single_repetition_in_each_stratum_has_no_interval() -> None:
    side = {n: float(n) for n in range(20)}
    estimate = stratified_delta([({0: 3.5}, side), ({1: 4.5}, side)], 0.95)
    assert estimate.point == pytest.approx((-0.6 - 0.5) / 2)
    assert not estimate.has_interval


@pytest.mark.parametrize("seed", range(5))
def test_without_gaps_the_variance_is_that_of_the_repetitions_mean_dominance(seed: int) -> None:
    """The matrix of Cliff's definition, written out."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, (3, 8)).astype(float), rng.integers(1, 7, (3, 5)).astype(float)
    signs = np.mean([np.sign(np.subtract.outer(one, other)) for one, other in zip(x, y, strict=True)], axis=0)
    variance = sum(np.var(signs.mean(axis=axis), ddof=1) / signs.shape[1 - axis] for axis in (0, 1))
    delta = signs.mean()
    pairs = (1 - delta**2) / (0.75 * variance + 0.25 * (1 - delta**2) / 5)
    exact = stats.beta.ppf([0.025, 0.975], *zip(*_counts(delta, pairs), strict=True))
    estimate = stratified_delta([(dict(enumerate(a)), dict(enumerate(b))) for a, b in zip(x, y, strict=True)], 0.95)
    assert (estimate.point, estimate.low, estimate.high) == pytest.approx((delta, *(2 * exact - 1)))


def _counts(delta: float, pairs: float) -> list[tuple[float, float]]:
    """Clopper and Pearson's parameters of the beta distribution, of the lower bound and of the upper one."""
    greater = (1 + delta) / 2 * pairs
    return [(greater, pairs - greater + 1), (greater + 1, pairs - greater)]


def test_nothing_in_common_is_no_figure() -> None:
    assert stratified_delta([], 0.95).point is None
    assert stratified_delta([({}, {0: 1.0})], 0.95).point is None
    assert stratified_delta([({0: 1.0}, {}), ({}, {0: 1.0})], 0.95).point is None


def test_epsilon_squared_is_the_share_of_rank_variance_that_groups_explain() -> None:
    rng = np.random.default_rng(3)
    groups = [rng.normal(shift, 1, 9) for shift in (0, 0.5, 2)]
    test = kruskal_wallis(groups)
    ranks = np.split(stats.rankdata(np.concatenate(groups)), 3)
    between = sum(9 * (part.mean() - 14) ** 2 for part in ranks)
    assert test.epsilon_squared == pytest.approx(between / sum(((part - 14) ** 2).sum() for part in ranks))


def test_epsilon_squared_of_tied_groups_that_are_apart_is_one() -> None:
    test = kruskal_wallis([np.zeros(5), np.ones(5)])
    assert test.epsilon_squared == pytest.approx(1)


@pytest.mark.parametrize(("delta", "word"), [(0.1, "negligible"), (-0.25, "small"), (0.4, "medium"), (-1, "large")])
def test_a_delta_has_a_word(delta: float, word: str) -> None:
    assert magnitude(delta) == word
