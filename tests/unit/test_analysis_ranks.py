"""Kruskal–Wallis, Dunn and Holm against published examples, SciPy and scikit-posthocs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from virtgauge.analysis.ranks import (
    dunn,
    holm,
    kruskal_wallis,
    least_attainable_dunn_p,
    least_attainable_p,
    midranks,
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


@settings(deadline=None, max_examples=20)
@given(some_groups)
def test_dunn_with_holm_agrees_with_scikit_posthocs(groups: list[np.ndarray]) -> None:
    frame = long_form(groups)
    plain = scikit_posthocs.posthoc_dunn(frame, "value", "group")
    adjusted = scikit_posthocs.posthoc_dunn(frame, "value", "group", p_adjust="holm")
    for pair in dunn(groups):
        assert pair.p == pytest.approx(plain.iloc[pair.first, pair.second], rel=1e-6, abs=1e-12)
        assert pair.p_holm == pytest.approx(adjusted.iloc[pair.first, pair.second], rel=1e-6, abs=1e-12)


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


def test_dunns_least_p_is_that_of_the_two_ends() -> None:
    groups = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    assert least_attainable_dunn_p((2, 2, 2), 0, 2) == pytest.approx(dunn(groups)[1].p)
