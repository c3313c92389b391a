"""Comparisons say "different" of what differs, and not of what identical arms differ by."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from virtgauge.analysis.comparison import (
    Judgement,
    aa_band,
    agreement,
    compare,
    paired_difference,
    paired_ratio,
    unpaired_ratio,
)
from virtgauge.analysis.estimate import Estimate


def ratio(low: float, high: float, confidence: float = 0.95) -> Estimate:
    return Estimate(math.sqrt(low * high), low, high, confidence, 6, "ratio", "given")


def blocks(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def test_the_ratio_is_formed_within_blocks() -> None:
    drift = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]  # the machine doubles its cost from block to block
    estimate = paired_ratio(blocks([3 * d for d in drift]), blocks(drift), 0.95)
    assert estimate.point == pytest.approx(3.0)
    assert (estimate.low, estimate.high) == (pytest.approx(3.0), pytest.approx(3.0))


def test_only_blocks_with_both_arms_count() -> None:
    estimate = paired_ratio({0: 2.0, 1: 2.0, 5: 900.0}, {0: 1.0, 1: 1.0, 4: 7.0}, 0.95)
    assert (estimate.point, estimate.n) == (pytest.approx(2.0), 2)


def test_a_ratio_of_estimates_is_as_sure_as_the_less_sure() -> None:
    sure, less = ratio(2, 8), ratio(1, 4, confidence=0.75)
    assert [unpaired_ratio(*both).confidence for both in ((sure, less), (less, sure))] == [0.75, 0.75]
    assert unpaired_ratio(sure, dataclasses.replace(less, confidence=None)).confidence is None


def test_no_common_block_is_missing_with_a_reason() -> None:
    estimate = paired_ratio({0: 2.0}, {1: 1.0}, 0.95)
    assert estimate.point is None
    assert "no block" in estimate.method


def test_a_sleep_that_wakes_early_has_a_difference_and_no_ratio() -> None:
    test, reference = blocks([-5.0, -4.0, -6.0]), blocks([10.0, 11.0, 12.0])
    assert paired_ratio(test, reference, 0.95).point is None
    assert paired_difference(test, reference, "ns", 0.95).point == -15.0


def test_a_ratio_that_zeros_forbid_says_how_many_there_are() -> None:
    nothing, some = blocks([0.0] * 6), blocks([0.0] + [1.0] * 5)
    assert paired_ratio(nothing, nothing, 0.95).method.startswith("nothing was seen in either")
    assert "1 of 6 repetitions" in paired_ratio(some, blocks([2.0] * 6), 0.95).method


def test_figures_too_far_apart_for_a_number_have_no_ratio_and_no_band() -> None:
    ratio = paired_ratio(dict.fromkeys(range(9), 1e-300), dict.fromkeys(range(9), 1e300), 0.95)
    assert ratio.point is None
    assert aa_band(ratio) is None


def test_a_large_effect_beyond_the_aa_band_is_distinguishable() -> None:
    result = compare(blocks([53.0, 54, 52, 53, 55, 53]), blocks([1.0] * 6), ratio(0.98, 1.01), "ns", 0.95)
    assert result.judgement is Judgement.HIGHER
    assert result.band == pytest.approx(1 / 0.98)


def test_too_few_repetitions_for_the_confidence_show_nothing() -> None:
    result = compare(blocks([53.0, 54, 52, 53, 55]), blocks([1.0] * 5), ratio(0.98, 1.01), "ns", 0.95)
    assert result.judgement is Judgement.INCONCLUSIVE
    assert "93.75% is the most" in result.reason


def test_lower_is_told_from_higher() -> None:
    result = compare(blocks([0.5] * 6), blocks([1.0] * 6), ratio(0.98, 1.01), "ns", 0.95)
    assert result.judgement is Judgement.LOWER


def test_a_sharp_effect_within_the_aa_band_is_inconclusive() -> None:
    result = compare(blocks([1.05] * 6), blocks([1.0] * 6), ratio(0.93, 1.02), "ns", 0.95)
    assert result.ratio.excludes(1)
    assert result.judgement is Judgement.INCONCLUSIVE
    assert "identical arms" in result.reason


def test_without_an_aa_pair_nothing_is_distinguishable() -> None:
    result = compare(blocks([53.0] * 6), blocks([1.0] * 6), None, "ns", 0.95)
    assert not result.distinguishable
    assert "A/A" in result.reason


def test_one_block_is_inconclusive() -> None:
    result = compare({0: 53.0}, {0: 1.0}, ratio(0.99, 1.01), "ns", 0.95)
    assert not result.distinguishable
    assert result.ratio.point == pytest.approx(53.0)


def test_a_step_of_one_histogram_bin_is_no_difference() -> None:
    result = compare(blocks([1.001] * 6), blocks([1.0] * 6), ratio(1.0, 1.0), "ns", 0.95)
    assert not result.distinguishable


def test_identical_arms_are_seldom_called_different() -> None:
    wrong = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        reference, aa, test = (blocks(rng.lognormal(3, 0.1, 6).tolist()) for _ in range(3))
        wrong += compare(test, reference, paired_ratio(aa, reference, 0.95), "ns", 0.95).distinguishable
    assert wrong <= 0.05 * 300


def test_the_ratio_interval_covers_the_true_ratio() -> None:
    covered = 0
    for seed in range(400):
        rng = np.random.default_rng([9, seed])
        drift = rng.lognormal(0, 0.5, 8)
        test, reference = 1.3 * drift * rng.lognormal(0, 0.1, 8), drift * rng.lognormal(0, 0.1, 8)
        covered += not paired_ratio(blocks(test.tolist()), blocks(reference.tolist()), 0.95).excludes(1.3)
    assert covered / 400 >= 0.95 - 2.58 * math.sqrt(0.95 * 0.05 / 400)


def test_an_aa_pair_without_interval_has_no_band() -> None:
    assert aa_band(None) is None
    assert aa_band(Estimate.bare(1.0, "ratio", "one repetition")) is None


def test_identical_arms_that_look_identical_agree() -> None:
    result = agreement([ratio(0.97, 1.02), ratio(0.99, 1.05), ratio(0.995, 1.001)])
    assert result.ok is True
    assert result.widest == pytest.approx(1.05)


def test_one_missed_interval_among_many_is_chance_and_most_are_not() -> None:
    good, bad = ratio(0.97, 1.02), ratio(1.04, 1.09)
    assert agreement([good] * 19 + [bad]).ok is True
    assert agreement([good] * 10 + [bad] * 10).ok is False


def test_agreement_is_unknown_without_intervals() -> None:
    assert agreement([]).ok is None
    assert agreement([Estimate.bare(1.0, "ratio", "one repetition")]).ok is None
