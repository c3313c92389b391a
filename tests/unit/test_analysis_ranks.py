"""Kruskal–Wallis, Friedman, Dunn and Holm against published examples, SciPy and scikit-posthocs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from virtgauge.analysis.ranks import (
    _chances_of_difference,
    dunn,
    holm,
    kruskal_wallis,
    least_attainable_dunn_p,
    least_attainable_p,
    midranks,
    ranks_within_units,
    unit_ranks,
)

# M. Hollander & D. A. Wolfe (1973), Nonparametric Statistical Methods, p. 115: mucociliary efficiency; the example
# of R's kruskal.test, which prints H = 0.77143, df = 2, p = 0.68.
MUCOCILIARY = [
    np.array([2.9, 3.0, 2.5, 2.6, 3.2]),
    np.array([3.8, 2.7, 4.0, 2.4]),
    np.array([2.8, 3.4, 3.7, 2.2, 2.0]),
]
# J. H. Zar, Biostatistical Analysis: pH of four ponds, with ties.  UniStat's guide prints Dunn's p with Bonferroni's
# adjustment for this example, and R's FSA is tested against it.
PONDS = [
    np.array([7.68, 7.69, 7.70, 7.70, 7.72, 7.73, 7.73, 7.76]),
    np.array([7.71, 7.73, 7.74, 7.74, 7.78, 7.78, 7.80, 7.81]),
    np.array([7.74, 7.75, 7.77, 7.78, 7.80, 7.81, 7.84]),
    np.array([7.71, 7.71, 7.74, 7.79, 7.81, 7.85, 7.87, 7.91]),
]
PONDS_BONFERRONI = {(0, 1): 0.1956, (0, 2): 0.0191, (1, 2): 1.0, (0, 3): 0.0166, (1, 3): 1.0, (2, 3): 1.0}

some_groups = st.lists(
    st.lists(st.integers(0, 12).map(float), min_size=2, max_size=9).map(np.array), min_size=2, max_size=5
).filter(lambda groups: len(np.unique(np.concatenate(groups))) > 1)


def long_form(groups: list[np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame(
        {"value": np.concatenate(groups), "group": np.repeat(range(len(groups)), [len(group) for group in groups])}
    )


def test_hollander_and_wolfes_example_comes_out_as_r_prints_it() -> None:
    test = kruskal_wallis(MUCOCILIARY)
    assert round(test.h, 5) == 0.77143
    assert test.df == 2
    assert round(test.p, 2) == 0.68
    assert test.n == 14


def test_zars_ponds_come_out_as_published() -> None:
    for pair in dunn(PONDS):
        assert round(min(1.0, 6 * pair.p), 4) == PONDS_BONFERRONI[pair.first, pair.second]


@settings(deadline=None, max_examples=60)
@given(some_groups)
def test_kruskal_wallis_agrees_with_scipy_whatever_the_ties(groups: list[np.ndarray]) -> None:
    test, theirs = kruskal_wallis(groups), stats.kruskal(*groups)
    assert test.h == pytest.approx(theirs.statistic)
    assert test.p == pytest.approx(theirs.pvalue)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(some_groups)
def test_dunn_with_holm_agrees_with_scikit_posthocs(groups: list[np.ndarray]) -> None:
    frame = long_form(groups)
    plain = scikit_posthocs.posthoc_dunn(frame, "value", "group")
    adjusted = scikit_posthocs.posthoc_dunn(frame, "value", "group", p_adjust="holm")
    for pair in dunn(groups):
        assert pair.p == pytest.approx(plain.iloc[pair.first, pair.second], rel=1e-6, abs=1e-12)
        assert pair.p_holm == pytest.approx(adjusted.iloc[pair.first, pair.second], rel=1e-6, abs=1e-12)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_agrees_with_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


@given(st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=30))
def test_midranks_agree_with_scipy(values: list[float]) -> None:
    assert midranks(np.array(values)).tolist() == stats.rankdata(values).tolist()


def test_the_sign_of_z_says_which_group_ranks_higher() -> None:
    (pair,) = dunn([np.array([5.0, 6.0, 7.0]), np.array([1.0, 2.0, 3.0])])
    assert pair.z > 0


def test_equal_values_differ_in_nothing() -> None:
    groups = [np.zeros(4), np.zeros(3)]
    assert kruskal_wallis(groups).p == 1
    assert dunn(groups)[0].p == 1


@pytest.mark.parametrize("groups", [[], [np.ones(3)], [np.ones(3), np.empty(0)], [np.ones(2), np.array([1, np.nan])]])
def test_what_cannot_be_ranked_is_refused(groups: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"group|rank"):
        kruskal_wallis(groups)
    with pytest.raises(ValueError, match=r"group|rank"):
        dunn(groups)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (2, 3), (2, 4), (1, 5), (2, 2, 2), (3, 3, 2)])
def test_no_data_has_a_smaller_exact_p_than_the_least_attainable(sizes: tuple[int, ...]) -> None:
    """By going through every way to deal the ranks out."""
    n = sum(sizes)
    found: list[float] = []
    for order in set(itertools.permutations([place for place, size in enumerate(sizes) for _ in range(size)])):
        ranks = [
            np.array([1.0 + at for at, group in enumerate(order) if group == place]) for place in range(len(sizes))
        ]
        found.append(round(kruskal_wallis(ranks).h, 9))
    exact = found.count(max(found)) / len(found)
    assert len(found) == math.factorial(n) // math.prod(math.factorial(size) for size in sizes)
    assert least_attainable_p(sizes) <= exact + 1e-12
    if len(set(sizes)) == 1:
        assert least_attainable_p(sizes) == pytest.approx(exact)


def test_three_against_three_cannot_reach_five_per_cent_though_the_approximation_does() -> None:
    apart = [np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])]
    assert kruskal_wallis(apart).p < 0.05
    assert least_attainable_p((3, 3)) == pytest.approx(0.1)
    assert least_attainable_p((6,) * 200) == 0 == least_attainable_p((6,) * 200, blocked=True)  # beyond any number
    assert least_attainable_p((1,) * 200) == 1


@pytest.mark.parametrize(
    ("first", "second", "p"), [((1, 2, 3, 4), (5, 6, 7, 8), 2 / 70), ((1, 2, 3, 5), (4, 6, 7, 8), 4 / 70)]
)
def test_the_exact_p_of_two_groups(first: tuple[float, ...], second: tuple[float, ...], p: float) -> None:
    """χ² has 0.021 and 0.043."""
    groups = [np.array(first), np.array(second)]
    assert kruskal_wallis(groups).p < 0.05
    assert kruskal_wallis(groups, exact=True).p == pytest.approx(p)
    assert dunn(groups, exact=True)[0].p == pytest.approx(p)
    assert least_attainable_dunn_p((4, 4), 0, 1, exact=True) == pytest.approx(2 / 70)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 4).map(float), min_size=1, max_size=3), min_size=2, max_size=3))
def test_the_exact_p_of_a_pair_goes_through_every_way_to_deal_out_ties(values: list[list[float]]) -> None:
    """To all groups, of which two are looked at; of two groups it is the p of Kruskal–Wallis."""
    groups = [np.array(one) for one in values]
    ranks, sizes = midranks(np.concatenate(groups)), [one.size for one in groups]
    for pair in dunn(groups, exact=True):
        n, first = sizes[pair.first], sum(sizes[: pair.first])
        m, second = sizes[pair.second], sum(sizes[: pair.second])
        own = abs(ranks[first : first + n].mean() - ranks[second : second + m].mean())
        far = [
            abs(sum(ranks[place] for place in one) / n - sum(ranks[place] for place in other) / m)
            for one in itertools.combinations(range(ranks.size), n)
            for other in itertools.combinations({*range(ranks.size)} - {*one}, m)
        ]
        assert pair.p == pytest.approx(np.mean(np.array(far) >= own - 1e-9))
        if len(groups) == 2:
            assert kruskal_wallis(groups, exact=True).p == pytest.approx(pair.p)


def test_few_values_of_three_groups_have_no_pair_that_only_the_normal_distribution_sees() -> None:
    groups = [np.array(one) for one in ((5.0, 7.0, 8.0, 12.0), (1.0, 2.0, 3.0, 6.0), (4.0, 9.0, 10.0, 11.0))]
    assert dunn(groups)[0].p < 0.05 < dunn(groups, exact=True)[0].p
    many = [np.repeat(group, 4) + np.tile([0.1, 0.2, 0.3, 0.4], 4) for group in groups]
    assert dunn(many, exact=True) == dunn(many)


def test_dunns_least_p_is_that_of_the_two_ends() -> None:
    groups = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    assert least_attainable_dunn_p((2, 2, 2), 0, 2) == pytest.approx(dunn(groups)[1].p)
    assert least_attainable_dunn_p((2, 2, 2), 0, 2, exact=True) == pytest.approx(dunn(groups, exact=True)[1].p)


def dealt(levels: int, blocks: int) -> Iterator[list[np.ndarray]]:
    """Every way to deal the ranks out within each block, as groups."""
    for orders in itertools.product(itertools.permutations(range(levels)), repeat=blocks):
        yield list(np.array(orders, dtype=float).T)


@pytest.mark.parametrize("decimals", [0, 6])
def test_blocked_it_is_friedmans_test_as_scipy_has_it(decimals: int) -> None:
    groups = list(np.random.default_rng(4).normal(0, 2, (4, 9)).round(decimals))
    test, theirs = kruskal_wallis(groups, blocked=True), stats.friedmanchisquare(*groups)
    assert (test.h, test.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert test.epsilon_squared == pytest.approx(theirs.statistic / (9 * 3))  # Kendall's W


def test_two_groups_in_blocks_are_the_exact_sign_test() -> None:
    first = np.arange(9.0)
    second = first + np.array([1, 1, 1, 1, 1, 1, 1, -1, 0])  # a tie says nothing
    p = stats.binomtest(1, 8).pvalue
    assert kruskal_wallis([first, second], blocked=True).p == pytest.approx(p)
    assert dunn([first, second], blocked=True)[0].p == pytest.approx(p)


@pytest.mark.slow
def test_the_p_of_three_groups_in_blocks_is_its_share_of_all_ways_to_deal_the_ranks_out() -> None:
    """χ² finds 6 % of twelve blocks below 5 %."""
    ways = [kruskal_wallis(groups, blocked=True).p for groups in dealt(3, 4)]
    for p in set(ways):
        assert np.mean(np.array(ways) <= p * (1 + 1e-9)) == pytest.approx(p)
    assert sorted({round(p, 4) for p in ways})[:3] == [0.0046, 0.0417, 0.0694]  # as Friedman's own tables have it


def test_three_groups_in_more_blocks_than_can_be_dealt_out_have_the_p_of_friedmans_approximation() -> None:
    """A plan may have 10,000 repetitions, of which the ways to deal out the ranks would take 29 GB."""
    groups = list(np.random.default_rng(4).normal(0, 1, (3, 101)))
    assert kruskal_wallis(groups, blocked=True).p == pytest.approx(stats.friedmanchisquare(*groups).pvalue)


@pytest.mark.parametrize("blocks", [101, 400])
def test_two_groups_in_many_blocks_are_the_exact_sign_test(blocks: int) -> None:
    """Of more than a hundred it is found by transforms: no p is below what data can have."""
    first = np.arange(float(blocks))
    for less in (blocks // 2, blocks // 2 - 15, blocks // 3, 0):
        second = first + np.where(np.arange(blocks) < less, -0.5, 0.5)
        p, least = stats.binomtest(less, blocks).pvalue, least_attainable_p((blocks, blocks), blocked=True)
        found = kruskal_wallis([first, second], blocked=True).p
        assert found == pytest.approx(p, rel=1e-6, abs=1e-12)
        assert found >= least * (1 - 1e-9)


@pytest.mark.parametrize(("levels", "values"), [(2, 2), (3, 1000), (5, 3), (9, 1000)])
@pytest.mark.parametrize("apart", [60, 290])
def test_transforms_find_what_dealing_every_block_out_does(
    levels: int, values: int, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ties and without; of 300 blocks, whose differences may be wider than chance ever makes them."""
    groups = list(np.random.default_rng(levels).integers(0, values, (levels, 300)).astype(float))
    groups[-1][:apart] += values
    transformed = [pair.p for pair in dunn(groups, blocked=True)]
    monkeypatch.setattr("virtgauge.analysis.ranks._MOST_DEALT", 300)
    _chances_of_difference.cache_clear()
    assert transformed == pytest.approx([pair.p for pair in dunn(groups, blocked=True)], rel=1e-9, abs=1e-13)


def test_ties_within_many_blocks_count_as_within_few() -> None:
    rng = np.random.default_rng(2)
    groups = list(rng.integers(0, 3, (4, 101)).astype(float))
    many = dunn(groups, blocked=True)
    normal = [float(2 * stats.norm.sf(abs(pair.z))) for pair in many]
    assert [pair.p for pair in many] == pytest.approx(normal, abs=0.03)


def test_the_p_of_a_pair_in_blocks_is_its_share_of_all_ways_to_deal_the_ranks_out() -> None:
    ways = [pair.p for groups in dealt(3, 3) for pair in dunn(groups, blocked=True)[:1]]
    for p in set(ways):
        assert np.mean(np.array(ways) <= p * (1 + 1e-9)) == pytest.approx(p)
    assert min(ways) == pytest.approx(least_attainable_dunn_p((3, 3, 3), 0, 1, blocked=True))


@pytest.mark.parametrize(("levels", "blocks"), [(2, 5), (3, 3)])
def test_no_blocks_have_a_smaller_exact_p_than_the_least_attainable(levels: int, blocks: int) -> None:
    found = [round(kruskal_wallis(groups, blocked=True).h, 9) for groups in dealt(levels, blocks)]
    share = np.mean(np.array(found) == max(found))
    assert least_attainable_p((blocks,) * levels, blocked=True) == pytest.approx(share)


def test_blocks_that_are_not_whole_are_refused() -> None:
    with pytest.raises(ValueError, match="a value of every group"):
        kruskal_wallis([np.arange(3.0), np.arange(4.0)], blocked=True)


def test_a_unit_that_lacks_a_level_in_every_cell_is_no_block() -> None:
    first, second = {"a": {1: 1.0, 2: 2.0}, "b": {1: 3.0}}, {"a": {1: 2.0, 2: 1.0}}
    ranks = ranks_within_units([[first, first], [second, {"a": {1: 0.0}}]])
    assert [sorted(one.tolist()) for one in ranks] == [[1.5, 2.0], [1.0, 1.5]]


def test_guests_of_the_same_ranks_in_other_cells_tie() -> None:
    """As shares 0.2 + 0.4 + 0.6 and 0.4 + 0.6 + 0.2 differ in their last digit."""
    first = [{"a": {1: 1.0, 2: 2.0}}, {"a": {1: 2.0, 2: 3.0}}, {"a": {1: 3.0, 2: 1.0}}]
    second = [{"b": {1: 3.0, 2: 4.0}}, {"b": {1: 1.0, 2: 4.0}}, {"b": {1: 2.0, 2: 4.0}}]
    (a, b), (c, _) = unit_ranks([first, second])
    assert a == b == c
