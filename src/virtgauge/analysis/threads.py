"""What a thread does, from event to event of a trace: whether it runs, waits, or sleeps, and on which processor."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from virtgauge.analysis.kernel_trace import ROUNDED_NS, WAITING, Event, Window

RUNS, WAITS, ASLEEP, BLOCKED, STOPPED = "running", "waiting", "asleep", "blocked", "stopped"
GONE = "gone"  # unseen after a page fault: to sleep, or to wait for the disk
_BY_LETTER = {WAITING: WAITS, "D": BLOCKED, "T": STOPPED, "t": STOPPED}
"""By the letter with which it was switched away from (fs/proc/array.c); with any other it sleeps."""
_TARGET = re.compile(r" target_cpu=(\d+)")


class States:
    """What a thread does in a window.

    A waking is without effect where the thread runs, for it was about to sleep and does not; and where it had gone to
    sleep unseen, by that waking's word, and is woken once more: then it went to sleep afterwards.
    """

    def __init__(self, window: Window, pid: int) -> None:
        self._window, self._pid = window, pid
        # of a thread that wakes the late one's processor, what was before the window is not kept
        self._has_before = window.spike.vcpu in (0, pid)
        self.before = list[Event]()  # the window, those that changed what it does
        self.after = dict[int, str]()  # by the place among the window's events
        self.first = RUNS  # at the deadline
        self.unwoken = False  # whether it slept, and then ran without having been woken: that was not recorded
        self._follow([*self._changes()])

    def _follow(self, changes: list[tuple[int, Event, str]]) -> None:
        state, left_unseen = "", False
        for (place, event, change), follows in itertools.zip_longest(changes, changes[1:]):
            then = follows[2] if follows else ""
            if event.woken and (state == RUNS or (left_unseen and then == WAITS)):
                continue
            if not state and place >= 0:  # as its first event presupposes
                state = self.first = ASLEEP if event.woken else WAITS if change == RUNS else RUNS
                self.unwoken |= state == WAITS  # that it may run was recorded elsewhere, if at all
            left_unseen = event.inferred and change == ASLEEP
            if change == RUNS and state in (ASLEEP, BLOCKED, STOPPED):
                self.unwoken = True
            if change == ASLEEP and then == RUNS:  # it was not woken: it had been while it went to sleep
                self.unwoken |= not event.inferred
                change = WAITS
            state = change
            if place >= 0:
                self.after[place] = change
            else:
                self.before.append(event)
                self.first = change

    def _changes(self) -> Iterator[tuple[int, Event, str]]:
        """Of each event that tells of the thread the place, -1 of those before, and what it does then."""
        faulted, due_ns = False, self._window.spike.due_ns
        before = self._window.before if self._has_before else []
        for place, event in (*((-1, one) for one in before), *enumerate(self._window.events)):
            if place >= 0 and self._has_before and event.inferred and event.at_ns < due_ns - ROUNDED_NS:
                continue  # it is among those before
            faulted |= event.pid == self._pid and event.name.startswith("page_fault_")
            if change := self._change(event, faulted=faulted):
                faulted &= change not in (ASLEEP, STOPPED)
                yield place, event, change

    def _change(self, event: Event, *, faulted: bool) -> str:
        """What it does after an event; empty where that says nothing of it."""
        if (switch := event.switch) and self._pid == switch.left.pid:
            traced = switch.state == "t" and self._window.spike.sandbox  # whose kernel traces its programs
            return GONE if event.inferred and faulted else ASLEEP if traced else _BY_LETTER.get(switch.state, ASLEEP)
        if switch:
            return RUNS if self._pid == switch.came.pid else ""
        return WAITS if event.woken and event.woken.pid == self._pid else ""


class Whereabouts:
    """Which processor a thread has, slept on, or waits for."""

    def __init__(self, pid: int, cpu: int, before: Sequence[Event], events: Sequence[Event]) -> None:
        """``cpu``: where no event tells; ``before``: of the thread; ``events``: those that come, of all."""
        self._pid, self._events = pid, events
        self.cpu = cpu
        self.or_on: int | None = None  # that it has gone to meanwhile, if it waits there already
        placing = next((one for one in reversed(before) if self._put_on(one) is not None), None)
        if placing is not None:
            self.follow(placing, -1)
        else:
            self.cpu = next((at for one in events if (at := self._taken_from(one)) is not None), cpu)

    def follow(self, event: Event, place: int) -> None:
        """After an event, whose place among all is given; where a thread goes on unseen, when it does is not known."""
        put_on, next_cpu = self._put_on(event), self._next_cpu(place + 1)
        self.cpu, self.or_on = next_cpu if put_on is None else put_on, None
        if next_cpu != self.cpu and not self._comes(event):
            until = itertools.takewhile(lambda one: not self._comes(one), starting(self._events, place + 1))
            told = any(self.moved_by(one) for one in until)
            self.or_on = None if told else next_cpu

    def moved_by(self, event: Event) -> bool:
        """Whether an event gives it to another processor while it does not run."""
        return event.moved is not None and event.moved.thread.pid == self._pid

    def _put_on(self, event: Event) -> int | None:
        """The processor that it is on by an event's own word; it leaves the one that it waits for."""
        if event.switch and self._pid in (event.switch.left.pid, event.switch.came.pid):
            return event.cpu
        if event.moved and self.moved_by(event):
            return event.moved.to
        woken = event.woken and event.woken.pid == self._pid
        target = _TARGET.search(event.told) if woken else None
        return int(target[1]) if target else None

    def _taken_from(self, event: Event) -> int | None:
        """The processor that it was on before an event, by that one's word."""
        return event.moved.left if event.moved and self.moved_by(event) else self._put_on(event)

    def _comes(self, event: Event) -> bool:
        return bool(event.switch and event.switch.came.pid == self._pid)

    def _next_cpu(self, place: int) -> int:
        """The processor that will have the thread next, from an event on; a pinned one has no other."""
        return next((one.cpu for one in starting(self._events, place) if self._comes(one)), self.cpu)


def starting(events: Sequence[Event], place: int) -> Iterator[Event]:
    """The events from one on; a copy of them, made at each change, would take quadratic time."""
    return (events[at] for at in range(place, len(events)))
