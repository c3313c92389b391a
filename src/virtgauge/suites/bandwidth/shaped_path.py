"""The path of real guests: shaped by the kernel at the router's way to the receiver, counted at its interfaces."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import statistics
import time
from collections.abc import AsyncIterator

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.network.device_counters import DeviceCount, DeviceCounters
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.network.shaper import LONGEST_BYTES, Bucket, dropped_frames, shape
from virtgauge.suites.bandwidth.cross_traffic import CrossTraffic, crossing
from virtgauge.suites.bandwidth.links import Link
from virtgauge.suites.bandwidth.path import Conditions, Count, Counted, LinkRecord, Path
from virtgauge.suites.cpu_record import CpuRecord, recorded

_EVERY_S = 0.05
_FLOOD, _FLOOD_BYTES = 2.0, 1500
_SETTLE_S, _WINDOW_S = 0.1, 0.02
_FILLED = 1.02
"""A flood of which more than this, beside what passes, comes in is one that the shaper holds back."""

_WORK_NS = 20_000
"""How much time a frame must have on its path where the processor that works on it sends cross traffic.  The kernel's
work is several microseconds and goes before all programs: of a faster train the others would wait for the end, so that
it finds the path free, and make up for it later, which no count of them shows.  Seen here: 977 Mbit/s for 495."""


def too_crowded(capacity_bps: float) -> str:
    """Why a path of this capacity has no cross traffic here."""
    return (
        f"a path of {capacity_bps / 1e6:g} Mbit/s beside cross traffic needs three processors: with fewer the cross "
        "traffic waits while probes pass, and no counter shows it"
    )


class ShapedPath(Path):
    """See the module."""

    def __init__(
        self,
        router: Namespace,
        out: str,
        entry: str,
        counters: DeviceCounters,
        link: Link | None,
        others: Channel,
        nowhere: str,
        *,
        crowded: bool,
    ) -> None:
        """Take over what a laboratory has made.

        Args:
            router: with its interfaces ``out`` to the receiver and ``entry`` from the others.
            counters: of the router.
            link: behind the shaper; None where there is none.
            others: who can flood the path, towards ``nowhere``.
            crowded: who sends cross traffic has no processor apart from the one that works on the path's frames.
        """
        self._router, self._out, self._entry = router, out, entry
        self._counters, self._link, self._others, self._nowhere = counters, link, others, nowhere
        self._crowded = crowded
        self._bucket: Bucket | None = None

    async def set(self, conditions: Conditions) -> None:
        c = conditions
        if self._crowded and c.cross_bps and LONGEST_BYTES * 8e9 / c.capacity_bps < _WORK_NS:
            raise AgentError("unsupported", too_crowded(c.capacity_bps))
        bucket = Bucket.of(c.shaper, c.capacity_bps, c.burst_us, c.queue_ms)
        try:
            shape(self._router, self._out, bucket)
        except NetworkError as error:
            raise AgentError("unsupported", str(error)) from error
        self._bucket = bucket
        if self._link is not None:
            await self._link.begin(conditions)

    async def rest(self) -> LinkRecord:
        assert self._bucket is not None
        record = LinkRecord(self._bucket.kind, self._bucket.burst_bytes, self._bucket.limit_bytes)
        if self._link is None:
            return record
        told = await self._link.end()
        return dataclasses.replace(
            record, kind=self._link.kind, lateness_p99_ns=told.lateness_p99_ns, overrun=told.overrun
        )

    async def measured_bps(self, seconds: float) -> float | None:
        if not seconds or self._bucket is None:
            return None
        flood = CrossTraffic(self._nowhere, _FLOOD * self._bucket.rate_bps, _FLOOD_BYTES, "constant", cpu=None, seed=1)
        came, passed = [], []
        async with crossing(self._others, flood, "the flood that shows the path's capacity"):
            await asyncio.sleep(_SETTLE_S)
            ends_ns = time.monotonic_ns() + round(seconds * 1e9)
            before_ns, before = time.monotonic_ns(), self._read()
            while before_ns < ends_ns:
                await asyncio.sleep(_WINDOW_S)
                now_ns, now = time.monotonic_ns(), self._read()
                came.append((now[0].rx_bytes - before[0].rx_bytes) * 8e9 / (now_ns - before_ns))
                passed.append((now[1].tx_bytes - before[1].tx_bytes) * 8e9 / (now_ns - before_ns))
                before_ns, before = now_ns, now
        if statistics.fmean(came) < _FILLED * statistics.fmean(passed):
            return None
        # A machine that stands still for a moment lets less pass then, and more never.
        return statistics.median(passed)

    def _read(self) -> tuple[DeviceCount, DeviceCount]:
        return self._counters.read(self._entry), self._counters.read(self._out)

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Count]:
        dropped_before = self._dropped()
        accounts = (
            lambda: self._counters.read(self._entry).rx_bytes,
            lambda: self._counters.read(self._entry).rx_frames,
        )
        async with recorded(*accounts, every_s=_EVERY_S) as records:
            count = _Recorded(*records)
            yield count
            count.ended_ns = time.monotonic_ns()
        count.dropped = self._dropped() - dropped_before

    def _dropped(self) -> int:
        try:
            return dropped_frames(self._router, self._out)
        except NetworkError as error:
            raise AgentError("lost", f"the path's shaper was lost: {error.message}") from error


class _Recorded(Count):
    """Counters that were read at short intervals."""

    def __init__(self, frame_bytes: CpuRecord, frames: CpuRecord) -> None:
        self._bytes, self._frames = frame_bytes, frames
        self._began_ns = self.ended_ns = time.monotonic_ns()
        self.dropped = 0

    def over(self, start_ns: int, end_ns: int) -> Counted:
        start, end = max(start_ns, self._began_ns), min(end_ns, self.ended_ns)
        counted = [record.between(start, end) or 0 for record in (self._bytes, self._frames)]
        return Counted(counted[0], counted[1], self.dropped, max(end - start, 0))
