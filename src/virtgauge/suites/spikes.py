"""Why the latest cycles of a trial were late: what kernels recorded meanwhile, told within its result.

The host's is traced from here, that of a guest which virtgauge has booted by its agent.  Of a guest with a kernel of
its own, the thread that is its processor is followed, or all threads of its sandbox, and the guest's clock is put
beside the host's: requests are answered with a reading of it, which lies between two of ours (Cristian, Probabilistic
clock synchronization, 1989).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from virtgauge.agent.channel import Channel
from virtgauge.analysis.courses import UNRECORDED, Part
from virtgauge.analysis.kernel_trace import Spike
from virtgauge.analysis.spikes import Attribution, attributions, joined, processors
from virtgauge.errors import printable
from virtgauge.host.process import numbered_as_traced
from virtgauge.host.tracing import Trace
from virtgauge.platforms.base import Guest
from virtgauge.suites.answers import documented

KERNEL_TRACE = "kernel_trace"  # What a guest's own kernel recorded, as its agent tells it
KERNEL_TRACE_CYCLES = "kernel_trace_cycles"  # Around how many of the worst cycles, from the first on
OF_INSIDE = (KERNEL_TRACE, KERNEL_TRACE_CYCLES)  # Of which the record has no more than what they tell
# It begins so many periods, of that length at most, before each deadline (native/agent/src/probes/cycle.rs).
_LEAD_PERIODS, _LONGEST_PERIOD_NS = 2, 50_000_000
_MOST = 100  # Cycles of a trial that are told of
_LONGEST_NAME = 40
_IN_VAIN, _LONGEST_S, _READING_S = 30, 2.0, 10.0  # Of the guest's clock at each end of a trial; for all, for one
_NARROWER = 0.05  # By this part of what it was, a reading makes the uncertainty smaller that is not in vain
_NO_THREAD = -1


@dataclasses.dataclass(frozen=True)
class Offset:
    """What the host's CLOCK_MONOTONIC is ahead of the guest's by, at a moment of the host's."""

    at_ns: int
    least_ns: int
    most_ns: int

    @property
    def ns(self) -> int:
        return (self.least_ns + self.most_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        return (self.most_ns - self.least_ns) // 2

    @classmethod
    async def read(cls, channel: Channel) -> Self:
        """By the shortest requests that there are, until more are in vain. Raises what the channel raises."""
        found, in_vain, until = None, 0, time.monotonic() + _LONGEST_S
        while found is None or (in_vain < _IN_VAIN and time.monotonic() < until):
            reply = await channel.request("read", paths=[], timeout_s=_READING_S)
            with documented("the result of read"):
                guest_ns = int(reply.value["monotonic_ns"])
            last, found = found, cls(reply.finished_ns, reply.sent_ns - guest_ns, reply.finished_ns - guest_ns)
            if last:
                least_ns, most_ns = max(last.least_ns, found.least_ns), min(last.most_ns, found.most_ns)
                if least_ns <= most_ns:  # else the clock has drifted, and what was known holds no more
                    found = cls(found.at_ns, least_ns, most_ns)
                narrower = last.uncertainty_ns - found.uncertainty_ns
                in_vain = 0 if narrower > _NARROWER * last.uncertainty_ns else in_vain + 1
        return found


@dataclasses.dataclass(frozen=True)
class Watched:
    """A guest whose cycles are watched by a trace of this machine."""

    guest: Guest
    vcpus: tuple[int, ...]  # threads of this machine that are its processors, where there are such
    sandbox: frozenset[int]  # else those that its kernel and programs are; none where its threads are the host's
    throttled: int | None  # periods so far in which its quota ran out
    offset: Offset | None  # before the cycles

    @classmethod
    async def begin(cls, guest: Guest) -> Self:
        """Before the trace: what is read of the guest's clock is not to stand in it."""
        vcpus, sandbox, throttling = tuple[int, ...](), frozenset[int](), guest.throttling()
        if numbered_as_traced():
            vcpus = await guest.vcpu_threads()
            sandbox = sandbox if vcpus else guest.sandbox_threads()
        offset = await Offset.read(guest.channel) if vcpus or sandbox else None
        return cls(guest, vcpus, sandbox, throttling.throttled if throttling else None, offset)

    async def told(self, result: Mapping[str, Any], trace: Trace) -> dict[str, Any]:
        """For the trial's record: of each of the worst cycles, the latest first, its cause, and what the ring was.

        Nothing reads the trace any more when this ends, cancelled or not.
        """
        throttling = self.guest.throttling()
        quota = throttling is not None and self.throttled is not None and throttling.throttled > self.throttled
        offsets = [] if self.offset is None else [self.offset, await Offset.read(self.guest.channel)]
        sandbox = self.sandbox and self.sandbox | self.guest.sandbox_threads()
        late = [dataclasses.replace(one, sandbox=sandbox) for one in _late(result, self.vcpus)]
        told = asyncio.to_thread(_told, late, self.vcpus, offsets, trace, _inside(result), quota=quota)
        reading = asyncio.create_task(told)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            trace.abandon()
            await asyncio.wait([reading])
            raise


def _late(result: Mapping[str, Any], vcpus: Sequence[int]) -> list[Spike]:
    """The worst cycles of a trial, by the guest's own clock.
    Raises ProtocolError: they are not what the protocol says.
    """
    found = []
    with documented("the result of cycle"):
        cpus = [one["cpu"] for one in result["threads"]]
        for one in result["worst"][:_MOST]:
            thread, vcpu = int(one["thread"]), 0
            if vcpus:
                cpu = cpus[thread] if cpus[thread] is not None or len(vcpus) > 1 else 0
                vcpu = vcpus[cpu] if cpu is not None and cpu < len(vcpus) else _NO_THREAD
            late_ns, over_ns = int(one["late_ns"]), int(one["monotonic_ns"])
            found.append(Spike(f"cycle-{thread}", late_ns, over_ns, int(one["counter"]), vcpu))
    return found


@dataclasses.dataclass(frozen=True)
class _Inside:
    """What the guest's own kernel has recorded around the worst cycles."""

    lines: Sequence[str]  # as :meth:`Trace.lines` gives them; none where it has not
    lead_ns: int  # from how long before each deadline on they are
    sent: int  # of how many of the cycles, from the first on


def _inside(result: Mapping[str, Any]) -> _Inside:
    """Raises ProtocolError: it is not what the protocol says."""
    if KERNEL_TRACE not in result:
        return _Inside([], 0, 0)
    with documented("the result of cycle"):
        text, sent, most = result[KERNEL_TRACE], result[KERNEL_TRACE_CYCLES], len(result["worst"])
        if not isinstance(text, bytes):
            raise ValueError(f"{KERNEL_TRACE} is {type(text).__name__}")
        if type(sent) is not int or not 0 <= sent <= most:
            raise ValueError(f"{KERNEL_TRACE_CYCLES} is {sent!r}, of {most} cycles")
        lead_ns = _LEAD_PERIODS * min(int(result["period_ns"]), _LONGEST_PERIOD_NS)
    lines = [f"{line}\n" for line in text.decode("ascii", "replace").split("\n")] if text else []
    return _Inside(lines, lead_ns, sent)


def _placed(late: Sequence[Spike], vcpus: Sequence[int], inside: _Inside) -> list[Spike]:
    """With the guest's processor of those of which only its kernel knows on which they were."""
    if not inside.lines or all(one.vcpu != _NO_THREAD for one in late):
        return [*late]
    on = processors(inside.lines, _alone(late), inside.lead_ns, sent=inside.sent)
    return [
        dataclasses.replace(one, vcpu=vcpus[cpu])
        if one.vcpu == _NO_THREAD and cpu is not None and cpu < len(vcpus)
        else one
        for one, cpu in zip(late, on, strict=True)
    ]


def _alone(late: Sequence[Spike]) -> list[Spike]:
    """As the guest's own kernel has them: threads by their names."""
    return [dataclasses.replace(one, vcpu=0, sandbox=frozenset[int]()) for one in late]


def by_host(guest_ns: int, offsets: Sequence[Offset]) -> int:
    """A time of the guest's clock by the host's, whose offset goes from the first to the last at one rate."""
    first, last = offsets[0], offsets[-1]
    first_ns, last_ns = first.at_ns - first.ns, last.at_ns - last.ns  # the same moments by the guest's clock
    passed = (guest_ns - first_ns) / max(last_ns - first_ns, 1)
    return guest_ns + first.ns + round((last.ns - first.ns) * passed)


def _told(
    late: Sequence[Spike],
    vcpus: Sequence[int],
    offsets: Sequence[Offset],
    trace: Trace,
    inside: _Inside,
    *,
    quota: bool,
) -> dict[str, Any]:
    late = _placed(late, vcpus, inside)
    uncertain_ns = max((one.uncertainty_ns for one in offsets), default=0)
    here = [dataclasses.replace(one, over_ns=by_host(one.over_ns, offsets)) for one in late] if offsets else late
    found = attributions(trace.lines(), here, quota=quota, uncertain_ns=uncertain_ns)
    for place, spike in enumerate(here):
        if spike.vcpu == _NO_THREAD:
            found[place] = Attribution(UNRECORDED, "on which processor: name the cpus")
    if inside.lines:
        own = attributions(inside.lines, _alone(late), quota=False, lead_ns=inside.lead_ns, sent=inside.sent)
        found = [joined(*both) for both in zip(found, own, strict=True)]
    return {
        "ring_kib": trace.kib,
        "absent": list(trace.absent),
        "clocks_uncertain_ns": uncertain_ns,
        "worst": [
            {
                "late_ns": spike.late_ns,
                "cause": one.cause,
                "by": printable(one.by, _LONGEST_NAME),
                "share": round(one.share, 3),
                "course": _parts(one.course),
                "inside": _parts(one.inside),
            }
            for spike, one in zip(late, found, strict=True)
        ],
    }


def _parts(course: Sequence[Part]) -> list[list[Any]]:
    return [[part.cause, printable(part.by, _LONGEST_NAME), part.ns] for part in course]
