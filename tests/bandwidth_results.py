"""Ledgers of the bandwidth suite for runs that never happened, with a known truth.

An arm's truth is, for each timing, how far its estimates are off, how widely the instant estimates scatter, and which
rate it paces at most.  So every error, every effect of timing and every refusal of a report is known beforehand.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shown import shown, told, value
from synthetic import STARTED, arm_record, hdr_bins, manifest

from virtgauge.analysis.comparison import Difference
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord, Flag, GuestRecord, Histogram, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report import Report
from virtgauge.specs.blocks import Finding, Value

IP_SHARE = 1500 / 1514
"""Of what a shaper counts."""


@dataclasses.dataclass(frozen=True)
class Timed:
    """What one timing makes of an arm.

    Attributes:
        error: signed, of every estimate.
        spread: standard deviation of the instant estimates, of the truth.
        max_paced_mbps: the highest rate that is paced; a path with more gives a refusal.
        gap: standard deviation of the achieved gaps, of the planned one.
        late_ns: median lateness of a burst.
        silent: whether the path gives no answer.
    """

    error: float = 0.01
    spread: float = 0.005
    max_paced_mbps: float = 20_000.0
    gap: float = 0.02
    late_ns: float = 500.0
    silent: bool = False


PRECISE, COARSE = Timed(), Timed(error=0.06, spread=0.03, gap=0.3, late_ns=60_000.0)


@dataclasses.dataclass(frozen=True)
class BandwidthArm:
    """An arm and its truth: by timing, and through the shim where that differs (``hptime/shim``)."""

    record: ArmRecord
    timed: Mapping[str, Timed] = dataclasses.field(default_factory=dict)

    def of(self, timing: str, through: str) -> Timed:
        """What is true of one timing."""
        usual = {"hptime": PRECISE, "system": COARSE}.get(timing, COARSE)
        return self.timed.get(f"{timing}/{through}", self.timed.get(timing, usual))


@dataclasses.dataclass(frozen=True)
class Design:
    """One ``[[suite.bandwidth]]``."""

    estimators: Sequence[str] = ("yaz-original",)
    timings: Sequence[str] = ("hptime", "system")
    through: Sequence[str] = ("inside",)
    capacity_mbps: float = 300
    cross_mbps: Sequence[float] = (0, 150)
    traffic: str = "constant"
    delay_ms: float = 0
    loss: float = 0
    pacing: str = "auto"

    def cells(self) -> Iterator[dict[str, str]]:
        """The factors of its cells."""
        for estimator, timing, through, cross in itertools.product(
            self.estimators, self.timings, self.through, self.cross_mbps
        ):
            yield {
                "estimator": estimator,
                "timing": timing,
                "through": through,
                "capacity_mbps": f"{self.capacity_mbps:g}",
                "cross_mbps": f"{cross:g}",
                "traffic": self.traffic if cross else "none",
                "delay_ms": f"{self.delay_ms:g}",
                "loss": f"{self.loss:g}",
                "pacing": self.pacing,
            }


PAPER = (
    Design(cross_mbps=(0, 50, 100, 150, 200, 250), through=("inside", "shim")),
    Design(capacity_mbps=1000, cross_mbps=(500,), through=("inside", "shim")),
    Design(("kite2",), capacity_mbps=10_000, cross_mbps=(1000,), delay_ms=20, through=("inside", "shim")),
)
"""The paper's three scenarios."""


def bandwidth_arms() -> list[BandwidthArm]:
    """The host with its A/A arm, a container, gVisor that is worse and paces little, and an emulated machine."""
    emulated = arm_record("qemu", "qemu", "QEMU microvm (tcg)", emulated=True)
    slow = {
        "hptime": dataclasses.replace(PRECISE, error=-0.05, max_paced_mbps=2500.0),
        "system": dataclasses.replace(COARSE, error=0.12, max_paced_mbps=400.0),
    }
    return [
        BandwidthArm(arm_record("host", "host", "Host", "reference")),
        BandwidthArm(arm_record("host-aa", "host", "Host (A/A)", "aa")),
        BandwidthArm(arm_record("runc", "oci", "Container (runc)")),
        BandwidthArm(arm_record("gvisor", "oci", "gVisor (runsc, systrap)"), slow),
        BandwidthArm(emulated, {"hptime": Timed(error=-0.3, max_paced_mbps=800.0), "system": Timed(0.5, 0.2, 250.0)}),
    ]


def bandwidth_ledger(
    folder: Path,
    arms: Sequence[BandwidthArm] | None = None,
    designs: Sequence[Design] = (Design(),),
    *,
    blocks: int = 6,
    searches: int = 10,
    noise: float = 0.001,
    fields: Mapping[str, Any] | None = None,
    flags: Sequence[Flag] = (),
    refused: Mapping[str, str] | None = None,
) -> Ledger:
    """Write a run of which the truth is known.

    Args:
        folder: of the run.
        arms: with their truths; :func:`bandwidth_arms` when not given.
        designs: of the plan.
        blocks: independent repetitions.
        searches: instant estimates of a trial.
        noise: standard deviation of a repetition's error.
        fields: of every result, to set.
        flags: of every trial; a fatal one makes it invalid.
        refused: why arms cannot run anything, by name.
    """
    random = np.random.default_rng(1)
    arms = bandwidth_arms() if arms is None else arms
    ledger = Ledger.create(folder, manifest([arm.record for arm in arms]))
    for block in range(blocks):
        for arm in (arm for arm in arms if arm.record.usable):
            guest = {"arm": arm.record.name, "platform": arm.record.kind, "block": block, "launched_at": STARTED}
            ledger.put_guest(GuestRecord(**guest, ready_ns=40_000_000, facts={"kernel": {"release": "6.1.0-44-amd64"}}))
            cells = {tuple(factors.values()): factors for design in designs for factors in design.cells()}
            for factors in cells.values():
                reason = (refused or {}).get(arm.record.name)
                result = {} if reason else outcome(arm, factors, random, searches, noise) | dict(fields or {})
                histograms = {} if reason else _histograms(arm.of(factors["timing"], factors["through"]), random)
                ledger.add_trial(_trial(arm.record, factors, block, result, flags, reason), histograms, {})
    ledger.add_event("completed", "")
    return ledger


def truth_mbps(factors: Mapping[str, str]) -> float:
    """What is available, of IP packets."""
    return (float(factors["capacity_mbps"]) - float(factors["cross_mbps"])) * IP_SHARE


def outcome(
    arm: BandwidthArm, factors: Mapping[str, str], random: np.random.Generator, searches: int, noise: float
) -> dict[str, Any]:
    """What the suite says of one trial."""
    truth, cross = truth_mbps(factors), float(factors["cross_mbps"])
    clock, _, sleep = factors["timing"].partition("+")
    shim = {"served": 1200, "passed": 3, "reasons": []} if factors["timing"] == "hptime" else None
    timed = arm.of(factors["timing"], factors["through"])
    method = "send" if factors["pacing"] == "auto" else factors["pacing"]
    common = {
        "estimator": factors["estimator"],
        "timing": factors["timing"],
        "through": factors["through"],
        "clock": clock,
        "sleep": sleep or clock,
        "lower_bound": False,
        "truth_mbps": truth,
        "capacity": {
            "declared_mbps": float(factors["capacity_mbps"]),
            "measured_mbps": float(factors["capacity_mbps"]) * 0.999,
            "measured_after_mbps": None,
        },
        "cross": {"asked_mbps": cross, "counted_mbps": cross * 1.001, "frames": int(cross * 1000), "dropped": 7},
        "stamp": "kernel",
        "link": {
            "kind": "tbf",
            "burst_bytes": 3028,
            "limit_bytes": 96_896,
            "delay_ms": float(factors["delay_ms"]),
            "loss": float(factors["loss"]),
            "lateness_p99_ns": None,
        },
        "foreign_packets": 0,
        "layer": "ip",
        "hptime_fallback_reason": None,
        "usage": {},
        "receiver": "host",
        "packet_bytes": 1500,
        "capacity_hint_mbps": truth,
        "shim": shim if factors["through"] == "shim" else None,
    }
    if timed.silent or timed.max_paced_mbps < truth:
        return common | _refusal(timed, truth, method)
    middle = truth * (1 + timed.error + noise * random.standard_normal())
    values = middle + truth * timed.spread * random.standard_normal(searches)
    median, (low, high) = float(np.median(values)), np.quantile(values, [0.25, 0.75])
    reach = 3 * timed.spread * truth
    return common | {
        "instants": [
            {
                "mbps": float(value),
                "low": float(value) * 0.99,
                "high": float(value) * 1.01,
                "duration_ns": 1_200_000_000,
                "bytes": 400_000,
                "streams": 12,
                "discarded": 0,
                "at_ceiling": False,
            }
            for value in values
        ],
        "median_mbps": median,
        "low_mbps": median - reach,
        "high_mbps": median + reach,
        "half_iqr_mbps": float(high - low) / 2,
        "mad_mbps": float(np.median(np.abs(values - median))),
        "error_ratio": median / truth - 1,
        "covered": abs(median - truth) <= reach,
        "bytes_sent": 400_000 * searches,
        "duration_ns": 1_200_000_000 * searches,
        "streams": 12 * searches,
        "discarded": 2,
        "stalled": 1,
        "pacing": {"method": method, "max_paced_mbps": None, "refused": False, "carried_mbps": None, "message": None},
    }


def _refusal(timed: Timed, truth: float, method: str) -> dict[str, Any]:
    nothing = ("median", "low", "high", "half_iqr", "mad", "capacity_hint")
    return {
        **{f"{name}_mbps": None for name in nothing},
        "instants": [],
        "error_ratio": None,
        "covered": None,
        "bytes_sent": 1_000_000,
        "duration_ns": None,
        "streams": None,
        "discarded": None,
        "stalled": None,
        "pacing": {
            "method": method,
            "max_paced_mbps": timed.max_paced_mbps,
            "refused": not timed.silent,
            "carried_mbps": timed.max_paced_mbps * 0.99,
            "message": f"this host paces {timed.max_paced_mbps:g} Mbit/s of {truth:g}",
        },
    }


def _histograms(timed: Timed, random: np.random.Generator) -> dict[str, Histogram]:
    gaps = np.maximum(1000 * (1 + timed.gap * random.standard_normal(2000)), 1).astype(np.int64)
    late = (timed.late_ns * random.lognormal(0, 0.3, 2000)).astype(np.int64)
    return {
        "gap": dataclasses.replace(hdr_bins(gaps), unit="permille"),
        "lateness": dataclasses.replace(hdr_bins(late), unit="ns"),
    }


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
        key=f"b{block}/{arm.name}/bandwidth/estimate/{levels}",
        suite="bandwidth",
        probe="estimate",
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
        elapsed_ns=15_000_000_000,
    )


def claims_of(built: Report) -> tuple[ClaimCheck, ...]:
    """What a report says of the paper's conclusions about bandwidth."""
    return built.suite("bandwidth").claims


def named(levels: Mapping[str, Any]) -> list[str]:
    """Levels as a figure's place has them."""
    return [f"{name}={level}" for name, level in levels.items()]


def figure(built: Report, measure: str, arm: str, **levels: Any) -> Value:
    """The one figure of the one cell that has these levels."""
    return value(built, "bandwidth", measure, arm, "estimate", *named(levels))


def point(built: Report, measure: str, arm: str, **levels: Any) -> float | None:
    """Its median or number."""
    return figure(built, measure, arm, **levels).estimate.point


def effect(built: Report, arm: str, **levels: Any) -> tuple[Difference, str]:
    """What hptime changes the error of the system's timing by in one cell, and what that means."""
    error = figure(built, "timing_effect.error", arm, timing="hptime", **levels).compared
    assert isinstance(error, Difference)
    return error, helps(built, arm, **levels)


def helps(built: Report, arm: str, **levels: Any) -> str:
    """What hptime does to the one cell that has these levels."""
    return told(built, "bandwidth", "timing_effect.help", arm, *named(levels)).text


def all_helps(built: Report, arm: str) -> set[str]:
    """What hptime does, wherever it was measured."""
    return {one.text for one in shown(built, "bandwidth", "timing_effect.help", arm) if isinstance(one, Finding)}
