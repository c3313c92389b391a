"""What is seen of both guests from outside: their CPU time in the span of a probe, and what the host's kernel counts.

A guest tells nothing of this truthfully: one that is held to half of a processor believes to have all of it.  So both
accounts are read at short intervals, and what was used in the probe's span is found between the readings afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virtgauge.host.cgroup_policy import Throttling
from virtgauge.platforms.base import Guest
from virtgauge.suites.testbed import CpuRecord, recorded

_EVERY_S = 0.1
_TAIL_NS = 20_000_000
"""Between the end of the agent's span and its answer: it measures the frequency, twenty times for a millisecond."""
_IO_WAIT, _COUNTED = 4, 8
"""Of the first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal."""


@dataclasses.dataclass(frozen=True)
class Span:
    """The span that a probe has measured."""

    # start_ns, end_ns: by the controller's CLOCK_MONOTONIC
    start_ns: int
    end_ns: int
    warmup_ns: int  # work of the same kind before it

    @property
    def elapsed_ns(self) -> int:
        return self.end_ns - self.start_ns

    @classmethod
    def of_answer(cls, value: Mapping[str, Any], warmup_ns: int, sent_ns: int, finished_ns: int) -> Span:
        """Find it on the controller's clock, by which the request was sent and the answer had come.

        A guest without a kernel of its own has the same clock.  Of any other it is only known that it answered when
        it had finished: a little after the end.
        """
        began, ended = int(value["clocks_start"]["monotonic_ns"]), int(value["clocks_end"]["monotonic_ns"])
        ahead = 0 if sent_ns <= began <= ended <= finished_ns else finished_ns - _TAIL_NS - ended
        start = max(began + ahead + warmup_ns, sent_ns)
        return cls(start, start + int(value["elapsed_ns"]), warmup_ns)


def received_cpus(record: CpuRecord, span: Span) -> float | None:
    """What a guest received in a span: CPU time for each second of it, in whole CPUs; None where that is not known.

    Where its record does not reach over the span (a simulated guest takes no time), all of it is taken as that of
    warm-up and span together.
    """
    total_ns = record.total_ns
    if total_ns is None or span.elapsed_ns <= 0:
        return None
    whole_ns = record.between(span.start_ns, span.end_ns)
    return total_ns / (span.warmup_ns + span.elapsed_ns) if whole_ns is None else whole_ns / span.elapsed_ns


def watched(*guests: Guest) -> contextlib.AbstractAsyncContextManager[list[CpuRecord]]:
    """Records of each guest's CPU time during the block."""
    return recorded(*(lambda guest=guest: guest.accounting().cpu_ns for guest in guests), every_s=_EVERY_S)


@dataclasses.dataclass(frozen=True)
class GuestCounts:
    """Counted of one guest so far; None where that is not known."""

    throttling: Throttling | None
    kills: int | None

    @classmethod
    def of(cls, guest: Guest) -> GuestCounts:
        return cls(guest.throttling(), guest.out_of_memory_kills())

    def since(self, earlier: GuestCounts) -> GuestCounts:
        """What was added.  A group that was not there before has counted everything since."""
        throttling, kills = self.throttling, self.kills
        if throttling is not None and earlier.throttling is not None:
            throttling = throttling.since(earlier.throttling)
        if kills is not None:
            kills -= earlier.kills or 0
        return GuestCounts(throttling, kills)


@dataclasses.dataclass(frozen=True)
class Outside:
    """Counters of both guests, and what all of the host's CPUs have done, in clock ticks by kind."""

    tested: GuestCounts
    loading: GuestCounts
    ticks: tuple[int, ...] = ()

    @classmethod
    def now(cls, tested: Guest, loading: Guest) -> Outside:
        ticks = tuple(int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1 : _COUNTED + 1])
        return cls(GuestCounts.of(tested), GuestCounts.of(loading), ticks)

    def since(self, earlier: Outside) -> Outside:
        ticks = tuple(now - then for now, then in zip(self.ticks, earlier.ticks, strict=True))
        return Outside(self.tested.since(earlier.tested), self.loading.since(earlier.loading), ticks)

    @property
    def io_wait_share(self) -> float | None:
        """Of the CPU time counted, what was idle with a disk's answer outstanding; None where no tick was counted."""
        total = sum(self.ticks)
        return self.ticks[_IO_WAIT] / total if total > 0 else None
