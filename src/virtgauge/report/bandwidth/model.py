"""What the bandwidth suite's report says, as data.

A cell is one estimator with one timing on one path; a trial in it makes several instant estimates, of which the median
is the trial's.  Rates are Mbit/s of IP packets.  An error is signed, (median ÷ truth) − 1, with the truth counted while
the trial ran; an answer that is a lower bound below the truth is right, and has no error.  Durations are nanoseconds.
"""

from __future__ import annotations

import dataclasses
import enum

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.differences import Difference
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.bandwidth.keys import Key, Path
from virtgauge.report.bandwidth.vocabulary import arrangement
from virtgauge.report.headline import Headline
from virtgauge.report.verdicts import ExaminedClaim


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's repetitions in one cell.

    Attributes:
        blocks: repetitions with a valid result: an estimate, or a refusal.
        refused: of them, those that gave no estimate because the sender cannot pace the rate.
        bounds: of them, those whose answer is a lower bound below the truth.
        median_mbps: of the instant estimates.
        half_iqr_mbps: half their interquartile range, which the paper calls MAD; ``mad_mbps`` is the usual one.
        truth_mbps: what was available, counted.
        error: signed; ``off`` the same without its sign.
        outliers: share of the instant estimates beyond Tukey's fences, of all trials together.
        covered, intervals: trials whose own interval holds the truth, of those that gave one.
        sent_bytes, duration_ns: of a trial with all its searches.
        searches: instant estimates in all trials.
        instants_mbps: some of them.
        discarded: streams that were not what was asked for, in all trials.
        honest_mbps, carried_mbps: highest rate that was paced, and what the path carried at least, where told.
        methods, stamps: how bursts were sent, and what stamped arrivals: ``hardware``, ``kernel``, ``program``.
        strangers: packets of others that were ignored, in all trials.
        hptime_refusals: why hptime answered from the system's clock, where it was asked for and did.
        beside: ``off`` less the reference's in the same cell; None of the reference itself, or without figures.
        flags: how many trials, valid or not, have each flag.
        missing: why there is neither estimate nor refusal; None when there is one.
    """

    arm: str
    blocks: tuple[int, ...]
    refused: int
    bounds: int
    median_mbps: Estimate
    half_iqr_mbps: Estimate
    mad_mbps: Estimate
    truth_mbps: Estimate
    error: Estimate
    off: Estimate
    outliers: Estimate
    covered: int
    intervals: int
    sent_bytes: Estimate
    duration_ns: Estimate
    searches: int
    instants_mbps: tuple[float, ...]
    discarded: int
    honest_mbps: Estimate
    carried_mbps: Estimate
    methods: tuple[str, ...]
    stamps: tuple[str, ...]
    strangers: int
    hptime_refusals: tuple[str, ...]
    beside: Difference | None
    flags: dict[str, int]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of estimator, timing and path, with every arm's series in the plan's order."""

    key: Key
    series: tuple[Series, ...]

    def of(self, arm: str) -> Series | None:
        """An arm's series; None when the arm was not tried in this cell."""
        return next((series for series in self.series if series.arm == arm), None)


class Help(enum.StrEnum):
    """What another timing does for an estimate."""

    ENABLES = "makes it possible"
    HELPS = "helps"
    SAME = "no difference shown"
    HURTS = "hurts"
    LOST = "makes it impossible"
    REFUSED = "neither can pace it"
    OPEN = "open"


@dataclasses.dataclass(frozen=True)
class TimingEffect:
    """One timing against another on one arm, in pairs of trials of the same repetition.

    Attributes:
        key: of the cell with the tested timing.
        base: the timing that it is compared with.
        off, base_off: errors without their sign, of the repetitions that have both.
        error: difference of these, in shares of the truth; less is better.
        spread: ratio of the half interquartile ranges.
        refused, base_refused: trials that could not pace, of ``blocks`` and ``base_blocks``.
        honest_mbps, base_honest_mbps: highest rate that was paced, where told.
        help: what follows.
    """

    arm: str
    key: Key
    base: str
    off: Estimate
    base_off: Estimate
    error: Difference
    spread: Comparison
    blocks: int
    base_blocks: int
    refused: int
    base_refused: int
    honest_mbps: Estimate
    base_honest_mbps: Estimate
    help: Help


@dataclasses.dataclass(frozen=True)
class PooledEffect:
    """What :class:`TimingEffect` says over all cells of one arm that have both timings.

    In each repetition the median over the cells is taken, and over the repetitions the median of these.

    Attributes:
        through: ``inside``, ``shim``.
        cells: with pairs.
        enabled, lost: cells that only the tested, or only the other timing can pace.
    """

    arm: str
    through: str
    timing: str
    base: str
    cells: int
    off: Estimate
    base_off: Estimate
    error: Difference
    spread: Comparison
    enabled: int
    lost: int


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """How far off one arm is with one estimator (or all, then it is empty), one timing, one way of swapping it.

    In each repetition the median over the cells, and the median of these.

    Attributes:
        estimators: those that it is of.
        cells: with estimates; ``refused``: cells that cannot be paced.
        off: error without its sign.
        covered, intervals: of all trials.
        sent_bytes, duration_ns: of a trial.
        beside: ``off`` less the reference's, over the cells that both have; None of the reference itself.
    """

    arm: str
    estimators: tuple[str, ...]
    timing: str
    through: str
    cells: int
    refused: int
    off: Estimate
    covered: int
    intervals: int
    sent_bytes: Estimate
    duration_ns: Estimate
    beside: Difference | None

    @property
    def arrangement(self) -> str:
        return arrangement(self.timing, self.through)


@dataclasses.dataclass(frozen=True)
class Curve:
    """The CCDF of one distribution, all repetitions together, thinned."""

    values: tuple[float, ...]
    shares: tuple[float, ...]
    mean: float


@dataclasses.dataclass(frozen=True)
class Pacing:
    """How well one arm sends when it should, with one timing and one way of sending.

    Attributes:
        method: that was used: ``send``, ``sendmmsg``, ``gso`` …
        trials, refused: that sent so, and of them those that could not pace what was asked for.
        honest_mbps: highest rate that was paced, over the trials that tell it.
        gap: achieved ÷ planned time between bursts; None where none were recorded.
        lateness: from a burst's due time to its handover, ns.
        gap_p50, gap_p99, late_p50_ns, late_p99_ns: of all values together; None without enough of them.
        answered, passed: calls that the shim answered by itself, and that it passed on, in all trials; None inside.
    """

    arm: str
    timing: str
    through: str
    method: str
    trials: int
    refused: int
    honest_mbps: Estimate
    gap: Curve | None
    lateness: Curve | None
    gap_p50: float | None
    gap_p99: float | None
    late_p50_ns: float | None
    late_p99_ns: float | None
    answered: int | None
    passed: int | None

    @property
    def arrangement(self) -> str:
        return arrangement(self.timing, self.through)


@dataclasses.dataclass(frozen=True)
class PathAccount:
    """What a path was, on one arm: over all trials on it.

    Attributes:
        measured_mbps, counted_mbps: capacity and cross traffic, as the shaper counts.
        truth_mbps: what that leaves, of IP packets.
        dropped: frames of the cross traffic that the path dropped.
        link: what makes it, in words.
        late_p99_ns: of an emulated link, how late packets leave it.
    """

    arm: str
    path: Path
    measured_mbps: Estimate
    counted_mbps: Estimate
    truth_mbps: Estimate
    dropped: int
    link: str
    late_p99_ns: Estimate


@dataclasses.dataclass(frozen=True)
class NotMeasured:
    """What gave no figure, once for all arms that share the reason; no arms stand for all."""

    what: str
    arms: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class PublishedFigure:
    """What the paper's text states in figures; rates in Mbit/s.

    Attributes:
        tool, timing, platform: as the paper calls them.
        half_iqr_mbps: its MAD; None where it is not printed.
    """

    tool: str
    timing: str
    platform: str
    capacity_mbps: float
    cross_mbps: float
    median_mbps: float
    half_iqr_mbps: float | None
    note: str


@dataclasses.dataclass(frozen=True)
class Beside:
    """A published figure and ours of one cell of the same kind."""

    figure: PublishedFigure
    arm: str
    key: Key


@dataclasses.dataclass(frozen=True)
class PlatformClaim:
    """What one arm's figures say of a conclusion of the paper."""

    arm: str
    examined: ExaminedClaim


@dataclasses.dataclass(frozen=True)
class BandwidthClaim:
    """A conclusion of the paper, on its own figures and on those of each arm."""

    paper: ExaminedClaim
    arms: tuple[PlatformClaim, ...]


@dataclasses.dataclass(frozen=True)
class BandwidthFindings:
    """Everything that a run's bandwidth suite says."""

    headlines: tuple[Headline, ...]
    cells: tuple[Cell, ...]
    accuracy: tuple[Accuracy, ...]
    effects: tuple[TimingEffect, ...]
    pooled: tuple[PooledEffect, ...]
    pacing: tuple[Pacing, ...]
    paths: tuple[PathAccount, ...]
    not_measured: tuple[NotMeasured, ...]
    published: tuple[Beside, ...]
    paper_claims: tuple[BandwidthClaim, ...]
    citation: str
    flags: dict[str, dict[str, int]]
