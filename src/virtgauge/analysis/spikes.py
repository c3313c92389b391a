"""Why a thread was late: what its processor did instead, by the events that the kernel recorded meanwhile.

The time from the deadline to the wake-up is divided, from event to event, by what kept the thread from running; the
cause with the largest part is named if that is at least half of all.  The clock of the trace has to be the one that the
lateness was measured by.  Of a guest with a kernel of its own, the thread that is its processor is followed.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import statistics
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from virtgauge.analysis.kernel_trace import (
    IDLE,
    ROUNDED_NS,
    WAITING,
    Event,
    Recorded,
    Spike,
    Window,
    cut,
    handler_of,
)

NAMED_SHARE = 0.5  # Of the lateness, which a cause explains at least that is named

# Causes.
ABOVE = "above"  # an event was due, and the processor had none: hypervisor, firmware, an idle state, interrupts off
PREEMPTED = "preempted"  # another thread ran
INTERRUPT = "interrupt"  # a handler of an interrupt or of a softirq ran
VM_EXIT = "vm-exit"  # a virtual processor was out of its guest: for its reason, or halted
GUEST = "guest"  # a virtual processor ran, and its guest did something else
FAULT = "fault"  # of a page
THROTTLED = "throttled"  # the thread might not run, for a quota or for the bounds of real-time threads
TIMER = "timer"  # its timer fired late on a processor that took interrupts meanwhile, or on another processor
STOPPED = "stopped"  # by a signal or a debugger
CLOCK = "clock"  # the clock was ahead of the counter all at once
UNKNOWN = "unknown"  # nothing explains half of it
UNRECORDED = "unrecorded"  # what was recorded does not hold it
CAUSES = (*(ABOVE, PREEMPTED, INTERRUPT, VM_EXIT, GUEST, FAULT, THROTTLED, TIMER, STOPPED, CLOCK, UNKNOWN, UNRECORDED),)

MOST_PARTS, _SHORTEST = 8, 100  # That are told of one; such a part of the lateness is the shortest that is told
_LONG_NS, _BACK_NS = (
    20_000_000,
    10_000_000,
)  # No fair thread waits for others so long in a row; two ticks of 100 Hz, one
_PROMPT_NS = 500_000  # From a refill to an idle processor at work again: an interrupt, and the deepest idle state
_APART_NS = 1_000_000  # Between two spikes whose times tell a rate of the counter
_SLEWED = 5e-4  # The most by which Linux lets a clock be slewed (adjtimex(2): 500 ppm)
_FAIR = 100  # Priorities from here on are of no real-time thread

_REASON = re.compile(r"reason (\S+)")
_REFILL = re.compile(r"function=(sched_cfs|sched_rt|dl_task)_\w*timer")
"""Timers that give a throttled group, or thread, its time for the next period (kernel/sched/)."""


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
    course: tuple[Part, ...] = ()  # from the deadline to the wake-up, see :func:`_told`
    inside: tuple[Part, ...] = ()  # the same as the guest's own kernel saw it


def named(cause: str, by: str) -> str:
    """``preempted: hog``; the cause alone where nobody is known."""
    return f"{cause}: {by}" if by else cause


_OVERWRITTEN = Attribution(UNRECORDED, "overwritten by later events")
_CLOCKS = Attribution(UNRECORDED, "clocks of guest and host not known well")


def attributions(
    lines: Iterable[str], spikes: Sequence[Spike], *, quota: bool = True, uncertain_ns: int = 0
) -> list[Attribution]:
    """Why each of some threads was late, by a trace, whose lines are read once.

    Args:
        quota: whether the quota of their group had run out at any time.
        uncertain_ns: by how much their times may be wrong by the clock of the trace; a cause is told that is the same
            in the middle and at both bounds.
    """
    shifts = (0, -uncertain_ns, uncertain_ns) if uncertain_ns else (0,)
    moved = [dataclasses.replace(one, over_ns=one.over_ns + shift) for shift in shifts for one in spikes]
    recorded, jumps = cut(lines, moved, 2 * uncertain_ns), clock_jumps(spikes)
    found = []
    for place, spike in enumerate(spikes):
        share = jumps.get(spike, 0.0) / max(spike.late_ns, 1)
        if share >= NAMED_SHARE:
            found.append(Attribution(CLOCK, "", min(share, 1.0)))
        elif uncertain_ns > NAMED_SHARE * spike.late_ns:
            found.append(_CLOCKS)
        else:
            windows = recorded.windows[place :: len(spikes)]
            found.append(_agreed([attributed(one, recorded, quota=quota) for one in windows]))
    return found


def _agreed(found: Sequence[Attribution]) -> Attribution:
    """The first, where all name the same; else what was not recorded of one of them, if that is the reason."""
    if len({(one.cause, one.by) for one in found}) == 1:
        return found[0]
    return next((one for one in found if one.cause == UNRECORDED), _CLOCKS)


def joined(outside: Attribution, inside: Attribution) -> Attribution:
    """Of a cycle of a guest what both kernels tell: its own is asked where the host's let it run, or saw nothing.

    One that was stopped took the time for that of whatever it ran.
    """
    known = inside.cause not in (UNKNOWN, UNRECORDED)
    silent = outside.cause == UNRECORDED and outside.by != _CLOCKS.by
    if known and inside.cause == ABOVE and silent:
        return dataclasses.replace(inside, course=outside.course, inside=inside.course)
    if known and inside.cause != ABOVE and (outside.cause == GUEST or silent):
        share = outside.share or inside.share
        return Attribution(GUEST, named(inside.cause, inside.by), share, outside.course, inside.course)
    return dataclasses.replace(outside, inside=inside.course)


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
    course = _Course(window, *place, recorded.names, quota=quota)
    parts = course.parts()
    if recorded.overwritten and course.unwoken:  # in the ring of another processor
        return _OVERWRITTEN
    causes, each = Counter[str](), Counter[tuple[str, str]]()
    for cause, by, ns in parts:
        causes[cause] += ns
        each[cause, by] += ns
    told = tuple(_told(parts))
    cause, explained_ns = causes.most_common(1)[0]
    share = explained_ns / max(spike.late_ns, 1)
    if cause == UNKNOWN or share < NAMED_SHARE:
        return Attribution(UNKNOWN, "", share, told)
    return Attribution(cause, next(by for (of, by), _ in each.most_common() if of == cause), share, told)


def _told(parts: Sequence[Part]) -> list[Part]:
    """Parts in their order, those that are too short with the one before; of too many their sums, the largest first."""
    least_ns = sum(part.ns for part in parts) // _SHORTEST
    found = list[Part]()
    for cause, by, ns in parts:
        if found and (ns < least_ns or (cause, by) == found[-1][:2]):
            found[-1] = found[-1]._replace(ns=found[-1].ns + ns)
        elif len(found) == 1 and found[0].ns < least_ns:
            found[0] = Part(cause, by, ns + found[0].ns)
        else:
            found.append(Part(cause, by, ns))
    if len(found) <= MOST_PARTS and max(part.ns for part in parts) >= least_ns:
        return found
    sums = Counter[tuple[str, str]]()
    for cause, by, ns in parts:
        sums[cause, by] += ns
    return [Part(cause, by, ns) for (cause, by), ns in sums.most_common(MOST_PARTS)]


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
    spike = window.spike
    if spike.vcpu:
        on = [window.vcpu_on, *(event.cpu for event in window.events if event.pid == spike.vcpu)]
        on += [event.cpu for event in window.events if event.switch and event.switch.came.pid == spike.vcpu]
        cpu = next((one for one in on if one is not None), None)
        return {} if cpu is None else {spike.vcpu: cpu}
    places, sent_away = dict[int, int](), dict[int, int]()  # by pid
    for event in (*window.before, *window.events):
        switch = event.switch
        if switch and switch.left.name == spike.thread and event.at_ns + ROUNDED_NS <= spike.over_ns:
            places.pop(switch.left.pid, None)
            if switch.state == WAITING:
                sent_away[switch.left.pid] = event.cpu
        if switch and switch.came.name == spike.thread:
            places[switch.came.pid] = event.cpu
    return places or sent_away


# What a thread does.
_RUNNING, _WAITING, _ASLEEP, _BLOCKED, _STOPPED = "running", "waiting", "asleep", "blocked", "stopped"
_STATES = {WAITING: _WAITING, "D": _BLOCKED, "T": _STOPPED, "t": _STOPPED}
"""By the letter with which it was switched away from (fs/proc/array.c); with any other it sleeps."""


class _Processor:
    """Whom a processor has, and what it serves."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.pid = events[0].pid if events else IDLE
        self.handlers = list(_unfinished(events))  # of interrupts, that run on it, the innermost last

    def follow(self, event: Event) -> bool:
        """Whether the event shows that it takes interrupts: others come where these are off, too."""
        handler, switch = handler_of(event), event.switch
        self.pid = switch.came.pid if switch else event.pid
        if switch:
            self.handlers.clear()  # it leaves none behind, but where softirqs are threads'
        elif handler and event.name.endswith("_entry"):
            self.handlers.append(handler)
        elif handler and self.handlers:
            self.handlers.pop()
        return bool(handler or switch)


class _Course:
    """What a thread and its processor do, event by event."""

    def __init__(self, window: Window, pid: int, cpu: int, names: dict[int, str], *, quota: bool) -> None:
        self._spike, self._events, self._pid, self._cpu = window.spike, window.events, pid, cpu
        self._names, self._urgency = (
            ChainMap({IDLE: "idle"}, names),
            dict[int, int](),
        )  # by pid; the lower, the more urgent
        before = [event for event in window.before if window.spike.vcpu in (0, pid) and self._change(event) is not None]
        self.unwoken = False  # whether it slept, and then ran without having been woken: that was not recorded
        self._state = self._first_state(before)
        if self._state == _WAITING:
            self._cpu = self._next_cpu(0)
        wakings = (event.cpu for event in self._events if event.name == "sched_waking" and self._change(event))
        self._timer_cpu = next(wakings, cpu)  # the processor that woke the thread
        of_each = {cpu: list[Event]()}
        for event in self._events:
            of_each.setdefault(event.cpu, []).append(event)
        self._processors = {number: _Processor(own) for number, own in of_each.items()}
        last = before[-1] if before and before[-1].switch else None  # none where it was woken since
        if not of_each[cpu]:  # then whoever it was given to when the thread left it
            left = next((one.switch for one in before if one.cpu == cpu and one.switch), None)
            self._processors[cpu].pid = left.came.pid if left else pid
        self._alive = False  # whether its processor was seen to take interrupts since the deadline
        # whether that was given to another while the thread waited for it
        self._passed_over = last is not None and self._state == _WAITING
        self._quota = quota  # whether its group's may have run out
        # whether it was sent away for want of quota when it last left its processor
        self._spent = quota and last is not None and self._sent_away(last, self._events)
        self._faulted = False  # whether the thread has had a page fault since it slept
        is_vcpu = window.spike.vcpu == pid
        self._exit = _reason(window.crossed) if is_vcpu else ""  # why the virtual processor has left its guest
        # by pid the threads that wake it, if it is a guest's processor: while it sleeps, it waits for the next of them
        self._courses = dict[int, _Course]()
        self._wakings = self._each_waking(window, names, of_each) if is_vcpu else []
        idle_until = [one.at_ns for one in of_each[cpu] if one.name == "sched_switch" and one.pid == IDLE]
        self._refilled_ns = {  # the last time of each kind upon which the processor went to work
            found[1]: event.at_ns
            for event in self._events
            if (found := _REFILL.search(event.told))
            and any(0 <= until_ns - event.at_ns <= _PROMPT_NS for until_ns in idle_until)
        }

    def parts(self) -> list[Part]:
        """For what causes it was late, one after another, and by whom."""
        found = list[Part]()
        at_ns, over_ns = self._spike.due_ns, self._spike.over_ns
        for place, event in enumerate(self._events):
            until_ns = min(max(event.at_ns, at_ns), over_ns)
            if until_ns > at_ns:
                found.append(Part(*self._cause(at_ns), until_ns - at_ns))
            at_ns = until_ns
            self._follow(event, place)
        found.append(Part(*self._cause(at_ns), over_ns - at_ns))
        return found

    def _first_state(self, before: Sequence[Event]) -> str:
        """At the deadline: as it was left before, else as its first event afterwards presupposes."""
        changes = [(event.name, change) for event in self._events if (change := self._change(event)) is not None]
        left = [self._change(event) for event in before]
        if left and left[-1] == _ASLEEP and changes and changes[0][1] == _RUNNING:
            self.unwoken = True  # it runs again, and was not woken: it had been while it went to sleep
            return _WAITING
        if left or not changes:
            return (left[-1] if left else None) or _RUNNING
        name, change = changes[0]
        if name == "sched_waking":
            return _ASLEEP
        return _WAITING if change == _RUNNING else _RUNNING

    def _change(self, event: Event) -> str | None:
        """What the thread does after an event; None where that says nothing of it.  Notes names and priorities."""
        if switch := event.switch:
            for name, pid, priority in (switch.left, switch.came):
                self._names[pid], self._urgency[pid] = name, priority
            self._names[IDLE] = "idle"
            if self._pid == switch.left.pid:
                return _STATES.get(switch.state, _ASLEEP)
            return _RUNNING if self._pid == switch.came.pid else None
        woken = event.woken
        return _WAITING if woken and woken.pid == self._pid else None

    def _follow(self, event: Event, place: int) -> None:
        change = self._change(event)
        woken_already = event.name == "sched_waking" and self._state == _RUNNING  # about to sleep: it will not
        if change is not None and not woken_already:
            self.unwoken |= change == _RUNNING and self._state not in (_RUNNING, _WAITING)
            if change in (_ASLEEP, _STOPPED):
                self._faulted = False
            if change == _ASLEEP and self._next_change(place) == _RUNNING:
                self.unwoken, change = True, _WAITING  # as in :meth:`_first_state`
            self._state = change
            if change in (_RUNNING, _WAITING):
                self._cpu = self._next_cpu(place)
            if event.name == "sched_switch":
                self._spent = self._quota and change == _WAITING and self._sent_away(event, self._events[place:])
        for course in self._courses.values():
            course._follow(event, place)
        if self._wakings and self._wakings[0][0] == place:
            del self._wakings[0]
        if event.pid == self._pid:
            if event.name.startswith("page_fault_"):
                self._faulted = True
            elif event.name == "kvm_exit":
                self._exit = _reason(event)
            elif event.name == "kvm_entry":
                self._exit = ""
        takes_interrupts = self._processors[event.cpu].follow(event)
        if event.cpu == self._cpu:
            self._alive |= takes_interrupts and event.at_ns >= self._spike.due_ns
            if event.name == "sched_switch":
                self._passed_over = self._state == _WAITING

    def _each_waking(
        self, window: Window, names: dict[int, str], of_each: Mapping[int, Sequence[Event]]
    ) -> list[tuple[int, _Course | None]]:
        """Of each waking its place among the events, and the course of the thread that did it; None of an interrupt."""
        processors = {number: _Processor(own) for number, own in of_each.items()}
        found = list[tuple[int, _Course | None]]()
        for place, event in enumerate(self._events):
            woken, waker = event.woken, event.pid
            if woken and woken.pid == self._pid:
                by_thread = waker not in (IDLE, self._pid) and not processors[event.cpu].handlers
                if by_thread and waker not in self._courses:
                    self._courses[waker] = _Course(window, waker, event.cpu, names, quota=self._quota)
                found.append((place, self._courses[waker] if by_thread else None))
            processors[event.cpu].follow(event)
        return found

    def _sent_away(self, left: Event, since: Sequence[Event]) -> bool:
        """Whether it was for want of quota that the thread left its processor, whoever runs meanwhile.

        So it was where it was turned back, where the processor idles before it returns, and where that takes longer
        than the scheduler lets others go first, and comes soon after a group's quota was filled up.
        """
        refilled_ns, back_ns = -_BACK_NS - 1, self._spike.over_ns
        for event in since:
            switch = event.switch
            if switch and switch.came.pid == self._pid:
                back_ns = event.at_ns
                break
            if switch and switch.came.pid == IDLE and event.cpu == self._cpu:
                return True
            if (refill := _REFILL.search(event.told)) and refill[1] == "sched_cfs":
                refilled_ns = event.at_ns
        return left.turned_back or (back_ns - left.at_ns >= _LONG_NS and back_ns - refilled_ns <= _BACK_NS)

    def _next_change(self, place: int) -> str | None:
        """What the thread does after the next event that says something of it."""
        later = (self._change(event) for event in self._events[place + 1 :])
        return next((change for change in later if change is not None), None)

    def _next_cpu(self, place: int) -> int:
        """The processor that has the thread since an event, or will have it next; a pinned one has no other."""
        for event in self._events[place:]:
            if event.switch and event.switch.came.pid == self._pid:
                return event.cpu
        return self._cpu

    def _cause(self, at_ns: int) -> tuple[str, str]:
        """What keeps the thread from running from this moment to the next event, and by whom."""
        state, processor, of_guest = self._state, self._processors[self._cpu], bool(self._spike.vcpu)
        current = self._names.get(processor.pid, f"pid {processor.pid}")
        if state == _STOPPED:
            return STOPPED, ""
        works = state == _RUNNING and self._pid != self._spike.vcpu and not processor.handlers
        if of_guest and (state == _ASLEEP or works):
            waker = self._wakings[0][1] if self._wakings else None
            return waker._cause(at_ns) if waker else (VM_EXIT, self._exit or "halt")
        if state == _ASLEEP and self._timer_cpu != self._cpu and not self._exit:
            return TIMER, f"of CPU {self._timer_cpu}"
        if processor.handlers:
            return INTERRUPT, processor.handlers[-1]
        if state == _BLOCKED:
            return (FAULT, "") if self._faulted else (UNKNOWN, "blocked in the kernel")
        if state != _WAITING and self._exit:
            return VM_EXIT, self._exit
        if state == _RUNNING and of_guest:
            return GUEST, ""
        if state == _RUNNING:
            return (FAULT, "") if self._faulted else (ABOVE, "itself")
        if state == _ASLEEP:
            return (TIMER, "") if self._alive else (ABOVE, current)
        return self._waits_for(processor.pid, current, at_ns)

    def _waits_for(self, pid: int, current: str, at_ns: int) -> tuple[str, str]:
        """A thread that could run, and does not: the scheduler passes it over only if it may not run."""
        own, other = (self._urgency.get(one, _FAIR) for one in (self._pid, pid))
        idle, real_time = pid == IDLE, own < _FAIR
        kind = "dl_task" if own < 0 else "sched_rt" if real_time else "sched_cfs"
        less_urgent = real_time and other > max(own, 0)  # what stops a processor has 0, and precedes all
        may_not = self._passed_over and (idle or less_urgent)
        spent = self._spent and not real_time
        if spent or may_not or (idle and self._refilled_ns.get(kind, -1) >= at_ns):
            return THROTTLED, "bounds of its real-time class" if real_time else "quota"
        return (ABOVE, "idle") if idle else (PREEMPTED, current)


def _unfinished(events: Sequence[Event]) -> Iterator[str]:
    """Handlers that ran before a processor's events began, the outermost first: those that end and never began."""
    depth, found = 0, list[str]()
    for event in itertools.takewhile(lambda one: one.name != "sched_switch", events):  # then softirqs of threads end
        if handler := handler_of(event):
            depth += 1 if event.name.endswith("_entry") else -1
            if depth < 0:
                depth = 0
                found.append(handler)
    return reversed(found)


def _reason(event: Event | None) -> str:
    """Why a virtual processor has left its guest; empty where it has not."""
    if event is None or event.name != "kvm_exit":
        return ""
    found = _REASON.search(event.told)
    reason = found[1] if found else "unknown"
    return "halt" if reason.lower() == "hlt" else reason  # of Intel's and AMD's processors
