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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

IDLE = 0  # The pid of every processor's idle thread
ROUNDED_NS = 1000
WAITING = "R"  # The state of a thread that was switched away though it could go on (fs/proc/array.c)
FAIR = 100  # Priorities from here on are of no real-time thread

_MOST_EVENTS = 200_000  # That are kept of all spikes
_SHOWN_LATER_NS = 10_000_000  # Until a thread that was given the processor unseen shows: a tick of 100 Hz
_BRIEF_NS = 20_000  # From being given the processor unseen to giving it up, of a thread that has little to do
_TURNED_BACK_NS = 100_000  # From being given the processor to giving it up again, on the way out of the kernel

# Names of events that no kernel recorded.
_UNSEEN = "unseen"  # a switch was at some time between here and the next one of the processor
_GAP = "gap"  # nothing is known any more of what was before

_LINE = re.compile(r".{16}-(\d+) .*?\[(\d+)\] (\S*) +(\d+)\.(\d{6}): (\w+): (.*)")
_COUNTS = re.compile(r"# entries-in-buffer/entries-written: (\d+)/(\d+)")
_SWITCH = re.compile(
    r"prev_comm=(.*) prev_pid=(\d+) prev_prio=(-?\d+) prev_state=(\w).* ==> "
    r"next_comm=(.*) next_pid=(\d+) next_prio=(-?\d+)"
)
_WAKING = re.compile(r"comm=(.*) pid=(\d+) prio=(-?\d+)")
_MOVED_TO = re.compile(r" orig_cpu=(\d+) dest_cpu=(\d+)")
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


class Move(NamedTuple):
    """A thread that was given from one processor to another, and does not run."""

    thread: Thread
    left: int
    to: int


class Event(NamedTuple):
    """One line of a trace."""

    at_ns: int
    cpu: int
    pid: int  # of the thread that the processor had at the time
    name: str
    told: str  # its fields
    switch: Switch | None = None  # what a ``sched_switch`` tells
    woken: Thread | None = None  # the thread that a ``sched_waking`` or ``sched_wakeup_new`` tells of
    moved: Move | None = None  # what a ``sched_migrate_task`` tells
    in_handler: bool = False  # whether the processor served an interrupt, by the kernel's own word
    turned_back: bool = False  # of a switch: the thread had hardly come, nothing had happened, and it was not to run
    inferred: bool = False  # nobody recorded it
    unseen: tuple[int, ...] = ()  # pids of those that may have the processor from here on, where that is not known
    until_ns: int = 0  # and until when


@dataclasses.dataclass
class Window:
    """What was recorded while a thread was late."""

    spike: Spike
    # Of each thread the last switch, and since then the last waking and to what processors it was moved.
    before: list[Event] = dataclasses.field(default_factory=list)
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


def cut(lines: Iterable[str], spikes: Sequence[Spike], after_ns: int = 0, *, lead_ns: int | None = None) -> Recorded:
    """Of a trace what happened from each deadline to its wake-up, and how the thread had been left before.

    ``after_ns``: for so long beyond the wake-up, events are kept that may tell what was before.  ``lead_ns``: the text
    has what happened from so long before each deadline on, and nothing between.
    """
    windows = [Window(spike) for spike in spikes]
    waiting = sorted(windows, key=lambda one: one.spike.due_ns, reverse=True)
    under_way: list[Window] = []
    names = {one.thread for one in spikes if not (one.vcpu or one.sandbox)}
    followed = {one.vcpu for one in spikes if one.vcpu}.union(*{one.sandbox for one in spikes})
    changed, seen_on = dict[tuple[str, int], list[tuple[int, Event]]](), dict[int, int]()
    crossed = dict[int, Event]()
    recorded, kept = Recorded(windows, {}, overwritten=False, names={}), 0
    events = _events(lines, recorded)
    if lead_ns is not None:
        events = _with_gaps(events, spikes, lead_ns)
    events = _with_all_switches(events, lambda thread: thread.name in names)
    for number, event in enumerate(_with_signs_of_quotas(events)):
        if event.name == _GAP:
            for each in (changed, seen_on, crossed):
                each.clear()
            continue
        at_ns = event.at_ns
        recorded.began_ns.setdefault(event.cpu, at_ns)
        while waiting and waiting[-1].spike.due_ns <= max(at_ns, event.until_ns) + ROUNDED_NS:
            window = waiting.pop()
            concerned = (of for thread, of in changed.items() if window.spike.concerns(*thread))
            ordered = sorted(itertools.chain.from_iterable(concerned), key=lambda one: (_at_ns(one[1]), one[0]))
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
                bisect.insort(window.events, event, key=_at_ns)
            if event.inferred and event.switch and at_ns < window.spike.due_ns - ROUNDED_NS:
                left, came = event.switch.left, event.switch.came
                if window.spike.concerns(left.name, left.pid) or window.spike.concerns(came.name, came.pid):
                    bisect.insort(window.before, event, key=_at_ns)
        if event.pid in followed:
            seen_on[event.pid] = event.cpu
            if event.name in ("kvm_exit", "kvm_entry"):
                crossed[event.pid] = event
        if switch := event.switch:
            if switch.came.pid in followed:
                seen_on[switch.came.pid] = event.cpu
            for name, pid, _ in (switch.left, switch.came):
                if name:
                    recorded.names[pid] = name
                known = changed.get((name, pid), [])
                if (name in names or pid in followed) and not any(one.switch and one.at_ns > at_ns for _, one in known):
                    changed[name, pid] = [(number, event), *(one for one in known if one[1].at_ns > at_ns)]
        elif (woken := event.woken) and (woken.name in names or woken.pid in followed):
            known = changed.get((woken.name, woken.pid), [])
            changed[woken.name, woken.pid] = [*(one for one in known if one[1].switch), (number, event)]
        elif event.moved and (known := changed.get(event.moved.thread[:2], [])):
            known.append((number, event))
    return recorded


def _at_ns(event: Event) -> int:
    return event.at_ns


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
            at_ns = int(found[4]) * 1_000_000_000 + int(found[5]) * 1000
            name, told, in_handler = found[6], found[7], found[3][2:3] in tuple("hHsZz")
            switch = _switch(told) if name == "sched_switch" else None
            woken = _woken(told) if name in ("sched_waking", "sched_wakeup_new") else None
            moved = _moved(told) if name == "sched_migrate_task" else None
            yield Event(at_ns, int(found[2]), int(found[1]), name, told, switch, woken, moved, in_handler)
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


def _moved(told: str) -> Move | None:
    thread, found = _woken(told), _MOVED_TO.search(told)
    return Move(thread, int(found[1]), int(found[2])) if thread and found else None


def _with_gaps(events: Iterable[Event], spikes: Iterable[Spike], lead_ns: int) -> Iterator[Event]:
    """With a mark before what follows upon time of which nothing is there."""
    coming = deque(sorted(spikes, key=lambda one: one.due_ns))
    until_ns = -1
    for event in events:
        while coming and coming[0].due_ns - lead_ns <= event.at_ns + ROUNDED_NS:
            spike = coming.popleft()
            if spike.due_ns - lead_ns > until_ns:
                yield Event(event.at_ns, event.cpu, IDLE, _GAP, "")
            until_ns = max(until_ns, spike.over_ns)
        yield event


class _Seen:
    """Whom each processor has, as far as events tell."""

    def __init__(self) -> None:
        self._threads, self._current, self._on = dict[int, Thread](), dict[int, int](), dict[int, int]()
        self._last_ns, self._interrupted_ns = dict[int, int](), dict[int, int]()  # by processor
        self._woken_ns = dict[int, int]()  # by pid

    def missed(self, event: Event, is_brief: Callable[[Thread], bool]) -> Iterator[Event]:
        """The switch that must have been before an event and is not there; and marks of when it may have been."""
        yield from self._left_elsewhere(event)
        gone = self._current.get(event.cpu, event.pid)
        if gone == event.pid:
            return
        came, since_ns, at_ns = self._thread(event), self._last_ns[event.cpu], event.at_ns
        left = _idle(event.cpu) if gone == IDLE else self._threads.get(gone, Thread("", gone, FAIR))
        woken_ns = max(self._interrupted_ns.get(event.cpu, 0), self._woken_ns.get(event.pid, 0))
        until_ns = 0  # from the switch on, another one may have been unseen
        if gone == IDLE and at_ns - woken_ns <= _SHOWN_LATER_NS:
            since_ns = at_ns = woken_ns
        elif gone != IDLE and self._on.get(gone) != event.cpu:
            left = NOBODY  # it is elsewhere since, and who came after it is not known
        elif event.switch and event.switch.state != WAITING and is_brief(came):
            since_ns = at_ns = max(since_ns, at_ns - _BRIEF_NS)
        elif gone != IDLE and since_ns < self._woken_ns.get(gone, 0) <= at_ns:
            at_ns, until_ns = self._woken_ns[gone] - 1, at_ns  # who was woken had gone to sleep
        if since_ns < at_ns:
            yield self._mark(event.cpu, since_ns, at_ns, left, came)
        switch = Switch(left, WAITING if gone == IDLE else "S", came)
        yield Event(at_ns, event.cpu, left.pid, "sched_switch", "", switch, inferred=True)
        if at_ns < until_ns:
            yield self._mark(event.cpu, at_ns, until_ns, left, came)

    def _left_elsewhere(self, event: Event) -> Iterator[Event]:
        """That a thread has left a processor of which another one shows it: it runs there, or waits to."""
        shown = [(event.pid, event.cpu), (event.switch.came.pid, event.cpu) if event.switch else (IDLE, event.cpu)]
        if event.moved and event.moved.thread.pid != event.pid:
            shown.append((event.moved.thread.pid, -1))
        for pid, now_on in shown:
            cpu = self._on.get(pid, now_on)
            if pid == IDLE or cpu == now_on or self._current.get(cpu) != pid:
                continue
            left, since_ns, at_ns = self._threads.get(pid, Thread("", pid, FAIR)), self._last_ns[cpu], event.at_ns
            at_ns = self._woken_ns[pid] - 1 if since_ns < self._woken_ns.get(pid, 0) <= at_ns else at_ns
            if since_ns < at_ns:
                yield self._mark(cpu, since_ns, at_ns, left, NOBODY)
            yield Event(at_ns, cpu, pid, "sched_switch", "", Switch(left, "S", NOBODY), inferred=True)
            yield self._mark(cpu, at_ns, at_ns, NOBODY, NOBODY)
            self._current[cpu], self._last_ns[cpu] = NOBODY.pid, at_ns

    @staticmethod
    def _mark(cpu: int, since_ns: int, until_ns: int, left: Thread, came: Thread) -> Event:
        unseen = (left.pid, came.pid)
        return Event(since_ns, cpu, left.pid, _UNSEEN, "", inferred=True, unseen=unseen, until_ns=until_ns)

    def _thread(self, event: Event) -> Thread:
        """Who has the processor at an event."""
        if event.pid == IDLE:
            return _idle(event.cpu)
        return event.switch.left if event.switch else self._threads.get(event.pid, Thread("", event.pid, FAIR))

    def note(self, event: Event) -> None:
        """An event that was recorded."""
        self._current[event.cpu], self._last_ns[event.cpu], self._on[event.pid] = event.pid, event.at_ns, event.cpu
        if switch := event.switch:
            self._threads |= {switch.left.pid: switch.left, switch.came.pid: switch.came}
            self._current[event.cpu], self._on[switch.came.pid] = switch.came.pid, event.cpu
            self._interrupted_ns.pop(event.cpu, None)
            self._woken_ns.pop(switch.left.pid, None)
        elif thread := event.woken:
            self._threads[thread.pid] = thread
            self._woken_ns[thread.pid] = event.at_ns
        elif handler_of(event):
            self._interrupted_ns[event.cpu] = event.at_ns


NOBODY = Thread("", -1, FAIR)  # In place of a thread that is not known


def _idle(cpu: int) -> Thread:
    return Thread(f"swapper/{cpu}", IDLE, 120)


def _with_all_switches(events: Iterable[Event], is_brief: Callable[[Thread], bool]) -> Iterator[Event]:
    """With the switches that are not among them, which show by who has the processor next.

    Where an interrupt of another processor wakes an idle one, some kernels record none (seen with Linux 6.18).  It was
    when the processor was interrupted last, or the thread woken: idle threads do nothing else.  Nor do they record
    that some threads go to sleep.  When that was is not known, but that it was before the thread was woken again; and
    of one of which ``is_brief`` tells that it has little to do: where it goes to sleep again, it came shortly before.
    """
    seen = _Seen()
    for event in events:
        if event.name == _GAP:
            seen = _Seen()
        else:
            yield from seen.missed(event, is_brief)
            seen.note(event)
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
            turned_back = first.came.pid == second.left.pid != IDLE and second.state == WAITING
            if turned_back and second.came.priority >= FAIR and not (before.inferred or event.inferred):
                marked = event._replace(turned_back=True)
        last[event.cpu] = event
        yield marked
