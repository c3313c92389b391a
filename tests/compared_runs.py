"""Runs with a known truth to be compared: in memory for many figures, as ledgers for what reads folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import SyntheticArm, arm_record, manifest, synthetic_ledger

from virtgauge.compare.runs import ReadRun
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.model import Plan
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.specs.suites import MEASURES

HOST = arm_record("host", "host", "Host", "reference")
HOST_AA = arm_record("host-aa", "host", "Host (A/A)", "aa")
GUEST = arm_record("guest", "oci", "Guest")
ARMS = (HOST, HOST_AA, GUEST)

MEDIAN = MEASURES["timing"]["timer_cost.p50"]
ERROR = MEASURES["bandwidth"]["error"]
THROUGHPUT = MEASURES["storage"]["throughput"]

DESIGN = [
    ("timer_cost", {"function": "rdtscp", "load": "idle"}),
    (
        "sleep_lateness",
        {"function": "usleep", "target_ns": "100000", "slack": "default", "policy": "other", "load": "idle"},
    ),
]
"""The cells of the ledgers, as the plan of :func:`plan_text` has them."""


def run_in_memory(
    name: str,
    seed: int,
    truth: Mapping[str, float],
    *,
    measure: Measure = MEDIAN,
    arms: Sequence[ArmRecord] = ARMS,
    cells: int = 1,
    blocks: int = 8,
    spread: float = 0.01,
    drift: float = 0.0,
    day: int = 1,
    **fields: Any,
) -> ReadRun:
    """A run without a ledger.

    Args:
        name: of the run.
        seed: of its repetitions.
        truth: the figure by arm, in the measure's base unit.
        measure: that the run has.
        arms: of the manifest.
        cells: how many, all of one truth.
        blocks: repetitions.
        spread: log standard deviation of a repetition.
        drift: log standard deviation of what the arms of a block have in common.
        day: of the month on which it was made.
        fields: of the manifest.
    """
    rng = np.random.default_rng(seed)
    (probe, *_) = sorted(measure.probes)
    figures: dict[tuple[str, Cell, str], dict[int, float]] = {}
    for number in range(cells):
        cell = Cell(measure.suite, probe, (("function", f"f{number}"),))
        for block in range(blocks):
            common = rng.normal(0, drift)
            for arm in arms:
                if arm.name in truth:
                    figure = truth[arm.name] * float(np.exp(common + rng.normal(0, spread)))
                    figures.setdefault((measure.full_name, cell, arm.name), {})[block] = figure
    known = {"run_id": name, "created_at": f"2025-03-{day:02d}T10:00:00.000+00:00"}
    return ReadRun(Path(name), manifest(arms, **(known | fields)), figures, blocks, True)


def plan_text(sleep_samples: int = 1000, **fields: Any) -> str:
    """The plan of the ledgers here."""
    design = {"timers": ["rdtscp"], "sleeps": ["usleep"], "slacks": ["default"], "loads": ["idle"]}
    plan = {
        "name": "quick",
        "platform": [{"name": "host", "kind": "host"}, {"name": "guest", "kind": "simulated"}],
        "suite": {"timing": [design | {"sleep_samples": sleep_samples}]},
        "seed": 1,
    }
    return Plan.model_validate(plan | fields).to_toml()


def ledger_of(
    folder: Path,
    seed: int,
    *,
    guest: float = 1.0,
    host: float = 1.0,
    blocks: int = 8,
    day: int = 1,
    arms: Sequence[ArmRecord] = ARMS,
    design: Sequence[tuple[str, dict[str, str]]] | None = None,
    **fields: Any,
) -> Path:
    """A run's folder with its ledger.

    Args:
        folder: of the run, whose name is the run's.
        seed: of its repetitions.
        guest: by what the guest's figures exceed the usual ones, besides the host's.
        host: by what all figures do.
        blocks: repetitions.
        day: of the month on which it was made.
        arms: of the manifest.
        design: its cells.
        fields: of the manifest.
    """
    factors = {arm.name: host * (1.0 if arm.role in ("reference", "aa") else guest) for arm in arms}
    known = {"run_id": folder.name, "created_at": f"2025-03-{day:02d}T10:00:00.000+00:00", "plan_text": plan_text()}
    synthetic_ledger(
        folder,
        [SyntheticArm(arm, factors[arm.name], factors[arm.name]) for arm in arms],
        blocks,
        DESIGN if design is None else design,
        seed,
        spread=0.01,
        reads=20_000,
        run=known | fields,
    ).close()
    return folder
