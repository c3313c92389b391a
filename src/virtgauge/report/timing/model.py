"""What the timing suite's report says, as data.

All durations are nanoseconds.  A cell is one combination of probe and factor levels; a series is one arm's repetitions
of one cell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.report import verdicts
from virtgauge.report.headline import Headline
from virtgauge.report.timing.causes import Cause
from virtgauge.report.timing.factors import ProbeFactors
from virtgauge.report.timing.loads import AchievedLoad
from virtgauge.report.timing.paper_claims import ExaminedClaim
from virtgauge.report.words import exact_duration

COMPARED = ("p50", "p99", "p99.9")
"""Statistics that are compared with the reference."""

SCALARS = {
    "resolution_ps": ("resolution", "ns", 1e-3),
    "overhead_ps": ("overhead", "ns", 1e-3),
    "zero_share": ("zero_share", "share", 1.0),
    "cpu_ns_per_sleep": ("cpu_per_sleep", "ns", 1.0),
}
"""Scalars of a trial's result that a report passes on: name and unit here, and the factor to that unit."""


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's repetitions of one cell.

    Attributes:
        arm: its name.
        blocks: repetitions with a valid trial.
        samples: values in all of them together.
        statistics: estimate by name (of ``trial_figures.STATISTICS``), ns; a missing one says why.
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
class TimingFindings:
    """Everything that a run's timing suite says.

    Attributes:
        causes: by arm, why its timing costs what it does; empty where no guest came up.
        published: figures of papers beside ours, and ``citations`` of them.
        factors: an entry for each probe with factors to test.
        paper_claims: the timing paper's conclusions, tested on its own tables.
        run_claims: the same on this run.
        loads: what they achieved, by arm and load.
    """

    headlines: tuple[Headline, ...]
    cells: tuple[Cell, ...]
    causes: dict[str, tuple[Cause, ...]]
    loads: tuple[AchievedLoad, ...]
    published: tuple[PublishedRow, ...]
    citations: tuple[str, ...]
    factors: tuple[ProbeFactors, ...]
    paper_claims: tuple[ExaminedClaim, ...]
    run_claims: tuple[verdicts.ExaminedClaim, ...]


def function_label(factors: Mapping[str, str]) -> str:
    """What is measured, without the load: ``usleep 100 µs, minimal slack``; ``clock_gettime``."""
    parts = [factors.get("function", "")]
    known = {"function", "load", "target_ns", "slack", "policy", "idle_states"}
    if "target_ns" in factors:
        target = factors["target_ns"]
        parts[0] += f" {exact_duration(float(target)) if target.isdigit() else target}"
    if factors.get("slack", "default") not in ("default", "own"):
        parts.append(f"{factors['slack']} slack")
    if factors.get("policy", "other") != "other":
        parts.append(f"SCHED_{factors['policy'].upper()}")
    if factors.get("idle_states", "default") != "default":
        parts.append(f"{factors['idle_states']} idle states")
    parts += [f"{name} {level}" for name, level in factors.items() if name not in known]
    return ", ".join(part for part in parts if part.strip())
