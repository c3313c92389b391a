"""Why the latest cycles of a trial were late: what the host's kernel recorded beside it, told within its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from virtgauge.analysis.spikes import Spike, attributions
from virtgauge.errors import printable
from virtgauge.host.tracing import Trace
from virtgauge.suites.answers import documented

_MOST = 100  # Cycles of a trial that are told of
_LONGEST_NAME = 40


def spikes_of(result: Mapping[str, Any]) -> list[Spike]:
    """The worst cycles of a trial. Raises ProtocolError: they are not what the protocol says."""
    with documented("the result of cycle"):
        return [
            Spike(f"cycle-{int(one['thread'])}", int(one["late_ns"]), int(one["monotonic_ns"]), int(one["counter"]))
            for one in result["worst"][:_MOST]
        ]


def told(result: Mapping[str, Any], trace: Trace, *, quota: bool = False) -> dict[str, Any]:
    """For the trial's record: of each of the worst cycles, the latest first, its cause, and what the ring was.

    The guest's threads are known by their names, and its CLOCK_MONOTONIC is to be the host's: of one with a kernel of
    its own every cause is unrecorded.  ``quota``: whether the guest's had run out.
    """
    spikes = spikes_of(result)
    found = attributions(trace.lines(), spikes, quota=quota)
    return {
        "ring_kib": trace.kib,
        "absent": list(trace.absent),
        "worst": [
            {
                "late_ns": spike.late_ns,
                "cause": one.cause,
                "by": printable(one.by, _LONGEST_NAME),
                "share": round(one.share, 3),
                "parts": [[part.cause, printable(part.by, _LONGEST_NAME), part.ns] for part in one.parts],
            }
            for spike, one in zip(spikes, found, strict=True)
        ],
    }


async def read(result: Mapping[str, Any], trace: Trace, *, quota: bool = False) -> dict[str, Any]:
    """What :func:`told` returns; nothing reads the trace any more when this ends, cancelled or not."""
    reading = asyncio.create_task(asyncio.to_thread(told, result, trace, quota=quota))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        trace.abandon()
        await asyncio.wait([reading])
        raise
