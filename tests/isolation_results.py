"""Ledgers of the isolation suite for runs that never happened, with a known truth.

The host is entitled to what water-filling says and gets it; an arm's truth is what it does worse: the part of its
entitlement that it receives, its work per second of CPU time, and how much more a neighbour's use of memory, caches
and disk costs it.  So every efficiency, every ratio and every sentence of a report is known beforehand.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import STARTED, arm_record, hdr_bins, manifest

from virtgauge.analysis.resources import Claim, entitled_cpus
from virtgauge.host.policy import weight_for_share
from virtgauge.ledger.records import ArmRecord, Flag, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.specs.isolation_formatting import Resource, resource_of

HOST_CORES = 2
SECONDS, SLICE_NS = 5, 100_000_000
DISK_FULL_BPS = 100e6
FLOW_BPS = 200e6
"""Of the disk, when nobody else uses it and no policy bounds it."""
OPERATION_BYTES = 4096
IDLE_LATENESS_NS, BUSY_LATENESS_NS = 50_000.0, 4_000_000.0
"""Of a wake-up on an idle core, and on one that a neighbour keeps busy, weighted with the part that it keeps."""

RATES = {"integer": 17.57e6, "floating": 30e3, "latency": 12.5e6, "wake": 1000.0}
"""Of one CPU: 10,000 DMIPS, 3,000 MWIPS, 80 ns a load."""
MEMORY_BPS = 8e9
CONTENTION = {
    (Resource.MEMORY, Resource.MEMORY): 0.5,
    (Resource.MEMORY, Resource.CACHE): 0.25,
    (Resource.CACHE, Resource.MEMORY): 0.4,
    (Resource.CACHE, Resource.CACHE): 0.6,
    (Resource.CPU, Resource.MEMORY): 0.02,
}
"""How much longer the work takes beside one CPU's worth of such a load."""


@dataclasses.dataclass(frozen=True)
class IsolationArm:
    """An arm and its truth.

    Attributes:
        share: of what it is entitled to, that it receives.
        speed: work per second of CPU time, beside the host's.
        contention: of what a neighbour's memory, cache and disk use costs, the multiple.
        limits_hold: whether a CPU limit is in force at all.
        disk_limits_hold: whether a disk limit is.
        sees_steal: whether the guest is told of what it was stopped.
    """

    record: ArmRecord
    share: float = 1.0
    speed: float = 1.0
    contention: float = 1.0
    limits_hold: bool = True
    disk_limits_hold: bool = True
    sees_steal: bool = False


@dataclasses.dataclass(frozen=True)
class Design:
    """One ``[[suite.isolation]]``; shares and intensities in per cent."""

    benchmarks: Sequence[str] = ("integer",)
    memory_blocks: Sequence[str] = ("64MiB",)
    loads: Sequence[str] = ("none", "integer")
    intensities: Sequence[int] = (100,)
    cores: Sequence[str] = ("1",)
    policies: Sequence[str] = ("none", "limit+reservation")
    on: Sequence[str] = ("tested",)
    shares: Sequence[float] = (50,)

    def cells(self) -> Iterator[dict[str, str]]:
        """The factors of its cells, each once, the reference cells among them."""
        made: dict[tuple[str, ...], dict[str, str]] = {}
        for benchmark, cores in itertools.product(self.benchmarks, self.cores):
            blocked = benchmark.startswith("memory") or benchmark == "latency"
            for block in self.memory_blocks if blocked else ("",):
                pressures = [("none", 0)]
                pressures += itertools.product((load for load in self.loads if load != "none"), self.intensities)
                policies: list[tuple[str, str, float]] = [("none", "none", 100)]
                own = [policy for policy in self.policies if policy != "none"]
                policies += itertools.product(own, self.on, self.shares)
                for (load, intensity), (policy, on, share) in itertools.product(pressures, policies):
                    factors = {
                        "benchmark": benchmark,
                        "block": block,
                        "load": load,
                        "intensity": str(intensity),
                        "cores": cores,
                        "policy": policy,
                        "on": on,
                        "share": f"{share:g}",
                    }
                    made.setdefault(tuple(factors.values()), factors)
        yield from made.values()


FULL = Design(
    benchmarks=("integer", "memory-write-integer", "latency", "disk-sequential-write-flush", "wake"),
    loads=("none", "integer", "memory-write-integer", "cache", "disk-sequential-write-flush"),
    cores=("1", "1-apart"),
    policies=("none", "limit+reservation", "disk-limit"),
    on=("tested", "loading"),
    shares=(25, 75),
)
"""One benchmark of each resource, loads of each kind."""


def isolation_arms() -> list[IsolationArm]:
    """The host with its A/A arm, a container, gVisor, and an emulated virtual machine."""
    emulated = arm_record("qemu", "qemu", "QEMU microvm (tcg)", emulated=True)
    return [
        IsolationArm(arm_record("host", "host", "Host", "reference")),
        IsolationArm(arm_record("host-aa", "host", "Host (A/A)", "aa")),
        IsolationArm(arm_record("runc", "oci", "Container (runc)"), 0.99),
        IsolationArm(arm_record("gvisor", "oci", "gVisor (runsc, systrap)"), 0.97, 0.95, 1.5, disk_limits_hold=False),
        IsolationArm(emulated, 0.95, 0.08, sees_steal=True),
    ]


def isolation_ledger(
    folder: Path,
    arms: Sequence[IsolationArm] | None = None,
    designs: Sequence[Design] = (Design(),),
    *,
    blocks: int = 6,
    spread: float = 0.005,
    fields: Callable[[Mapping[str, str]], Mapping[str, Any]] = lambda factors: {},
    flags: Sequence[Flag] = (),
    wake_ups: int = 5000,
    refused: Callable[[str, Mapping[str, str]], str | None] = lambda arm, factors: None,
) -> Ledger:
    """Write a run of which the truth is known.

    Args:
        folder: of the run.
        arms: with their truths; :func:`isolation_arms` when not given.
        designs: of the plan.
        blocks: independent repetitions.
        spread: log standard deviation of a repetition's rates.
        fields: of the result of a cell with these factors, to set.
        flags: of every trial; a fatal one makes it invalid.
        wake_ups: timed in a trial of the benchmark ``wake``.
        refused: why an arm cannot run the cell of these factors; None when it can.
    """
    random = np.random.default_rng(1)
    arms = isolation_arms() if arms is None else arms
    ledger = Ledger.create(folder, manifest([arm.record for arm in arms]))
    for block in range(blocks):
        for arm in (arm for arm in arms if arm.record.usable):
            guest = {"arm": arm.record.name, "platform": arm.record.kind, "block": block, "launched_at": STARTED}
            facts = {"kernel": {"release": "6.1.0-44-amd64"}, "cpu": {"count": HOST_CORES}}
            ledger.put_guest(GuestRecord(**guest, ready_ns=40_000_000, facts=facts))
            cells = {tuple(factors.values()): factors for design in designs for factors in design.cells()}
            for factors in cells.values():
                reason = refused(arm.record.name, factors)
                result, histograms = ({}, {}) if reason else outcome(arm, factors, random, spread, wake_ups)
                result |= {} if reason else fields(factors)
                ledger.add_trial(_trial(arm.record, factors, block, result, flags, reason), histograms, {})
    ledger.add_event("completed", "")
    return ledger


def outcome(
    arm: IsolationArm, factors: Mapping[str, str], random: np.random.Generator, spread: float, wake_ups: int = 5000
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the suite says of one trial, and its histograms."""
    benchmark, load, cores = factors["benchmark"], factors["load"], factors["cores"]
    capacity = HOST_CORES if cores == "all" else 1
    told = usage(arm, factors)
    factor = float(np.exp(spread * random.standard_normal()))
    rate = rate_of(arm, factors) * factor
    slices = rate * np.exp(0.02 * random.standard_normal(SECONDS * 1_000_000_000 // SLICE_NS))
    stopped = told["stopped_cpus"] * SECONDS * 1e9
    limited = factors["on"] == "tested" and "limit" in factors["policy"].split("+") and arm.limits_hold
    throttled = {"periods": 50, "throttled": 50, "throttled_ns": int(stopped)} if limited else None
    value, unit = value_of(benchmark, rate)
    result = {
        "unit": "units",
        "units": round(rate * SECONDS),
        "threads": capacity,
        "elapsed_ns": SECONDS * 1_000_000_000,
        "rate": rate,
        "value": value,
        "value_unit": unit,
        "block_bytes": 64 << 20 if factors["block"] else None,
        "seed": 7,
        "slices": [float(one) for one in slices],
        "slice_ns": SLICE_NS,
        "direct": True if benchmark.startswith("disk") else None,
        "cores": capacity,
        "share": float(factors["share"]) / 100,
        "policy": factors["policy"],
        "on": factors["on"],
        "cpu": {
            "tested": told["tested"],
            "loading": told["loading"],
            "guest_seen": float(capacity) if resource_of(benchmark) is Resource.CPU else told["tested"],
            "method": "control group",
            "window_ns": SECONDS * 1_000_000_000,
        },
        "entitled": {"tested": told["entitled"], "loading": None},
        "capacity_cpus": capacity,
        "load": None if load == "none" else _load(factors, told["loading"]),
        "policy_applied": {name: _applied(arm, factors, name, capacity) for name in ("tested", "loading")},
        "throttling": {"tested": throttled, "loading": None},
        "frequency": {"before_hz": 2.6e9, "after_hz": 2.6e9},
        "io_wait_share": 0.2 if benchmark.startswith("disk") else 0.0,
        "steal": {
            "seen_ns": int(stopped) if arm.sees_steal else 0,
            "stopped_ns": int(stopped),
            "blind": stopped > 0 and not arm.sees_steal,
        },
        "out_of_memory_kills": {"tested": 0, "loading": 0},
    }
    return result, _histograms(arm, factors, told, random, wake_ups)


def usage(arm: IsolationArm, factors: Mapping[str, str]) -> dict[str, Any]:
    """CPU time of both guests in whole CPUs, what the tested one is entitled to, and what it was stopped for."""
    cores, policy, on = factors["cores"], factors["policy"], factors["on"]
    capacity = HOST_CORES if cores == "all" else 1
    share = float(factors["share"]) / 100
    knobs = policy.split("+")
    weighs = any(knob in knobs for knob in ("reservation", "weight"))

    def claim(name: str, demand: float) -> Claim:
        mine = on == name
        limit = share * capacity if mine and "limit" in knobs and arm.limits_hold else None
        return Claim(demand, limit, weight=weight_for_share(share) if mine and weighs else 100)

    busy = 0.1 if factors["load"].startswith(("disk", "flush")) else 1.0
    loading = claim("loading", capacity * int(factors["intensity"]) / 100 * busy if factors["load"] != "none" else 0)
    asked = {Resource.DISK: 0.1, Resource.WAKE: 0.01}.get(resource_of(factors["benchmark"]), float(capacity))
    tested = claim("tested", asked)
    if cores == "1-apart":
        got = [entitled_cpus([one], capacity)[0] for one in (tested, loading)]
    else:
        got = entitled_cpus([tested, loading], capacity)
    received = got[0] * arm.share
    return {
        "tested": received,
        "loading": got[1],
        "entitled": got[0] if asked == capacity else None,
        "stopped_cpus": max(asked - received, 0.0),
    }


def rate_of(arm: IsolationArm, factors: Mapping[str, str]) -> float:
    """Units a second without chance."""
    benchmark, load, told = factors["benchmark"], factors["load"], usage(arm, factors)
    if benchmark.startswith("disk"):
        share = float(factors["share"]) / 100
        bounds = factors["policy"] == "disk-limit" and arm.disk_limits_hold
        demand = int(factors["intensity"]) / 100 * arm.contention if load.startswith(("disk", "flush")) else 0.0
        if bounds and factors["on"] == "loading":
            demand *= share * DISK_FULL_BPS / FLOW_BPS
        flow = FLOW_BPS * arm.speed / (1 + demand)
        return min(flow, share * DISK_FULL_BPS) if bounds and factors["on"] == "tested" else flow
    if benchmark == "wake":
        return RATES["wake"]
    pressed = CONTENTION.get((resource_of(benchmark), _load_resource(load)), 0.0) if load != "none" else 0.0
    per_cpu = RATES.get(benchmark, MEMORY_BPS) * arm.speed / (1 + pressed * arm.contention * told["loading"])
    return float(told["tested"] * per_cpu)


def value_of(benchmark: str, rate: float) -> tuple[float, str]:
    """In the benchmark's own unit."""
    if benchmark == "integer":
        return rate / 1757, "DMIPS"
    if benchmark == "floating":
        return rate / 10, "MWIPS"
    if benchmark == "latency":
        return 1e9 / rate, "ns"
    if benchmark == "wake":
        return rate, "wake-ups/s"
    if benchmark.startswith("disk-random"):
        return rate / OPERATION_BYTES, "operations/s"
    return rate / 1e6, "MB/s"


def _load_resource(load: str) -> Resource:
    return Resource.CACHE if load == "cache" else resource_of("disk-" if load == "flush" else load)


def _load(factors: Mapping[str, str], cpus: float) -> dict[str, Any]:
    return {
        "name": factors["load"],
        "unit": "units",
        "intensity_percent": int(factors["intensity"]),
        "threads": 1,
        "rate": cpus * 1e6,
        "cpus": cpus,
        "error": None,
    }


def _applied(arm: IsolationArm, factors: Mapping[str, str], guest: str, capacity: int) -> dict[str, Any]:
    share, policy = float(factors["share"]) / 100, factors["policy"]
    declared: dict[str, Any] = {"weight": 100, "cores": list(range(capacity))}
    in_force = {"cpu.shares": "1024", "cpuset.cpus": ",".join(str(core) for core in range(capacity))}
    no_effect, notes = [], []
    if factors["on"] == guest:
        knobs = policy.split("+")
        if "limit" in knobs:
            declared["cpu_limit"] = share * capacity
            in_force["cpu.cfs_quota_us"] = f"{share * capacity * 1e5:.0f}"
            no_effect += [] if arm.limits_hold else ["cpu_limit: the platform has no quota"]
        if "reservation" in knobs or "weight" in knobs:
            declared["weight"] = weight_for_share(share)
            in_force["cpu.shares"] = str(weight_for_share(share) * 1024 // 100)
            notes += ["a reservation by weight"] if "reservation" in knobs else []
        if policy == "disk-limit":
            declared["read_bps"] = declared["write_bps"] = int(share * DISK_FULL_BPS)
            in_force["blkio.throttle.write_bps_device"] = f"7:0 {share * DISK_FULL_BPS:.0f}"
            no_effect += [] if arm.disk_limits_hold else ["write_bps: writes are the host's buffered ones"]
    return {"declared": declared, "in_force": in_force, "no_effect": no_effect, "notes": notes}


def _histograms(
    arm: IsolationArm,
    factors: Mapping[str, str],
    told: Mapping[str, Any],
    random: np.random.Generator,
    wake_ups: int,
) -> dict[str, Any]:
    if factors["benchmark"] == "wake":
        kept = told["loading"] if factors["cores"] != "1-apart" else 0.0
        middle = IDLE_LATENESS_NS + BUSY_LATENESS_NS * kept * arm.contention
        return {"wake": hdr_bins((random.lognormal(0, 0.2, wake_ups) * middle * 1000).astype(np.int64))}
    if factors["benchmark"].startswith("disk"):
        middle = 1e9 * OPERATION_BYTES * 16 / rate_of(arm, factors)
        return {"disk": hdr_bins((random.lognormal(0, 0.3, 4000) * middle * 1000).astype(np.int64))}
    return {}


def _trial(
    arm: ArmRecord,
    factors: Mapping[str, str],
    block: int,
    result: dict[str, Any],
    flags: Sequence[Flag],
    reason: str | None,
) -> TrialRecord:
    levels = ",".join(f"{factor}={level}" for factor, level in factors.items())
    status = TrialStatus.INVALID if any(flag.fatal for flag in flags) else TrialStatus.VALID
    return TrialRecord(
        trial_id=0,
        key=f"b{block}/{arm.name}/isolation/kernel/{levels}",
        suite="isolation",
        probe="kernel",
        arm=arm.name,
        platform=arm.kind,
        block=block,
        attempt=1,
        factors=dict(factors),
        status=TrialStatus.UNSUPPORTED if reason else status,
        flags=() if reason else tuple(flags),
        result=result,
        accounting={},
        error=reason,
        guest_id=None,
        started_at=STARTED,
        elapsed_ns=7_000_000_000,
    )
