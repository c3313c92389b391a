"""The report as data: everything that any of its forms (page, terminal, JSON) shows.

All durations are nanoseconds.  An arm is a platform of the plan under its name; a cell is one combination of probe and
factor levels; a series is one arm's repetitions of one cell.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from virtgauge.analysis.comparison import Agreement, Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, EventRecord, GuestRecord
from virtgauge.report.causes import Cause
from virtgauge.report.factors import ProbeFactors
from virtgauge.report.paper_claims import ExaminedClaim
from virtgauge.report.words import exact_duration

SCHEMA_VERSION = 1
"""Of the JSON form; raised when a field changes its meaning or goes away."""

STATISTICS = ("p50", "half_iqr", "mad", "p90", "p99", "p99.9", "p99.99", "min", "max", "mean")
COMPARED = ("p50", "p99", "p99.9")
"""Statistics that are compared with the reference."""

SCALARS = {
    "resolution_ps": ("resolution", "ns", 1e-3),
    "overhead_ps": ("overhead", "ns", 1e-3),
    "zero_share": ("zero_share", "share", 1.0),
    "cpu_ns_per_sleep": ("cpu_per_sleep", "ns", 1.0),
}
"""Scalars of a trial's result that a report passes on: name and unit here, and the factor to that unit."""


class Tone(enum.StrEnum):
    """How a headline is to be taken."""

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"  # no difference shown
    EMULATED = "emulated"  # figures that must not be ranked
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Headline:
    """One arm in one sentence."""

    arm: str
    label: str
    tone: Tone
    text: str


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's repetitions of one cell.

    Attributes:
        arm: its name.
        blocks: repetitions with a valid trial.
        samples: values in all of them together.
        statistics: estimate by name (see :data:`STATISTICS`), ns; a missing one says why.
        comparisons: with the reference, by statistic (see :data:`COMPARED`); empty for the reference itself.
        scalars: what the probe itself reported, by name, as estimates over repetitions (see :data:`SCALARS`).
        methods: how its trials measured, as the probe calls it; more than one is worth a look.
        missing: why there is no figure at all; None when there is one.
    """

    arm: str
    blocks: tuple[int, ...]
    samples: int
    statistics: dict[str, Estimate]
    comparisons: dict[str, Comparison]
    scalars: dict[str, Estimate]
    methods: tuple[str, ...]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class Curve:
    """The CCDF of one series, all repetitions together: P(X > value), thinned; ns."""

    arm: str
    values_ns: tuple[float, ...]
    shares: tuple[float, ...]
    mean_ns: float


@dataclasses.dataclass(frozen=True)
class Scatter:
    """Raw values of one series: some of a typical repetition's, drawn at random, and its two extremes; ns.

    Attributes:
        arm: its name.
        block: the repetition, the one whose median is nearest to that of all.
        values_ns: in no particular order.
        median_ns: over all repetitions, as in the tables.
    """

    arm: str
    block: int
    values_ns: tuple[float, ...]
    median_ns: float


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of probe and factor levels, with every arm's series in the plan's order."""

    suite: str
    probe: str
    factors: dict[str, str]
    series: tuple[Series, ...]
    curves: tuple[Curve, ...]
    scatters: tuple[Scatter, ...]

    @property
    def load(self) -> str:
        return self.factors.get("load", "")

    @property
    def function(self) -> str:
        """The factors but the load, as text: what one panel of a figure is about."""
        return function_label(self.factors)

    def of(self, arm: str) -> Series | None:
        """An arm's series; None when the arm is not part of the design."""
        return next((series for series in self.series if series.arm == arm), None)


@dataclasses.dataclass(frozen=True)
class ArmSummary:
    """One arm over the whole run.

    Attributes:
        record: as in the manifest.
        ready: time from launch to the agent's answer, over its guests.
        guests, failed_guests: launched, and of those that did not come up.
        trials: number by status.
        facts: of its first guest, as the agent saw them.
        causes: why its timing costs what it does; empty where no guest came up, or outside the timing suite.
    """

    record: ArmRecord
    ready: Estimate
    guests: int
    failed_guests: int
    trials: dict[str, int]
    facts: dict[str, Any]
    causes: tuple[Cause, ...]


@dataclasses.dataclass(frozen=True)
class PublishedRow:
    """A published figure, measured on other hardware, and ours of the same function, load and kind of platform.

    Attributes:
        source: ``Kirova et al. 2019, Table 1``.
        function, platform, load: as the paper calls them.
        median_ns, half_iqr_ns, min_ns, max_ns: the paper's.
        cell: index of ours in :attr:`Report.cells`.
        arm: ours.
    """

    source: str
    function: str
    platform: str
    load: str
    median_ns: float
    half_iqr_ns: float
    min_ns: float
    max_ns: float
    cell: int
    arm: str


@dataclasses.dataclass(frozen=True)
class TrialLine:
    """One attempt at one trial, valid or not.

    Attributes:
        cell: index in :attr:`Report.cells`.
        flags: ``name: detail``, fatal ones first.
        median_ns: of this trial alone; None when it brought no histogram.
    """

    trial_id: int
    cell: int
    arm: str
    block: int
    attempt: int
    status: str
    flags: tuple[str, ...]
    error: str | None
    samples: int | None
    median_ns: float | None
    foreign_share: float | None
    started_at: str
    elapsed_ns: int


@dataclasses.dataclass(frozen=True)
class Run:
    """What was run, and what it takes to run it again."""

    run_id: str
    created_at: str
    plan_name: str
    plan_text: str
    seed: int
    confidence: float
    tool_version: str
    agent_sha256: str
    fingerprint: dict[str, Any]
    finished: bool
    blocks: int


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that is known of a run.  Made by :func:`virtgauge.report.build`.

    ``factors`` has an entry for each probe with factors to test; ``paper_claims`` is of the timing suite's paper.
    """

    schema_version: int
    run: Run
    headlines: tuple[Headline, ...]
    caveats: tuple[str, ...]
    agreement: Agreement
    arms: tuple[ArmSummary, ...]
    cells: tuple[Cell, ...]
    published: tuple[PublishedRow, ...]
    citations: tuple[str, ...]
    factors: tuple[ProbeFactors, ...]
    paper_claims: tuple[ExaminedClaim, ...]
    trials: tuple[TrialLine, ...]
    guests: tuple[GuestRecord, ...]
    events: tuple[EventRecord, ...]

    def arm(self, name: str) -> ArmSummary:
        """An arm by name; KeyError when there is none."""
        for arm in self.arms:
            if arm.record.name == name:
                return arm
        raise KeyError(name)

    @property
    def statuses(self) -> dict[str, int]:
        """Number of trials by status, over all arms."""
        totals: dict[str, int] = {}
        for arm in self.arms:
            for status, number in arm.trials.items():
                totals[status] = totals.get(status, 0) + number
        return totals


def function_label(factors: dict[str, str]) -> str:
    """What is measured, without the load: ``usleep 100 µs, minimal slack``; ``clock_gettime``."""
    parts = [factors.get("function", "")]
    known = {"function", "load", "target_ns", "slack", "policy"}
    if "target_ns" in factors:
        target = factors["target_ns"]
        parts[0] += f" {exact_duration(float(target)) if target.isdigit() else target}"
    if factors.get("slack", "default") not in ("default", "own"):
        parts.append(f"{factors['slack']} slack")
    if factors.get("policy", "other") != "other":
        parts.append(f"SCHED_{factors['policy'].upper()}")
    parts += [f"{name} {level}" for name, level in factors.items() if name not in known]
    return ", ".join(part for part in parts if part.strip())
