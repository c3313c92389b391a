"""Validity: what makes a trial invalid, and what does not."""

import dataclasses

import numpy as np
import pytest

from virtgauge.execution.validity import MachineUsage, clock_flags, foreign_floor_ns, machine_flags
from virtgauge.host.load import CpuLoad
from virtgauge.plan.model import ValidityLimits
from virtgauge.suites.base import Elapsed

LIMITS = ValidityLimits()
SECOND = 1_000_000_000


def usage(*, busy=0, guest=0, peers=0, controller=0, steal=0, elapsed=SECOND, cpus=2):
    load = CpuLoad(elapsed_ns=elapsed, busy_ns=busy, steal_ns=steal, cpus=cpus, method="test")
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


def test_foreign_load_does_not_spoil_where_the_kernels_threads_are_hidden_and_may_be_all_of_it():
    hidden = dataclasses.replace(usage(busy=int(0.07 * SECOND)), kernel_work_hidden=True)
    (flag,) = machine_flags(hidden + hidden, LIMITS)
    assert flag.name == "foreign-load"
    assert not flag.fatal
    assert "PID namespace" in flag.detail


def test_a_share_of_a_very_short_trial_is_not_judged_below_one_tick_but_where_it_is_counted_exactly():
    taken = usage(busy=7_000_000, elapsed=18_000_000)
    in_ticks = dataclasses.replace(taken, load=dataclasses.replace(taken.load, method="/proc/stat"))
    assert machine_flags(in_ticks, LIMITS) == []
    assert names(machine_flags(taken, LIMITS)) == ["foreign-load"]
    assert machine_flags(usage(busy=900_000, elapsed=18_000_000), ValidityLimits(foreign_load=0.01)) == []


@pytest.mark.parametrize(
    ("method", "elapsed_s", "floor_ms"),
    [("cgroup root", 1, 1), ("/proc/stat", 1, 212.13), ("/proc/stat", 0.02, 30), ("/proc/stat", 0.001, 10)],
)
def test_foreign_load_counted_in_ticks_is_judged_beyond_three_standard_deviations(method, elapsed_s, floor_ms):
    """Two CPUs: a second has 200 ticks of 10 ms, and √(200 / 4) of them are one standard deviation."""
    load = dataclasses.replace(usage(elapsed=int(elapsed_s * SECOND)).load, method=method)
    assert foreign_floor_ns(load) == pytest.approx(floor_ms * 1e6, rel=1e-4)


def test_quiet_slices_counted_in_ticks_are_not_flagged_by_the_sampling_of_ticks():
    """A guest uses half of a CPU; each of 50 ticks in a slice of 0.25 s finds it running by chance."""
    counts = np.random.default_rng(1).binomial(50, 0.25, 1000)
    slices = [usage(busy=int(n) * SECOND // 100, guest=SECOND // 8, elapsed=SECOND // 4) for n in counts]
    in_ticks = [dataclasses.replace(one, load=dataclasses.replace(one.load, method="/proc/stat")) for one in slices]
    assert sum(bool(machine_flags(one, LIMITS)) for one in slices) > 200
    assert sum(bool(machine_flags(one, LIMITS)) for one in in_ticks) <= 5


def test_unknown_guest_time_judges_nobody():
    assert machine_flags(usage(busy=2 * SECOND, guest=None), LIMITS) == []
    assert usage(guest=None).foreign_ns is None


def test_steal_is_fatal():
    assert names(machine_flags(usage(steal=SECOND // 10), LIMITS)) == ["steal"]
    assert machine_flags(usage(steal=None), LIMITS) == []


@pytest.mark.parametrize(
    ("cpus", "elapsed_s", "ticks", "invalid"),
    [
        (2, 1, 1, True),
        (8, 1, 1, True),
        (64, 1, 1, False),
        (64, 1, 2, True),
        (64, 0.03, 1, False),
        (64, 0.03, 2, True),
        (64, 2, 2, False),
    ],
)
def test_a_tick_of_steal_spoils_a_slice_on_few_cpus_and_more_than_one_and_a_hundredth_of_a_cpu_on_many(
    cpus, elapsed_s, ticks, invalid
):
    taken = usage(steal=ticks * SECOND // 100, elapsed=int(elapsed_s * SECOND), cpus=cpus)
    assert names(machine_flags(taken, LIMITS, of_slice=True)) == ["steal"] * invalid
    assert machine_flags(taken, LIMITS) == []
    assert machine_flags(taken, ValidityLimits(steal=1), of_slice=True) == []


def test_on_many_cpus_limits_are_shares_of_eight_or_of_as_many_as_the_testbed_keeps_busy():
    loaded = usage(busy=3 * SECOND, guest=SECOND, peers=SECOND // 10, cpus=64)
    (flag,) = machine_flags(loaded, LIMITS)
    assert "other processes used 23.8% of the time of 8 CPUs" in flag.detail
    assert names(machine_flags(usage(steal=SECOND // 5, cpus=64), LIMITS)) == ["steal"]
    assert machine_flags(usage(busy=SECOND // 5, cpus=64), LIMITS) == []
    assert machine_flags(usage(busy=61 * SECOND, guest=60 * SECOND, cpus=64), LIMITS) == []
    assert usage(guest=SECOND // 2 + SECOND, cpus=4).judged_cpus() == 4


def test_steal_is_judged_as_a_share_of_the_cpus_that_it_is_of():
    def of_cpus(some, steal_ns, cpus=2):
        taken = usage(steal=steal_ns, cpus=cpus)
        return dataclasses.replace(taken, load=dataclasses.replace(taken.load, stolen_from=some))

    assert machine_flags(usage(steal=SECOND // 33), LIMITS) == []
    (flag,) = machine_flags(of_cpus((1,), SECOND // 20) + of_cpus((1,), SECOND // 20), LIMITS)
    assert flag.detail == "the hypervisor took 5.0% of the time of CPU 1, to which it is confined; the limit is 2.0%"
    assert names(machine_flags(of_cpus((1,), SECOND // 33), LIMITS)) == ["steal"]
    assert names(machine_flags(of_cpus((1,), SECOND // 100, cpus=64), LIMITS, of_slice=True)) == ["steal"]


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


def test_the_allowance_for_a_late_answer_is_that_of_each_request():
    """Ten slices of 50 ms, each of which was answered 0.2 s later; a single request may not take as long."""
    inside, outside = clocks(SECOND // 2, SECOND // 2), int(2.5 * SECOND)
    assert clock_flags(inside, outside, LIMITS, requests=10) == []
    assert names(clock_flags(inside, outside, LIMITS)) == ["late-answer"]
