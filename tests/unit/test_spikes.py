"""Why a thread was late, by traces that were made up in ftrace's format: one way to be late each, and what was seen."""

from __future__ import annotations

import random

import pytest
from support.made_up_trace import (
    ASLEEP,
    CYCLE,
    DEADLINE,
    EMULATOR,
    FAIR,
    FAULT,
    HOG,
    IDLE,
    PIDS,
    VCPU,
    interrupted,
    line,
    migrated,
    named,
    of_guest,
    switch,
    waking,
    why,
)

from virtgauge.analysis.courses import Part
from virtgauge.analysis.kernel_trace import Spike, cut
from virtgauge.analysis.spikes import Attribution, attributions, clock_jumps, joined, processors
from virtgauge.suites.spikes import _Inside, _placed

CLOCKS = "clocks of guest and host not known well"
REFILL = "hrtimer_expire_entry: hrtimer=00000000a8c1 function=sched_cfs_period_timer now=1000949000"
LEAD_NS = 2_000_000


def test_who_ran_while_the_thread_waited_has_preempted_it() -> None:
    found = why(
        ASLEEP, switch(-300, "swapper/1", HOG), interrupted(1, 5, HOG), waking(3, HOG), switch(990, HOG, CYCLE, "R+")
    )
    assert named(found) == ("preempted", HOG)
    assert found.share == pytest.approx(0.985, abs=0.001)
    assert sum(part.ns for part in found.course) == 1_000_000


def test_one_that_is_preempted_while_it_runs_is_told_by_whom() -> None:
    """A thread that never sleeps: the gap began when it was switched away from."""
    running = switch(-700, "swapper/1", CYCLE, "R")
    found = why(running, switch(10, CYCLE, HOG, "R+"), switch(980, HOG, CYCLE))
    assert named(found) == ("preempted", HOG)


def test_a_waking_by_an_interrupt_of_which_no_event_tells_is_not_the_interrupted_threads() -> None:
    """As that of a posted interrupt."""
    asleep = switch(-710, "stress", VCPU, "R+"), switch(-700, VCPU, HOG), switch(960, HOG, "stress")
    woken, back = waking(972, "stress", thread=VCPU), switch(980, "stress", VCPU, "R+")
    assert of_guest(*asleep, woken.replace("d..2.", "d.h2."), back) == ("vm-exit", "halt")
    assert of_guest(*asleep, woken, back) == ("preempted", HOG)


@pytest.mark.parametrize("name", ["local_timer", "thermal_apic", "call_function"])
def test_a_handler_that_ran_before_its_timer_or_after_it_is_named(name: str) -> None:
    found = why(ASLEEP, interrupted(1, 900, IDLE, name), waking(905), switch(990, "swapper/1", CYCLE, "R"))
    assert named(found) == ("interrupt", name.replace("_", " "))


def test_an_interrupt_and_a_softirq_that_were_under_way_at_the_deadline_are_known_by_their_end() -> None:
    irq = line(-50, "irq_handler_entry: irq=24 name=nvme0q1"), line(20, "irq_handler_exit: irq=24 ret=handled")
    softirq = line(30, "softirq_entry: vec=3 [action=NET_RX]"), line(900, "softirq_exit: vec=3 [action=NET_RX]")
    rest = waking(25), switch(990, "swapper/1", CYCLE, "R")
    assert named(why(ASLEEP, *irq, *softirq, *rest)) == ("interrupt", "softirq NET_RX")
    late = line(-800, "softirq_entry: vec=3 [action=NET_RX]"), softirq[1]
    assert named(why(ASLEEP, *late, *rest)) == ("interrupt", "softirq NET_RX")


def test_a_softirq_that_was_preempted_with_its_thread_is_not_taken_for_what_preempted_it() -> None:
    """As PREEMPT_RT does."""
    asleep, woken = switch(-700, FAIR, "swapper/1"), waking(3, HOG, thread=FAIR)
    switches = switch(-300, "swapper/1", HOG), switch(900, HOG, "stress"), switch(990, "stress", FAIR, "R")
    end = line(950, "softirq_exit: vec=3 [action=NET_RX]", "stress")
    assert named(why(asleep, woken, *switches, end, thread=FAIR)) == ("preempted", HOG)


def test_an_interrupts_name_is_that_of_its_handler() -> None:
    irq = line(2, "irq_handler_entry: irq=24 name=nvme0q1"), line(800, "irq_handler_exit: irq=24 ret=handled")
    assert named(why(ASLEEP, *irq, waking(805), switch(990, "swapper/1", CYCLE, "R"))) == (
        "interrupt",
        "nvme0q1 (IRQ 24)",
    )


def test_a_processor_without_any_event_although_one_was_due_was_taken_from_above() -> None:
    found = why(ASLEEP, interrupted(980, 985), waking(982), switch(990, "swapper/1", CYCLE, "R"))
    assert named(found) == ("above", "idle")
    found = why(ASLEEP, switch(-300, "swapper/1", "stress"), waking(981, "stress"), switch(990, "stress", CYCLE, "R"))
    assert named(found) == ("above", "stress")


def test_so_was_one_whose_thread_ran_all_the_time() -> None:
    assert named(why(switch(-700, "swapper/1", CYCLE, "R"), interrupted(999, 1000, CYCLE))) == ("above", "itself")


def test_a_program_that_wakes_others_with_interrupts_held_off_is_named() -> None:
    others = [waking(us, "stress", thread=FAIR) for us in range(10, 900, 100)]
    rest = interrupted(980, 985, "stress"), waking(982, "stress"), switch(990, "stress", CYCLE, "R")
    assert named(why(ASLEEP, switch(-300, "swapper/1", "stress"), others, *rest)) == ("above", "stress")


def test_a_timer_is_late_if_the_processor_took_interrupts_meanwhile() -> None:
    ticks = [interrupted(us, us + 2) for us in range(1, 900, 100)]
    found = why(ASLEEP, *ticks, interrupted(980, 985), waking(982), switch(990, "swapper/1", CYCLE, "R"))
    assert found.cause == "timer"


def test_a_timer_that_another_processor_has_is_late_there() -> None:
    """As of a processor with nohz_full: its own silence, and its own interrupts, delay nothing."""
    there = [line(us, f"local_timer_{end}: vector=236", cpu=0) for us, end in ((900, "entry"), (910, "exit"))]
    rest = interrupted(100, 700), *there, waking(905, cpu=0), switch(915, "swapper/1", CYCLE, "R")
    assert named(why(ASLEEP, *rest)) == ("timer", "of CPU 0")
    own_ring_alone = ASLEEP, interrupted(912, 914), switch(915, "swapper/1", CYCLE, "R")
    assert named(why(*own_ring_alone, written=1000)) == ("unrecorded", "overwritten by later events")


def test_a_thread_that_is_due_on_an_idle_processor_until_its_quota_is_filled_up_was_throttled() -> None:
    def found(*lines: str | list[str]) -> tuple[str, str]:
        return named(why(switch(-700, FAIR, "swapper/1"), *lines, thread=FAIR))

    woken = interrupted(1, 5), waking(3, thread=FAIR), switch(990, "swapper/1", FAIR, "R")
    assert found(line(950, REFILL, cpu=0), *woken) == ("throttled", "quota")
    assert found(*woken) == ("above", "idle")
    assert found(line(300, REFILL, cpu=0), *woken) == ("above", "idle")  # some other group's
    assert found(line(950, REFILL.replace("cfs", "rt"), cpu=0), *woken) == ("above", "idle")
    # The group had run until then: the processor was given to nobody, though the thread could run.
    spent = (
        switch(-300, "swapper/1", "stress"),
        waking(3, "stress", thread=FAIR),
        switch(20, "stress", "swapper/1", "R"),
    )
    assert found(*spent, switch(990, "swapper/1", FAIR, "R")) == ("throttled", "quota")


def test_a_thread_that_is_turned_back_on_its_way_out_of_the_kernel_was_throttled_however_busy_its_processor_is() -> (
    None
):
    def found(*lines: str | list[str], quota: bool = True) -> tuple[str, str]:
        woken = switch(-700, FAIR, "stress"), waking(3, "stress", thread=FAIR), switch(5, "stress", FAIR, "R")
        return named(why(*woken, *lines, switch(990, "stress", FAIR, "R"), thread=FAIR, quota=quota))

    turned_back, refilled = switch(9, FAIR, "stress", "R"), line(950, REFILL, cpu=0)
    assert found(turned_back, refilled) == ("throttled", "quota")
    assert found(turned_back, refilled, quota=False) == ("preempted", "stress")
    assert found(switch(106, FAIR, "stress", "R"), refilled) == ("preempted", "stress")
    for reason in (interrupted(6, 8, FAIR), [waking(7, FAIR)]):
        assert found(reason, turned_back, refilled) == ("preempted", "stress")
    returned = switch(200, "stress", FAIR), switch(400, FAIR, "stress", "R")
    assert found(turned_back, *returned, refilled) == ("preempted", "stress")
    # It gave way by itself (sched_yield), and to one that goes first.
    assert found(turned_back) == ("preempted", "stress")
    assert found(switch(9, FAIR, HOG, "R"), refilled, switch(980, HOG, "stress")) == ("preempted", HOG)


def test_nor_does_a_real_time_thread_that_runs_for_long_tell_of_a_quota() -> None:
    away = switch(-20_200, "swapper/1", FAIR, "R"), switch(-19_500, FAIR, HOG, "R+")
    found = why(*away, line(900, REFILL, cpu=0), switch(990, HOG, FAIR), thread=FAIR)
    assert named(found) == ("preempted", HOG)


def test_a_thread_that_waits_while_its_processor_idles_was_throttled_whoever_runs_besides() -> None:
    """As one is that ran in user space when its quota was spent: a tick sent it away, as if for another."""

    def found(*lines: str, quota: bool = True) -> tuple[str, str]:
        sent_away = switch(-700, "swapper/1", FAIR, "R"), interrupted(10, 14, FAIR), switch(15, FAIR, "stress", "R")
        return named(why(*sent_away, *lines, thread=FAIR, quota=quota))

    idle = switch(700, "stress", "swapper/1"), switch(800, "swapper/1", "stress", "R"), switch(990, "stress", FAIR, "R")
    assert found(*idle) == ("throttled", "quota")
    assert found(*idle, quota=False) == ("preempted", "stress")
    assert found(switch(990, "stress", FAIR, "R")) == ("preempted", "stress")


@pytest.mark.parametrize(
    ("left_us", "refilled_us", "cause"),
    [(-19_500, 900, "throttled"), (-17_000, 900, "preempted"), (-19_500, -9_500, "preempted")],
)
def test_a_thread_that_waits_for_long_and_returns_soon_after_a_refill_was_throttled(
    left_us: int, refilled_us: int, cause: str
) -> None:
    """The scheduler lets nobody of the same class go first for so long."""
    away = switch(left_us - 700, "swapper/1", FAIR, "R"), switch(left_us, FAIR, "stress", "R")
    back = line(refilled_us, REFILL, cpu=0), switch(990, "stress", FAIR, "R")
    assert why(*away, *back, thread=FAIR).cause == cause


def test_of_a_processor_on_which_nothing_happened_whoever_it_was_given_to_last_has_it() -> None:
    later = line(1000, "local_timer_entry: vector=236", "stress", cpu=0)
    assert of_guest(switch(-300, VCPU, "swapper/1", "R"), later) == ("throttled", "quota")
    assert of_guest(switch(-300, VCPU, HOG, "R"), later) == ("preempted", HOG)


def test_a_real_time_thread_that_gives_way_to_an_ordinary_one_is_throttled() -> None:
    running = switch(-700, "swapper/1", CYCLE, "R")
    found = why(running, switch(10, CYCLE, "stress", "R"), switch(980, "stress", CYCLE, "R"))
    assert named(found) == ("throttled", "bounds of its real-time class")
    left_before = switch(-10, CYCLE, "stress", "R"), switch(980, "stress", CYCLE, "R")
    assert named(why(*left_before)) == ("throttled", "bounds of its real-time class")


def test_so_is_one_of_class_deadline_that_gives_way_to_a_fixed_priority_and_not_to_what_stops_its_processor() -> None:
    def found(other: str) -> tuple[str, str]:
        return named(why(switch(10, DEADLINE, other, "R"), switch(980, other, DEADLINE), thread=DEADLINE))

    assert found(HOG) == ("throttled", "bounds of its real-time class")
    assert found("migration/1") == ("preempted", "migration/1")


def test_one_that_an_ordinary_thread_in_the_kernel_keeps_waiting_is_not() -> None:
    found = why(ASLEEP, switch(-300, "swapper/1", "stress"), waking(3, "stress"), switch(990, "stress", CYCLE, "R"))
    assert named(found) == ("preempted", "stress")


def test_a_stopped_thread_was_stopped_however_busy_its_processor_is() -> None:
    stopped = switch(-400, CYCLE, "stress", "T"), interrupted(100, 800, "stress"), waking(970, "stress", cpu=0)
    assert named(why(ASLEEP, *stopped, switch(985, "stress", CYCLE, "R"))) == ("stopped", "")


@pytest.mark.parametrize("state", ["R", "D"])
def test_a_page_fault_explains_the_time_after_it_running_or_waiting_for_the_disk(state: str) -> None:
    woken = interrupted(1, 5), waking(3), switch(10, "swapper/1", CYCLE, "R")
    fault = line(15, "page_fault_user: address=0x7f1 ip=0x55 error_code=0x6", CYCLE)
    wait = [switch(30, CYCLE, "swapper/1", "D"), waking(950), switch(960, "swapper/1", CYCLE, "R")]
    assert named(why(ASLEEP, *woken, fault, wait if state == "D" else [])) == ("fault", "")


def test_a_fault_of_somebody_else_is_none() -> None:
    woken = interrupted(1, 5), waking(3), switch(10, "swapper/1", CYCLE, "R")
    fault = line(15, "page_fault_user: address=0x7f1 ip=0x55 error_code=0x6", "stress", cpu=0)
    assert named(why(ASLEEP, *woken, fault)) == ("above", "itself")


def test_a_virtual_processor_is_late_while_it_is_out_of_its_guest() -> None:
    running = switch(-700, "swapper/1", VCPU, "R")
    out = line(
        10, "kvm_exit: vcpu 0 reason EPT_VIOLATION rip 0xffff info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0", VCPU
    )
    back = line(900, "kvm_entry: vcpu 0, rip 0xffff", VCPU)
    assert of_guest(running, out, back) == ("vm-exit", "EPT_VIOLATION")


def test_one_that_its_host_keeps_from_running_is_late_for_what_the_host_did() -> None:
    running = switch(-700, "swapper/1", VCPU, "R")
    assert of_guest(running, switch(10, VCPU, HOG, "R"), switch(980, HOG, VCPU)) == ("preempted", HOG)
    assert of_guest(running, switch(10, VCPU, "swapper/1", "T"), switch(980, "swapper/1", VCPU)) == ("stopped", "")
    assert of_guest(running, switch(10, VCPU, "stress", "R")) == ("preempted", "stress")


def test_one_that_runs_all_the_time_does_something_else_in_its_guest() -> None:
    ticks = interrupted(-100, -98, VCPU), interrupted(500, 502, VCPU)
    assert of_guest(*ticks) == ("guest", "")
    assert of_guest(switch(-700, "swapper/1", VCPU, "R"), *ticks) == ("guest", "")
    assert of_guest(interrupted(500, 502)) == ("unrecorded", "no thread of that name was seen")


def test_one_that_was_moved_was_not_passed_over_where_it_is_now() -> None:
    away = switch(-700, "swapper/1", CYCLE, "R", cpu=0), switch(10, CYCLE, HOG, "R+", cpu=0), migrated(14, CYCLE, 1)
    idle = interrupted(970, 975), switch(980, "swapper/1", CYCLE, "R")
    assert named(why(switch(-300, "stress", "swapper/1"), *away, *idle)) == ("above", "idle")
    sent_away = switch(-700, "swapper/1", FAIR, "R", cpu=0), switch(10, FAIR, HOG, "R+", cpu=0)
    away = *sent_away, migrated(20, FAIR, 1, "stress")
    busy = switch(-300, "swapper/1", "stress", "R"), switch(980, "stress", FAIR)
    assert named(why(*away, *busy, switch(100, HOG, "swapper/1", cpu=0), thread=FAIR)) == ("preempted", "stress")


def test_one_that_moves_waits_on_the_processor_that_it_has_been_given_to() -> None:
    left = switch(-700, "stress", VCPU, "R", cpu=0), switch(10, VCPU, "stress", "R", cpu=0)
    there = switch(-10, "swapper/1", HOG, "R"), switch(980, HOG, VCPU)
    assert of_guest(*left, *there, migrated(20, VCPU, 1, HOG)) == ("preempted", HOG)
    assert of_guest(*left, *there, migrated(970, VCPU, 1, HOG)) == ("preempted", "stress")
    assert of_guest(*left, *there) == ("preempted", "")  # by the one or the other
    idle = switch(-10, HOG, "swapper/1"), switch(980, "swapper/1", VCPU, "R")
    assert of_guest(*left, *idle) == ("unknown", "")


def test_one_that_was_woken_waits_where_it_slept_until_it_is_moved() -> None:
    def found(*lines: str, was_on: int = 1) -> tuple[str, str]:
        asleep = switch(-700, FAIR, "swapper/1"), switch(-300, "swapper/1", HOG)
        elsewhere = switch(-200, "stress", "swapper/1", cpu=0), switch(980, "swapper/1", FAIR, "R", cpu=0)
        return named(why(*asleep, waking(3, HOG, thread=FAIR, was_on=was_on), *lines, *elsewhere, thread=FAIR))

    assert found(migrated(970, FAIR, 0, HOG)) == ("preempted", HOG)
    assert found(migrated(4, FAIR, 0, HOG)) == found(was_on=0) == ("above", "idle")
    assert found() == ("unknown", "")  # since when it was there
    idle = switch(10, HOG, "swapper/1")
    assert found(idle) == ("unknown", "")  # it is passed over on the one only
    real_time = switch(-700, CYCLE, "swapper/1"), switch(-300, "swapper/1", HOG), waking(3, HOG), idle
    there = switch(-200, "stress", "swapper/1", cpu=0), switch(980, "swapper/1", CYCLE, "R", cpu=0)
    assert why(*real_time, *there).cause == "unknown"


def test_one_that_sleeps_has_its_timer_where_it_slept_and_not_where_it_runs_then() -> None:
    woken = interrupted(970, 973), waking(971), migrated(972, CYCLE, 0), switch(975, "swapper/1", CYCLE, "R", cpu=0)
    assert named(why(ASLEEP, *woken)) == ("above", "idle")


def test_a_waker_was_where_its_own_events_say_and_not_where_the_woken_one_left_its_processor_to_it() -> None:
    long_ago = switch(-700, VCPU, EMULATOR, cpu=0), switch(-650, EMULATOR, "swapper/1", cpu=0)
    others = switch(-600, "swapper/1", "stress", cpu=0), switch(-300, "swapper/1", HOG)
    woken = waking(-50, HOG, thread=EMULATOR), interrupted(500, 502, HOG), switch(980, HOG, EMULATOR)
    last = waking(985, EMULATOR, thread=VCPU, was_on=0), switch(990, "stress", VCPU, cpu=0)
    assert of_guest(*long_ago, *others, *woken, *last) == ("preempted", HOG)


def test_one_that_is_halted_was_late_for_what_kept_its_emulator_from_waking_it() -> None:
    asleep, resumed = switch(-700, VCPU, HOG), switch(960, EMULATOR, VCPU)
    by_timer = line(940, "local_timer_entry: vector=236", HOG), waking(945, HOG, thread=VCPU)
    assert of_guest(asleep, *by_timer, switch(960, HOG, VCPU)) == ("vm-exit", "halt")
    emulator = [*interrupted(1, 5, HOG), waking(3, HOG, thread=EMULATOR), switch(950, HOG, EMULATOR)]
    assert of_guest(asleep, emulator, waking(955, EMULATOR, thread=VCPU), resumed) == ("preempted", HOG)
    prompt = [*interrupted(901, 905, HOG), waking(903, HOG, thread=EMULATOR), switch(908, HOG, EMULATOR)]
    assert of_guest(asleep, prompt, waking(955, EMULATOR, thread=VCPU), resumed) == ("vm-exit", "halt")


def test_what_explains_less_than_half_is_not_named() -> None:
    steps = switch(-300, "swapper/1", HOG), interrupted(1, 5, HOG), waking(3, HOG), switch(400, HOG, CYCLE, "R")
    found = why(ASLEEP, *steps, interrupted(450, 750, CYCLE))
    assert named(found) == ("unknown", "")
    assert found.share == pytest.approx(0.395, abs=0.001)
    course = [("preempted", HOG, 400_000), ("above", "itself", 50_000), ("interrupt", "local timer", 300_000)]
    assert found.course == (*course, ("above", "itself", 250_000))


def test_a_spike_that_was_overwritten_is_not_explained_and_one_that_was_not_is() -> None:
    hog = switch(-300, "swapper/1", HOG), waking(3, HOG), switch(990, HOG, CYCLE, "R")
    assert named(why(ASLEEP, *hog, written=1000)) == ("preempted", HOG)
    assert named(why(*hog[1:], written=1000)) == ("unrecorded", "overwritten by later events")
    assert named(why(*hog[1:])) == ("preempted", HOG)


def test_a_thread_that_shows_only_afterwards_had_come_unseen() -> None:
    ticks, later = interrupted(500, 502, "stress"), switch(5000, "stress", CYCLE, "R")
    assert named(why(*ticks, later)) == ("unknown", "switch not recorded")


def test_a_guest_with_a_kernel_of_its_own_has_no_thread_here() -> None:
    assert named(why(interrupted(1, 5))) == ("unrecorded", "no thread of that name was seen")


def test_of_two_threads_of_that_name_the_one_that_ran_at_the_end_was_late() -> None:
    """Two runs at once have threads of the same names."""
    hog = switch(-300, "swapper/1", HOG), waking(3, HOG), switch(990, HOG, CYCLE, "R")
    other = switch(500, "swapper/1", CYCLE, "R", cpu=0), switch(994, CYCLE, "swapper/1", cpu=0)
    other_on, other_off = (one.replace("4242", "5151") for one in other)
    assert named(why(ASLEEP, *hog, other_on, other_off)) == ("preempted", HOG)
    assert named(why(ASLEEP, *hog, other_on)) == ("unrecorded", "several threads of that name")


def test_a_thread_that_was_woken_before_its_deadline_waits_and_does_not_sleep() -> None:
    """As a guest's processor may, whose deadline is known less exactly than its kernel's wake-up."""
    lines = ASLEEP, switch(-300, "swapper/1", HOG), waking(-20, HOG)
    assert named(why(*lines, interrupted(10, 15, HOG), switch(990, HOG, CYCLE, "R+"))) == ("preempted", HOG)


def test_the_name_of_who_ran_is_known_from_any_time() -> None:
    """The deadline and the wake-up lie within one run of the other thread."""
    lines = [switch(-700, VCPU, "stress", "R"), switch(-300, "stress", HOG, "R"), switch(1500, HOG, VCPU)]
    assert named(why(*lines, interrupted(10, 15, HOG), vcpu=PIDS[VCPU])) == ("preempted", HOG)


@pytest.mark.parametrize("uncertain_us", [0, 100, 300, 600])
def test_a_cause_is_told_only_where_it_is_the_same_within_the_uncertainty_of_the_clocks(uncertain_us: int) -> None:
    """The other thread leaves 750 us after the deadline, and the guest goes on: 300 us later that is most."""
    vcpu = PIDS[VCPU]
    lines = [switch(-700, VCPU, HOG, "R"), switch(750, HOG, VCPU), switch(3000, VCPU, "swapper/1")]
    spike = Spike(CYCLE, 1_000_000, 1_001_000_000, vcpu=vcpu)
    (found,) = attributions(lines, [spike], uncertain_ns=uncertain_us * 1000)
    unknown = ("unrecorded", CLOCKS)
    assert named(found) == (unknown if uncertain_us >= 300 else ("preempted", HOG))


BUSY = waking(3, HOG, thread=EMULATOR), switch(950, HOG, EMULATOR)
WAKES = waking(955, EMULATOR, thread=VCPU), switch(960, EMULATOR, VCPU)
"""The emulator's thread is woken at the deadline, waits for another one, and wakes the guest's processor."""


def test_a_halted_processor_waits_for_what_its_waker_waits_for() -> None:
    """Also where the waker had the processor of the guest's before, and has slept since."""
    assert of_guest(switch(-700, VCPU, HOG), *BUSY, *WAKES) == ("preempted", HOG)
    slept = switch(-700, VCPU, EMULATOR), switch(-690, EMULATOR, HOG)
    assert of_guest(*slept, *BUSY, *WAKES) == ("preempted", HOG)


def test_each_sleep_of_a_processor_has_a_waker_of_its_own() -> None:
    interrupt = line(990, "irq_handler_entry: irq=24 name=nvme"), line(994, "irq_handler_exit: irq=24 ret=handled")
    again = (
        switch(980, VCPU, "swapper/1", "D"),
        *interrupt,
        waking(992, thread=VCPU),
        switch(995, "swapper/1", VCPU, "R"),
    )
    assert of_guest(switch(-700, VCPU, HOG), *BUSY, *WAKES, *again) == ("preempted", HOG)


def test_a_waker_whose_processor_serves_an_interrupt_waits_for_that() -> None:
    softirq = line(5, "softirq_entry: vec=3 [action=NET_RX]", EMULATOR), line(900, "softirq_exit: vec=3", EMULATOR)
    assert of_guest(switch(-700, VCPU, EMULATOR), *softirq, *WAKES) == ("interrupt", "softirq NET_RX")


def test_an_exit_before_the_deadline_lasts_until_the_entry() -> None:
    out = line(-30, "kvm_exit: vcpu 0 reason EPT_VIOLATION rip 0xffff", VCPU)
    back = line(900, "kvm_entry: vcpu 0, rip 0xffff", VCPU)
    assert of_guest(switch(-700, "swapper/1", VCPU, "R"), out, back) == ("vm-exit", "EPT_VIOLATION")
    halted = out.replace("EPT_VIOLATION", "HLT")
    assert of_guest(switch(-700, "swapper/1", VCPU, "R"), halted, back) == ("vm-exit", "halt")


def test_a_thread_that_is_woken_while_it_goes_to_sleep_waits() -> None:
    """The kernel tells of the waking first (kernel/sched/core.c, try_to_wake_up)."""
    running, raced = switch(-700, "swapper/1", VCPU, "R"), waking(-25, EMULATOR, cpu=0, thread=VCPU)
    assert of_guest(running, raced, switch(-10, VCPU, HOG), switch(960, HOG, VCPU)) == ("preempted", HOG)
    later = waking(10, EMULATOR, cpu=0, thread=VCPU), switch(20, VCPU, HOG), switch(960, HOG, VCPU)
    assert of_guest(running, *later) == ("preempted", HOG)


def test_a_processor_that_moved_is_looked_for_where_it_is() -> None:
    asleep = switch(-700, VCPU, "stress", cpu=0)
    moved = waking(-20, HOG, thread=VCPU), switch(-10, HOG, VCPU, "R")
    other = line(5, "softirq_entry: vec=3 [action=NET_RX]", "stress", 0), line(900, "softirq_exit: vec=3", "stress", 0)
    assert of_guest(asleep, *moved, *other) == ("guest", "")
    sent_away, ticks = switch(-700, VCPU, "stress", "R", cpu=0), line(5, "local_timer_entry: vector=236", "stress", 0)
    rest = ticks, switch(-300, "swapper/1", HOG), switch(980, HOG, VCPU)
    assert of_guest(sent_away, *rest) == ("unknown", "")  # there, or where it was sent away
    assert of_guest(sent_away, migrated(-200, VCPU, 1, HOG), *rest) == ("preempted", HOG)


def test_a_waking_beyond_the_earlier_bound_still_tells_the_waker() -> None:
    lines = [switch(-700, VCPU, HOG), waking(-150, HOG, thread=EMULATOR), switch(940, HOG, EMULATOR)]
    lines += [waking(945, EMULATOR, thread=VCPU), switch(960, EMULATOR, VCPU), switch(3000, VCPU, "swapper/1")]
    (found,) = attributions(lines, [Spike(CYCLE, 1_000_000, 1_001_000_000, vcpu=PIDS[VCPU])], uncertain_ns=100_000)
    assert named(found) == ("preempted", HOG)


@pytest.mark.parametrize(
    ("outside", "inside", "cause"),
    [
        (("guest", ""), ("preempted", HOG), ("guest", f"preempted: {HOG}")),
        (("guest", ""), ("fault", ""), ("guest", "fault")),
        (("guest", ""), ("above", "itself"), ("guest", "")),  # its emulation
        (("guest", ""), ("unknown", ""), ("guest", "")),
        (("preempted", "x"), ("preempted", HOG), ("preempted", "x")),  # it had not the processor that it thought it had
        (("unrecorded", "why"), ("preempted", HOG), ("guest", f"preempted: {HOG}")),
        (("unrecorded", "why"), ("above", "idle"), ("above", "idle")),
        (("unrecorded", "why"), ("unrecorded", "why not"), ("unrecorded", "why")),
        (("unrecorded", CLOCKS), ("preempted", HOG), ("unrecorded", CLOCKS)),  # it may have been stopped meanwhile
    ],
)
def test_a_guests_own_kernel_is_asked_where_the_hosts_let_it_run_or_saw_nothing(
    outside: tuple[str, str], inside: tuple[str, str], cause: tuple[str, str]
) -> None:
    course, own = (Part(*outside, 7),), (Part(*inside, 7),)
    found = joined(Attribution(*outside, 0.9, course), Attribution(*inside, 0.8, own))
    assert (named(found), found.course, found.inside) == (cause, course, own)


def test_only_what_happens_around_a_spike_is_kept_and_not_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [interrupted(us, us + 1)[0] for us in range(-5000, 5000, 10)]
    spike = Spike(CYCLE, 1_000_000, 1_001_000_000)
    (window,) = cut(lines, [spike]).windows
    assert [event.at_ns for event in window.events] == [1_000_000_000 + us * 1000 for us in range(0, 1001, 10)]
    monkeypatch.setattr("virtgauge.analysis.kernel_trace._MOST_EVENTS", 50)
    (window,) = cut(lines, [spike]).windows
    assert (len(window.events), window.whole) == (50, False)
    (found,) = attributions(lines, [spike])
    assert named(found) == ("unrecorded", "more events than are kept")


def test_names_with_blanks_thread_groups_and_strange_lines_are_read() -> None:
    before = "prev_comm=a b-c 1 prev_pid=5 prev_prio=120 prev_state=R+"
    told = f"sched_switch: {before} ==> next_comm={CYCLE} next_pid=7 next_prio=9"
    group = f"         a b-c 1-5       (    5) [003] dN.3.    12.345678: {told}\n"
    spike = Spike(CYCLE, 1000, 12_345_679_000)
    lines = [group, "CPU:1 [LOST 12 EVENTS]\n", "##### CPU 2 buffer started ####\n", "\n", "x\x00\n"]
    (window,) = cut(lines, [spike]).windows
    ((at_ns, cpu, pid, name, fields, *_),) = window.events
    assert (at_ns, cpu, pid, name) == (12_345_678_000, 3, 5, "sched_switch")
    assert fields == told.removeprefix("sched_switch: ")


def test_a_clock_that_jumps_is_told_from_a_late_thread_by_the_counter() -> None:
    """A counter of 2 GHz; the clock got 5 ms ahead at the fourth spike."""
    on_time = [Spike(CYCLE, 50_000, at * 1_000_000_000, at * 2_000_000_000) for at in (1, 2, 3)]
    ahead = Spike(CYCLE, 5_050_000, 3_005_050_000, 6_000_100_000)
    later = [Spike(CYCLE, 40_000, at * 1_000_000_000 + 5_000_000, at * 2_000_000_000) for at in (4, 5)]
    spikes = [ahead, *on_time, *later]
    assert clock_jumps(spikes)[ahead] == pytest.approx(5_000_000, rel=0.01)
    assert [found.cause for found in attributions([], spikes)] == ["clock", *["unrecorded"] * 5]
    late = Spike(CYCLE, 5_050_000, 3_005_050_000, 6_010_100_000)
    assert late not in clock_jumps([late, *on_time, Spike(CYCLE, 40_000, 4_000_000_000, 8_000_000_000)])


def test_a_slewed_clock_has_not_jumped() -> None:
    spikes = [Spike(CYCLE, 50_000, at * 1_000_000_000, at * 2_000_000_000) for at in range(1, 8)]
    spikes.append(Spike(CYCLE, 50_000, spikes[-1].over_ns + 1_000_400_000, spikes[-1].counter + 2_000_000_000))
    assert clock_jumps(spikes) == {}


def test_of_a_course_of_many_parts_the_sums_are_told() -> None:
    steps = [switch(10 * at, *(("stress", HOG) if at % 2 else (HOG, "stress")), "R") for at in range(1, 98)]
    woken = switch(-700, FAIR, "swapper/1"), switch(-300, "swapper/1", "stress"), waking(0, "stress", thread=FAIR)
    found = why(*woken, steps, switch(985, HOG, FAIR), thread=FAIR)
    told = [("preempted", HOG, 495_000), ("preempted", "stress", 490_000), ("above", "itself", 15_000)]
    assert list(found.course) == told


def test_the_processor_of_a_thread_is_where_it_was_woken_and_ran() -> None:
    """Where these are two, it was late on either."""
    slept, spike = [switch(-700, CYCLE, "swapper/1"), waking(3)], [Spike(CYCLE, 1_000_000, 1_001_000_000)]
    there, elsewhere = switch(990, HOG, CYCLE, "R"), switch(990, HOG, CYCLE, "R", cpu=0)
    assert processors([*slept, there], spike, LEAD_NS) == [1]
    assert processors([*slept, elsewhere], spike, LEAD_NS) == [None]
    overwritten = ["# entries-in-buffer/entries-written: 3/9   #P:2\n", waking(3), there]
    assert processors(overwritten, spike, LEAD_NS) == [None]
    assert processors([*slept, there], [Spike(FAIR, 1_000_000, 1_001_000_000)], LEAD_NS) == [None]


def test_of_a_guests_thread_on_either_processor_its_own_kernel_tells_on_which_it_was() -> None:
    late = [Spike(CYCLE, 1_000_000, 1_001_000_000, 0, -1), Spike(CYCLE, 1_000_000, 1_001_000_000, 0, 77)]
    inside = [switch(-700, CYCLE, "swapper/1"), waking(3), switch(990, HOG, CYCLE, "R")]
    of_both, of_none = _Inside(inside, LEAD_NS, 2), _Inside([], LEAD_NS, 0)
    assert [one.vcpu for one in _placed(late, (900, 901), of_both)] == [901, 77]
    assert [one.vcpu for one in _placed(late, (900,), of_both)] == [-1, 77]
    assert _placed(late, (900, 901), of_none) == late


def test_of_a_guest_that_sent_some_of_its_events_nothing_is_said_of_the_others() -> None:
    """Nor is what was before carried over the time of which nothing is there."""
    first = [switch(-700, CYCLE, "swapper/1"), waking(3), switch(990, "swapper/1", CYCLE, "R")]
    first += [switch(1008, CYCLE, HOG, "R+")]
    third = [waking(8_000_003, HOG), switch(8_000_990, HOG, CYCLE, "R")]
    spikes = [Spike(CYCLE, 1_000_000, at * 1_000_000_000 + 1_000_000) for at in (1, 9, 5)]
    found = [named(one) for one in attributions([*first, *third], spikes, quota=False, lead_ns=LEAD_NS, sent=2)]
    assert found == [("above", "idle"), ("preempted", HOG), ("unrecorded", "more events than are sent")]
    assert processors([*first, *third], spikes, LEAD_NS, sent=2) == [1, 1, None]
    nothing = attributions([*first, *third], spikes, quota=False, lead_ns=LEAD_NS)[2]
    assert named(nothing) == ("unknown", "switch not recorded")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_trace_holds_its_causes_add_up_to_the_lateness(seed: int) -> None:
    """Threads are moved, come and go unseen, and handlers end that never began."""
    chance, us, lines = random.Random(seed), -3000, list[str]()
    threads = [CYCLE, FAIR, HOG, VCPU, EMULATOR, "stress"]
    current = dict.fromkeys(range(3), IDLE)
    others = [FAULT, REFILL, "kvm_exit: vcpu 0 reason HLT rip 0", "kvm_entry: vcpu 0, rip 0"]
    others += [f"local_timer_{end}: vector=236" for end in ("entry", "exit")]
    others += [f"softirq_{end}: vec=3 [action=NET_RX]" for end in ("entry", "exit")]
    others += [f"sched_migrate_task: comm={one} pid={PIDS[one]} prio=9 orig_cpu=0 dest_cpu=3" for one in threads]
    while us < 3000:
        us, cpu, other = us + chance.choice([1, 3, 10, 100, 400]), chance.randrange(3), chance.choice(threads)
        by = current[cpu] if chance.random() < 0.85 else other
        if chance.random() < 0.4 and by != other:
            left = "swapper/1" if by == IDLE else by
            lines.append(switch(us, left, other, chance.choice(["S", "R", "R+", "D", "T"]), cpu))
            current[cpu] = other
        elif chance.random() < 0.4:
            lines.append(waking(us, by, cpu, other))
        else:
            lines.append(line(us, chance.choice(others), by, cpu))
    sandbox = frozenset({PIDS[FAIR], PIDS["stress"]})
    spikes = [Spike(CYCLE, 900_000, 1_000_000_000 + at * 1000) for at in (-1500, 0, 700, 2000)]
    spikes += [Spike(CYCLE, 900_000, 1_001_000_000, 0, PIDS[VCPU]), Spike(CYCLE, 900_000, 1_001_000_000, 0, 0, sandbox)]
    for lead_ns in (None, LEAD_NS):
        for found in attributions(lines, spikes, lead_ns=lead_ns):
            assert 0 <= found.share <= 1
            assert not found.course or len(found.course) == 8 or sum(one.ns for one in found.course) == 900_000
        assert len(processors(lines, spikes[:4], lead_ns or 0)) == 4
