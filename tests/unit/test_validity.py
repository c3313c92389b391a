"""Validity: what makes a trial invalid, and what does not."""

import dataclasses

import pytest

from virtgauge.execution.validity import MachineUsage, clock_flags, machine_flags
from virtgauge.host.load import CpuLoad
from virtgauge.plan.model import ValidityLimits
from virtgauge.suites.base import Elapsed

LIMITS = ValidityLimits()
SECOND = 1_000_000_000


def usage(*, busy=0, guest=0, peers=0, controller=0, steal=0, elapsed=SECOND):
    load = CpuLoad(elapsed_ns=elapsed, busy_ns=busy, steal_ns=steal, cpus=2, method="test")
    return MachineUsage(load=load, guest_ns=guest, peers_ns=peers, controller_ns=controller)


def names(flags):
    return [flag.name for flag in flags]


def test_a_machine_used_by_guest_peers_and_controller_only_is_quiet():
    own = usage(busy=2 * SECOND, guest=SECOND, peers=SECOND // 2, controller=SECOND // 2)
    assert machine_flags(own, LIMITS) == []


def test_foreign_load_beyond_three_per_cent_of_the_machine_is_fatal():
    (flag,) = machine_flags(usage(busy=int(0.07 * SECOND)), LIMITS)
    assert flag.name == "foreign-load"
    assert flag.fatal
    assert "3.5%" in flag.detail
    assert machine_flags(usage(busy=int(0.05 * SECOND)), LIMITS) == []


def test_a_share_of_a_very_short_trial_is_not_judged_below_one_tick():
    assert machine_flags(usage(busy=9_000_000, elapsed=10_000_000), LIMITS) == []


def test_unknown_guest_time_judges_nobody():
    assert machine_flags(usage(busy=2 * SECOND, guest=None), LIMITS) == []
    assert usage(guest=None).foreign_ns is None


def test_steal_is_fatal():
    assert names(machine_flags(usage(steal=SECOND // 10), LIMITS)) == ["steal"]
    assert machine_flags(usage(steal=None), LIMITS) == []


def test_what_happens_to_this_machine_is_nothing_to_a_guest_elsewhere():
    taken = usage(busy=2 * SECOND, steal=SECOND)
    assert set(names(machine_flags(taken, LIMITS))) == {"foreign-load", "steal"}
    assert machine_flags(dataclasses.replace(taken, elsewhere=True), LIMITS) == []


def clocks(raw, monotonic, tsc=None, uncertainty=0):
    found = [Elapsed("CLOCK_MONOTONIC_RAW", raw, uncertainty), Elapsed("CLOCK_MONOTONIC", monotonic, uncertainty)]
    return found + ([Elapsed("TSC", tsc, uncertainty)] if tsc is not None else [])


def test_clocks_that_agree_are_quiet():
    assert clock_flags(clocks(SECOND, SECOND + 100_000, SECOND - 1000), SECOND + 500_000, LIMITS) == []


@pytest.mark.parametrize("wrong", ["raw", "monotonic", "tsc"])
def test_any_clock_that_disagrees_with_the_two_others_is_caught(wrong):
    readings = {"raw": SECOND, "monotonic": SECOND, "tsc": SECOND} | {wrong: SECOND * 1.001}
    flags = clock_flags(clocks(**readings), int(SECOND * 1.1), LIMITS)
    assert names(flags) == ["clock-drift", "clock-drift"]
    assert "ppm" in flags[0].detail


def test_disagreement_within_the_reading_error_is_no_drift():
    assert clock_flags(clocks(1000, 3000, uncertainty=1500), 10_000, LIMITS) == []


def test_a_guest_that_counts_more_time_than_passed_is_caught():
    assert names(clock_flags(clocks(SECOND * 2, SECOND * 2), SECOND, LIMITS)) == ["clock-drift"]


def test_a_late_answer_is_told_but_does_not_invalidate():
    (flag,) = clock_flags(clocks(SECOND, SECOND), 3 * SECOND, LIMITS)
    assert (flag.name, flag.fatal) == ("late-answer", False)
