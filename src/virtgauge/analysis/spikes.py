"""Why a thread was late: what its processor did instead, by the events that the kernel recorded meanwhile.

Lines are those of ftrace's file ``trace`` (Linux: Documentation/trace/ftrace.rst), their fields those of tracepoints
(include/trace/events/, arch/x86/kvm/trace.h).  Times are nanoseconds of the clock of the trace, which has to be the one
that the lateness was measured by; the text has whole microseconds.

The time from the deadline to the wake-up is divided, from event to event, by what kept the thread from running; the
cause with the largest part is named if that is at least half of all.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

NAMED_SHARE = 0.5  # Of the lateness, which a cause explains at least that is named

# Causes.
ABOVE = "above"  # an event was due, and the processor had none: hypervisor, firmware, an idle state, interrupts off
PREEMPTED = "preempted"  # another thread ran
INTERRUPT = "interrupt"  # a handler of an interrupt or of a softirq ran
VM_EXIT = "vm-exit"  # a virtual processor was out of its guest
FAULT = "fault"  # of a page
THROTTLED = "throttled"  # the thread might not run, for a quota or for the bounds of real-time threads
TIMER = "timer"  # its timer fired late on a processor that took interrupts meanwhile, or on another processor
STOPPED = "stopped"  # by a signal or a debugger
CLOCK = "clock"  # the clock was ahead of the counter all at once
UNKNOWN = "unknown"  # nothing explains half of it
UNRECORDED = "unrecorded"  # what was recorded does not hold it
CAUSES = (ABOVE, PREEMPTED, INTERRUPT, VM_EXIT, FAULT, THROTTLED, TIMER, STOPPED, CLOCK, UNKNOWN, UNRECORDED)

_MOST_EVENTS = 200_000  # That are kept of all spikes
_MOST_PARTS = 4  # That are told of one
_ROUNDED_NS = 1000
_PROMPT_NS = 500_000  # From a refill to an idle processor at work again: an interrupt, and the deepest idle state
_SHOWN_LATER_NS = 10_000_000  # Until a thread that was given the processor unseen shows: a tick of 100 Hz
_TURNED_BACK_NS = 100_000  # From being given the processor to giving it up again, on the way out of the kernel
_APART_NS = 1_000_000  # Between two spikes whose times tell a rate of the counter
_SLEWED = 5e-4  # The most by which Linux lets a clock be slewed (adjtimex(2): 500 ppm)
_IDLE = 0  # The pid of every processor's idle thread
_FAIR = 100  # Priorities from here on are of no real-time thread

_LINE = re.compile(r".{16}-(\d+) .*?\[(\d+)\] \S* +(\d+)\.(\d{6}): (\w+): (.*)")
_COUNTS = re.compile(r"# entries-in-buffer/entries-written: (\d+)/(\d+)")
_SWITCH = re.compile(
    r"prev_comm=(.*) prev_pid=(\d+) prev_prio=(-?\d+) prev_state=(\w).* ==> "
    r"next_comm=(.*) next_pid=(\d+) next_prio=(-?\d+)"
)
_WAKING = re.compile(r"comm=(.*) pid=(\d+) prio=(-?\d+)")
_IRQ = re.compile(r"irq=(\d+) (?:name|handler)=(.*)")
_ACTION = re.compile(r"action=(\w+)")
_REASON = re.compile(r"reason (\S+)")
_REFILL = re.compile(r"function=(sched_cfs|sched_rt|dl_task)_\w*timer")
"""Timers that give a throttled group, or thread, its time for the next period (kernel/sched/)."""


@dataclasses.dataclass(frozen=True)
class Spike:
    """A thread that was late."""

    thread: str  # its name, as the kernel has it
    late_ns: int
    over_ns: int  # when it had woken
    counter: int = 0  # of the processor, at that moment

    @property
    def due_ns(self) -> int:
        return self.over_ns - self.late_ns


class Event(NamedTuple):
    """One line of a trace."""

    at_ns: int
    cpu: int
    pid: int  # of the thread that the processor had at the time
    name: str
    told: str  # its fields
    turned_back: bool = False  # of a switch: the thread had hardly come, nothing had happened, and it was not to run


class Part(NamedTuple):
    """Of a lateness."""

    cause: str
    by: str  # whom or what, by its name; empty where there is none
    ns: int


@dataclasses.dataclass(frozen=True)
class Attribution:
    """Why a thread was late, as far as that was recorded."""

    cause: str  # one of :data:`CAUSES`
    by: str = ""  # see :class:`Part`; of what was not recorded, why
    share: float = 0.0  # of the lateness, that the cause explains; where it is unknown, that the largest part has
    parts: tuple[Part, ...] = ()  # the largest


_OVERWRITTEN = Attribution(UNRECORDED, "overwritten by later events")


@dataclasses.dataclass
class Window:
    """What was recorded while a thread was late."""

    spike: Spike
    before: list[Event] = dataclasses.field(default_factory=list)  # the last switches of each thread of that name
    events: list[Event] = dataclasses.field(default_factory=list)  # of all processors, in their order
    whole: bool = True  # false where they were too many to keep


@dataclasses.dataclass
class Recorded:
    """A trace, as far as spikes need it."""

    windows: list[Window]  # in the order of the spikes
    began_ns: dict[int, int]  # the first event of each processor
    overwritten: bool  # whether there had been more


def attributions(lines: Iterable[str], spikes: Sequence[Spike], *, quota: bool = True) -> list[Attribution]:
    """Why each of some threads was late, by a trace, whose lines are read once.

    Args:
        quota: whether the quota of their group had run out at any time.
    """
    recorded, jumps = cut(lines, spikes), clock_jumps(spikes)
    found = []
    for window in recorded.windows:
        share = jumps.get(window.spike, 0.0) / max(window.spike.late_ns, 1)
        jumped = Attribution(CLOCK, "", min(share, 1.0)) if share >= NAMED_SHARE else None
        found.append(jumped or attributed(window, recorded, quota=quota))
    return found


def cut(lines: Iterable[str], spikes: Sequence[Spike]) -> Recorded:
    """Of a trace what happened from each deadline to its wake-up, and how the thread had been left before."""
    windows = [Window(spike) for spike in spikes]
    waiting = sorted(windows, key=lambda one: one.spike.due_ns, reverse=True)
    under_way: list[Window] = []
    names, switched = {spike.thread for spike in spikes}, dict[tuple[str, int], Event]()
    recorded, kept = Recorded(windows, {}, overwritten=False), 0
    for event in _with_signs_of_quotas(_with_all_switches(_events(lines, recorded))):
        at_ns = event.at_ns
        recorded.began_ns.setdefault(event.cpu, at_ns)
        while waiting and waiting[-1].spike.due_ns <= at_ns + _ROUNDED_NS:
            window = waiting.pop()
            window.before = [last for (name, _), last in switched.items() if name == window.spike.thread]
            under_way.append(window)
        if under_way:
            under_way = [one for one in under_way if one.whole and at_ns <= one.spike.over_ns + _SHOWN_LATER_NS]
        for window in under_way:
            if at_ns <= window.spike.over_ns + _ROUNDED_NS:
                kept += 1
                window.whole = kept <= _MOST_EVENTS
                bisect.insort(window.events, event, key=lambda one: one.at_ns)
        if event.name == "sched_switch" and (switch := _SWITCH.match(event.told)):
            for name, pid in ((switch[1], switch[2]), (switch[5], switch[6])):
                if name in names:
                    switched[name, int(pid)] = event
    return recorded


def _events(lines: Iterable[str], recorded: Recorded) -> Iterator[Event]:
    for line in lines:
        if found := _LINE.match(line):
            at_ns = int(found[3]) * 1_000_000_000 + int(found[4]) * 1000
            yield Event(at_ns, int(found[2]), int(found[1]), found[5], found[6])
        elif counts := _COUNTS.match(line):
            recorded.overwritten = int(counts[1]) < int(counts[2])


def _with_all_switches(events: Iterable[Event]) -> Iterator[Event]:
    """With the switches from idle threads that are not among them: one comes when the thread shows, with its own time.

    Where an interrupt of another processor wakes an idle one, some kernels record none (seen with Linux 6.18).  It was
    when the processor was interrupted last, or the thread woken: idle threads do nothing else.
    """
    threads, current = dict[int, tuple[str, str]](), dict[int, int]()  # name and priority by pid; pid by processor
    interrupted_ns, woken_ns = dict[int, int](), dict[int, int]()  # by processor, by pid
    for event in events:
        if current.get(event.cpu) == _IDLE != event.pid and event.pid in threads:
            name, priority = threads[event.pid]
            told = f"prev_comm=swapper/{event.cpu} prev_pid={_IDLE} prev_prio=120 prev_state=R"
            told += f" ==> next_comm={name} next_pid={event.pid} next_prio={priority}"
            at_ns = max(interrupted_ns.get(event.cpu, 0), woken_ns.get(event.pid, 0))
            yield Event(at_ns or event.at_ns, event.cpu, _IDLE, "sched_switch", told)
        current[event.cpu] = event.pid
        if event.name == "sched_switch" and (switch := _SWITCH.match(event.told)):
            threads |= {int(switch[2]): (switch[1], switch[3]), int(switch[6]): (switch[5], switch[7])}
            current[event.cpu] = int(switch[6])
            interrupted_ns.pop(event.cpu, None)
            woken_ns.pop(int(switch[2]), None)
        elif event.name == "sched_waking" and (waking := _WAKING.match(event.told)):
            threads[int(waking[2])] = waking[1], waking[3]
            woken_ns[int(waking[2])] = event.at_ns
        elif _handler(event):
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
        if before and event.name == before.name == "sched_switch" and event.at_ns - before.at_ns <= _TURNED_BACK_NS:
            came, left = _SWITCH.match(before.told), _SWITCH.match(event.told)
            if came and left and came[6] == left[2] != str(_IDLE) and _STATES.get(left[4]) == _WAITING:
                marked = event._replace(turned_back=True)
        last[event.cpu] = event
        yield marked


def attributed(window: Window, recorded: Recorded, *, quota: bool) -> Attribution:
    """Why one thread was late; see :func:`attributions`."""
    if not window.whole:
        return Attribution(UNRECORDED, "more events than are kept")
    spike, places = window.spike, _places(window)
    if len(places) > 1:
        return Attribution(UNRECORDED, "several threads of that name")
    place = next(iter(places.items()), None)
    began_ns = recorded.began_ns.get(place[1]) if place else None
    if recorded.overwritten and (began_ns is None or began_ns > spike.due_ns):
        return _OVERWRITTEN
    if place is None:
        return Attribution(UNRECORDED, "no thread of that name was seen")
    course = _Course(window, *place, quota=quota)
    parts = Counter(course.parts())
    if recorded.overwritten and course.unwoken:  # in the ring of another processor
        return _OVERWRITTEN
    causes = Counter[str]()
    for (cause, _), ns in parts.items():
        causes[cause] += ns
    told = tuple(Part(cause, by, ns) for (cause, by), ns in parts.most_common(_MOST_PARTS))
    cause, explained_ns = causes.most_common(1)[0]
    share = explained_ns / max(spike.late_ns, 1)
    if cause == UNKNOWN or share < NAMED_SHARE:
        return Attribution(UNKNOWN, "", share, told)
    return Attribution(cause, next(by for (of, by), _ in parts.most_common() if of == cause), share, told)


def clock_jumps(spikes: Sequence[Spike]) -> dict[Spike, float]:
    """By how many nanoseconds the clock got ahead of the counter at spikes, beyond what slewing can explain.

    The counter's rate is the median between neighbouring spikes; without three such pairs nothing is said.
    """
    ordered = sorted(spikes, key=lambda one: one.over_ns)
    apart = [(one.over_ns - last.over_ns, one.counter - last.counter) for last, one in itertools.pairwise(ordered)]
    rates = [ticks / ns for ns, ticks in apart if ns >= _APART_NS and ticks > 0]
    if len(rates) < 3:
        return {}
    rate = statistics.median(rates)
    jumps = [ns - ticks / rate - _SLEWED * ns for ns, ticks in apart]
    return {one: jump for one, jump in zip(ordered[1:], jumps, strict=True) if jump > 0}


def _places(window: Window) -> dict[int, int]:
    """The processors of the threads of that name that ran when the late one had woken; another run may have such.

    Where none was seen to run, those that were sent away: some kernels record no switch from an idle thread.
    """
    places, sent_away = dict[int, int](), dict[int, int]()  # by pid
    for event in (*sorted(window.before), *window.events):
        switch = _SWITCH.match(event.told) if event.name == "sched_switch" else None
        if switch and switch[1] == window.spike.thread and event.at_ns + _ROUNDED_NS <= window.spike.over_ns:
            places.pop(int(switch[2]), None)
            if _STATES.get(switch[4]) == _WAITING:
                sent_away[int(switch[2])] = event.cpu
        if switch and switch[5] == window.spike.thread:
            places[int(switch[6])] = event.cpu
    return places or sent_away


# What a thread does.
_RUNNING, _WAITING, _ASLEEP, _BLOCKED, _STOPPED = "running", "waiting", "asleep", "blocked", "stopped"
_STATES = {"R": _WAITING, "D": _BLOCKED, "T": _STOPPED, "t": _STOPPED}
"""By the letter with which it was switched away from (fs/proc/array.c); with any other it sleeps."""


class _Course:
    """What a thread and its processor do, event by event."""

    def __init__(self, window: Window, pid: int, cpu: int, *, quota: bool) -> None:
        self._spike, self._events, self._pid, self._cpu = window.spike, window.events, pid, cpu
        self._names, self._urgency = {_IDLE: "idle"}, dict[int, int]()  # by pid; the lower, the more urgent
        self._state = self._first_state(window.before)
        wakings = (event.cpu for event in self._events if event.name == "sched_waking" and self._change(event))
        self._timer_cpu = next(wakings, cpu)  # the processor that woke the thread
        self.unwoken = False  # whether it slept, and then ran without having been woken: that was not recorded
        own = [event for event in self._events if event.cpu == cpu]
        self._current = own[0].pid if own else pid  # whom the processor has
        self._handlers = list(_unfinished(own))  # of interrupts, that run on it, the innermost last
        self._alive = False  # whether it was seen to take interrupts since the deadline
        # whether it was given to another while the thread waited for it
        self._passed_over = bool(window.before) and self._state == _WAITING
        own_before = [event for event in sorted(window.before) if self._change(event) is not None]
        self._quota = quota  # whether its group's may have run out
        self._turned_back = quota and bool(own_before) and own_before[-1].turned_back  # when it last left its processor
        self._faulted = False  # whether the thread has had a page fault since it slept
        self._exit = ""  # why the virtual processor that the thread may be has left its guest
        idle_until = [event.at_ns for event in own if event.name == "sched_switch" and event.pid == _IDLE]
        self._refilled_ns = {  # the last time of each kind upon which the processor went to work
            found[1]: event.at_ns
            for event in self._events
            if (found := _REFILL.search(event.told))
            and any(0 <= until_ns - event.at_ns <= _PROMPT_NS for until_ns in idle_until)
        }

    def parts(self) -> dict[tuple[str, str], int]:
        """How long it was late for each cause, and by whom."""
        found = Counter[tuple[str, str]]()
        at_ns, over_ns = self._spike.due_ns, self._spike.over_ns
        for event in self._events:
            until_ns = min(max(event.at_ns, at_ns), over_ns)
            if until_ns > at_ns:
                found[self._cause(at_ns)] += until_ns - at_ns
            at_ns = until_ns
            self._follow(event)
        found[self._cause(at_ns)] += over_ns - at_ns
        return found

    def _first_state(self, before: Sequence[Event]) -> str:
        """At the deadline: as it was left before, else as its first event afterwards presupposes."""
        changes = [(event.name, change) for event in self._events if (change := self._change(event)) is not None]
        left = [change for event in sorted(before) if (change := self._change(event)) is not None]
        if left or not changes:
            return left[-1] if left else _RUNNING
        name, change = changes[0]
        if name == "sched_waking":
            return _ASLEEP
        return _WAITING if change == _RUNNING else _RUNNING

    def _change(self, event: Event) -> str | None:
        """What the thread does after an event; None where that says nothing of it.  Notes names and priorities."""
        if event.name == "sched_switch" and (found := _SWITCH.match(event.told)):
            before, after = int(found[2]), int(found[6])
            self._names |= {before: found[1], after: found[5]} | {_IDLE: "idle"}
            self._urgency |= {before: int(found[3]), after: int(found[7])}
            if self._pid == before:
                return _STATES.get(found[4], _ASLEEP)
            return _RUNNING if self._pid == after else None
        if event.name == "sched_waking" and (found := _WAKING.match(event.told)) and int(found[2]) == self._pid:
            return _WAITING
        return None

    def _follow(self, event: Event) -> None:
        change = self._change(event)
        woken_already = event.name == "sched_waking" and self._state == _RUNNING  # about to sleep: it will not
        if change is not None and not woken_already:
            self.unwoken |= change == _RUNNING and self._state not in (_RUNNING, _WAITING)
            if change in (_ASLEEP, _STOPPED):
                self._faulted = False
            self._state = change
            if event.name == "sched_switch":
                self._turned_back = self._quota and event.turned_back
        if event.pid == self._pid:
            if event.name.startswith("page_fault_"):
                self._faulted = True
            elif event.name == "kvm_exit":
                reason = _REASON.search(event.told)
                self._exit = reason[1] if reason else "unknown"
            elif event.name == "kvm_entry":
                self._exit = ""
        if event.cpu != self._cpu:
            return
        handler, switch = _handler(event), _SWITCH.match(event.told) if event.name == "sched_switch" else None
        self._current = event.pid
        if event.at_ns >= self._spike.due_ns and (handler or switch):  # others come where interrupts are off, too
            self._alive = True
        if handler and event.name.endswith("_entry"):
            self._handlers.append(handler)
        elif handler and self._handlers:
            self._handlers.pop()
        if switch:
            self._current = int(switch[6])
            self._handlers.clear()  # it leaves none behind, but where softirqs are threads'
            self._passed_over = self._state == _WAITING

    def _cause(self, at_ns: int) -> tuple[str, str]:
        """What keeps the thread from running from this moment to the next event, and by whom."""
        state, current = self._state, self._names.get(self._current, f"pid {self._current}")
        if state == _STOPPED:
            return STOPPED, ""
        if state == _ASLEEP and self._timer_cpu != self._cpu and not self._exit:
            return TIMER, f"of CPU {self._timer_cpu}"
        if self._handlers:
            return INTERRUPT, self._handlers[-1]
        if state == _BLOCKED:
            return (FAULT, "") if self._faulted else (UNKNOWN, "blocked in the kernel")
        if state != _WAITING and self._exit:
            return VM_EXIT, self._exit
        if state == _RUNNING:
            return (FAULT, "") if self._faulted else (ABOVE, "itself")
        if state == _ASLEEP:
            return (TIMER, "") if self._alive else (ABOVE, current)
        return self._waits_for(current, at_ns)

    def _waits_for(self, current: str, at_ns: int) -> tuple[str, str]:
        """A thread that could run, and does not: the scheduler passes it over only if it may not run."""
        own, other = (self._urgency.get(pid, _FAIR) for pid in (self._pid, self._current))
        idle, real_time = self._current == _IDLE, own < _FAIR
        kind = "dl_task" if own < 0 else "sched_rt" if real_time else "sched_cfs"
        less_urgent = real_time and other > max(own, 0)  # what stops a processor has 0, and precedes all
        may_not = self._passed_over and (idle or less_urgent)
        turned_back = self._turned_back and not real_time
        if turned_back or may_not or (idle and self._refilled_ns.get(kind, -1) >= at_ns):
            return THROTTLED, "bounds of its real-time class" if real_time else "quota"
        return (ABOVE, "idle") if idle else (PREEMPTED, current)


def _handler(event: Event) -> str:
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


def _unfinished(events: Sequence[Event]) -> Iterator[str]:
    """Handlers that ran before a processor's events began, the outermost first: those that end and never began."""
    depth, found = 0, list[str]()
    for event in itertools.takewhile(lambda one: one.name != "sched_switch", events):  # then softirqs of threads end
        if handler := _handler(event):
            depth += 1 if event.name.endswith("_entry") else -1
            if depth < 0:
                depth = 0
                found.append(handler)
    return reversed(found)
