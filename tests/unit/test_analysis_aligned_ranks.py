"""The aligned rank transform against statsmodels, and what it finds in data with a known interaction.

When it was written it also gave the F ratios that R's ARTool is tested with, for Tables 1 and 5 of Higgins, Blair &
Tashtoush (1990): 29.9925, 77.8668 and 0.6417; 23.8326, 122.4017 and 5.1180 (split plot).
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.anova import AnovaRM

from virtgauge.analysis.aligned_ranks import align, aligned_rank_anova, anova


def design(shape: tuple[int, ...], effects: list[tuple[int, ...]], units: np.ndarray | None = None) -> np.ndarray:
    """A model's columns: deviations from the mean for each factor, their products, and dummies of the units."""
    places = np.array(list(itertools.product(*map(range, shape))))
    columns = [np.ones((len(places), 1))]
    for effect in effects:
        product = np.ones((len(places), 1))
        for axis in effect:
            sums = np.vstack([np.eye(shape[axis] - 1), -np.ones(shape[axis] - 1)])[places[:, axis]]
            product = (product[:, :, None] * sums[:, None, :]).reshape(len(places), -1)
        columns.append(product)
    if units is not None:
        columns.append((units[:, None] == np.unique(units)[None, 1:]).astype(float))
    return np.hstack(columns)


def effects_of(factors: int) -> list[tuple[int, ...]]:
    return [part for size in range(1, factors + 1) for part in itertools.combinations(range(factors), size)]


def every_factor(values: np.ndarray) -> range:
    """Between units: each value is from one of its own."""
    return range(values.ndim - 1)


def ranks_by_models(values: np.ndarray, effect: tuple[int, ...]) -> np.ndarray:
    """Alignment in its other definition: what the model of all effects *but* this one leaves."""
    others = [other for other in effects_of(values.ndim - 1) if other != effect]
    # Rounded, for the two ways of aligning leave different rounding errors where values tie.
    return stats.rankdata(OLS(values.ravel(), design(values.shape, others)).fit().resid.round(8))


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (4, 2, 6), (2, 3, 2, 3), (3, 2, 2, 4)])
def test_independent_units_agree_with_models_aligned_and_compared_by_statsmodels(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(sum(shape)).lognormal(2, 0.8, shape)
    effects = effects_of(len(shape) - 1)
    for ours in aligned_rank_anova(values, every_factor(values)):
        ranks = ranks_by_models(values, ours.factors)
        full = OLS(ranks, design(shape, effects)).fit()
        without = OLS(ranks, design(shape, [effect for effect in effects if effect != ours.factors])).fit()
        f, p, df = full.compare_f_test(without)
        assert ours.f == pytest.approx(f)
        assert ours.p == pytest.approx(p)
        assert (ours.df, ours.df_error) == (df, full.df_resid)


def test_units_measured_in_every_cell_agree_with_statsmodels() -> None:
    values = np.random.default_rng(5).lognormal(0, 1, (4, 7)) + np.random.default_rng(6).normal(0, 3, 7)
    (effect,) = aligned_rank_anova(values, between=())
    ranks = stats.rankdata(align(values, (0,))).reshape(values.shape)
    rows = [{"a": a, "unit": unit, "value": ranks[a, unit]} for a, unit in itertools.product(range(4), range(7))]
    theirs = AnovaRM(pd.DataFrame(rows), "value", "unit", within=["a"]).fit().anova_table.iloc[0]
    assert effect.df_error == theirs["Den DF"]
    assert effect.f == pytest.approx(theirs["F Value"])


def test_each_effect_within_units_has_the_error_of_its_own_as_statsmodels_has() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, (2, 3, 7)) + rng.normal(0, 3, (2, 1, 7)) + rng.normal(0, 2, (1, 3, 7))
    places = itertools.product(range(2), range(3), range(7))
    rows = [{"a": a, "b": b, "unit": unit, "value": values[a, b, unit]} for a, b, unit in places]
    theirs = AnovaRM(pd.DataFrame(rows), "value", "unit", within=["a", "b"]).fit().anova_table
    for ours, (_, row) in zip(anova(values, between=()), theirs.iterrows(), strict=True):
        assert ours.f == pytest.approx(row["F Value"])
        assert (ours.df, ours.df_error) == (row["Num DF"], row["Den DF"])


def test_a_split_plot_agrees_with_statsmodels() -> None:
    """Platform between guests, function within: the guests' own differences are the error of the platform."""
    rng = np.random.default_rng(8)
    values = rng.normal(0, 1, (3, 4, 5)) + rng.normal(0, 2, (3, 1, 5)) + np.arange(3)[:, None, None]
    ours = {effect.factors: effect for effect in aligned_rank_anova(values, between=(0,))}
    guests = np.array([a * 100 + unit for a, _, unit in itertools.product(range(3), range(4), range(5))])
    for factors in ((1,), (0, 1)):
        ranks = ranks_by_models(values, factors)
        full = OLS(ranks, design(values.shape, [(1,), (0, 1)], guests)).fit()
        without = OLS(ranks, design(values.shape, [{(1,): (0, 1), (0, 1): (1,)}[factors]], guests)).fit()
        f, _, df = full.compare_f_test(without)
        assert ours[factors].f == pytest.approx(f)
        assert (ours[factors].df, ours[factors].df_error) == (df, full.df_resid) == (df, 36)
    means = ranks_by_models(values, (0,)).reshape(values.shape).mean(axis=1)
    theirs = OLS(means.ravel(), design((3, 5), [(0,)])).fit()
    assert ours[0,].f == pytest.approx(theirs.fvalue)
    assert ours[0,].df_error == theirs.df_resid == 12


def epsilon_of(guests: np.ndarray, *levels: int) -> float:
    """Greenhouse and Geisser's, of shape (platforms, guests, cells), by the eigenvalues of contrasts' covariance."""
    contrasts = functools.reduce(np.kron, map(linalg.helmert, levels))
    eigenvalues = np.linalg.eigvalsh(sum(np.cov(contrasts @ platform.T) for platform in guests))
    return eigenvalues.sum() ** 2 / (len(eigenvalues) * (eigenvalues**2).sum())


def test_effects_within_units_are_corrected_as_published() -> None:
    """Winer's table 7.13, noise between persons, periods and dials within, with the ε of Stata's manual ([R] anova)."""
    persons = np.array(
        [
            [
                [45, 53, 60, 40, 52, 57, 28, 37, 46],
                [35, 41, 50, 30, 37, 47, 25, 32, 41],
                [60, 65, 75, 58, 54, 70, 40, 47, 50],
            ],
            [
                [50, 48, 61, 25, 34, 51, 16, 23, 35],
                [42, 45, 55, 30, 37, 43, 22, 27, 37],
                [56, 60, 77, 40, 39, 57, 31, 29, 46],
            ],
        ],
        dtype=float,
    )
    cells = persons.reshape(2, 3, 3, 3)
    effects = {effect.factors: effect for effect in anova(np.moveaxis(cells, 1, -1), between=(0,))}
    published = {
        (1,): (0.6476, epsilon_of(cells.mean(axis=3), 3)),
        (2,): (0.9171, epsilon_of(cells.mean(axis=2), 3)),
        (1, 2): (0.5134, epsilon_of(persons, 3, 3)),
    }
    for within, (rounded, epsilon) in published.items():
        assert epsilon == pytest.approx(rounded, abs=5e-5)
        for ours in (effects[within], effects[0, *within]):
            assert ours.p == pytest.approx(stats.f.sf(ours.f, epsilon * ours.df, epsilon * ours.df_error))
    assert effects[1,].f == pytest.approx(63.39, abs=5e-3)
    assert effects[0, 1].p == pytest.approx(0.0569, abs=5e-5)


def test_two_units_differ_in_one_direction_alone() -> None:
    """ε is then the least that it can be, 1 / df; ranks are corrected as values are."""
    values = np.random.default_rng(9).normal(0, 1, (4, 3, 2)) + np.arange(3)[:, None]
    for ours in (*aligned_rank_anova(values, between=()), *anova(values, between=())):
        assert ours.p == pytest.approx(stats.f.sf(ours.f, 1, 1))


@pytest.mark.parametrize("effect", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_alignment_leaves_nothing_of_the_other_effects(effect: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).lognormal(3, 1, (2, 3, 4, 3))
    aligned = align(values, effect)
    for other in [(0,), (1,), (2,)]:
        if other != effect:
            means = aligned.mean(axis=tuple(axis for axis in range(4) if axis not in other))
            assert means == pytest.approx(np.zeros_like(means), abs=1e-8)


def test_an_interaction_is_found_and_its_absence_is_not() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 0.3, (2, 3, 6))
    additive = noise + np.array([0, 5])[:, None, None] + np.array([0, 2, 9])[None, :, None]
    crossing = noise + np.array([[0, 2, 4], [4, 2, 0]])[:, :, None]
    assert aligned_rank_anova(additive, every_factor(additive))[2].p > 0.05
    assert aligned_rank_anova(additive, every_factor(additive))[0].p < 1e-6
    assert aligned_rank_anova(crossing, every_factor(crossing))[2].p < 1e-6
    assert aligned_rank_anova(crossing, every_factor(crossing))[0].p > 0.05


def test_p_values_are_even_where_nothing_is_there() -> None:
    rng = np.random.default_rng(12)
    runs = [rng.exponential(1, (2, 3, 5)) for _ in range(600)]
    p = np.array([[effect.p for effect in aligned_rank_anova(run, every_factor(run))] for run in runs])
    shares = (p < 0.05).mean(axis=0)
    assert (abs(shares - 0.05) < 0.03).all()


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 6), (2, 3, 2, 3)])
def test_the_ordinary_analysis_agrees_with_statsmodels(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(3).lognormal(2, 0.8, shape)
    effects = effects_of(len(shape) - 1)
    for ours in anova(values, every_factor(values)):
        full = OLS(values.ravel(), design(shape, effects)).fit()
        without = OLS(values.ravel(), design(shape, [effect for effect in effects if effect != ours.factors])).fit()
        f, p, _ = full.compare_f_test(without)
        assert (ours.f, ours.p) == pytest.approx((f, p))


def test_unequal_spread_deceives_the_ranks_but_not_both_analyses_together() -> None:
    rng, spread = np.random.default_rng(14), np.array([1, 1, 10.0])[None, :, None]
    runs = [rng.normal(0, 1, (4, 3, 6)) * spread for _ in range(400)]
    by_ranks = np.array([[effect.p for effect in aligned_rank_anova(run, every_factor(run))] for run in runs])
    both = np.maximum(by_ranks, [[effect.p for effect in anova(run, every_factor(run))] for run in runs])
    assert ((by_ranks < 0.05).mean(axis=0) > 0.1).any()
    assert ((both < 0.05).mean(axis=0) < 0.14).all()


def test_unequal_spread_within_units_does_not_deceive_both_analyses() -> None:
    """Without the correction they find an interaction in a tenth of these runs."""
    rng, spread = np.random.default_rng(15), np.array([1, 1, 5.0])[None, :, None]
    runs = [rng.normal(0, 1, (4, 3, 10)) * spread + rng.normal(0, 1, 10) for _ in range(400)]
    both = [max(one(run, (), [(0, 1)])[0].p for one in (aligned_rank_anova, anova)) for run in runs]
    assert np.mean(np.array(both) < 0.05) < 0.06


def test_guests_that_differ_do_not_make_a_platform_effect() -> None:
    """Four values of one guest are no four guests: taken for independent they prove far too much."""
    rng = np.random.default_rng(13)
    runs = [rng.normal(0, 0.1, (2, 4, 4)) + rng.normal(0, 1, (2, 1, 4)) for _ in range(300)]
    assert np.mean([aligned_rank_anova(run, every_factor(run))[0].p < 0.05 for run in runs]) > 0.3
    assert abs(np.mean([aligned_rank_anova(run, between=(0,))[0].p < 0.05 for run in runs]) - 0.05) < 0.035


def test_repetitions_that_all_tie_are_certain_and_equal_values_show_nothing() -> None:
    tied = np.zeros((2, 2, 3)) + np.array([0.0, 1.0])[:, None, None]
    main, other, both = aligned_rank_anova(tied, every_factor(tied))
    assert (main.f, main.p) == (float("inf"), 0.0)
    assert (other.f, other.p) == (both.f, both.p) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.ones((2, 2, 1)), "single value"),
        (np.ones((1, 3, 4)), "two levels"),
        (np.full((2, 2, 3), np.nan), "lacks a value"),
        (np.ones((2, 2, 2, 2, 3)), "factors"),
        (np.ones(5), "factors"),
    ],
)
def test_what_is_no_balanced_design_is_refused(values: np.ndarray, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        aligned_rank_anova(values, every_factor(values))
