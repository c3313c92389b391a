"""Steps of long series, each found from its neighbours: by simulation with known truth."""

from __future__ import annotations

import numpy as np
import pytest

from virtgauge.analysis.running_steps import LEAST, WINDOW, Values, place_p_values, running_steps, window_beside
from virtgauge.analysis.shift import mann_whitney_p


def noise(seed: int, *shape: int) -> Values:
    return np.random.default_rng(seed).standard_t(3, shape)


def exact(levels: Values) -> Values:
    places = range(LEAST, levels.size - LEAST + 1)
    windows = (window_beside(place, 0, levels.size) for place in places)
    return np.array([mann_whitney_p(levels[before].tolist(), levels[after].tolist()) for before, after in windows])


def test_each_place_has_the_p_of_the_exact_test() -> None:
    series = [noise(number, number) for number in (0, 7, 8, 9, 30, 8, 100)]
    for levels, found in zip(series, place_p_values(series), strict=True):
        assert found == pytest.approx(exact(levels))
        assert found.size == max(levels.size + 1 - 2 * LEAST, 0)


def test_where_levels_are_tied_a_small_p_is_not_too_small() -> None:
    levels = np.round(noise(4, 300))
    (found,), known = place_p_values([levels]), exact(levels)
    assert (known < 0.05).sum() > 10
    assert (found >= known * 0.999)[known < 0.05].all()
    assert running_steps([np.zeros(50)], 0.05) == [[]]


def test_steps_are_found_where_they_are_and_each_once() -> None:
    levels = np.round(noise(2, 120), 3) * 0.02
    levels[40:] += 1
    levels[80:] -= 2
    assert running_steps([levels, noise(3, 120)], 0.05) == [[39, 79], []]
    assert running_steps([], 0.05) == [] and running_steps([levels[:7]], 0.05) == [[]]


@pytest.mark.parametrize("apart", [6, 10, WINDOW])
def test_a_level_that_goes_back_after_a_few_runs_is_two_steps(apart: int) -> None:
    levels = noise(5, 60) * 0.02
    levels[30 : 30 + apart] += 1
    assert running_steps([levels], 0.05) == [[29, 29 + apart]]


def test_a_change_is_found_a_few_runs_after_it() -> None:
    levels = noise(6, 40) * 0.02
    levels[30:] += 1
    assert [running_steps([levels[:length]], 0.05) for length in (32, 36, 40)] == [[[]], [[29]], [[29]]]


def test_series_that_do_not_change_seldom_have_steps() -> None:
    """Of 400 such archives at most one in twenty, and a bit for chance."""
    wrong = sum(any(running_steps([*noise(seed, 20, 60)], 0.05)) for seed in range(400))
    assert wrong <= 30


def test_of_the_steps_that_are_found_at_most_the_level_is_false() -> None:
    false = all_found = 0
    for seed in range(60):
        series = [*(noise(seed, 40, 60) * 0.1)]
        for changing in series[:10]:
            changing[30:] += 0.5
        found = running_steps(series, 0.05)
        all_found += sum(map(len, found))
        false += sum(abs(place - 29) > LEAST for own in found[:10] for place in own) + sum(map(len, found[10:]))
    assert all_found > 550
    assert false <= 0.05 * all_found
