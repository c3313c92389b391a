"""A change is called one when it is, no difference is a finding of its own, and what is open says what would decide."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from virtgauge.analysis.shift import (
    Bounds,
    Outcome,
    benjamini_hochberg,
    judge,
    paired_shifted,
    shifted,
    threshold,
)

BOUNDS = Bounds(band=1.02, margin=0.05, base=100.0, level=0.05, comparisons=1, held=0)


def run(rng: np.random.Generator, level: float, spread: float = 0.01, n: int = 8) -> list[float]:
    return (level * rng.lognormal(0, spread, n)).tolist()


def outcome(base: list[float], other: list[float], **changed: object) -> Outcome:
    change = shifted(base, other, "ns", 0.95)
    return judge(change, change.p, dataclasses.replace(BOUNDS, **changed)).outcome


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.3, Outcome.HIGHER), (0.7, Outcome.LOWER), (1.0, Outcome.EQUIVALENT)]
)
def test_the_truth_is_recovered(factor: float, expected: Outcome) -> None:
    found = [
        outcome(run(rng, 100), run(rng, 100 * factor)) for rng in (np.random.default_rng(seed) for seed in range(100))
    ]
    assert np.mean([one is expected for one in found]) > 0.97


def test_the_ratio_holds_the_truth() -> None:
    held = []
    for seed in range(500):
        rng = np.random.default_rng(seed)
        held.append(not shifted(run(rng, 40, 0.1), run(rng, 52, 0.1), "ns", 0.95).ratio.excludes(1.3))
    assert np.mean(held) >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 500)


def test_equal_runs_are_called_different_as_seldom_as_the_level_says() -> None:
    wrong = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        change = shifted(run(rng, 9, 0.1), run(rng, 9, 0.1), "ns", 0.95)
        verdict = judge(change, change.p, dataclasses.replace(BOUNDS, band=1.0, margin=0.0)).outcome
        wrong.append(verdict in (Outcome.HIGHER, Outcome.LOWER))
    assert np.mean(wrong) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 600)


def test_a_change_at_the_margin_is_seldom_called_no_difference() -> None:
    wrong = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        wrong.append(outcome(run(rng, 100, 0.02), run(rng, 105, 0.02)) is Outcome.EQUIVALENT)
    assert np.mean(wrong) <= 0.05


def test_a_change_smaller_than_identical_arms_differ_by_is_not_shown() -> None:
    rng = np.random.default_rng(1)
    change = shifted(run(rng, 100), run(rng, 120), "ns", 0.95)
    judged = judge(change, change.p, dataclasses.replace(BOUNDS, band=1.3))
    assert judged.outcome is Outcome.NOT_SHOWN
    assert "identical arms (A/A) may seem to differ by a factor of 1.3" in judged.reason
    assert judged.needed is None  # more repetitions do not make the machine quieter


def test_an_interval_that_includes_no_change_says_of_which_figure() -> None:
    rng = np.random.default_rng(1)
    change = shifted(run(rng, 100), run(rng, 100), "ns", 0.95)
    assert judge(change, change.p, dataclasses.replace(BOUNDS, margin=0.001)).reason.startswith(
        "the interval includes 1 (no change)"
    )


def test_without_an_aa_pair_no_change_is_called_one() -> None:
    rng = np.random.default_rng(1)
    change = shifted(run(rng, 100), run(rng, 200), "ns", 0.95)
    judged = judge(change, change.p, dataclasses.replace(BOUNDS, band=None))
    assert (judged.outcome, "no A/A interval" in judged.reason) == (Outcome.NOT_SHOWN, True)


def test_few_repetitions_show_nothing_and_say_how_many_would() -> None:
    change = shifted([100.0, 101.0], [200.0, 202.0], "ns", 0.95)
    judged = judge(change, change.p, BOUNDS)
    assert judged.outcome is Outcome.NOT_SHOWN
    assert "once in 3 times" in judged.reason
    assert judged.needed == 4  # 2 / C(8, 4) is the first below 0.05


def test_a_single_repetition_has_no_interval_and_says_what_it_takes() -> None:
    change = shifted([100.0], [200.0], "ns", 0.95)
    judged = judge(change, change.p, BOUNDS)
    assert (judged.outcome, judged.needed) == (Outcome.NOT_SHOWN, 4)
    assert "no interval" in judged.reason


def test_among_many_comparisons_a_single_p_has_to_be_smaller_and_more_repetitions_are_asked_for() -> None:
    rng = np.random.default_rng(2)
    change = shifted(run(rng, 100, n=6), run(rng, 130, n=6), "ns", 0.95)
    assert change.p == pytest.approx(2 / 924)
    judged = judge(change, 0.21, dataclasses.replace(BOUNDS, comparisons=100))
    assert (judged.outcome, judged.needed) == (Outcome.NOT_SHOWN, 8)  # 2 / C(16, 8) = 1.6e-4 ≤ 0.05 / 100
    assert "among 100 comparisons" in judged.reason


def test_as_many_repetitions_as_are_asked_for_do_decide() -> None:
    decided = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        change = shifted(run(rng, 100, 0.05, 6), run(rng, 106, 0.05, 6), "ns", 0.95)
        judged = judge(change, change.p, dataclasses.replace(BOUNDS, band=1.0, margin=0.0))
        if judged.outcome is Outcome.NOT_SHOWN and judged.needed is not None and judged.needed < 200:
            more = max(judged.needed, 6)
            decided.append(
                outcome(run(rng, 106, 0.05, more), run(rng, 106 * change.ratio.point, 0.05, more), band=1.0, margin=0.0)
                is not Outcome.NOT_SHOWN
            )
    assert len(decided) > 20
    assert 0.3 < np.mean(decided) < 0.9  # half the width is what half of such intervals are


def test_a_sharp_change_that_is_too_small_to_matter_is_no_difference() -> None:
    rng = np.random.default_rng(3)
    change = shifted(run(rng, 100, 0.001), run(rng, 102, 0.001), "ns", 0.95)
    judged = judge(change, change.p, dataclasses.replace(BOUNDS, band=1.001))
    assert judged.outcome is Outcome.EQUIVALENT
    assert "though" in judged.reason
    assert outcome(run(rng, 100, 0.001), run(rng, 102, 0.001), band=1.001, margin=0.0) is Outcome.HIGHER


def test_figures_that_may_be_zero_are_judged_by_their_difference() -> None:
    change = shifted([0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [9.0, 8.0, 9.0, 9.0, 8.0, 10.0], "%", 0.95)
    assert not change.by_ratio
    bounds = dataclasses.replace(BOUNDS, base=0.0, band=2.0)
    assert judge(change, change.p, bounds).outcome is Outcome.HIGHER
    assert judge(change, change.p, dataclasses.replace(bounds, band=20.0)).outcome is Outcome.NOT_SHOWN
    nothing = shifted([0.0] * 6, [0.0] * 6, "", 0.95)
    assert judge(nothing, nothing.p, bounds).outcome is Outcome.EQUIVALENT


def test_arms_of_one_run_are_compared_within_its_blocks() -> None:
    drift = [2.0**k for k in range(8)]
    base = {k: 10 * d for k, d in enumerate(drift)}
    other = {k: (13 + 0.01 * k) * d for k, d in enumerate(drift)} | {99: 1e9}
    change = paired_shifted(base, other, "ns", 0.95)
    assert change.ratio.point == pytest.approx(1.3, rel=0.01)
    assert judge(change, change.p, BOUNDS).outcome is Outcome.HIGHER
    assert shifted([*base.values()], [*other.values()], "ns", 0.95).ratio.excludes(1) is False
    assert change.least_size(0.05) == 6  # 2·0.5⁶ is the first below 0.05
    assert change.least_p == 2 / 2**8


def test_benjamini_and_hochbergs_own_example() -> None:
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528]
    p += [0.7590, 1.0000]
    assert sum(value <= 0.05 for value in benjamini_hochberg(p)) == 4
    assert threshold(p, 0.05) == pytest.approx(4 * 0.05 / 15)
    assert benjamini_hochberg(p[::-1])[::-1] == benjamini_hochberg(p)
    assert threshold([0.9, 0.8], 0.05) == 0
    assert benjamini_hochberg([]) == []
