"""On which processor a thread is, or for which it waits, by the events of a trace."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from virtgauge.analysis.kernel_trace import Event

_TARGET = re.compile(r" target_cpu=(\d+)")


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
