"""Ledgers of runs that never happened, with a known truth: for the tests and benchmarks of analysis and report."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.ledger.records import ArmRecord, Flag, GuestRecord, Histogram, Manifest, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger

STARTED = "2025-03-01T10:00:00.000+00:00"

TIMERS_NS = {"rdtsc": 9.0, "rdtscp": 15.0, "clock_gettime": 23.0, "clock_gettime_syscall": 160.0, "gettimeofday": 24.0}
SLEEPS_NS = {
    ("usleep", "default"): 62_000.0,
    ("usleep", "minimal"): 14_000.0,
    ("clock_nanosleep", "default"): 58_000.0,
    ("clock_nanosleep", "minimal"): 11_000.0,
}


@dataclasses.dataclass(frozen=True)
class SyntheticArm:
    """An arm and its truth: the factors by which its medians exceed the reference's."""

    record: ArmRecord
    timer_factor: float = 1.0
    sleep_factor: float = 1.0
    ready_ns: int | None = 40_000_000


def arm_record(name: str, kind: str, label: str, role: str = "test", **fields: Any) -> ArmRecord:
    """An arm as the manifest holds it; usable and not emulated unless told otherwise."""
    known: dict[str, Any] = {"emulated": False, "usable": True, "reason": "", "fix": None, "settings": {}}
    return ArmRecord(name=name, kind=kind, label=label, role=role, **(known | fields))


def usual_arms() -> list[SyntheticArm]:
    """What `make run` meets on a machine without KVM and without Kata."""
    return [
        SyntheticArm(arm_record("host", "host", "Host", "reference"), ready_ns=3_100_000),
        SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa"), ready_ns=3_000_000),
        SyntheticArm(arm_record("runc", "oci", "Container (runc)"), 1.01, 1.04, 61_000_000),
        SyntheticArm(arm_record("gvisor", "oci", "gVisor (runsc, systrap)"), 53.0, 1.31, 410_000_000),
        SyntheticArm(arm_record("qemu-microvm", "qemu", "QEMU microvm (tcg)", emulated=True), 11.0, 2.6, 3_900_000_000),
        SyntheticArm(
            arm_record(
                "kata",
                "oci",
                "Kata Containers",
                usable=False,
                reason="the runtime kata-runtime is not installed",
                fix="apt-get install kata-containers",
            )
        ),
    ]


def hdr_bins(samples_ps: npt.NDArray[np.int64]) -> Histogram:
    """Samples on the bins of an HDR histogram with 3 significant digits (2048 sub-buckets, mirrored below zero)."""
    size = np.abs(samples_ps)
    shift = np.maximum(np.frexp(size.astype(np.float64))[1].astype(np.int64) - 11, 0)
    values, counts = np.unique(np.sign(samples_ps) * ((size >> shift) << shift), return_counts=True)
    return Histogram(
        unit="ps",
        values=values.astype(np.int64),
        counts=counts.astype(np.uint64),
        minimum=int(samples_ps.min()),
        maximum=int(samples_ps.max()),
        mean=float(samples_ps.mean()),
    )


def timer_histogram(
    rng: np.random.Generator, median_ns: float, samples: int = 1_000_000, loaded: bool = False
) -> Histogram:
    """Reads of a clock: a sharp body, a shoulder of cache misses, a power-law tail of interrupts.

    Drawn with 20,000 values and counted up to ``samples``, for a million draws a trial would take the tests' time.
    """
    drawn = min(samples, 20_000)
    body = rng.lognormal(math.log(median_ns), 0.03, drawn)
    body[rng.random(drawn) < 0.02] *= rng.uniform(1.2, 2.5)
    hit = rng.random(drawn) < (0.003 if loaded else 0.001)
    body[hit] += 900 * (1 + rng.pareto(0.7 if loaded else 1.4, hit.sum()))
    histogram = hdr_bins((np.minimum(body, 2e8) * 1000).astype(np.int64))
    return dataclasses.replace(histogram, counts=histogram.counts * np.uint64(samples // drawn))


def sleep_histogram(rng: np.random.Generator, median_ns: float, samples: int = 1000, loaded: bool = False) -> Histogram:
    """Lateness of sleeps: skewed, with stalls of a scheduler's slice when loaded."""
    late = rng.lognormal(math.log(median_ns), 0.12, samples)
    stalled = rng.random(samples) < (0.05 if loaded else 0.002)
    late[stalled] += rng.exponential(4e6 if loaded else 2e5, stalled.sum())
    return hdr_bins((late * 1000).astype(np.int64))


def cells(
    timers: Sequence[str] = tuple(TIMERS_NS),
    sleeps: Sequence[tuple[str, str]] = tuple(SLEEPS_NS),
    loads: Sequence[str] = ("idle", "cpu"),
) -> Iterator[tuple[str, dict[str, str]]]:
    """The cells of the timing suite's design, as ``(probe, factors)``."""
    for function, load in itertools.product(timers, loads):
        yield "timer_cost", {"function": function, "load": load}
    for (function, slack), load in itertools.product(sleeps, loads):
        yield (
            "sleep_lateness",
            {"function": function, "target_ns": "100000", "slack": slack, "policy": "other", "load": load},
        )


def manifest(arms: Sequence[ArmRecord], **fields: Any) -> Manifest:
    """A manifest with these arms."""
    known: dict[str, Any] = {
        "run_id": "synthetic-1",
        "created_at": STARTED,
        "tool_version": "0.1.0",
        "plan_name": "quick",
        "plan_text": 'name = "quick"\nrepetitions = 6\n',
        "seed": 20250301,
        "confidence": 0.95,
        "agent_sha256": "9f" * 32,
        "fingerprint": {"kernel": "6.1.0-44-amd64", "cpu": {"model": "Example CPU @ 2.6 GHz", "count": 2}},
    }
    return Manifest(arms=tuple(arms), **(known | fields))


def trial(arm: ArmRecord, probe: str, factors: Mapping[str, str], block: int, **fields: Any) -> TrialRecord:
    """A valid trial of a cell, unless told otherwise."""
    levels = ",".join(f"{factor}={level}" for factor, level in factors.items())
    known: dict[str, Any] = {
        "attempt": 1,
        "status": TrialStatus.VALID,
        "flags": (),
        "result": {"method": "self", "overhead_ps": 0, "resolution_ps": 1000, "zero_share": 0.0}
        if probe == "timer_cost"
        else {"cpu_ns_per_sleep": 3200.0},
        "accounting": {"foreign_load": 0.004, "steal": 0.0},
        "error": None,
        "guest_id": None,
        "started_at": STARTED,
        "elapsed_ns": 800_000_000,
    }
    return TrialRecord(
        trial_id=0,
        key=f"b{block:04d}/{arm.name}/timing/{probe}/{levels}",
        suite="timing",
        probe=probe,
        arm=arm.name,
        platform=arm.kind,
        block=block,
        factors=dict(factors),
        **(known | fields),
    )


def synthetic_ledger(
    folder: Path,
    arms: Sequence[SyntheticArm] | None = None,
    blocks: int = 6,
    design: Sequence[tuple[str, dict[str, str]]] | None = None,
    seed: int = 1,
    spread: float = 0.02,
    invalid_share: float = 0.0,
    finished: bool = True,
    reads: int = 1_000_000,
    run: Mapping[str, Any] | None = None,
    reservoir: int = 0,
    loaded_spread: float | None = None,
) -> Ledger:
    """Write a run of which the truth is known.

    Args:
        folder: of the run.
        arms: with their factors; :func:`usual_arms` when not given.
        blocks: independent repetitions.
        design: the cells; all of the timing suite's when not given.
        seed: of everything random here.
        spread: log standard deviation of a repetition's median about its arm's truth.
        invalid_share: of first attempts that a foreign load invalid; each is repeated and valid then.
        finished: whether the run recorded its end.
        reads: of the clock in one trial.
        run: fields of the manifest to set.
        reservoir: raw values to keep of each trial.
        loaded_spread: the spread of sleeps beside a load; that of all others when not given.
    """
    rng = np.random.default_rng(seed)
    arms = usual_arms() if arms is None else arms
    design = list(cells()) if design is None else design
    ledger = Ledger.create(folder, manifest([arm.record for arm in arms], **(run or {})))
    ledger.add_event("started", f"{blocks} blocks")
    for block in range(blocks):
        for arm in (arm for arm in arms if arm.record.usable):
            ready = None if arm.ready_ns is None else int(arm.ready_ns * rng.lognormal(0, 0.05))
            guest = ledger.put_guest(
                GuestRecord(
                    arm=arm.record.name,
                    platform=arm.record.kind,
                    block=block,
                    launched_at=STARTED,
                    ready_ns=ready,
                    facts={"kernel": {"release": "6.1.0-44-amd64"}, "clocksource": {"current": "tsc"}},
                )
            )
            for probe, factors in design:
                attempts = 2 if rng.random() < invalid_share else 1
                for attempt in range(1, attempts + 1):
                    invalid = attempt < attempts
                    record = trial(
                        arm.record,
                        probe,
                        factors,
                        block,
                        guest_id=guest,
                        attempt=attempt,
                        status=TrialStatus.INVALID if invalid else TrialStatus.VALID,
                        flags=(Flag("foreign-load", "9.1 % of the machine, more than 3 %"),) if invalid else (),
                    )
                    apart = probe == "sleep_lateness" and factors["load"] != "idle"
                    own = loaded_spread if apart and loaded_spread is not None else spread
                    histogram = _histogram(rng, arm, probe, factors, own, reads)
                    ledger.add_trial(record, {probe: histogram}, _raw_values(rng, histogram, reservoir))
    if finished:
        ledger.add_event("completed", "")
    return ledger


def _raw_values(rng: np.random.Generator, histogram: Histogram, number: int) -> dict[str, npt.NDArray[np.int64]]:
    if not number:
        return {}
    return {"reservoir": rng.choice(histogram.values, number, p=histogram.counts / histogram.counts.sum())}


def _histogram(
    rng: np.random.Generator, arm: SyntheticArm, probe: str, factors: Mapping[str, str], spread: float, reads: int
) -> Histogram:
    loaded = factors["load"] != "idle"
    wobble = rng.lognormal(0, spread)
    if probe == "timer_cost":
        return timer_histogram(rng, TIMERS_NS[factors["function"]] * arm.timer_factor * wobble, reads, loaded)
    truth = SLEEPS_NS[factors["function"], factors["slack"]] * arm.sleep_factor
    return sleep_histogram(rng, truth * wobble, loaded=loaded)
