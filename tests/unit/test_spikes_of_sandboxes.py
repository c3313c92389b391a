"""Why a guest's thread was late whose kernel and programs are threads of this machine, by traces that were made up."""

from __future__ import annotations

import pytest
from support.made_up_trace import (
    FAIR,
    HOG,
    KERNEL,
    PIDS,
    PROGRAM,
    interrupted,
    line,
    named,
    switch,
    waking,
    why,
)

from virtgauge.analysis.kernel_trace import Spike
from virtgauge.analysis.spikes import attributions

ASLEEP = switch(-800, KERNEL, PROGRAM), switch(-700, PROGRAM, "swapper/1")
"""Its program waits for the kernel, and that for the timer."""
GONE_ON = waking(960, KERNEL, thread=PROGRAM), switch(970, KERNEL, PROGRAM), switch(1500, PROGRAM, "swapper/1")


def of_sandbox(*lines: str | list[str]) -> tuple[str, str]:
    return named(why(*lines, sandbox=[KERNEL, PROGRAM]))


def woken(us: int, by: str = "<idle>", thread: str = KERNEL) -> list[str]:
    return [*interrupted(us, us + 4, by), waking(us + 2, by, thread=thread)]


def test_one_of_its_threads_that_waits_for_another_program_is_preempted() -> None:
    hog = switch(-300, "swapper/1", HOG), woken(1, HOG), switch(950, HOG, KERNEL)
    assert of_sandbox(*ASLEEP, *hog, *GONE_ON) == ("preempted", HOG)


def test_what_its_threads_do_for_each_other_is_the_guests_own_doing() -> None:
    prompt = woken(1), switch(10, "swapper/1", KERNEL, "R")
    assert of_sandbox(*ASLEEP, *prompt, *GONE_ON) == ("guest", "")
    waits = waking(20, KERNEL, thread=PROGRAM), switch(600, KERNEL, PROGRAM, "R"), switch(990, PROGRAM, KERNEL)
    assert of_sandbox(*ASLEEP, *prompt, *waits) == ("guest", "")


def test_what_one_waits_for_goes_before_what_others_do_on_another_processor() -> None:
    there = switch(-700, "swapper/1", PROGRAM, "R", cpu=0)
    hog = switch(-300, "swapper/1", HOG), woken(1, HOG), switch(950, HOG, KERNEL)
    assert of_sandbox(switch(-800, KERNEL, "swapper/1"), there, *hog) == ("preempted", HOG)


def test_an_interrupt_that_one_of_its_threads_has_to_let_go_first_is_named() -> None:
    softirq = line(20, "softirq_entry: vec=3 [action=NET_RX]", KERNEL), line(950, "softirq_exit: vec=3", KERNEL)
    prompt = woken(1), switch(10, "swapper/1", KERNEL, "R")
    assert of_sandbox(*ASLEEP, *prompt, *softirq, *GONE_ON) == ("interrupt", "softirq NET_RX")


def test_while_all_sleep_their_kernel_does_and_on_a_silent_processor_that_or_another_above() -> None:
    rest = woken(940), switch(950, "swapper/1", KERNEL, "R"), *GONE_ON
    assert of_sandbox(*ASLEEP, *rest) == ("unknown", "")
    ticks = [interrupted(us, us + 2) for us in range(1, 900, 100)]
    assert of_sandbox(*ASLEEP, *ticks, *rest) == ("guest", "asleep")


def test_it_is_stopped_as_a_whole_and_its_kernel_tracing_its_programs_stops_nothing() -> None:
    stopped = switch(-400, KERNEL, "swapper/1", "T"), switch(-390, PROGRAM, "swapper/1", "T", cpu=0)
    assert of_sandbox(*stopped, switch(985, "swapper/1", KERNEL, "R")) == ("stopped", "")
    traced = switch(-800, PROGRAM, KERNEL, "t"), switch(-700, KERNEL, "swapper/1")
    ticks = [interrupted(us, us + 2) for us in range(1, 900, 100)]
    assert of_sandbox(*traced, *ticks, woken(940), switch(950, "swapper/1", KERNEL, "R")) == ("guest", "asleep")


def test_of_what_happened_within_one_microsecond_the_order_is_that_of_the_trace() -> None:
    """Its threads stop one after another, each as soon as it has the processor."""
    stopped = switch(-400, PROGRAM, KERNEL, "T"), switch(-400, KERNEL, "swapper/1", "T")
    assert of_sandbox(*stopped, switch(985, "swapper/1", PROGRAM, "R")) == ("stopped", "")


def test_a_quota_that_is_spent_throttles_it() -> None:
    spent = switch(-700, "swapper/1", PROGRAM, "R"), switch(-300, PROGRAM, "swapper/1", "R")
    back = switch(960, "swapper/1", PROGRAM, "R")
    assert of_sandbox(*spent, back) == ("throttled", "quota")


def test_threads_of_another_sandbox_are_none_of_it() -> None:
    other = switch(-700, "swapper/1", FAIR, "R")
    assert of_sandbox(other, switch(500, FAIR, HOG, "R")) == ("unrecorded", "no thread of that name was seen")


def test_a_thread_that_is_born_has_not_waited_before() -> None:
    """As Go's and gVisor's, which are made when something is late."""
    ticks = [interrupted(us, us + 2, HOG) for us in range(1, 900, 100)]
    born = waking(950, KERNEL, thread=PROGRAM).replace("sched_waking", "sched_wakeup_new")
    late = switch(-800, KERNEL, HOG), *ticks, woken(940, HOG), switch(945, HOG, KERNEL, "R")
    assert of_sandbox(*late, born, switch(960, KERNEL, PROGRAM)) == ("guest", "asleep")


def test_one_that_slept_was_not_sent_away_for_want_of_quota_before() -> None:
    slept = switch(-800, KERNEL, PROGRAM), switch(50, PROGRAM, "swapper/1"), switch(100, "swapper/1", HOG)
    assert of_sandbox(*slept, woken(150, HOG), switch(900, HOG, KERNEL, "R"), *GONE_ON) == ("preempted", HOG)


def test_one_that_has_spent_its_quota_speaks_for_all_that_wait() -> None:
    """The one that was woken into the group without quota was never sent away."""
    spent = switch(10, PROGRAM, "swapper/1", "R"), switch(30, "swapper/1", HOG)
    late = switch(-900, KERNEL, "swapper/1"), switch(-700, "swapper/1", PROGRAM, "R"), woken(1, PROGRAM), *spent
    assert of_sandbox(*late, switch(960, HOG, PROGRAM), switch(970, PROGRAM, KERNEL, "R")) == ("throttled", "quota")


def test_its_kernel_is_stopped_whatever_its_programs_do() -> None:
    stopped = switch(-400, KERNEL, PROGRAM, "T"), interrupted(300, 302, PROGRAM), switch(960, PROGRAM, KERNEL, "R")
    assert of_sandbox(*stopped) == ("stopped", "")


def test_one_that_gets_no_processor_until_the_end_is_nothing_that_was_waited_for() -> None:
    behind = switch(-700, PROGRAM, HOG, "R", cpu=0)
    ticks = [interrupted(us, us + 2) for us in range(1, 900, 100)]
    rest = *ticks, woken(940), switch(950, "swapper/1", KERNEL, "R")
    assert of_sandbox(behind, switch(-800, KERNEL, "swapper/1"), *rest) == ("guest", "asleep")


def test_a_silence_after_an_interrupt_is_not_taken_for_its_kernels() -> None:
    rest = woken(940), switch(950, "swapper/1", KERNEL, "R"), *GONE_ON
    assert of_sandbox(*ASLEEP, *interrupted(300, 305), *rest) == ("unknown", "")


def test_one_that_waits_for_the_disk_is_asked_only_if_it_is_woken_next() -> None:
    ticks = [interrupted(us, us + 2) for us in range(1, 900, 100)]
    fault = line(-720, "page_fault_user: address=0x7f1 ip=0x55 error_code=0x6", PROGRAM)
    blocked = switch(-800, KERNEL, PROGRAM), fault, switch(-700, PROGRAM, "swapper/1", "D")
    assert of_sandbox(*blocked, *ticks, woken(940), switch(950, "swapper/1", KERNEL, "R")) == ("guest", "asleep")


@pytest.mark.parametrize("uncertain_us", [0, 100, 600])
def test_a_cause_is_told_within_the_uncertainty_of_the_clocks(uncertain_us: int) -> None:
    hog = [switch(-700, KERNEL, HOG, "R"), switch(950, HOG, KERNEL), switch(3000, KERNEL, "swapper/1")]
    spike = Spike("cycle-0", 1_000_000, 1_001_000_000, sandbox=frozenset({PIDS[KERNEL]}))
    (found,) = attributions(hog, [spike], uncertain_ns=uncertain_us * 1000)
    assert found.cause == ("unrecorded" if uncertain_us == 600 else "preempted")
