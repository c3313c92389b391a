"""A shaped path between three network namespaces, for the benchmarks and tests of the bandwidth estimators.

    sender ──┐
             ├── router ══ token bucket filter ══ receiver
    others ──┘

The router's end towards the receiver has the capacity; every offload is off, so that each frame is one there.  What the
others send is counted where it enters the router.  Frames are routed and shaped by a processor of their own, and not by
whoever sends them, within the call that does so: that would hold the sender up.  Needs root; nothing is left behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from virtgauge.network.shaper import Bucket
from virtgauge.suites.bandwidth.settings import BandwidthSettings

RECEIVER = "10.3.0.1"
_NOWHERE = "10.9.0.1:9"
"""An address behind the receiver, which routes nothing: what comes for it is dropped without an answer."""

_BESIDE_BPS = 400e6
"""What a processor routes and shapes while the cross traffic's sender still has its time there.

The kernel's work comes before every program's: of more, the cross traffic would be absent while a train passes.
"""

_OFFLOADS = "import sys; from virtgauge.network.links import disable_all; disable_all(sys.argv[1:])"

FRAME_BYTES, PACKET_BYTES = 1514, 1500
"""What the shaper counts of a full IP packet."""


@dataclasses.dataclass(frozen=True)
class Truth:
    """What was counted while something was estimated; rates in bit/s as the shaper counts.

    Attributes:
        capacity_bps: of the shaper.
        cross_bps: what the others sent.
        seconds: between the two looks at the counters.
    """

    capacity_bps: float
    cross_bps: float
    seconds: float

    @property
    def available_bps(self) -> float:
        """What was left, in bit/s of full IP packets."""
        return (self.capacity_bps - self.cross_bps) * PACKET_BYTES / FRAME_BYTES


@dataclasses.dataclass(frozen=True)
class ShapedPath:
    """The path; its namespaces have these names."""

    name: str
    capacity_bps: float

    def words(self, end: str, *command: str | Path) -> list[str]:
        """A command line that runs at an end: ``sender``, ``router``, ``receiver``, ``others``."""
        return ["ip", "netns", "exec", f"{self.name}-{end}", *map(str, command)]

    def counted(self) -> int:
        """Bytes that the others have sent into the router."""
        return int(_said(*self.words("router", "cat", "/sys/class/net/others/statistics/rx_bytes")))

    def delivered(self) -> int:
        """Bytes that have left the router for the receiver."""
        return int(_said(*self.words("router", "cat", "/sys/class/net/receiver/statistics/tx_bytes")))

    @contextlib.contextmanager
    def cross_traffic(
        self, estimator: Path, rate_bps: float, kind: str = "constant", cpu: int | None = None
    ) -> Iterator[None]:
        """The others send at a rate as the shaper counts, on a processor of their own if there is one; nothing at 0."""
        if not rate_bps:
            yield
            return
        ip_bps = rate_bps * PACKET_BYTES / FRAME_BYTES
        cpu = _others_cpu() if cpu is None else cpu
        words = ["cross-traffic", _NOWHERE, "--rate", str(ip_bps), "--packet-bytes", str(PACKET_BYTES), "--kind", kind]
        sending = self.words("others", estimator, *words, "--cpu", str(cpu))
        with ended(subprocess.Popen(sending, stdout=subprocess.DEVNULL)) as process:
            before = self.counted()
            while self.counted() == before and process.poll() is None:
                time.sleep(0.01)
            yield
            if process.poll() is not None:
                raise RuntimeError("the cross traffic ended before the estimate")

    @contextlib.contextmanager
    def counting(self) -> Iterator[list[Truth]]:
        """Counts what the others send during a block; its result is in the list afterwards."""
        found: list[Truth] = []
        before, began = self.counted(), time.monotonic()
        yield found
        seconds = time.monotonic() - began
        found.append(Truth(self.capacity_bps, (self.counted() - before) * 8 / seconds, seconds))

    def measured_capacity_bps(self, estimator: Path, seconds: float = 1.0) -> float:
        """What the shaper lets pass while twice as much is sent, as it counts."""
        with self.cross_traffic(estimator, 2 * self.capacity_bps, cpu=min(os.sched_getaffinity(0))):
            time.sleep(0.2)
            before, began = self.delivered(), time.monotonic()
            time.sleep(seconds)
            return (self.delivered() - before) * 8 / (time.monotonic() - began)

    @contextlib.contextmanager
    def listener(self, estimator: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
        """The estimator's listener at the receiver, once it listens."""
        words = self.words("receiver", estimator, "listen", "--address", RECEIVER, *options)
        with ended(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the listener did not start")
            yield process

    def estimate(self, estimator: Path, *options: str) -> tuple[list[dict[str, Any]], Truth]:
        """An estimate from the sender, as the program's lines, and what was true from its first packet on."""
        words = self.words("sender", estimator, "estimate", RECEIVER, *options)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(json.loads(line))
                if lines[-1]["event"] == "session":
                    break
            with self.counting() as counted:
                lines += [json.loads(line) for line in process.stdout]
        return lines, counted[0]


@contextlib.contextmanager
def shaped_path(capacity_bps: float, crossed: bool = True) -> Iterator[ShapedPath]:
    """Make the path, with the bucket and the queue that the suite has by default.

    Args:
        capacity_bps: as the shaper counts.
        crossed: there will be cross traffic.  Where it has no processor of its own, frames of a fast path are routed by
            their senders.
    """
    path = ShapedPath(f"vgbw-{os.getpid()}", capacity_bps)
    usual = BandwidthSettings()
    bucket = Bucket.of("tbf", capacity_bps, usual.burst_us, usual.queue_ms)
    with contextlib.ExitStack() as stack:
        for end in ("router", "sender", "receiver", "others"):
            _said("ip", "netns", "add", f"{path.name}-{end}")
            stack.callback(_said, "ip", "netns", "del", f"{path.name}-{end}")
            # Only the router routes, whatever this machine does itself; and no frame is sent that nobody asked for.
            for setting in (f"ipv4/ip_forward {end == 'router':d}", "ipv6/conf/default/disable_ipv6 1"):
                name, value = setting.split()
                _said(
                    *path.words(end, "sh", "-c", f"[ ! -e /proc/sys/net/{name} ] || echo {value} >/proc/sys/net/{name}")
                )
            _said(*path.words(end, "ip", "link", "set", "lo", "up"))
        for number, end in enumerate(("sender", "others", "receiver"), 1):
            link = ["ip", "link", "add", "name", end, "type", "veth", "peer", "name", "eth0"]
            _said(*path.words("router", *link, "netns", f"{path.name}-{end}"))
            for place, interface, address in (("router", end, 254), (end, "eth0", 1)):
                _said(*path.words(place, "ip", "address", "add", f"10.{number}.0.{address}/24", "dev", interface))
                _said(*path.words(place, sys.executable, "-c", _OFFLOADS, interface))
                _said(*path.words(place, "ip", "link", "set", interface, "up"))
            _said(*path.words(end, "ip", "route", "add", "default", "via", f"10.{number}.0.254"))
        _said(*path.words("router", "ip", "route", "add", "10.9.0.0/24", "via", RECEIVER))
        apart = _path_cpu() != _others_cpu() or not crossed or capacity_bps <= _BESIDE_BPS
        for end in ("sender", "others") if apart else ():
            steering = f"/sys/class/net/{end}/queues/rx-0/rps_cpus"  # absent from a kernel without CONFIG_RPS
            steer = f"[ ! -e {steering} ] || echo {_mask(_path_cpu())} >{steering}"
            _said(*path.words("router", "sh", "-c", steer))
        shaper = ["tc", "qdisc", "add", "dev", "receiver", "root", "tbf", "rate", f"{capacity_bps:.0f}bit"]
        _said(*path.words("router", *shaper, "burst", str(bucket.burst_bytes), "limit", str(bucket.limit_bytes)))
        yield path


@contextlib.contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """A process that is ended and waited for at the block's end."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _path_cpu() -> int:
    return max(os.sched_getaffinity(0))


def _others_cpu() -> int:
    """Neither the path's nor the first, which is the sender's, where there are three."""
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[-2] if len(cpus) > 2 else cpus[-1]


def _mask(cpu: int) -> str:
    """A processor as the kernel reads a bitmap: words of 32 bits, the highest first."""
    return re.sub(r"\B(?=(.{8})+$)", ",", f"{1 << cpu:x}")


def _said(*words: str) -> str:
    done = subprocess.run(words, text=True, timeout=60, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
