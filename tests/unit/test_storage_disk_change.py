"""Whether a disk became another one: not because it is restless, but because it is slower or faster than before."""

from __future__ import annotations

import numpy as np
import pytest

from virtgauge.analysis.resources import disk_changed

pytestmark = pytest.mark.slow

BURSTS = 10


def share_changed(factor: float, sigma: float, *, trials: int = 2000) -> float:
    """Of pairs of probes of a disk whose bursts are lognormal, how many are told apart."""
    random = np.random.default_rng(20)
    before = 2500 * np.exp(sigma * random.standard_normal((trials, BURSTS)))
    after = factor * 2500 * np.exp(sigma * random.standard_normal((trials, BURSTS)))
    found = [disk_changed(list(one), list(other)) for one, other in zip(before, after, strict=True)]
    return sum(found) / trials


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1.5])
def test_a_restless_disk_is_the_same_disk(sigma: float) -> None:
    assert share_changed(1.0, sigma) <= 0.002


@pytest.mark.parametrize("factor", [1 / 4, 4.0])
def test_a_disk_four_times_as_fast_or_slow_is_another_one(factor: float) -> None:
    assert share_changed(factor, 0.1, trials=200) == 1
    assert share_changed(factor, 0.5) > 0.8


def test_what_does_not_matter_is_no_change_however_certain_it_is() -> None:
    assert share_changed(1.9, 0.01, trials=200) == 0
    assert share_changed(2.1, 0.01, trials=200) == 1


def test_equal_bursts_tell_a_change_too() -> None:
    assert disk_changed([120.0] * BURSTS, [400.0] * BURSTS)
    assert not disk_changed([120.0] * BURSTS, [120.0] * BURSTS)


def test_one_stall_of_the_whole_disk_is_no_change() -> None:
    steady = [2400.0, 2500.0, 2450.0, 2550.0, 2600.0, 2350.0, 2500.0, 2480.0, 2520.0, 2510.0]
    stalled = [5.0, 4.0, 6.0, *steady[3:]]
    assert not disk_changed(steady, stalled)
