"""A trace that was made up, in ftrace's format, and why a thread of it was late."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.analysis.kernel_trace import Spike
from virtgauge.analysis.spikes import Attribution, attributions

# Documentation/trace/ftrace.rst, "Output format", of a recent kernel.
HEAD = """\
# tracer: nop
#
# entries-in-buffer/entries-written: {kept}/{written}   #P:2
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
"""
IDLE, HOG = "<idle>", "hog-2 x"
CYCLE, FAIR, DEADLINE = "cycle-0", "cycle-1", "cycle-2"
VCPU, EMULATOR = "CPU 0/TCG", "qemu-system-x86"
KERNEL, PROGRAM = "exe", "exe:program"  # of a sandbox
PRIORITIES = {CYCLE: 9, FAIR: 120, DEADLINE: -1, HOG: 4, "migration/1": 0, "stress": 120, "swapper/1": 120}
PRIORITIES |= dict.fromkeys((VCPU, EMULATOR, KERNEL, PROGRAM), 120)
"""As the kernel counts: 99 less the real-time priority, and from 100 on what is none."""
PIDS = {CYCLE: 4242, FAIR: 4243, DEADLINE: 4244, HOG: 77, "migration/1": 21, "stress": 88, "swapper/1": 0, IDLE: 0}
PIDS |= {VCPU: 900, EMULATOR: 901, KERNEL: 950, PROGRAM: 951}


def line(us: int, event: str, by: str = IDLE, cpu: int = 1) -> str:
    """An event of so many microseconds after a second of the machine's clock."""
    seconds, micros = divmod(1_000_000 + us, 1_000_000)
    return f"{by:>16}-{PIDS[by]:<7d} [{cpu:03d}] d..2. {seconds:5d}.{micros:06d}: {event}\n"


def switch(us: int, before: str, after: str, state: str = "S", cpu: int = 1) -> str:
    def told(word: str, name: str) -> str:
        return f"{word}_comm={name} {word}_pid={PIDS[name]} {word}_prio={PRIORITIES[name]}"

    by = IDLE if before == "swapper/1" else before
    return line(us, f"sched_switch: {told('prev', before)} prev_state={state} ==> {told('next', after)}", by, cpu)


def waking(us: int, by: str = IDLE, cpu: int = 1, thread: str = CYCLE, was_on: int = 1) -> str:
    told = f"comm={thread} pid={PIDS[thread]} prio={PRIORITIES[thread]} target_cpu={was_on:03d}"
    return line(us, f"sched_waking: {told}", by, cpu)


def interrupted(us: int, until: int, by: str = IDLE, name: str = "local_timer") -> list[str]:
    return [line(us, f"{name}_entry: vector=236", by), line(until, f"{name}_exit: vector=236", by)]


def migrated(us: int, thread: str, to: int, by: str = IDLE, cpu: int = 1) -> str:
    told = f"comm={thread} pid={PIDS[thread]} prio={PRIORITIES[thread]} orig_cpu={1 - to} dest_cpu={to}"
    return line(us, f"sched_migrate_task: {told}", by, cpu)


FAULT = "page_fault_user: address=0x7f1 ip=0x55 error_code=0x6"
ASLEEP = switch(-700, CYCLE, "swapper/1")
"""It has slept since the cycle before."""


def why(
    *lines: str | list[str],
    written: int | None = None,
    thread: str = CYCLE,
    quota: bool = True,
    vcpu: int = 0,
    sandbox: Sequence[str] = (),
) -> Attribution:
    """Of a thread that was due at 0 and 1000 µs late, by lines in any order."""
    flat = [one for some in lines for one in ([some] if isinstance(some, str) else some)]
    flat.sort(key=lambda one: one.split("] ")[1].split()[1])
    head = HEAD.format(kept=len(flat), written=written or len(flat))
    spike = Spike(thread, 1_000_000, 1_001_000_000, vcpu=vcpu, sandbox=frozenset(PIDS[name] for name in sandbox))
    (found,) = attributions([*head.splitlines(keepends=True), *flat], [spike], quota=quota)
    return found


def named(found: Attribution) -> tuple[str, str]:
    return found.cause, found.by


def of_guest(*lines: str | list[str]) -> tuple[str, str]:
    """Why a guest's thread was late, whose processor is a thread here."""
    return named(why(*lines, vcpu=PIDS[VCPU]))
