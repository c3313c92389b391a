"""Bounds of rare events, and verdicts on them: known values, and coverage on processes whose truth is known."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from virtgauge.analysis.bounds import Bound, Decision, Outcome
from virtgauge.analysis.rare_events import (
    FEWEST_PEAKS,
    LONGEST_S,
    cluster_peaks,
    decide_rate,
    decide_silence,
    expected_number,
    growth_p,
    log_oftener,
    log_rarer,
    return_level,
)

HOUR_S = 3600.0
CHANCE = 1e-4  # of a failure that is none


@pytest.fixture
def rare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The processes of docs/coverage.md, with their truths."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    return importlib.import_module("rare_coverage")


def too_few(held: int, runs: int, stated: float) -> bool:
    """Whether so few intervals that hold the truth cannot be of what is stated."""
    return bool(special.bdtr(held, runs, stated) < CHANCE)


# -- known values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (10, 4.795, 18.390)]
)
def test_the_bounds_are_garwoods(count: int, low: float, high: float) -> None:
    assert expected_number(count, 0.975) == pytest.approx((low, high), abs=1e-3)


def test_silence_bounds_the_rate_by_three_in_its_time() -> None:
    assert expected_number(0, 0.95) == pytest.approx((0.0, -math.log(0.05)))
    assert expected_number(0, 0.99)[1] == pytest.approx(-math.log(0.01))


def test_of_silence_the_bound_at_any_time_is_the_closed_form() -> None:
    low, high = expected_number(0, 0.95, any_time_valid=True)
    assert low == 0
    assert math.expm1(high) / high == pytest.approx(20)


@pytest.mark.parametrize("count", [1, 2, 5, 300])
def test_a_bound_at_any_time_is_wider_than_one_at_a_fixed_time(count: int) -> None:
    low, high = expected_number(count, 0.95)
    least, most = expected_number(count, 0.95, any_time_valid=True)
    assert 0 < least < low < count < high < most


@pytest.mark.parametrize("expected", [0.3, 2.0, 9.0])
@pytest.mark.parametrize("evidence", [log_rarer, log_oftener])
def test_evidence_has_a_mean_of_one_where_the_number_is_true(
    evidence: Callable[[int, float], float], expected: float
) -> None:
    counts, rest = range(100), expected / 99 if evidence is log_oftener else 0.0  # of more than 99 events
    logs = [n * math.log(expected) - expected - math.lgamma(n + 1) + evidence(n, expected) for n in counts]
    assert sum(map(math.exp, logs)) == pytest.approx(1 - rest, abs=1e-6)


def test_events_within_the_gap_are_one_cluster_of_its_largest() -> None:
    assert cluster_peaks([(10.0, 7.0), (0.0, 1.0), (0.9, 5.0), (1.8, 2.0), (13.0, 3.0)]) == [5.0, 7.0, 3.0]
    assert cluster_peaks([]) == []


def test_what_never_ends_is_not_one_event() -> None:
    moments = np.arange(0, HOUR_S, 0.5)
    assert len(cluster_peaks((moment, 1.0) for moment in moments.tolist())) >= HOUR_S / (LONGEST_S + 1)


# -- verdicts ------------------------------------------------------------------------------------------------


def silence(largest: list[float], hours: float) -> Decision:
    return decide_silence(largest, hours * HOUR_S, Bound(at_most=120.0), 24 * HOUR_S, "ns", 0.95)


def test_silence_for_so_long_meets_and_says_how_rare_that_is() -> None:
    found = silence([50.0] * 1440, 24)
    assert (found.outcome, found.more, found.estimate.point) == (Outcome.PASS, 0, 50.0)
    assert "T = 24 h watched: at most 3/T = 0.125 an hour (95 % confidence)" in found.reason


def test_silence_for_less_is_undecided_and_says_how_much_more() -> None:
    found = silence([50.0] * 600, 10)
    assert (found.outcome, found.more) == (Outcome.INCONCLUSIVE, 840)
    assert "at most 3/T = 0.3 an hour" in found.reason and "about 14 h more" in found.reason


def test_a_single_value_beyond_is_not_met_however_long_was_watched() -> None:
    found = silence([50.0] * 9999 + [120.1], 200)
    assert found.outcome is Outcome.FAIL
    assert "1 of 10000 repetitions" in found.reason
    assert silence([120.0], 24).outcome is Outcome.PASS, "the bound itself is within"


def rate(least: int, most: int, hours: float, at_most: float = 1.0, **how: Any) -> Decision:
    repetitions = round(60 * hours)
    return decide_rate((least, most), repetitions, hours * HOUR_S, at_most, HOUR_S, 0.95, **how)


def test_a_rate_is_met_once_its_upper_bound_is() -> None:
    assert rate(0, 0, 2.9).outcome is Outcome.INCONCLUSIVE
    assert rate(0, 0, 3.0).outcome is Outcome.PASS
    assert rate(0, 0, 3.0, any_time_valid=True).outcome is Outcome.INCONCLUSIVE
    assert rate(0, 0, 4.6, any_time_valid=True).outcome is Outcome.PASS


def test_a_rate_is_not_met_once_its_lower_bound_is_beyond() -> None:
    assert rate(20, 20, 8).outcome is Outcome.FAIL  # at least 13.3 in 8 hours
    assert rate(20, 20, 16).outcome is Outcome.INCONCLUSIVE
    assert rate(12, 12, 6).outcome is Outcome.FAIL  # at least 6.92
    assert rate(12, 12, 6, cells=100).outcome is Outcome.INCONCLUSIVE


def test_what_cannot_be_told_apart_is_counted_as_it_is_worse_for_the_verdict() -> None:
    assert rate(0, 9, 6).outcome is Outcome.INCONCLUSIVE
    assert rate(0, 9, 16).outcome is Outcome.PASS  # at most 15.7


def test_so_much_more_silence_decides_as_is_said() -> None:
    found = rate(2, 2, 4)
    assert found.more is not None and found.more > 0
    assert rate(2, 2, 4 + (found.more - 1) / 60).outcome is Outcome.INCONCLUSIVE
    assert rate(2, 2, 4 + found.more / 60).outcome is Outcome.PASS


def test_nothing_watched_decides_nothing() -> None:
    for found in (silence([], 0), rate(0, 0, 0)):
        assert (found.outcome, found.more, found.estimate.point) == (Outcome.INCONCLUSIVE, None, None)


# -- coverage ------------------------------------------------------------------------------------------------


PROCESSES = ("steady", "bursts", "periodic SMIs", "drift")


def test_processes_are_as_is_told_of_them(rare: Any) -> None:
    assert rare.PROCESSES.keys() == rare.TRUTHS.keys() == {*PROCESSES}
    random, hours, per_hour = np.random.default_rng(10), 400.0, 10.0
    number = hours * per_hour
    for name, process in rare.PROCESSES.items():
        truth, moments = rare.TRUTHS[name], process(random, hours, per_hour)
        ends, peaks = rare.clusters(moments), np.array(rare.peaks(random, moments, 0.0))
        assert len(peaks) == pytest.approx(number, abs=5 * number**0.5), name
        for part in (0.5, 0.9):
            assert np.mean(ends < part * hours * HOUR_S) == pytest.approx(part**truth.power, abs=0.04), name
        for one_in in (10, 3):
            beyond = peaks > rare.level_of(truth.events(one_in), 0.0)
            assert np.mean(beyond) == pytest.approx(1 / one_in, abs=0.04), name


@pytest.mark.slow
@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("per_hour", [0.2, 2.0])
def test_bounds_of_clusters_hold_the_rate_as_often_as_they_say(rare: Any, process: str, per_hour: float) -> None:
    random, runs, hours = np.random.default_rng(5), 400, 8.0
    counts = [rare.clusters(rare.PROCESSES[process](random, hours, per_hour)).size for _ in range(runs)]
    truth = per_hour * hours
    for at in (0.8, 0.95):
        ends = [expected_number(count, at) for count in counts]
        assert not too_few(sum(low <= truth for low, _ in ends), runs, at)
        assert not too_few(sum(truth <= high for _, high in ends), runs, at)


@pytest.mark.slow
def test_events_that_are_counted_singly_would_be_held_far_less_often(rare: Any) -> None:
    random, runs, hours, per_hour = np.random.default_rng(6), 300, 8.0, 2.0
    truth = per_hour * hours / rare.TRUTHS["bursts"].last  # five in a burst, on average
    ends = [expected_number(rare.bursts(random, hours, per_hour).size, 0.975) for _ in range(runs)]
    assert sum(low <= truth <= high for low, high in ends) < 0.8 * runs


@pytest.mark.slow
def test_looking_every_few_minutes_errs_no_more_often_than_stated_at_any_time_only(rare: Any) -> None:
    """The rate is the limit itself: neither verdict would be right."""
    random, runs, looks = np.random.default_rng(7), 400, np.arange(0.25, 60, 0.25)

    def errs(*, any_time_valid: bool) -> tuple[int, int]:
        passed = failed = 0
        for _ in range(runs):
            moments = rare.steady(random, 60, 1.0) / HOUR_S
            ends = [
                expected_number(int(count), 0.95, any_time_valid=any_time_valid)
                for count in np.searchsorted(moments, looks)
            ]
            passed += any(high <= hours for (_, high), hours in zip(ends, looks, strict=True))
            failed += any(low > hours for (low, _), hours in zip(ends, looks, strict=True))
        return passed, failed

    for wrong in errs(any_time_valid=True):
        assert not too_few(runs - wrong, runs, 0.95)
    assert min(errs(any_time_valid=False)) > 0.08 * runs


def level(sizes: Any, threshold: float, *, hours: float = 100, confidence: float = 0.95) -> Any:
    """Of a time ten times as long."""
    return return_level(sizes, threshold, hours * HOUR_S, 10 * hours * HOUR_S, "us", confidence)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["steady", "bursts"])
@pytest.mark.parametrize("words", ["light", "heavy"])
def test_the_interval_of_a_return_level_holds_it_as_often_as_stated(rare: Any, words: str, name: str) -> None:
    """Of bursts the peaks are the largest of several events, which have no Pareto tail where they are small."""
    random, shape = np.random.default_rng(8), rare.TAILS[words]
    held = [rare._level_held(rare.PROCESSES[name], rare.TRUTHS[name], shape, random) for _ in range(300)]
    told = [one for one in held if one is not None]
    assert len(told) > 0.8 * len(held)
    assert not too_few(sum(told), len(told), 0.94)


def test_of_peaks_that_end_sharply_no_level_is_told(rare: Any) -> None:
    """Interrupts of one length, which a cycle meets anywhere."""
    random = np.random.default_rng(10)
    told = [level(rare.sizes_of(random, 200, -1.0), rare.THRESHOLD) for _ in range(50)]
    assert sum(one.point is not None for one in told) <= 2
    assert next(one.method for one in told if one.point is None).startswith("peaks that end as sharply")


def test_few_peaks_tell_no_level() -> None:
    sizes = [50.0 - 20 * math.log((n + 0.5) / FEWEST_PEAKS) for n in range(FEWEST_PEAKS)]
    assert level(sizes, 49.5).has_interval
    assert level(sizes[1:], 49.5).point is None
    assert level(sizes, min(sizes)).point is None, "one is not above the threshold"
    assert level([50.0] * 500, 49.0).point is None, "peaks of one size"
    assert level(sizes, 49.5, hours=0.5).point is None, "so often that clusters run together"
    assert level(sizes, 49.5, hours=0.6).has_interval


def test_of_many_peaks_the_largest_tell() -> None:
    random = np.random.default_rng(9)
    sizes = random.exponential(5.0, 5000)
    found = level(sizes.tolist(), 0.0, confidence=0.9999)  # so that one seed in ten thousand errs
    assert found.n == 200
    assert found.low is not None and found.high is not None
    assert found.low < 5 * math.log(50_000) < found.high


def test_clusters_that_come_ever_more_often_are_told_from_such_as_come_at_one_rate(rare: Any) -> None:
    random, runs = np.random.default_rng(11), 400

    def shares(name: str) -> float:
        found = 0
        for _ in range(runs):
            counts, _ = np.histogram(rare.PROCESSES[name](random, 8, 2.0) / HOUR_S, bins=16, range=(0, 8))
            found += growth_p([(1800.0, int(count)) for count in counts]) < 0.05
        return found / runs

    assert 0.02 < shares("steady") < 0.09 and shares("drift") > 0.6
    assert growth_p([(60.0, 0)] * 3 + [(60.0, 4)]) == 1.0, "four are too few"
    assert growth_p([(60.0, 0)] * 3 + [(60.0, 5)]) < 0.01 < growth_p([(60.0, 5)] + [(60.0, 0)] * 3)
