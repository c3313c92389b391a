"""CPU time of both guests from outside, over the span that a probe has measured.

A guest tells nothing of this truthfully: one that is held to half of a processor believes to have all of it.  So both
accounts are read at short intervals, and what was used in the probe's span is found between the readings afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

from virtgauge.platforms.base import Guest
from virtgauge.suites.cpu_record import CpuRecord, recorded

_EVERY_S = 0.1
_TAIL_NS = 20_000_000
"""Between the end of the agent's span and its answer: it measures the frequency, twenty times for a millisecond."""


@dataclasses.dataclass(frozen=True)
class Span:
    """The span that a probe has measured.

    Attributes:
        start_ns, end_ns: by the controller's CLOCK_MONOTONIC.
        warmup_ns: work of the same kind before it.
    """

    start_ns: int
    end_ns: int
    warmup_ns: int

    @property
    def elapsed_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns

    @classmethod
    def of_answer(cls, value: Mapping[str, Any], warmup_ns: int, sent_ns: int, finished_ns: int) -> Span:
        """Find it on the controller's clock.

        A guest without a kernel of its own has the same clock.  Of any other it is only known that it answered when
        it had finished: a little after the end.

        Args:
            value: the probe's result.
            warmup_ns: asked for.
            sent_ns, finished_ns: request and answer by the controller's clock.

        Raises:
            KeyError, TypeError, ValueError: it is no such result.
        """
        began, ended = int(value["clocks_start"]["monotonic_ns"]), int(value["clocks_end"]["monotonic_ns"])
        ahead = 0 if sent_ns <= began <= ended <= finished_ns else finished_ns - _TAIL_NS - ended
        start = max(began + ahead + warmup_ns, sent_ns)
        return cls(start, start + int(value["elapsed_ns"]), warmup_ns)


@dataclasses.dataclass(frozen=True)
class Received:
    """What a guest received in a span.

    Attributes:
        cpus: CPU time for each second of it, in whole CPUs; None where it is not known from outside.
        slices: the same, in slices of equal length, without what is left over in the end; empty where only the whole
            is known.
    """

    cpus: float | None
    slices: tuple[float, ...] = ()


def received(record: CpuRecord, span: Span, slice_ns: int) -> Received:
    """What a guest received in a span.

    Where its record does not reach over the span (a simulated guest takes no time), all of it is taken as that of
    warm-up and span together.
    """
    total_ns = record.total_ns
    if total_ns is None or span.elapsed_ns <= 0:
        return Received(None)
    whole_ns = record.between(span.start_ns, span.end_ns)
    if whole_ns is None:
        return Received(total_ns / (span.warmup_ns + span.elapsed_ns))
    ends = range(span.start_ns, span.end_ns + 1, slice_ns)
    slices = [(record.between(start, end) or 0) / slice_ns for start, end in itertools.pairwise(ends)]
    return Received(whole_ns / span.elapsed_ns, tuple(slices))


def watched(*guests: Guest) -> contextlib.AbstractAsyncContextManager[list[CpuRecord]]:
    """Records of each guest's CPU time during the block."""
    return recorded(*(functools.partial(_cpu_ns, guest) for guest in guests), every_s=_EVERY_S)


def _cpu_ns(guest: Guest) -> int | None:
    return guest.accounting().cpu_ns
