"""What kept a thread from running: what it and its processor do, event by event of a trace.

Each moment from its deadline on has one cause.  Of a guest with a kernel of its own, the thread that is its processor
is followed, or where there is no such thread all that its kernel and its programs are.
"""

from __future__ import annotations

import abc
import itertools
import re
from collections import ChainMap, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from virtgauge.analysis.kernel_trace import FAIR, IDLE, NOBODY, Event, Window, handler_of
from virtgauge.analysis.threads import ASLEEP, BLOCKED, GONE, RUNS, WAITS, States, Whereabouts, starting
from virtgauge.analysis.threads import STOPPED as IS_STOPPED

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

_LONG_NS, _BACK_NS = 20_000_000, 10_000_000  # No fair thread waits for others so long; two ticks of 100 Hz, one
_PROMPT_NS = 500_000  # From a refill to an idle processor at work again: an interrupt, and the deepest idle state
_UNSEEN = UNKNOWN, "switch not recorded"

_REASON = re.compile(r"reason (\S+)")
_REFILL = re.compile(r"function=(sched_cfs|sched_rt|dl_task)_\w*timer")
"""Timers that give a throttled group, or thread, its time for the next period (kernel/sched/)."""


class Part(NamedTuple):
    """A part of a lateness."""

    cause: str
    by: str  # whom or what, by its name; empty where there is none
    ns: int


def named(cause: str, by: str) -> str:
    """``preempted: hog``; the cause alone where nobody is known."""
    return f"{cause}: {by}" if by else cause


class _Processor:
    """Whom a processor has, and what it serves."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.pid = events[0].pid if events else IDLE
        # Where it is not known whom it has, those that it may have.
        self.unseen: tuple[int, ...] = () if events else (IDLE,)
        self.handlers = list(_unfinished(events))  # of interrupts, that run on it, the innermost last

    def follow(self, event: Event) -> bool:
        """Whether the event shows that it takes interrupts: others come where these are off, too."""
        handler, switch, self.unseen = handler_of(event), event.switch, event.unseen
        self.pid = switch.came.pid if switch else event.pid
        if switch:
            self.handlers.clear()  # it leaves none behind, but where softirqs are threads'
        elif handler and event.name.endswith("_entry"):
            self.handlers.append(handler)
        elif handler and self.handlers:
            self.handlers.pop()
        return bool(handler or switch) and not event.inferred


class Followed(abc.ABC):
    """What is followed through a window, event by event."""

    unwoken: bool  # whether it slept, and then ran without having been woken: that was not recorded

    def __init__(self, window: Window) -> None:
        self._spike, self._events = window.spike, window.events

    @abc.abstractmethod
    def follow(self, event: Event, place: int) -> None:
        """Take note of the next event, whose place among the window's is given."""

    @abc.abstractmethod
    def cause(self, at_ns: int) -> tuple[str, str]:
        """What keeps the late thread from running from this moment to the next event, and by whom."""

    def parts(self) -> list[Part]:
        """For what causes the thread was late, one after another, and by whom."""
        found = list[Part]()
        at_ns, over_ns = self._spike.due_ns, self._spike.over_ns
        for place, event in enumerate(self._events):
            until_ns = min(max(event.at_ns, at_ns), over_ns)
            if until_ns > at_ns:
                found.append(Part(*self.cause(at_ns), until_ns - at_ns))
            at_ns = until_ns
            self.follow(event, place)
        found.append(Part(*self.cause(at_ns), over_ns - at_ns))
        return found


class Course(Followed):
    """What a thread and its processor do."""

    def __init__(self, window: Window, pid: int, cpu: int, names: dict[int, str], *, quota: bool) -> None:
        super().__init__(window)
        self._pid = pid
        self._names = ChainMap({IDLE: "idle"}, names)  # by pid
        self._urgency = dict[int, int]()  # by pid; the lower, the more urgent
        self._faulted = False  # whether it has had a page fault since it slept
        self._states = States(window, pid)
        self.state, self.unwoken, before = self._states.first, self._states.unwoken, self._states.before
        moves = [one for one in window.before if one.moved and one.moved.thread.pid == pid]
        placing = sorted([*before, *moves], key=lambda one: one.at_ns)
        self._on = Whereabouts(pid, cpu, placing, self._events)
        for event in (*before, *self._events):
            self._note(event)
        self._woken_on = deque(  # of each waking its place among the events, and the processor that did it
            (place, event.cpu) for place, event in enumerate(self._events) if event.woken and event.woken.pid == pid
        )
        here = self._on.cpu
        of_each = {cpu: list[Event](), here: list[Event]()}
        for event in self._events:
            of_each.setdefault(event.cpu, []).append(event)
        self._processors = {number: _Processor(own) for number, own in of_each.items()}
        last = before[-1] if before and before[-1].switch else None  # none where it was woken since
        if not of_each[here]:  # then whoever it was given to when the thread left it
            self._processors[here].unseen = ()
            left = next((one.switch for one in before if one.cpu == here and one.switch), None)
            self._processors[here].pid = left.came.pid if left else pid
        self._alive = False  # whether its processor was seen to take interrupts since the deadline
        # whether that was given to another while the thread waited for it
        self._passed_over = last is not None and self.state == WAITS and last.cpu == here and not last.inferred
        self._quota = quota  # whether its group's may have run out
        # whether it was sent away for want of quota when it last left its processor
        self._spent = quota and last is not None and self.state == WAITS and self._sent_away(last, 0)
        self._is_vcpu = window.spike.vcpu == pid
        self._exit = _reason(window.crossed) if self._is_vcpu else ""  # why the virtual processor has left its guest
        # by pid the threads that wake it, if it is a guest's processor: while it sleeps, it waits for the next of them
        self._courses = dict[int, Course]()
        self._wakings = self._each_waking(window, names, of_each) if self._is_vcpu else deque()
        at_work = self._events if window.spike.sandbox else [*of_each[cpu], *of_each[here]]
        idle_until = [one.at_ns for one in at_work if one.name == "sched_switch" and one.pid == IDLE]
        self._refilled_ns = {  # the last time of each kind upon which the processor went to work
            found[1]: event.at_ns
            for event in self._events
            if (found := _REFILL.search(event.told))
            and any(0 <= until_ns - event.at_ns <= _PROMPT_NS for until_ns in idle_until)
        }

    @property
    def holder(self) -> int:
        """Whom its processor has; nobody, where that is not known."""
        processor = self._processors[self._on.cpu]
        return NOBODY.pid if processor.unseen else processor.pid

    def handlers_on(self, cpu: int) -> list[str]:
        """Of interrupts and softirqs that run on a processor, the innermost last."""
        return self._processors[cpu].handlers

    def _note(self, event: Event) -> None:
        """Names and priorities."""
        for name, pid, priority in (event.switch.left, event.switch.came) if event.switch else ():
            if name and pid != IDLE:
                self._names[pid], self._urgency[pid] = name, priority

    def follow(self, event: Event, place: int) -> None:
        self._note(event)
        if change := self._states.after.get(place):
            self._faulted &= change not in (ASLEEP, IS_STOPPED)
            self.state = change
            if change in (RUNS, WAITS):
                self._on.follow(event, place)
            if event.switch:
                self._spent = self._quota and change == WAITS and self._sent_away(event, place)
        for course in self._courses.values():
            course.follow(event, place)
        for wakings in (self._wakings, self._woken_on):
            if wakings and wakings[0][0] == place:
                wakings.popleft()
        if self._on.moved_by(event):
            self._on.follow(event, place)
            self._passed_over = False
        self._processors.setdefault(self._on.cpu, _Processor(()))
        if event.pid == self._pid:
            self._faulted |= event.name.startswith("page_fault_")
            if event.name == "kvm_exit" and self._is_vcpu:
                self._exit = _reason(event)
            elif event.name == "kvm_entry":
                self._exit = ""
        takes_interrupts = self._processors[event.cpu].follow(event)
        if event.cpu == self._on.cpu:
            self._alive |= takes_interrupts and event.at_ns >= self._spike.due_ns
            if event.switch:
                self._passed_over = self.state == WAITS and not event.inferred

    def _each_waking(
        self, window: Window, names: dict[int, str], of_each: Mapping[int, Sequence[Event]]
    ) -> deque[tuple[int, Course | None]]:
        """Of each waking its place among the events, and the course of the thread that did it; None of an interrupt."""
        processors = {number: _Processor(own) for number, own in of_each.items()}
        found = deque[tuple[int, Course | None]]()
        for place, event in enumerate(self._events):
            woken, waker = event.woken, event.pid
            if woken and woken.pid == self._pid:
                in_handler = event.in_handler or processors[event.cpu].handlers
                by_thread = waker not in (IDLE, self._pid) and not in_handler
                if by_thread and waker not in self._courses:
                    self._courses[waker] = Course(window, waker, event.cpu, names, quota=self._quota)
                found.append((place, self._courses[waker] if by_thread else None))
            processors[event.cpu].follow(event)
        return found

    def _sent_away(self, left: Event, place: int) -> bool:
        """Whether it was for want of quota that the thread left its processor, whoever runs meanwhile.

        So it was where the processor idles before it returns; and, if another fair thread went first and a group's
        quota was filled up before it returns, where it was turned back, and where it returns soon after that and later
        than the scheduler lets others go first.
        """
        refilled_ns, back_ns, cpu = -_BACK_NS - 1, self._spike.over_ns, self._on.cpu
        if left.inferred:
            return False
        for event in starting(self._events, place):
            switch = event.switch
            cpu = event.moved.to if event.moved and self._on.moved_by(event) else cpu
            if switch and switch.came.pid == self._pid:
                back_ns = event.at_ns
                break
            if switch and switch.came.pid == IDLE and event.cpu == cpu:
                return True
            if (refill := _REFILL.search(event.told)) and refill[1] == "sched_cfs":
                refilled_ns = event.at_ns
        if refilled_ns < 0 or (left.switch and left.switch.came.priority < FAIR):
            return False
        return left.turned_back or (back_ns - left.at_ns >= _LONG_NS and back_ns - refilled_ns <= _BACK_NS)

    def cause(self, at_ns: int) -> tuple[str, str]:
        found = self._cause(self._on.cpu, at_ns)
        if self._on.or_on is None or self.state != WAITS:
            return found
        other = self._cause(self._on.or_on, at_ns)
        if found[0] != other[0]:
            return UNKNOWN, "on which processor is not recorded"
        return found if found == other else (found[0], "")

    def _cause(self, cpu: int, at_ns: int) -> tuple[str, str]:
        """What it is if it has this processor, or waits for it."""
        state, processor, of_guest = self.state, self._processors[cpu], bool(self._spike.vcpu)
        current = "" if processor.unseen else self._names.get(processor.pid, f"pid {processor.pid}")
        if state == IS_STOPPED:
            return STOPPED, ""
        if state == GONE or self._spike.sandbox.union([self._pid]).intersection(processor.unseen):
            return _UNSEEN
        works = state == RUNS and self._pid != self._spike.vcpu and not processor.handlers
        if of_guest and (state == ASLEEP or works):
            waker = self._wakings[0][1] if self._wakings else None
            return waker.cause(at_ns) if waker else (VM_EXIT, self._exit or "halt")
        timer_cpu = self._woken_on[0][1] if self._woken_on else self._on.cpu
        if state == ASLEEP and timer_cpu != cpu and not self._exit:
            return TIMER, f"of CPU {timer_cpu}"
        if processor.handlers:
            return INTERRUPT, processor.handlers[-1]
        if state == BLOCKED:
            return (FAULT, "") if self._faulted else (UNKNOWN, "blocked in the kernel")
        if state != WAITS and self._exit:
            return VM_EXIT, self._exit
        if state == RUNS and of_guest:
            return GUEST, ""
        if state == RUNS:
            return (FAULT, "") if self._faulted else (ABOVE, "itself")
        if state == ASLEEP:
            return (TIMER, "") if self._alive else (ABOVE, current)
        if processor.unseen:
            return _UNSEEN if {IDLE, NOBODY.pid}.intersection(processor.unseen) else (PREEMPTED, "")
        passed_over = self._passed_over and cpu == self._on.cpu
        return self._waits_for(processor.pid, current, at_ns, passed_over=passed_over)

    def _waits_for(self, pid: int, current: str, at_ns: int, *, passed_over: bool) -> tuple[str, str]:
        """A thread that could run, and does not: the scheduler passes it over only if it may not run."""
        own, other = (self._urgency.get(one, FAIR) for one in (self._pid, pid))
        idle, real_time = pid == IDLE, own < FAIR
        kind = "dl_task" if own < 0 else "sched_rt" if real_time else "sched_cfs"
        less_urgent = real_time and other > max(own, 0)  # what stops a processor has 0, and precedes all
        may_not = passed_over and (less_urgent or (idle and (real_time or self._quota)))
        spent = self._spent and not real_time
        if spent or may_not or (idle and self._refilled_ns.get(kind, -1) >= at_ns):
            return THROTTLED, "bounds of its real-time class" if real_time else "quota"
        return (ABOVE, "idle") if idle else (PREEMPTED, current)


class SandboxCourse(Followed):
    """What the threads do that a guest's kernel and its programs are, any of which may do the late one's work.

    What one of them waits for goes before what others do meanwhile, if it gets its processor before the end.  Where all
    sleep, their kernel may have set its timer too late, as Go's runtime does by up to 10 ms: so it was while the
    processor that wakes them takes interrupts that do not; of the silence before the one that does, nothing is said.
    """

    def __init__(self, window: Window, places: Mapping[int, int], names: dict[int, str], *, quota: bool) -> None:
        super().__init__(window)
        self._courses = {pid: Course(window, pid, cpu, names, quota=quota) for pid, cpu in places.items()}
        self.unwoken = any(course.unwoken for course in self._courses.values())
        self._place = 0  # of the event that comes next
        self._comes = {event.switch.came.pid: place for place, event in enumerate(self._events) if event.switch}
        self._wakings = deque[_Waking]()
        interrupted_ns = dict[int, int]()  # by processor, when it has last done with an interrupt
        for place, event in enumerate(self._events):
            if event.woken and event.woken.pid in places:
                self._wakings.append(_Waking(place, event.woken.pid, event.cpu, interrupted_ns.get(event.cpu, -1)))
            elif handler_of(event) and event.name.endswith("_exit"):
                interrupted_ns[event.cpu] = event.at_ns

    def follow(self, event: Event, place: int) -> None:
        for course in self._courses.values():
            course.follow(event, place)
        self._place = place + 1
        if self._wakings and self._wakings[0].place == place:
            self._wakings.popleft()

    def cause(self, at_ns: int) -> tuple[str, str]:
        of_each = dict[str, dict[int, Course]]()
        for pid, course in self._courses.items():
            of_each.setdefault(course.state, {})[pid] = course
        if IS_STOPPED in of_each:
            return STOPPED, ""
        waiting = [one for pid, one in of_each.get(WAITS, {}).items() if self._comes.get(pid, -1) >= self._place]
        kept_away = [one.cause(at_ns) for one in waiting if one.holder not in self._spike.sandbox]
        if kept_away:
            return min(kept_away, key=lambda one: (one[0] != THROTTLED, one == _UNSEEN))
        if running := of_each.get(RUNS):
            found = next(iter(running.values())).cause(at_ns)
            return found if found[0] == INTERRUPT or found == _UNSEEN else (GUEST, "")
        if waiting:
            return GUEST, ""
        return self._asleep(at_ns, of_each.get(BLOCKED, {}))

    def _asleep(self, at_ns: int, blocked: Mapping[int, Course]) -> tuple[str, str]:
        """What the processor waits for where no thread can run."""
        if not self._wakings:
            return UNKNOWN, "asleep"
        waking = self._wakings[0]
        if waking.pid in blocked:
            return blocked[waking.pid].cause(at_ns)
        handlers = self._courses[waking.pid].handlers_on(waking.cpu)
        if handlers and not handlers[-1].startswith("softirq"):  # through which timers are served
            return INTERRUPT, handlers[-1]
        return (GUEST, "asleep") if at_ns < waking.interrupted_ns else (UNKNOWN, "asleep")


class _Waking(NamedTuple):
    """The waking of a thread that sleeps."""

    place: int  # among the events
    pid: int
    cpu: int  # that does it
    interrupted_ns: int  # when that one had done with the interrupt before


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
