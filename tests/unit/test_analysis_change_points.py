"""Change points are found where they are, and seldom where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from virtgauge.analysis.change_points import LIMIT, candidate, candidate_of, segments, step_limit

pytestmark = pytest.mark.slow

LEVEL, PERMUTATIONS = 0.05, 999


def series(rng: np.random.Generator, levels: list[float], repetitions: int = 6) -> list[np.ndarray]:
    return [level + rng.gumbel(0, 0.05, repetitions) for level in levels]


@pytest.mark.parametrize(("runs", "repetitions"), [(4, 6), (6, 6), (12, 3), (20, 1)])
def test_a_constant_series_raises_an_alarm_as_often_as_the_level_says(runs: int, repetitions: int) -> None:
    alarms = [
        candidate(series(np.random.default_rng([seed, runs]), [0.0] * runs, repetitions), 1, PERMUTATIONS).p <= LEVEL
        for seed in range(1000)
    ]
    assert abs(np.mean(alarms) - LEVEL) < 4 * math.sqrt(LEVEL * (1 - LEVEL) / 1000)


@pytest.mark.parametrize("after", [0, 2, 6])
def test_a_step_is_found_within_one_run_of_where_it_is(after: int) -> None:
    levels = [0.0] * (after + 1) + [0.2] * (7 - after)
    found = [segments(series(np.random.default_rng(seed), levels), LEVEL, 1, PERMUTATIONS) for seed in range(200)]
    near = [any(abs(cut - after) <= 1 for cut in cuts) for cuts in found]
    assert np.mean(near) > 0.95
    assert np.mean([len(cuts) == 1 for cuts in found]) > 0.85


def test_a_lone_run_that_differs_is_cut_out_on_both_sides() -> None:
    levels = [0.0, 0.0, 0.0, 0.15, 0.0, 0.0, 0.0]
    found = [segments(series(np.random.default_rng(seed), levels), LEVEL, 1, PERMUTATIONS) for seed in range(100)]
    assert np.mean([cuts[:2] == (2, 3) for cuts in found]) > 0.9


def test_two_steps_are_both_found() -> None:
    levels = [0.0] * 4 + [0.2] * 4 + [0.4] * 4
    found = [segments(series(np.random.default_rng(seed), levels), LEVEL, 1, PERMUTATIONS) for seed in range(50)]
    assert np.mean([{3, 7} <= set(cuts) for cuts in found]) > 0.9


def test_the_same_seed_gives_the_same_p_and_no_p_is_zero() -> None:
    groups = series(np.random.default_rng(1), [0.0, 0.0, 1.0, 1.0])
    first, again = (candidate(groups, 7, PERMUTATIONS) for _ in range(2))
    assert first == again
    assert first.p == 1 / (PERMUTATIONS + 1)
    assert (first.start, first.stop) == (0, 2)
    assert first.cuts(4) == [1]


def test_values_that_are_all_alike_have_no_change() -> None:
    assert candidate([np.ones(3)] * 5, 1, PERMUTATIONS).p == 1
    assert segments([np.ones(3)] * 5, LEVEL, 1, PERMUTATIONS) == ()


def test_tied_values_keep_the_level() -> None:
    rng = np.random.default_rng(9)
    alarms = [candidate([rng.poisson(1, 5).astype(float) for _ in range(5)], 1, 499).p <= LEVEL for _ in range(400)]
    assert np.mean(alarms) < LEVEL + 4 * math.sqrt(LEVEL * (1 - LEVEL) / 400)


@pytest.mark.parametrize("groups", [[np.ones(2)], [np.ones(2), np.ones(0)], [np.ones(2), np.array([math.nan])]])
def test_what_cannot_be_a_series_is_refused(groups: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"needs at least|no rank"):
        candidate(groups, 1, PERMUTATIONS)


def test_the_limit_is_a_number_of_standard_deviations_of_single_runs_and_no_step_moves_it() -> None:
    rng = np.random.default_rng(3)
    levels = rng.normal(0, 0.02, 4000)
    assert step_limit(levels.tolist(), 1, 10**9) == pytest.approx(0.09, rel=0.05)
    stepped = np.where(np.arange(4000) < 2000, levels, levels + 5)
    assert step_limit(stepped.tolist(), 1, 10**9) == pytest.approx(0.09, rel=0.05)
    assert step_limit(levels.tolist(), 4, 4) == pytest.approx(0.09 / math.sqrt(2), rel=0.05)
    with pytest.raises(ValueError, match="three runs"):
        step_limit([1.0, 2.0], 1, 1)


@pytest.mark.parametrize("runs", [4, 5, 8, 20, 50])
def test_days_that_vary_exceed_the_limit_anywhere_in_one_of_twenty_series(runs: int) -> None:
    rng = np.random.default_rng(runs)
    exceeded = []
    for _ in range(400):
        levels = rng.normal(0, 1, runs)
        sums = np.concatenate([[0], np.cumsum(levels)])
        start, stop = np.triu_indices(runs + 1, 1)
        size = stop - start
        proper = size < runs
        start, stop, size = start[proper], stop[proper], size[proper]
        within = (sums[stop] - sums[start]) / size
        rest = (sums[-1] - sums[stop] + sums[start]) / (runs - size)
        apart = np.abs(within - rest) / np.sqrt(1 / size + 1 / (runs - size))
        exceeded.append(apart.max() > step_limit(levels.tolist(), 1, 10**12))
    assert LIMIT == 4.5
    assert 0.005 < np.mean(exceeded) < 0.09


@pytest.mark.parametrize("places", [8, 12, 24])
def test_several_series_that_do_not_change_raise_an_alarm_as_often_as_one(places: int) -> None:
    """Three that have half of their variance in common, with ties and with heavy tails: 3.5, 4.5 and 5.8 % of 400."""
    alarms = []
    for seed in range(400):
        rng = np.random.default_rng([seed, places])
        drawn = rng.normal(size=places) + rng.normal(size=(3, places))
        of_all = [drawn[0], np.round(drawn[1]), np.exp(1.5 * drawn[2])]
        alarms.append(candidate_of(of_all, places, seed, PERMUTATIONS)[1].p <= LEVEL)
    assert np.mean(alarms) < LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / 400)


@pytest.mark.parametrize("scatter", [0.0, 0.01])
def test_a_series_that_halves_after_four_of_twelve_is_found_among_others_that_do_not(scatter: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        halves = np.repeat([2.0, 1.0], [4, 8]) * (1 + scatter * rng.normal(size=12))
        index, found = candidate_of([rng.normal(size=12), halves, rng.normal(size=12)], 12, seed, PERMUTATIONS)
        assert (index, found.start, found.stop) == (1, 0, 4)
        assert found.p <= 0.04
