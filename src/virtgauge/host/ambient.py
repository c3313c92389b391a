"""How busy the machine is before anything is measured, and with what."""

from __future__ import annotations

import asyncio
import dataclasses
import os

from virtgauge.host.load import CpuSnapshot, load_between
from virtgauge.host.process import all_pids, cpu_ticks, process_name


@dataclasses.dataclass(frozen=True)
class AmbientLoad:
    """CPU time used by everybody but this process.

    Attributes:
        share: of the whole machine's, 0 to 1.
        busiest: names and pids of the processes that used most of it, most first; at most three.
    """

    share: float
    busiest: tuple[str, ...]


async def ambient_load(seconds: float = 1.0) -> AmbientLoad:
    """Watch the machine for so long."""
    before, ticks_before = CpuSnapshot.take(), _ticks()
    await asyncio.sleep(seconds)
    load, ticks_after = load_between(before, CpuSnapshot.take()), _ticks()
    used = {pid: ticks - ticks_before.get(pid, ticks) for pid, ticks in ticks_after.items() if pid != os.getpid()}
    busiest = sorted((pid for pid in used if used[pid] > 0), key=lambda pid: -used[pid])[:3]
    share = load.busy_ns / load.capacity_ns if load.capacity_ns else 0.0
    return AmbientLoad(share=share, busiest=tuple(f"{process_name(pid) or 'ended'} ({pid})" for pid in busiest))


def _ticks() -> dict[int, int]:
    return {pid: ticks for pid in all_pids() if (ticks := cpu_ticks(pid)) is not None}
