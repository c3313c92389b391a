"""What changed between runs is found, what did not is said, and nothing else is."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from compared_runs import ARMS, ERROR, GUEST, HOST, MEDIAN, THROUGHPUT, run_in_memory

from virtgauge.compare.changes import Criteria, find_changes
from virtgauge.compare.matching import match
from virtgauge.compare.model import Change, Finding
from virtgauge.compare.runs import ReadRun
from virtgauge.results.formatting import size_text
from virtgauge.results.measure import Better, Measure
from virtgauge.specs.suites import MEASURES

CRITERIA = Criteria(nominal=0.95, equivalent=0.05)
USUAL = {"host": 20.0, "host-aa": 20.0, "guest": 30.0}


def scaled(host: float, guest: float) -> dict[str, float]:
    return {"host": 20.0 * host, "host-aa": 20.0 * host, "guest": 30.0 * guest}


def changes(*runs: ReadRun, measure: Measure = MEDIAN, arms: tuple[str, ...] = ()) -> list[Change]:
    return list(find_changes(runs, match(runs, [measure], arms), CRITERIA))


def of(found: list[Change], arm: str) -> Change:
    (change,) = [change for change in found if change.arm == arm]
    return change


def test_a_slower_guest_is_worse_by_itself_and_beside_the_host() -> None:
    found = changes(run_in_memory("a", 1, USUAL), run_in_memory("b", 2, scaled(1, 1.3)))
    host, guest = of(found, "Host"), of(found, "Guest")
    assert found[0] is guest
    assert guest.own.finding is guest.relative.finding is Finding.WORSE
    assert guest.own.ratio.low <= 1.3 <= guest.own.ratio.high
    assert guest.own.difference.point == pytest.approx(9, rel=0.1)
    assert guest.base.point == pytest.approx(30, rel=0.05)
    assert (host.own.finding, host.relative) == (Finding.EQUIVALENT, None)


def test_a_slower_host_makes_its_guests_slower_and_leaves_their_ratios_alone() -> None:
    found = changes(run_in_memory("a", 1, USUAL), run_in_memory("b", 2, scaled(1.3, 1.3)))
    guest = of(found, "Guest")
    assert of(found, "Host").own.finding is guest.own.finding is Finding.WORSE
    assert guest.relative.finding is Finding.EQUIVALENT
    assert guest.relative.ratio.point == pytest.approx(1, abs=0.02)


def test_the_relative_change_is_formed_within_blocks() -> None:
    """Blocks of another day drift by far more than the guest changed."""
    runs = [
        run_in_memory(name, seed, scaled(host, host * guest), drift=0.5)
        for name, seed, host, guest in (("a", 1, 1.0, 1.0), ("b", 2, 1.4, 1.2))
    ]
    guest = of(changes(*runs), "Guest")
    assert guest.own.finding is Finding.NOT_SHOWN
    assert guest.relative.finding is Finding.WORSE
    assert guest.relative.ratio.low <= 1.2 <= guest.relative.ratio.high


def test_where_neither_is_better_a_change_is_a_change() -> None:
    neither = dataclasses.replace(MEDIAN, better=Better.NEITHER)
    for factor in (1.3, 0.7):
        found = changes(run_in_memory("a", 1, USUAL), run_in_memory("b", 2, scaled(1, factor)), measure=neither)
        assert of(found, "Guest").own.finding is Finding.CHANGED


def test_more_is_better_where_the_measure_says_so() -> None:
    found = changes(
        run_in_memory("a", 1, USUAL, measure=THROUGHPUT),
        run_in_memory("b", 2, scaled(1, 1.3), measure=THROUGHPUT),
        measure=THROUGHPUT,
    )
    assert of(found, "Guest").own.finding is Finding.BETTER


@pytest.mark.parametrize("noisy", ["a", "b"])
def test_the_wider_of_the_two_aa_bands_guards(noisy: str) -> None:
    """Identical arms that differ by 50 % in either run leave 30 % unproven."""
    apart = {name: ({"host-aa": 30.0} if name == noisy else {}) for name in "ab"}
    found = changes(run_in_memory("a", 1, USUAL | apart["a"]), run_in_memory("b", 2, scaled(1, 1.3) | apart["b"]))
    guest = of(found, "Guest")
    assert guest.own.finding is Finding.NOT_SHOWN
    assert "identical arms" in guest.own.reason
    assert guest.own.band > 1.45


def test_without_an_aa_arm_in_one_run_nothing_is_called_a_change() -> None:
    truth = {name: figure for name, figure in scaled(1, 2).items() if name != "host-aa"}
    guest = of(changes(run_in_memory("a", 1, USUAL), run_in_memory("b", 2, truth, arms=(HOST, GUEST))), "Guest")
    assert (guest.own.finding, guest.own.band) == (Finding.NOT_SHOWN, None)
    assert "no A/A interval" in guest.own.reason


def test_errors_that_may_be_zero_are_compared_by_their_difference() -> None:
    usual = {"host": 0.0, "host-aa": 0.0, "guest": 2.0}
    found = changes(
        run_in_memory("a", 1, usual, measure=ERROR, spread=0.1),
        run_in_memory("b", 2, usual | {"guest": 9.0}, measure=ERROR, spread=0.1),
        measure=ERROR,
    )
    guest, host = of(found, "Guest"), of(found, "Host")
    assert guest.own.finding is Finding.WORSE
    assert guest.own.difference.low <= 7 <= guest.own.difference.high
    assert guest.relative is None  # of a host that errs by nothing
    assert (host.own.finding, host.own.ratio.point) == (Finding.EQUIVALENT, None)


def test_a_ratio_that_was_zero_is_compared_by_its_difference_and_not_told_as_a_factor() -> None:
    work, kept = MEASURES["isolation"]["relative_work"], {"host": 1.0, "host-aa": 1.0, "guest": 0.0}
    found = changes(
        run_in_memory("a", 1, kept, measure=work),
        run_in_memory("b", 2, kept | {"guest": 0.6}, measure=work),
        measure=work,
    )
    guest, host = of(found, "Guest"), of(found, "Host")
    assert (guest.own.finding, guest.own.ratio.point) == (Finding.BETTER, None)
    assert guest.own.difference.point == pytest.approx(0.6, abs=0.02)
    assert re.fullmatch(r"\+0\.\d+ \(0\.\d+ to 0\.\d+\)", size_text(guest.own.difference, work.quantity))
    assert (host.own.difference, host.own.ratio.unit) == (None, "ratio")  # A ratio of ratios says it all


def test_every_other_run_is_compared_with_the_first() -> None:
    runs = [run_in_memory(str(n), n, scaled(1, factor)) for n, factor in enumerate((1, 1.3, 0.7))]
    found = {(change.run, change.arm): change.own.finding for change in changes(*runs)}
    assert found[1, "Guest"] is Finding.WORSE
    assert found[2, "Guest"] is Finding.BETTER


def test_arms_of_different_names_are_matched() -> None:
    other = dataclasses.replace(GUEST, name="kata", label="Kata")
    truth = {"host": 20.0, "host-aa": 20.0, "kata": 45.0}
    runs = run_in_memory("a", 1, USUAL), run_in_memory("b", 2, truth, arms=(*ARMS[:2], other))
    (change,) = changes(*runs, arms=("guest=kata",))
    assert change.own.finding is Finding.WORSE
    assert change.own.ratio.point == pytest.approx(1.5, rel=0.02)


def test_two_arms_of_one_run_are_compared_within_its_blocks() -> None:
    """Blocks differ by a factor of e; only pairs show 4 %."""
    other = dataclasses.replace(GUEST, name="kata", label="Kata")
    truth = {"host": 20.0, "host-aa": 20.0, "guest": 30.0, "kata": 33.0}
    run = run_in_memory("a", 1, truth, arms=(*ARMS, other), drift=1.0, spread=0.005)
    (change,) = changes(run, arms=("guest=kata",))
    assert change.own.finding is Finding.WORSE
    assert change.own.ratio.low <= 1.1 <= change.own.ratio.high
    assert change.relative is None


@pytest.mark.slow
def test_among_many_cells_few_false_changes_are_called() -> None:
    """Of 40 pairs of runs with 20 unchanged figures each, hardly any has a change: all figures are held together."""
    alarms = 0
    for seed in range(40):
        pair = [run_in_memory(name, 2 * seed + number, USUAL, cells=10) for number, name in enumerate("ab")]
        found = find_changes(pair, match(pair, [MEDIAN], ()), Criteria(0.95, 0.0))
        alarms += any(change.own.finding in (Finding.WORSE, Finding.BETTER) for change in found)
    assert alarms <= 7  # 40 at a level of 5 % is 2; the 99.9 % quantile is 7


def test_what_did_change_among_many_cells_is_found_and_nothing_else() -> None:
    base = run_in_memory("a", 1, USUAL, cells=30)
    other = run_in_memory("b", 2, scaled(1, 1.2), cells=30)
    found = changes(base, other)
    worse = {change.arm for change in found if change.own.finding is Finding.WORSE}
    assert worse == {"Guest"}
    assert sum(change.own.finding is Finding.WORSE for change in found) == 30
    assert [change.own.finding is Finding.WORSE for change in found[:30]] == [True] * 30  # the largest first


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    held = []
    for seed in range(15):
        pair = run_in_memory("a", 900 + seed, USUAL, cells=10), run_in_memory("b", seed, scaled(1, 1.1), cells=10)
        for change in changes(*pair):
            held.append(not change.own.ratio.excludes(1.1 if change.arm == "Guest" else 1.0))
    assert len(held) == 300
    assert np.mean(held) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 300)


def test_few_repetitions_are_asked_for_more() -> None:
    pair = [run_in_memory(name, seed, scaled(1, seed), blocks=3) for seed, name in ((1, "a"), (2, "b"))]
    guest = of(changes(*pair), "Guest")
    assert guest.own.finding is Finding.NOT_SHOWN
    assert guest.own.ratio.confidence == pytest.approx(0.9)
    assert guest.own.needed == 5  # the first of two comparisons to hold: 2 / C(10, 5) ≤ 0.05 / 2


def labels(*runs: ReadRun, arms: tuple[str, ...] = ()) -> list[str]:
    return [pair.label for pair in match(runs, [MEDIAN], arms).arms]


def test_platforms_of_one_label_are_told_apart() -> None:
    other = dataclasses.replace(GUEST, name="other")
    truth = {"host": 20.0, "host-aa": 20.0, "guest": 30.0, "other": 33.0}
    run, again = (run_in_memory(name, n, truth, arms=(*ARMS, other)) for n, name in enumerate("ab"))
    single = run_in_memory("c", 3, USUAL)
    assert labels(run, again) == ["Host", "Guest [guest]", "Guest [other]"]
    assert labels(run, arms=("guest=other",)) == ["Guest [guest] → Guest [other]"]
    assert labels(run, single) == ["Host", "Guest [guest]"]
    assert labels(single, single, arms=("guest=host",)) == ["Guest → Host"]
