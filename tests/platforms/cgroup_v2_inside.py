"""Runs inside a virtual machine whose kernel has cgroup v2 alone: what the driver sets there, and what it does.

Arguments: the folder of the project's source, and that of the guest's disk.  Prints what was found as JSON.  It takes
nothing but Python's standard library and the code under test.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

from virtgauge.host.cgroup import Cgroup, Hierarchies
from virtgauge.host.cgroup_policy import CgroupPolicy
from virtgauge.host.policy import DiskLimits, Policy

BUSY = "while :; do :; done"
GRASP = "x = bytearray(400 << 20)"
BOUND = 1_000_000


@contextlib.contextmanager
def program(name: str, *argv: str) -> Iterator[tuple[Cgroup, CgroupPolicy, subprocess.Popen[bytes]]]:
    """A program in a group of its own."""
    group = Cgroup(f"virtgauge/test/{name}")
    with group.entrance() as join:
        process = subprocess.Popen(argv, preexec_fn=join, stderr=subprocess.DEVNULL)
    try:
        yield group, CgroupPolicy(group), process
    finally:
        group.kill_all()
        process.wait()
        group.remove()


def used(seconds: float, *groups: Cgroup) -> list[float]:
    """CPUs that each group has got."""
    before, began = [group.cpu_ns() for group in groups], time.monotonic_ns()
    time.sleep(seconds)
    after, elapsed = [group.cpu_ns() for group in groups], time.monotonic_ns() - began
    return [((last or 0) - (first or 0)) / elapsed for first, last in zip(before, after, strict=True)]


def processor() -> dict[str, Any]:
    """Weights, cores and a limit."""
    with (
        program("heavy", "sh", "-c", BUSY) as (heavy, policy_of_heavy, process),
        program("light", "sh", "-c", BUSY) as (light, policy_of_light, _),
    ):
        weighed = policy_of_heavy.apply(Policy(weight=300, cores=(0,)))
        policy_of_light.apply(Policy(weight=100, cores=(0,)))
        time.sleep(0.5)
        for _ in range(3):  # while one works the machine may stand still, which is the other's loss
            ours, theirs = used(6.0, heavy, light)
            if 2.7 < ours / theirs < 3.3:
                break
        allowed = sorted(os.sched_getaffinity(process.pid))
        limited = policy_of_heavy.apply(Policy(cpu_limit=0.3))
        freed = sorted(os.sched_getaffinity(process.pid))
        (within,) = used(4.0, heavy)
        throttling = policy_of_heavy.throttling()
        files = {
            name: Path("/sys/fs/cgroup/virtgauge/test/heavy", name).read_text().strip()
            for name in ("cpu.weight", "cpuset.cpus", "cpu.max")
        }
    return {
        "weighed": dict(weighed.in_force),
        "ratio": ours / theirs,
        "allowed": allowed,
        "limited": dict(limited.in_force),
        "freed": freed,
        "within": within,
        "throttled": None if throttling is None else throttling.throttled,
        "after": files,
    }


def disk(folder: Path) -> dict[str, Any]:
    """Direct and buffered writes under a bound."""
    number = os.stat(folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    times = {}
    with program("writer", "sleep", "600") as (group, policy, _):
        with group.entrance() as join:
            for bound in (None, BOUND):
                limits = DiskLimits() if bound is None else DiskLimits(write_bps=bound)
                applied = policy.apply(Policy(disk=limits), device)
                for way in ("oflag=direct", "conv=fsync"):
                    # Its own file: one that others made dirty before is written back on their behalf.
                    file = f"of={folder}/{way}-{bound}"
                    began = time.monotonic()
                    subprocess.run(
                        ["dd", "if=/dev/zero", file, "bs=256k", "count=24", way],
                        preexec_fn=join,
                        check=True,
                        stderr=subprocess.DEVNULL,
                    )
                    times[f"{way} {bound}"] = time.monotonic() - began
        said = dict(applied.in_force), list(applied.no_effect)
        policy.apply(Policy())
        lifted = Path("/sys/fs/cgroup/virtgauge/test/writer/io.max").read_text()
    return {"in_force": said[0], "no_effect": said[1], "times": times, "lifted": lifted}


def memory() -> dict[str, Any]:
    """A limit set by hand, as a container's runtime does, and the kill that follows."""
    with program("grasp", "sleep", "600") as (group, policy, _):
        folder = Path("/sys/fs/cgroup") / group.name
        for parent in (folder.parents[2], folder.parents[1], folder.parent):
            (parent / "cgroup.subtree_control").write_text("+memory")
        before = policy.out_of_memory_kills()
        (folder / "memory.max").write_text(str(64 << 20))
        with group.entrance() as join:
            status = subprocess.run(["python3", "-c", GRASP], preexec_fn=join, check=False).returncode
        return {"before": before, "after": policy.out_of_memory_kills(), "status": status}


def main() -> None:
    """Everything, as one line of JSON."""
    mounted = Hierarchies.detect()
    layout = "v2" if mounted.v2 and not mounted.v1 else "another"
    found = {"layout": layout, "processor": processor(), "disk": disk(Path(sys.argv[2])), "memory": memory()}
    found["left"] = Path("/sys/fs/cgroup/virtgauge").exists()
    print(json.dumps(found))


main()
