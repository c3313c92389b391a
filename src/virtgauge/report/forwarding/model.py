"""What the forwarding suite's report says, as data.

Rates are in Mbit/s of frames with their check sequence, or in frames/s of all flows together; durations in nanoseconds.
A cell is one load vector and frame size in one design; a series is one arm's independent searches in one cell.
"""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.headline import Headline
from virtgauge.report.verdicts import ExaminedClaim


@dataclasses.dataclass(frozen=True)
class Design:
    """What all cells of one laboratory have in common."""

    guests: int
    switch: str
    cpu_limit: str
    search: str

    @property
    def label(self) -> str:
        """``12 guests of 0.25 CPU, openvswitch, mlrsearch``."""
        limit = "" if self.cpu_limit == "none" else f" of {self.cpu_limit} CPU"
        return f"{self.guests} guest{'' if self.guests == 1 else 's'}{limit}, {self.switch}, {self.search}"


@dataclasses.dataclass(frozen=True)
class LatencyLevel:
    """Latency at one part of the throughput.

    Attributes:
        load_percent: of the throughput that the same search found.
        load_mbps: offered.
        total_ns: L_tot of equation 7, from every guest's mean.
        p50_ns, p99_ns: of all frames together.
        loss_ratio, worst_loss_ratio: of all flows together, and of the one that lost most.
    """

    load_percent: float
    load_mbps: Estimate
    total_ns: Estimate
    p50_ns: Estimate
    p99_ns: Estimate
    loss_ratio: Estimate
    worst_loss_ratio: Estimate


@dataclasses.dataclass(frozen=True)
class GuestFigures:
    """One guest's own flow.

    Attributes:
        guest: its number, from 0.
        share: of the total load.
        mean_ns: latency by percentage of the throughput.
        p50_ns, p99_ns: at the throughput itself.
        dropped: frames that counters of this guest's own places dropped, in all trials of the searches.
    """

    guest: int
    share: float
    mean_ns: dict[str, Estimate]
    p50_ns: Estimate
    p99_ns: Estimate
    dropped: int


@dataclasses.dataclass(frozen=True)
class LossPoint:
    """One trial of a search: what was offered and what was lost."""

    load_mbps: float
    loss_ratio: float
    worst_loss_ratio: float
    stretched: bool


@dataclasses.dataclass(frozen=True)
class TesterFigures:
    """The tester on its bare loop, in all trials that calibrated it, valid or not.

    Attributes:
        ports: how it sent and received.
        limit_pps: the highest rate that it sends as asked and receives whole.
        latency_mean_ns, latency_max_ns: its own, at half of that rate.
        late_share: of the frames at half of that rate.
    """

    ports: tuple[str, ...]
    limit_pps: Estimate
    latency_mean_ns: Estimate
    latency_max_ns: Estimate
    late_share: Estimate


@dataclasses.dataclass(frozen=True)
class LossAccount:
    """Where one arm's lost frames went, in one cell or in all.

    Attributes:
        trials: results that brought a ledger, valid or not, and ``unclosed``: those whose ledger does not close.
        sent, lost: frames.
        places: frames by the place that dropped them.
        unattributed, excess: frames that no counter explains, and that counters dropped but nobody misses.
    """

    trials: int
    unclosed: int
    sent: int
    lost: int
    places: dict[str, int]
    unattributed: int
    excess: int


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's independent searches in one cell.

    Attributes:
        arm: its name.
        blocks: repetitions with a valid result.
        throughput_mbps, throughput_pps: T|J, forwarded without loss in any guest (the no-drop rate).
        partial_drop_pps: with up to 0.5 % of loss.
        maximum_receive_pps: the highest rate that came back in any trial.
        comparison: of T with the reference's; None for the reference itself, or without figures.
        latency: by load, ascending.
        guests: each guest's own figures.
        burst_frames, buffer_ns: longest back-to-back burst, and the corrected buffer time (RFC 9004).
        losses: the points of the loss curve, of all repetitions.
        tester: its calibration.
        account: of lost frames.
        flags: how many trials, valid or not, have each flag.
        searched: trials of a search, and seconds of offered load, as estimates.
        rfc2544_complete: whether every valid result says that it is.
        missing: why there is no figure; None when there is one.
    """

    arm: str
    blocks: tuple[int, ...]
    throughput_mbps: Estimate
    throughput_pps: Estimate
    partial_drop_pps: Estimate
    maximum_receive_pps: Estimate
    comparison: Comparison | None
    latency: tuple[LatencyLevel, ...]
    guests: tuple[GuestFigures, ...]
    burst_frames: Estimate
    buffer_ns: Estimate
    losses: tuple[LossPoint, ...]
    tester: TesterFigures
    account: LossAccount
    flags: dict[str, int]
    searched: dict[str, Estimate]
    rfc2544_complete: bool
    missing: str | None

    def at(self, load_percent: float) -> LatencyLevel | None:
        """Latency at a part of the throughput; None where it was not measured."""
        return next((level for level in self.latency if level.load_percent == load_percent), None)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One load vector and frame size of one design, with every arm's series in the plan's order.

    Attributes:
        vector: ``k=1`` …, ``equal``, ``zipf``, ``worst``, or a name of the plan's own.
        jain: the vector's fairness; of the worst vector the one that was found, None before any was.
    """

    vector: str
    jain: float | None
    frame_bytes: int
    design: Design
    series: tuple[Series, ...]

    @property
    def two_level(self) -> bool:
        """Whether the vector is one of the paper's."""
        return self.vector.startswith("k=") and self.vector[2:].isdigit()

    @property
    def vector_label(self) -> str:
        """``k=1 (J 0.085)``."""
        return self.vector if self.jain is None else f"{self.vector} (J {self.jain:.3f})"

    def of(self, arm: str) -> Series | None:
        """An arm's series; None when the arm was not tried in this cell."""
        return next((series for series in self.series if series.arm == arm), None)


@dataclasses.dataclass(frozen=True)
class InterfaceRatio:
    """Para-virtual against emulated interfaces in one cell, of two arms that differ in nothing else.

    Attributes:
        paravirtual, emulated: the arms.
        cell: index in :attr:`ForwardingFindings.cells`.
        throughput, latency: ratio of the first to the second, T and L_tot at T, paired by block.
    """

    paravirtual: str
    emulated: str
    cell: int
    throughput: Estimate
    latency: Estimate


@dataclasses.dataclass(frozen=True)
class PublishedFigure:
    """A row of ``forwarding.csv``; the bounds in ``unit``, None where the paper gives none.

    Attributes:
        smallest_bytes, largest_bytes: frame sizes that it is about; None: no bound.
        load_mbps: at which it holds; None: at the throughput.
    """

    platform: str
    nic: str
    quantity: str
    condition: str
    low: float | None
    high: float | None
    unit: str
    note: str
    smallest_bytes: float | None
    largest_bytes: float | None
    load_mbps: float | None


@dataclasses.dataclass(frozen=True)
class Beside:
    """A published figure and ours.

    Attributes:
        arm: ours; of a ratio of two arms, the first.
        low, high: smallest and largest of our medians, in the figure's unit; None where there is none.
        reason: what ours are, or why there is none.
    """

    figure: PublishedFigure
    arm: str
    low: float | None
    high: float | None
    reason: str


@dataclasses.dataclass(frozen=True)
class ForwardingFindings:
    """Everything that a run's forwarding suite says.

    Attributes:
        accounts: of lost frames, by arm.
        flags: number of trials by flag, by arm.
        interfaces: the comparisons of para-virtual and emulated interfaces.
        published: figures of the paper beside ours, and its ``citation``.
        paper_claims: the paper's conclusions, judged on this run's figures.
    """

    headlines: tuple[Headline, ...]
    cells: tuple[Cell, ...]
    accounts: dict[str, LossAccount]
    flags: dict[str, dict[str, int]]
    interfaces: tuple[InterfaceRatio, ...]
    published: tuple[Beside, ...]
    citation: str
    paper_claims: tuple[ExaminedClaim, ...]
