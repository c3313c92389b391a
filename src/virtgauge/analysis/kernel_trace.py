"""What a kernel did while a thread was late: of a trace the events from its deadline to its wake-up.

Lines are those of ftrace's file ``trace`` (Linux: Documentation/trace/ftrace.rst), their fields those of tracepoints
(include/trace/events/, arch/x86/kvm/trace.h).  Times are nanoseconds of the clock of the trace; the text has whole
microseconds.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

IDLE = 0  # The pid of every processor's idle thread
ROUNDED_NS = 1000
WAITING = "R"  # The state of a thread that was switched away though it could go on (fs/proc/array.c)

_MOST_EVENTS = 200_000  # That are kept of all spikes
_SHOWN_LATER_NS = 10_000_000  # Until a thread that was given the processor unseen shows: a tick of 100 Hz
_BRIEF_NS = 20_000  # From being given the processor unseen to giving it up, of a thread that has little to do
_TURNED_BACK_NS = 100_000  # From being given the processor to giving it up again, on the way out of the kernel

_LINE = re.compile(r".{16}-(\d+) .*?\[(\d+)\] \S* +(\d+)\.(\d{6}): (\w+): (.*)")
_COUNTS = re.compile(r"# entries-in-buffer/entries-written: (\d+)/(\d+)")
_SWITCH = re.compile(
    r"prev_comm=(.*) prev_pid=(\d+) prev_prio=(-?\d+) prev_state=(\w).* ==> "
    r"next_comm=(.*) next_pid=(\d+) next_prio=(-?\d+)"
)
_WAKING = re.compile(r"comm=(.*) pid=(\d+) prio=(-?\d+)")
_IRQ = re.compile(r"irq=(\d+) (?:name|handler)=(.*)")
_ACTION = re.compile(r"action=(\w+)")


@dataclasses.dataclass(frozen=True)
class Spike:
    """A thread that was late, by the clock of the trace."""

    thread: str  # its name, as the kernel has it
    late_ns: int
    over_ns: int  # when it had woken
    counter: int = 0  # of the processor, at that moment
    vcpu: int = 0  # of a guest's thread: the thread of this machine that is the guest's processor; 0 of any other
    # of a guest's thread where none is its processor: those of this machine that its kernel and its programs are
    sandbox: frozenset[int] = frozenset()

    @property
    def due_ns(self) -> int:
        return self.over_ns - self.late_ns

    def concerns(self, name: str, pid: int) -> bool:
        """Whether a thread of the trace is the late one, or does its work; another run may have such names."""
        if self.sandbox:
            return pid in self.sandbox
        return pid == self.vcpu if self.vcpu else name == self.thread


class Thread(NamedTuple):
    """A thread, as an event tells of it."""

    name: str
    pid: int
    priority: int  # as the kernel counts: the lower, the more urgent; from 100 on of no real-time thread


class Switch(NamedTuple):
    """A processor that was given from one thread to another."""

    left: Thread
    state: str  # the letter of what the one that left it does since
    came: Thread


class Event(NamedTuple):
    """One line of a trace."""

    at_ns: int
    cpu: int
    pid: int  # of the thread that the processor had at the time
    name: str
    told: str  # its fields
    switch: Switch | None = None  # what a ``sched_switch`` tells
    woken: Thread | None = None  # the thread that a ``sched_waking`` or ``sched_wakeup_new`` tells of
    turned_back: bool = False  # of a switch: the thread had hardly come, nothing had happened, and it was not to run


@dataclasses.dataclass
class Window:
    """What was recorded while a thread was late."""

    spike: Spike
    before: list[Event] = dataclasses.field(default_factory=list)  # of each thread the last switch, and waking since
    events: list[Event] = dataclasses.field(default_factory=list)  # of all processors, in their order
    whole: bool = True  # false where they were too many to keep
    crossed: Event | None = None  # the last exit or entry of the guest's processor before
    vcpu_on: int | None = None  # the processor that the guest's was seen on last, before


@dataclasses.dataclass
class Recorded:
    """A trace, as far as spikes need it."""

    windows: list[Window]  # in the order of the spikes
    began_ns: dict[int, int]  # the first event of each processor
    overwritten: bool  # whether there had been more
    names: dict[int, str]  # of all threads that were given a processor or left one, the last of each, by pid


def cut(lines: Iterable[str], spikes: Sequence[Spike], after_ns: int = 0) -> Recorded:
    """Of a trace what happened from each deadline to its wake-up, and how the thread had been left before.

    ``after_ns``: for so long beyond the wake-up, events are kept that may tell what was before.
    """
    windows = [Window(spike) for spike in spikes]
    waiting = sorted(windows, key=lambda one: one.spike.due_ns, reverse=True)
    under_way: list[Window] = []
    names = {one.thread for one in spikes if not (one.vcpu or one.sandbox)}
    followed = {one.vcpu for one in spikes if one.vcpu}.union(*{one.sandbox for one in spikes})
    changed, seen_on = dict[tuple[str, int], list[tuple[int, Event]]](), dict[int, int]()
    crossed = dict[int, Event]()
    recorded, kept = Recorded(windows, {}, overwritten=False, names={}), 0
    for number, event in enumerate(_with_signs_of_quotas(_with_all_switches(_events(lines, recorded)))):
        at_ns = event.at_ns
        recorded.began_ns.setdefault(event.cpu, at_ns)
        while waiting and waiting[-1].spike.due_ns <= at_ns + ROUNDED_NS:
            window = waiting.pop()
            concerned = (of for thread, of in changed.items() if window.spike.concerns(*thread))
            ordered = sorted(itertools.chain.from_iterable(concerned), key=lambda one: (one[1].at_ns, one[0]))
            window.before = [one for _, one in ordered]
            window.vcpu_on = seen_on.get(window.spike.vcpu)
            window.crossed = crossed.get(window.spike.vcpu)
            under_way.append(window)
        if under_way:
            under_way = [one for one in under_way if one.whole and at_ns <= one.spike.over_ns + _SHOWN_LATER_NS]
        late = [one for one in under_way if at_ns <= one.spike.over_ns + after_ns + ROUNDED_NS]
        kept += bool(late)
        for window in late:
            window.whole = kept <= _MOST_EVENTS
            if window.whole:
                bisect.insort(window.events, event, key=lambda one: one.at_ns)
        if event.pid in followed:
            seen_on[event.pid] = event.cpu
            if event.name in ("kvm_exit", "kvm_entry"):
                crossed[event.pid] = event
        if switch := event.switch:
            if switch.came.pid in followed:
                seen_on[switch.came.pid] = event.cpu
            for name, pid, _ in (switch.left, switch.came):
                recorded.names[pid] = name
                if name in names or pid in followed:
                    changed[name, pid] = [(number, event)]
        elif (woken := event.woken) and (woken.name in names or woken.pid in followed):
            last = changed.setdefault((woken.name, woken.pid), [])
            if not any(one.switch and one.switch.came.pid == woken.pid for _, one in last):
                last[1:] = [(number, event)]
    return recorded


def handler_of(event: Event) -> str:
    """Whose entry or exit an event is, of the handlers of interrupts and softirqs; empty of any other."""
    if event.name.startswith(("hrtimer_", "kvm_")) or not event.name.endswith(("_entry", "_exit")):
        return ""
    if event.name.startswith("irq_handler_"):
        found = _IRQ.match(event.told)
        return f"{found[2]} (IRQ {found[1]})" if found else event.told.split()[0]
    if event.name.startswith("softirq_"):
        found = _ACTION.search(event.told)
        return f"softirq {found[1]}" if found else "softirq"
    return event.name.rpartition("_")[0].replace("_", " ")


def _events(lines: Iterable[str], recorded: Recorded) -> Iterator[Event]:
    for line in lines:
        if found := _LINE.match(line):
            at_ns = int(found[3]) * 1_000_000_000 + int(found[4]) * 1000
            name, told = found[5], found[6]
            switch = _switch(told) if name == "sched_switch" else None
            woken = _woken(told) if name in ("sched_waking", "sched_wakeup_new") else None
            yield Event(at_ns, int(found[2]), int(found[1]), name, told, switch, woken)
        elif counts := _COUNTS.match(line):
            recorded.overwritten = int(counts[1]) < int(counts[2])


def _switch(told: str) -> Switch | None:
    if not (found := _SWITCH.match(told)):
        return None
    left, came = Thread(found[1], int(found[2]), int(found[3])), Thread(found[5], int(found[6]), int(found[7]))
    return Switch(left, found[4], came)


def _woken(told: str) -> Thread | None:
    found = _WAKING.match(told)
    return Thread(found[1], int(found[2]), int(found[3])) if found else None


def _with_all_switches(events: Iterable[Event]) -> Iterator[Event]:
    """With the switches that are not among them: one comes when the thread shows, with its own time.

    Where an interrupt of another processor wakes an idle one, some kernels record none (seen with Linux 6.18).  It was
    when the processor was interrupted last, or the thread woken: idle threads do nothing else.  Nor do they record
    that some threads go to sleep.  It was shortly before, where the one that came goes to sleep again: it had little to
    do.  Any other may have had the processor since something was recorded of it last.
    """
    threads, current = dict[int, Thread](), dict[int, int]()  # by pid; pid by processor
    interrupted_ns, woken_ns = dict[int, int](), dict[int, int]()  # by processor, by pid
    last_ns = dict[int, int]()  # by processor
    for event in events:
        gone = current.get(event.cpu, event.pid)
        if gone != event.pid != IDLE and event.pid in threads:
            if gone == IDLE:
                left = Thread(f"swapper/{event.cpu}", IDLE, 120)
                at_ns = max(interrupted_ns.get(event.cpu, 0), woken_ns.get(event.pid, 0))
                if event.at_ns - at_ns > _SHOWN_LATER_NS:  # nothing was recorded since
                    at_ns = event.at_ns
            else:
                left, at_ns = threads.get(gone, Thread("", gone, 120)), last_ns[event.cpu]
                if event.switch and event.switch.left.pid == event.pid and event.switch.state != WAITING:
                    at_ns = max(at_ns, event.at_ns - _BRIEF_NS)
            state = WAITING if gone == IDLE else "S"
            yield Event(at_ns, event.cpu, gone, "sched_switch", "", Switch(left, state, threads[event.pid]))
        current[event.cpu], last_ns[event.cpu] = event.pid, event.at_ns
        if switch := event.switch:
            threads |= {switch.left.pid: switch.left, switch.came.pid: switch.came}
            current[event.cpu] = switch.came.pid
            interrupted_ns.pop(event.cpu, None)
            woken_ns.pop(switch.left.pid, None)
        elif thread := event.woken:
            threads[thread.pid] = thread
            woken_ns[thread.pid] = event.at_ns
        elif handler_of(event):
            interrupted_ns[event.cpu] = event.at_ns
        yield event


def _with_signs_of_quotas(events: Iterable[Event]) -> Iterator[Event]:
    """With a mark on those switches by which a thread of a group without quota left is turned back.

    Since Linux 6.18 a thread is throttled when it leaves the kernel (kernel/sched/fair.c, throttle_cfs_rq_work): it is
    given the processor once more, and gives it up at once, without any interrupt or waking that would be a reason.
    """
    last = dict[int, Event]()  # by processor
    for event in events:
        before, marked = last.get(event.cpu), event
        if before and before.switch and event.switch and event.at_ns - before.at_ns <= _TURNED_BACK_NS:
            first, second = before.switch, event.switch
            if first.came.pid == second.left.pid != IDLE and second.state == WAITING:
                marked = event._replace(turned_back=True)
        last[event.cpu] = event
        yield marked
