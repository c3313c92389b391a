"""The kernels of the isolation suite, and programs beside them, on one processor within a CPU limit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError

from virtgauge.agent import find_agent
from virtgauge.host.process import child_setup
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Disk, Guest, GuestSpec
from virtgauge.platforms.local import HostPlatform

CORE = max(os.sched_getaffinity(0))
"""Where everything runs: ours and the peers' in turn."""
BLOCK = 64 << 20
KERNELS: dict[str, dict[str, Any]] = {
    "integer": {"kernel": "integer"},
    "floating": {"kernel": "floating"},
    "memory read": {"kernel": "memory", "access": "read", "element": "simd", "block_bytes": BLOCK},
    "memory write": {"kernel": "memory", "access": "write", "element": "simd", "block_bytes": BLOCK},
    "memory copy": {"kernel": "memory", "access": "copy", "element": "simd", "block_bytes": BLOCK},
    "latency": {"kernel": "latency", "block_bytes": BLOCK},
}


async def host_guest(scope: Scope, name: str, limit: float | None = None, *disks: Disk) -> Guest:
    """The agent on this host, on one processor, with a CPU limit in whole processors."""
    spec = GuestSpec(name=name, scope=scope, agent=find_agent(), cpus=(CORE,), cpu_limit=limit, disks=disks)
    return await HostPlatform().launch(spec)


async def rate(guest: Guest, kernel: dict[str, Any], seconds: float, seed: int = 1) -> float:
    """Units a second of one kernel on one thread."""
    params = {
        **kernel,
        **{"threads": 1, "warmup_ns": 500_000_000, "duration_ns": int(seconds * 1e9)},
        **{"slice_ns": 100_000_000, "seed": seed},
    }
    reply = await guest.channel.request("probe", name="kernel", params=params, load=None, timeout_s=seconds + 120)
    return float(reply.value["units"] / reply.value["elapsed_ns"] * 1e9)


def output_within(scope: Scope, name: str, argv: Sequence[str], limit: float | None = None) -> str:
    """What a program prints on the same processor, within the same limit.

    Raises:
        BenchmarkError: it fails.
    """
    group = scope.cgroup(name, cpu_limit=limit)
    try:
        with group.entrance() as join:
            if limit is not None and group.reason is not None:
                raise BenchmarkError(group.reason)
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                preexec_fn=child_setup(join, cpus=(CORE,)),
                cwd=scope.folder,
                timeout=300,
                check=False,
            )
    finally:
        group.kill_all()
        group.remove()
    if done.returncode != 0:
        raise BenchmarkError(f"{Path(argv[0]).name} fails: {done.stderr.strip()[-300:]}")
    return done.stdout + done.stderr
