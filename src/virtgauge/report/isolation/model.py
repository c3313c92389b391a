"""What the isolation suite's report says, as data.

A cell is one benchmark in the tested guest beside one load in the loading guest, on some cores, under one policy: the
4-level array of Rzecki et al. 2014, section 5.4.  A series is one arm's repetitions in one cell.  Relative figures and
ratios are of work, so that more is better in all of them: of the rate, of ``wake`` of the inverse of the p99 of its
lateness (or what stands for it, :attr:`IsolationFindings.wake_tail`), for its rate says nothing.  Durations are
nanoseconds.
"""

from __future__ import annotations

import dataclasses
import enum

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.headline import Headline
from virtgauge.report.isolation.vocabulary import (
    DISK_LIMIT,
    LOADING,
    NOTHING,
    TESTED,
    Resource,
    benchmark_words,
    load_words,
    policy_words,
    resource_of,
)
from virtgauge.report.verdicts import ExaminedClaim

SLICE_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of :attr:`Series.slice_quantiles`."""


@dataclasses.dataclass(frozen=True)
class Key:
    """What a result is of, whatever its arm and block.

    Attributes:
        benchmark: of the tested guest: ``integer``, ``memory-read-simd``, ``disk-random-write-flush`` …
        block: ``64MiB``, ``4xLLC`` …; empty where the benchmark has none.
        load: of the loading guest; ``none``.
        intensity: per cent of the time in which the load works; 0 without one.
        cores: ``1`` (one vCPU each, on one core), ``1-apart`` (each on a core of its own), ``all``.
        policy: ``none``, ``limit``, ``reservation``, ``limit+reservation``, ``weight``, ``disk-limit``.
        on: the guest that has it: ``none``, ``tested``, ``loading``.
        share: declared, of the cores, 0 … 1; 1 without a policy.
    """

    benchmark: str
    block: str
    load: str
    intensity: int
    cores: str
    policy: str
    on: str
    share: float

    @property
    def resource(self) -> Resource:
        """What it is about."""
        return resource_of(self.benchmark)

    @property
    def alone(self) -> bool:
        """Whether the loading guest does nothing."""
        return self.load == NOTHING

    @property
    def free(self) -> bool:
        """Whether there is no policy."""
        return self.policy == NOTHING

    @property
    def unloaded(self) -> Key:
        """The same without the load."""
        return dataclasses.replace(self, load=NOTHING, intensity=0)

    @property
    def unbounded(self) -> Key:
        """The same without the policy."""
        return dataclasses.replace(self, policy=NOTHING, on=NOTHING, share=1.0)

    @property
    def reference(self) -> Key:
        """The paper's [host, benchmark, lack, number of cores]: neither load nor policy."""
        return self.unloaded.unbounded

    @property
    def promised(self) -> float | None:
        """Share of the cores that is meant for the tested guest: s, or what is left of the loading one's.

        None where no share of the cores is declared: under a disk limit, or beside a guest that holds all of them.
        """
        if self.policy == DISK_LIMIT:
            return None
        if self.on == LOADING:
            return 1 - self.share if self.share < 1 else None
        return self.share if self.on == TESTED else 1.0

    @property
    def benchmark_label(self) -> str:
        return benchmark_words(self.benchmark, self.block)

    @property
    def load_label(self) -> str:
        return load_words(self.load, self.intensity)

    @property
    def policy_label(self) -> str:
        return policy_words(self.policy, self.on, self.share)


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's repetitions in one cell.

    Attributes:
        blocks: repetitions with a valid result.
        value: in :attr:`value_unit`; of ``latency`` the time of a load, of ``wake`` wake-ups per second.
        relative: work beside that of the reference arm's reference cell in the same block (v / v_ref).
        q: ``relative`` over the share that was promised (Rzecki et al. 2014, equation 1); missing where none was, and
            of ``wake``.
        q_share: CPU time received of that entitled to.
        q_rate: work per second of CPU time beside the reference's.
        received_cpus, loading_cpus: what both guests used, from outside.
        entitled_cpus: the tested guest's, by water-filling.
        guest_seen_cpus: what the tested guest's own kernel counted.
        latency_p50_ns, latency_p99_ns: of disk operations, or of waking up.
        slice_quantiles: at :data:`SLICE_SHARES`, of the rates of 100 ms beside the reference's rate in the same
            block, of all repetitions together; None without slices.
        throttled_share: of the quota's periods, those in which the tested guest was stopped.
        io_wait_share: of the host's CPU time.
        frequency_ratio: the core's frequency after the trial over that before.
        steal_seen_share, stopped_share: of the trial, what the tested guest saw stolen, and what was from outside.
        comparison: of the work with the reference arm's in the same cell; None for the reference itself, or without
            figures.
        flags: how many trials, valid or not, have each flag.
        missing: why there is no figure; None when there is one.
    """

    arm: str
    blocks: tuple[int, ...]
    value: Estimate
    value_unit: str
    relative: Estimate
    q: Estimate
    q_share: Estimate
    q_rate: Estimate
    received_cpus: Estimate
    loading_cpus: Estimate
    entitled_cpus: Estimate
    guest_seen_cpus: Estimate
    latency_p50_ns: Estimate
    latency_p99_ns: Estimate
    slice_quantiles: tuple[float, ...] | None
    throttled_share: Estimate
    io_wait_share: Estimate
    frequency_ratio: Estimate
    steal_seen_share: Estimate
    stopped_share: Estimate
    comparison: Comparison | None
    flags: dict[str, int]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the array, with every arm's series in the plan's order."""

    key: Key
    series: tuple[Series, ...]

    def of(self, arm: str) -> Series | None:
        """An arm's series; None when the arm was not tried in this cell."""
        return next((series for series in self.series if series.arm == arm), None)


@dataclasses.dataclass(frozen=True)
class Interference:
    """What a load costs the tested guest of one arm, in one cell with a load.

    Attributes:
        ratio: what it does under the load over what it does without, under the same policy.
        kept: the same, over no more than what was promised: where a guest may use idle cores beyond its share, the
            loss of those is no lack of isolation.  Equal to ``ratio`` where nothing less was promised, and of ``disk``
            and ``wake``, of which a share of the cores promises nothing.
    """

    arm: str
    key: Key
    ratio: Estimate
    kept: Estimate


@dataclasses.dataclass(frozen=True)
class PressurePoint:
    """One intensity of a load.

    Attributes:
        intensity: per cent of the time; 0 is no load, where the ratio is 1.
        loading_cpus: CPU time that the loading guest really used.
        load_rate: what it did, in its unit a second.
        ratio: see :attr:`Interference.ratio`.
    """

    intensity: int
    loading_cpus: Estimate
    load_rate: Estimate
    ratio: Estimate


@dataclasses.dataclass(frozen=True)
class Pressure:
    """How a benchmark falls as a load grows, on one arm; the key is that of the strongest load."""

    arm: str
    key: Key
    points: tuple[PressurePoint, ...]


@dataclasses.dataclass(frozen=True)
class Conservation:
    """Whether what one guest leaves idle is given to the other, on one arm: a cell with a policy and without a load.

    Attributes:
        given: what the tested guest does beside what it does without the policy.
        unused: share of the cores' time that neither guest used.
        conserving: whether it gets everything; None where that is open.
    """

    arm: str
    key: Key
    given: Estimate
    unused: Estimate
    conserving: bool | None


@dataclasses.dataclass(frozen=True)
class SmallestSetting:
    """The smallest share that reaches an efficiency, on one arm.

    Attributes:
        key: of the largest share tried.
        target_q: that the interval's lower end must reach.
        share: the setting; None where there is none.
        at_most: whether it is the smallest share that was tried, so that a smaller one may do.
        reason: what it rests on, or why there is none.
    """

    arm: str
    key: Key
    target_q: float
    share: float | None
    at_most: bool
    reason: str


class Degree(enum.StrEnum):
    """How well a resource is kept apart."""

    ISOLATED = "isolated"
    PARTLY = "partly isolated"
    NOT = "not isolated"
    OPEN = "not measured"


@dataclasses.dataclass(frozen=True)
class ResourceSentence:
    """One resource on one arm, in a sentence.

    Attributes:
        text: what is kept, under what, beside what; of a resource that was not measured, why.
        worst: what is kept of what was promised, under the load that costs most.
        key: of the cell where that was seen; None where nothing was measured.
    """

    arm: str
    resource: Resource
    degree: Degree
    text: str
    worst: Estimate
    key: Key | None


@dataclasses.dataclass(frozen=True)
class AppliedPolicy:
    """What became of a policy on one guest of one arm.

    Attributes:
        policy, on, share, cores: of the cells that it was for; ``on`` is the guest.
        declared, in_force: by field, and by the knob's own name.
        no_effect, notes: as the driver has them.
    """

    arm: str
    policy: str
    on: str
    share: float
    cores: str
    declared: dict[str, str]
    in_force: dict[str, str]
    no_effect: tuple[str, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class NotMeasured:
    """What gave no figure, once for all arms that share the reason; no arms stand for all."""

    what: str
    arms: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class PublishedFigure:
    """What the paper's text states in figures; shares and efficiencies 0 … 1 and beyond.

    Attributes:
        on: the guest that has limit and reservation.
        share: declared; None for a statement about many.
        q_low, q_high: as stated; None where one end or both are not.
    """

    processor: str
    energy_saving: bool
    benchmark: str
    load: str
    on: str
    share: float | None
    q_low: float | None
    q_high: float | None
    note: str


@dataclasses.dataclass(frozen=True)
class Beside:
    """A published figure and ours.

    Attributes:
        arm: ours is of; empty where nothing comparable was measured.
        key: of the cell; None for none, or where ours is of several.
        q: ours, of the cell, or of the least of several.
        note: what of ours it is, or why there is none.
    """

    figure: PublishedFigure
    arm: str
    key: Key | None
    q: Estimate
    note: str


@dataclasses.dataclass(frozen=True)
class PlatformClaim:
    """What one arm's figures say of a conclusion of the paper."""

    arm: str
    examined: ExaminedClaim


@dataclasses.dataclass(frozen=True)
class IsolationClaim:
    """A conclusion of the paper, on its own figures and on those of each arm.

    Attributes:
        paper: tested on what the paper's text states in figures.
        arms: on this run, by arm, for each platform keeps its guests apart in its own way.
    """

    paper: ExaminedClaim
    arms: tuple[PlatformClaim, ...]


@dataclasses.dataclass(frozen=True)
class IsolationFindings:
    """Everything that a run's isolation suite says.

    Attributes:
        wake_tail: quantile of the lateness that stands for waking up, as high as every trial has values enough for.
    """

    headlines: tuple[Headline, ...]
    wake_tail: float
    sentences: tuple[ResourceSentence, ...]
    cells: tuple[Cell, ...]
    interference: tuple[Interference, ...]
    pressure: tuple[Pressure, ...]
    conservation: tuple[Conservation, ...]
    smallest: tuple[SmallestSetting, ...]
    policies: tuple[AppliedPolicy, ...]
    not_measured: tuple[NotMeasured, ...]
    published: tuple[Beside, ...]
    paper_claims: tuple[IsolationClaim, ...]
    citation: str
    flags: dict[str, dict[str, int]]
