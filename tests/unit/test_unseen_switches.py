"""Switches that no kernel recorded: by traces that were made up, what is said of them, and what is not."""

from __future__ import annotations

import pytest
from support.made_up_trace import (
    ASLEEP,
    CYCLE,
    EMULATOR,
    FAIR,
    FAULT,
    HOG,
    IDLE,
    KERNEL,
    PIDS,
    PROGRAM,
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


def test_who_left_the_processor_unseen_has_preempted_the_one_that_shows_when_it_goes_to_sleep_again() -> None:
    """As Linux 6.18 records it of some threads: that they go to sleep it does not."""
    found = why(ASLEEP, switch(-300, "swapper/1", HOG), waking(3, HOG), switch(1006, CYCLE, "stress"))
    assert named(found) == ("preempted", HOG)
    assert found.share == pytest.approx(0.983, abs=0.001)


def test_since_when_one_has_the_processor_who_came_unseen_is_not_guessed() -> None:
    """One of the two has preempted the late one; which, is not known of most of the time."""
    known = switch(-400, HOG, "stress", "R"), waking(3, "stress")
    found = why(ASLEEP, *known, *interrupted(700, 701, HOG), switch(990, HOG, CYCLE, "R"))
    assert named(found) == ("preempted", "")
    assert found.course[:2] == (Part("preempted", "", 701_000), Part("preempted", HOG, 289_000))


@pytest.mark.parametrize(
    "shown",
    [
        interrupted(996, 998, CYCLE),
        [waking(996, CYCLE, thread=FAIR)],
        [line(996, FAULT, CYCLE)],
        [switch(996, CYCLE, "stress", "R+"), switch(998, "stress", CYCLE, "R")],
    ],
)
def test_a_late_thread_that_came_unseen_may_have_come_at_any_time_since(shown: list[str]) -> None:
    found = why(ASLEEP, switch(-300, "swapper/1", HOG), waking(3, HOG), shown, switch(1006, CYCLE, "stress"))
    assert named(found) == ("unknown", "")
    assert max(found.course, key=lambda part: part.ns)[:2] == ("unknown", "switch not recorded")


def test_one_that_sleeps_unseen_is_not_taken_to_run_while_its_processor_idles() -> None:
    idle = switch(-900, "swapper/1", CYCLE, "R"), *interrupted(-500, -498)
    found = why(*idle, switch(-300, "swapper/1", HOG, "R"), waking(3, HOG), switch(990, HOG, CYCLE))
    assert named(found) == ("preempted", HOG)


def test_whoever_has_never_been_seen_before_is_one_too() -> None:
    found = why(switch(-700, "swapper/1", CYCLE, "R"), switch(990, "stress", CYCLE, "R"))
    assert named(found) == ("unknown", "")


def test_a_thread_that_has_moved_unseen_is_not_taken_to_leave_where_it_was() -> None:
    moved = switch(-5000, "stress", VCPU), switch(-100, "swapper/1", VCPU, "R", cpu=0)
    ticks = [line(us, f"local_timer_{end}: vector=236", VCPU, 0) for us, end in ((500, "entry"), (502, "exit"))]
    shows = interrupted(-50, -48, "stress")
    assert of_guest(*moved, *ticks) == of_guest(*moved, *ticks, *shows) == ("guest", "")


def test_what_a_thread_does_that_left_unseen_after_a_page_fault_is_not_known() -> None:
    woken = *interrupted(1, 5), waking(3), switch(10, "swapper/1", CYCLE, "R"), line(15, FAULT, CYCLE)
    rest = *interrupted(20, 22, "stress"), waking(950, "stress"), switch(960, "stress", CYCLE, "R+")
    assert named(why(switch(-900, "stress", "swapper/1"), ASLEEP, *woken, *rest)) == ("unknown", "")
    paging = waking(17, CYCLE, thread=HOG)  # of whom the disk is asked by
    assert named(why(switch(-900, "stress", "swapper/1"), ASLEEP, *woken, paging, *rest)) == ("unknown", "")
    overwritten = why(switch(-900, "stress", "swapper/1"), *woken[:-1], woken[-1], *rest[:-2], rest[-1], written=1000)
    assert named(overwritten) == ("unknown", "")


@pytest.mark.parametrize("interrupt", [interrupted(988, 990, name="call_function_single"), []])
def test_a_thread_that_was_sent_away_is_found_though_its_return_is_not_recorded(interrupt: list[str]) -> None:
    """As on Linux 6.18, where an interrupt of another processor gives it to an idle one."""
    woken = switch(-700, FAIR, "stress"), waking(3, "stress", thread=FAIR), switch(5, "stress", FAIR, "R")
    gone = switch(9, FAIR, "swapper/1", "R"), switch(1010, FAIR, "stress")
    assert named(why(*woken, *gone, interrupt, thread=FAIR)) == ("throttled", "quota")


def test_a_thread_that_an_idle_processor_takes_unseen_ran_since_the_interrupt_and_not_since_it_shows() -> None:
    asleep, interrupt = switch(-700, FAIR, "swapper/1"), interrupted(10, 12, name="call_function_single")
    taken = waking(8, HOG, cpu=0, thread=HOG), waking(5, IDLE, thread=FAIR)
    shown = line(700, "local_timer_entry: vector=236", HOG), line(702, "local_timer_exit: vector=236", HOG)
    found = why(asleep, *taken, interrupt, *shown, switch(990, HOG, FAIR), thread=FAIR)
    assert (named(found), round(found.share, 2)) == (("preempted", HOG), 0.98)


def test_nor_is_it_guessed_of_a_virtual_processor_that_it_came_shortly_before() -> None:
    shown = switch(-300, "swapper/1", HOG), waking(3, HOG, thread=VCPU), switch(1000, VCPU, "stress")
    assert of_guest(switch(-700, VCPU, "swapper/1"), *shown) == ("unknown", "")


def test_one_that_was_woken_had_gone_to_sleep_before_however_late_that_shows() -> None:
    """And of one that went unseen it is no wonder that it comes again without a waking."""
    ran, woken = switch(-500, "stress", VCPU), waking(10, EMULATOR, 0, VCPU)
    rest = interrupted(20, 22, "stress"), switch(990, "stress", VCPU, "R")
    found = why(ran, woken, *rest, vcpu=PIDS[VCPU], written=1000)
    assert named(found) == ("preempted", "stress")
    assert found.course[-2:] == (Part("preempted", "stress", 968_000), Part("guest", "", 10_000))
    assert of_guest(ran, *rest) == named(why(ran, *rest, vcpu=PIDS[VCPU], written=1000))


@pytest.mark.parametrize("shown_us", [-10, 20])
def test_nor_is_the_waking_lost_if_it_comes_before_that_shows(shown_us: int) -> None:
    """And where it has been moved to."""
    ran, hog = switch(-500, "stress", VCPU), switch(-400, "swapper/1", HOG, "R", cpu=0)
    woken = waking(-20, HOG, 0, VCPU), migrated(-18, VCPU, 0, HOG, 0)
    shown = interrupted(shown_us, shown_us + 2, "stress"), interrupted(500, 502, "stress")
    back = switch(990, HOG, VCPU, cpu=0)
    assert of_guest(ran, hog, *woken, *shown, back) == ("preempted", HOG)


def test_one_that_is_woken_again_without_having_come_was_about_to_sleep_the_first_time() -> None:
    ran, woken = switch(-500, "stress", VCPU), waking(10, EMULATOR, 0, VCPU)
    again = interrupted(980, 983), waking(981, thread=VCPU), switch(985, "swapper/1", VCPU, "R")
    assert of_guest(ran, woken, *interrupted(21, 23), *interrupted(500, 502), *again) == ("vm-exit", "halt")


def test_one_that_is_moved_or_runs_elsewhere_does_not_run_where_it_was() -> None:
    ran, hog = switch(-500, "stress", VCPU), switch(-400, "swapper/1", HOG, "R", cpu=0)
    woken, moved = waking(3, HOG, 0, VCPU), migrated(5, VCPU, 0, HOG, 0)
    back = switch(990, HOG, VCPU, cpu=0)
    assert of_guest(ran, hog, woken, moved, back) == ("preempted", HOG)
    assert of_guest(ran, hog, woken, back) == ("unknown", "")  # on which of the two it waited


def test_what_only_shows_later_is_no_sign_of_life() -> None:
    ran, rest = switch(-700, "swapper/1", CYCLE, "R"), (*interrupted(985, 989), waking(986))
    assert why(ran, *interrupted(-8, -6, CYCLE), *rest, switch(990, "swapper/1", CYCLE, "R")).cause == "unknown"


def test_an_idle_processor_after_an_unseen_leave_is_no_sign_of_a_quota() -> None:
    ran, idle = switch(-700, "swapper/1", FAIR, "R"), interrupted(20, 22)
    assert why(ran, *interrupted(-8, -6, FAIR), idle, switch(990, "swapper/1", FAIR, "R"), thread=FAIR).cause == "above"


def test_a_guests_kernel_is_asked_of_a_processor_that_shows_only_afterwards() -> None:
    assert of_guest(*interrupted(500, 502, "stress"), switch(5000, "stress", VCPU)) == (
        *("unrecorded", "no thread of that name was seen"),
    )


def test_whether_another_thread_of_its_sandbox_ran_unseen_is_not_known_either() -> None:
    asleep, woken = switch(-700, KERNEL, "stress"), waking(3, "stress", thread=KERNEL)
    shown = interrupted(980, 982, PROGRAM), switch(990, PROGRAM, KERNEL, "R")
    found = why(asleep, woken, *shown, sandbox=[KERNEL, PROGRAM])
    assert named(found) == ("unknown", "")
    assert Part("unknown", "switch not recorded", 990_000) in found.course
    went = switch(-700, KERNEL, "stress"), switch(-300, "stress", PROGRAM), waking(3, PROGRAM, thread=KERNEL)
    rest = interrupted(980, 982, "stress"), switch(990, "stress", KERNEL, "R")
    assert named(why(*went, *rest, sandbox=[KERNEL, PROGRAM])) == ("unknown", "")
