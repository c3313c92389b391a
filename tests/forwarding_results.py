"""Ledgers of forwarding runs that never happened, with a known truth: for the tests of the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import STARTED, arm_record, hdr_bins, manifest

from virtgauge.analysis.packets import bits_per_s, jain_index, two_level_shares
from virtgauge.ledger.records import ArmRecord, Flag, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger

SIZES = (64, 512, 1518)
STRONG = (1, 6, 12)
LOADS = (10.0, 50.0, 90.0, 100.0)

Rule = Callable[[float, int], float]
"""A figure from the fairness of the load and the frame size."""


@dataclasses.dataclass(frozen=True)
class RouterArm:
    """An arm and its truth.

    Attributes:
        mbps: its throughput.
        latency_us: at the throughput; below it, less by ``idle_gain`` at the lowest load.
        by_load: what latency is multiplied with, by percentage of the throughput.
    """

    record: ArmRecord
    mbps: Rule = lambda jain, size: size / 2.0
    latency_us: Rule = lambda jain, size: 100.0
    by_load: Mapping[float, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(LOADS, 1.0))


def virtual_machine(name: str, model: str, role: str = "test", *, emulated: bool = False, **truth: Any) -> RouterArm:
    """A QEMU arm with interfaces of a model."""
    settings = {"machine": "q35", "nic_model": model, "vcpus": 1}
    suffix = "" if model == "virtio" else f" with {model}"
    record = arm_record(name, "qemu", f"QEMU q35{suffix}", role, emulated=emulated, settings=settings)
    return RouterArm(record, **truth)


def paper_arms() -> list[RouterArm]:
    """A container as the reference, and a para-virtual and an emulated arm that behave as the paper says."""
    valley = {2.0: 1.5, 10.0: 1.2, 50.0: 1.0, 90.0: 1.3, 100.0: 1.6}
    flat = dict.fromkeys(valley, 1.0)
    return [
        RouterArm(arm_record("runc", "oci", "Container (runc)", "reference"), lambda j, s: 3.0 * s, lambda j, s: 20.0),
        virtual_machine(
            "virtio",
            "virtio",
            mbps=lambda j, s: 1000.0 if s == 1518 else 0.6 * s * (1 + 0.1 * j),
            latency_us=lambda j, s: 80.0 if s < 512 else 350.0,
            by_load=valley,
        ),
        virtual_machine(
            "e1000",
            "e1000",
            mbps=lambda j, s: 0.09 * s * (1 + (j - 0.085) / 0.915),
            latency_us=lambda j, s: (82.0 + (s - 64) * 0.035) * (1 + 0.5 * max(j - 0.51, 0)),
            by_load=flat,
        ),
    ]


def result(arm: RouterArm, strong: int, size: int, factor: float, **fields: Any) -> dict[str, Any]:
    """What the suite says of one search on 12 guests; ``factor`` is the repetition's own, on the throughput."""
    shares = two_level_shares(12, strong, 0.01)
    jain = jain_index(shares)
    mbps = arm.mbps(jain, size) * factor
    pps = mbps * 1e6 / bits_per_s(1, size)

    def latency(percent: float) -> dict[str, Any]:
        mean = arm.latency_us(jain, size) * arm.by_load[percent] / arm.by_load[100.0] * 1e3 * (2 - factor)
        return {
            "load_percent": percent,
            "rate_pps": pps * percent / 100,
            "total_ns": mean,
            "guest_mean_ns": [mean] * 12,
            "sent": 100_000,
            "lost": 0,
            "loss_ratio": 0.0,
            "worst_loss_ratio": 0.0,
            "late": 0,
            "stretched": 0,
        }

    def point(rate: float, lost: float) -> dict[str, Any]:
        known = {"rate_pps": rate, "duration_s": 1.0, "received_pps": rate * (1 - lost), "stretched": False}
        return known | {"loss_ratio": lost, "worst_loss_ratio": lost}

    bound = {"lower_pps": pps, "upper_pps": pps * 1.005, "reason": ""}
    known = {
        "calibration": {
            "limit_pps": 5e6,
            "port": "xdp_live",
            "latency_mean_ns": 1500.0,
            "latency_max_ns": 9000.0,
            "late_share": 0.0,
        },
        "frame_bytes": size,
        "guests": 12,
        "shares": list(shares),
        "jain": jain,
        "own_processors": True,
        "searched_vectors": [f"k={strong}"],
        "port": "xdp_live",
        "search": "mlrsearch",
        "throughput_pps": pps,
        "throughput_bps": mbps * 1e6,
        "ndr": {"loss_ratio": 0.0, "rate_pps": pps} | bound,
        "pdr": {"loss_ratio": 0.005, "rate_pps": pps * 1.01} | bound,
        "maximum_receive_pps": pps * 1.02,
        "trials": 3,
        "measuring_s": 3.0,
        "stretched_trials": 0,
        "loss_curve": [point(pps * 0.9, 0.0), point(pps, 0.0), point(pps * 1.5, 0.3)],
        "latency": [latency(percent) for percent in sorted(arm.by_load)],
        "back_to_back": None,
        "loss_accounting": {
            "closed": True,
            "lost": 1000,
            "places": {"guest 0 IP layer": 600, "port in1": 100, "host backlog": 300},
            "unattributed": 0,
            "excess": 0,
            "unclosed_trials": 0,
        },
        "frames_sent": 10_000,
        "rfc2544_durations": False,
    }
    return known | fields


def forwarding_ledger(
    folder: Path,
    arms: Sequence[RouterArm] | None = None,
    *,
    blocks: int = 6,
    strong: Sequence[int] = STRONG,
    sizes: Sequence[int] = SIZES,
    spread: float = 0.01,
    fields: Mapping[str, Any] | None = None,
    flags: Sequence[Flag] = (),
    renamed: Mapping[int, str] | None = None,
) -> Ledger:
    """Write a run of which the truth is known.

    Args:
        folder: of the run.
        arms: with their truths; :func:`paper_arms` when not given.
        blocks: independent repetitions.
        strong, sizes: the design's k and frame sizes.
        spread: log standard deviation of a repetition's throughput.
        fields: of every result, to set.
        flags: of every trial; a fatal one makes it invalid.
        renamed: load vectors that are findings, by their k: their fairness is in results alone.
    """
    random = np.random.default_rng(1)
    arms = paper_arms() if arms is None else arms
    ledger = Ledger.create(folder, manifest([arm.record for arm in arms]))
    for block in range(blocks):
        for arm in (arm for arm in arms if arm.record.usable):
            factor = float(np.exp(spread * random.standard_normal()))
            for k in strong:
                for size in sizes:
                    told = result(arm, k, size, factor, **(fields or {}))
                    vector = (renamed or {}).get(k, f"k={k}")
                    add_result(ledger, arm.record, vector, size, block, told, tuple(flags))
    ledger.add_event("completed", "")
    return ledger


def add_result(
    ledger: Ledger,
    arm: ArmRecord,
    vector: str,
    size: int,
    block: int,
    told: dict[str, Any],
    flags: tuple[Flag, ...] = (),
) -> None:
    """Write one trial."""
    factors = {
        "vector": vector,
        "jain": f"{told['jain']:.3f}" if vector.startswith("k=") else "",
        "frame_bytes": str(size),
        "guests": "12",
        "switch": "openvswitch",
        "cpu_limit": "0.25",
        "search": "mlrsearch",
    }
    mean_ps = max(told["latency"], key=lambda entry: float(entry["load_percent"]))["total_ns"] * 1000
    histogram = hdr_bins(np.full(2000, mean_ps).astype(np.int64))
    record = TrialRecord(
        trial_id=0,
        key=f"b{block}/{arm.name}/forwarding/{vector}/{size}",
        suite="forwarding",
        probe="throughput",
        arm=arm.name,
        platform=arm.kind,
        block=block,
        attempt=1,
        factors=factors,
        status=TrialStatus.INVALID if any(flag.fatal for flag in flags) else TrialStatus.VALID,
        flags=flags,
        result=told,
        accounting={},
        error=None,
        guest_id=None,
        started_at=STARTED,
        elapsed_ns=1_000_000_000,
    )
    ledger.add_trial(record, {"latency@100%": histogram, "latency@100%/guest0": histogram}, {})
