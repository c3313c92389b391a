"""A plan's ``[[suite.forwarding]]``: the laboratory, the load vectors, the search."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from virtgauge.analysis import packets as formulas
from virtgauge.analysis.packets import Shares
from virtgauge.plan import Section
from virtgauge.suites.forwarding.searches import Rfc2544Search, Search, Tst009Search

WORST = "worst"  # Stands for the vector by which the device forwards least, to be found among the two-level ones
Percent = Annotated[float, Field(gt=0, le=400)]
FrameBytes = Annotated[int, Field(ge=64, le=1518)]  # Of an untagged Ethernet frame
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ForwardingSettings(Section):
    """One design: load vectors × frame sizes, in one laboratory."""

    guests: Annotated[int, Field(ge=1, le=64)] = 12
    """N, the number of virtual routers."""
    switch: Literal["openvswitch", "bridge", "none"] = "openvswitch"
    """What br0 and br1 are: Open vSwitch with one rule per flow, or Linux bridges; ``none``: the tester is cabled to a
    machine that exists already (``ports`` of its platform), with ``guests = 1``."""
    cpu_limit: Annotated[float, Field(gt=0, le=64)] | Literal["fair"] | None = None
    """CPU limit of each guest in processors; ``fair``: a processor of its own for each guest where there are as many,
    else its fair share of those there are. Without a limit J matters little."""
    memory_mib: Annotated[int, Field(ge=16)] | None = None
    """Memory of each guest; the platform's own default if left out."""

    vectors: tuple[Literal["two-level", "equal", "zipf", "worst"], ...] = ("two-level",)
    """Load vectors: ``two-level`` is the paper's, one for each k; ``worst`` searches the worst of those; ``equal``;
    ``zipf``."""
    k: tuple[int, ...] | None = None
    """Numbers of strongly loaded guests; each from 1 to N by default."""
    q: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of the load that all lightly loaded guests carry together."""
    zipf_exponent: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Of the vector ``zipf``."""
    user_vectors: dict[str, tuple[Weight, ...]] = Field(default_factory=dict)
    """Your own load vectors: a weight for each guest, by a name of your choice."""
    frame_bytes: Annotated[tuple[FrameBytes, ...], Field(min_length=1)] = (64, 128, 512, 1024, 1518)
    """Frame sizes, check sequence included."""

    search: Literal["mlrsearch", "rfc2544", "tst009"] = "mlrsearch"
    """How the throughput is searched; see [forwarding.md](forwarding.md)."""
    trial_s: Annotated[float, Field(ge=0.001, le=3600)] | None = None
    """Length of a trial; by default 1 s for mlrsearch and 60 s for the others."""
    duration_sum_s: Annotated[float, Field(gt=0, le=3600)] = 21.0
    """mlrsearch: trial time after which a load is decided."""
    exceed_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """mlrsearch: share of that time that may show loss."""
    verifications: Annotated[int, Field(ge=0, le=20)] = 2
    """tst009: how often a trial with loss is repeated."""
    resolution: Annotated[float, Field(gt=0, lt=0.5)] = 0.005
    """Relative distance of the bounds at which a search ends."""
    budget_s: Annotated[float, Field(gt=0, le=86_400)] = 1200.0
    """mlrsearch: the search fails after this much time of offered load."""
    min_pps: Annotated[float, Field(ge=1)] = 1000.0
    """Lowest load. A device that loses frames at this load has no throughput."""
    max_pps: Annotated[float, Field(gt=0, le=1e8)] = 20e6
    """Highest load."""
    medium_mbps: Annotated[float, Field(gt=0)] | None = None
    """Speed of an Ethernet that is never exceeded; by default only the tester bounds the load."""

    port: Literal["auto", "xdp_live", "af_xdp", "af_packet"] = "auto"
    """How the tester sends and receives; ``auto`` takes the fastest that works."""
    calibration_s: Annotated[float, Field(ge=0.001, le=60)] = 1.0
    """Length of the tester's own trials on a bare loop."""
    latency_loads: tuple[Percent, ...] = (10, 50, 90, 100)
    """Loads at which latency is measured, in per cent of the throughput."""
    load_curve: tuple[Percent, ...] = ()
    """Further loads, for curves of latency and loss, in per cent of the throughput."""
    latency_s: Annotated[float, Field(ge=0.001, le=3600)] = 5.0
    """Length of a latency stream."""
    latency_repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """Streams for each load (RFC 2544: 20 streams of 120 s)."""
    tagged_latency: bool = False
    """Time one frame in the middle of each stream, as RFC 2544 does, instead of every frame."""
    back_to_back: Annotated[int, Field(ge=0, le=100)] = 0
    """Searches for the longest burst without loss (RFC 9004: 50); 0 means none."""
    soak_s: Annotated[float, Field(ge=0, le=86_400)] = 0
    """A soak at one load for so long (PLRsearch: 1800): its loss ratio, and the rate that loses 10⁻⁷; 0 means none."""
    soak_load: Percent = 100
    """Load of the soak, in per cent of the throughput."""
    late_share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Share of frames that may leave late at the throughput; beyond it the trial is invalid."""
    accounting_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.001
    """Share of the lost frames that no counter needs to explain."""

    @field_validator("k")
    @classmethod
    def _k_within_n(cls, value: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        guests = info.data.get("guests")
        for strong in value or ():
            if guests is not None and not 1 <= strong <= guests:
                raise ValueError(f"k = {strong}: strongly loaded guests must be from 1 to guests = {guests}")
        return value

    @field_validator("user_vectors")
    @classmethod
    def _weights_for_all(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        guests = info.data.get("guests")
        for name, weights in value.items():
            if guests is not None and len(weights) != guests:
                raise ValueError(f"{name} has {len(weights)} weights; give one for each of the {guests} guests")
            formulas.shares_of(weights)
        return value

    def _problems(self) -> Iterator[str]:
        if self.switch == "none":
            if self.guests != 1:
                yield 'switch = "none": one machine is between the two ports; give guests = 1'
            if given := [key for key in ("cpu_limit", "memory_mib") if getattr(self, key) is not None]:
                yield f'switch = "none": the machine exists already; leave {given[0]} out'
        if not self.vectors and not self.user_vectors:
            yield "vectors is empty: choose at least one, or give user_vectors"
        if clash := self.user_vectors.keys() & {"equal", "zipf", WORST, *(f"k={k}" for k in range(1, 65))}:
            yield f"user_vectors: {min(clash)!r} is the name of a vector that there already is; choose another"
        if self.max_pps <= self.min_pps:
            yield f"max_pps = {self.max_pps:g}: it must be above min_pps = {self.min_pps:g}"
        medium_bps = math.inf if self.medium_mbps is None else self.medium_mbps * 1e6
        for size in self.frame_bytes:
            carried = formulas.wire_frames_per_s(size, medium_bps)
            if carried <= self.min_pps:
                yield (
                    f"min_pps = {self.min_pps:g}: medium_mbps = {self.medium_mbps:g} carries {carried:.0f} frames/s of "
                    f"{size} B; give less"
                )
        if self.search == "mlrsearch" and self.duration_sum_s < self.length_of_trial_s:
            yield f"duration_sum_s = {self.duration_sum_s:g}: it must be at least trial_s = {self.length_of_trial_s:g}"
        try:
            self.shares()
        except ValueError as error:
            yield f"q = {self.q:g}: {error}"

    @property
    def strong(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.k or range(1, self.guests + 1))))

    @property
    def length_of_trial_s(self) -> float:
        return self.trial_s or (1.0 if self.search == "mlrsearch" else 60.0)

    def two_level_shares(self) -> dict[str, Shares]:
        """The paper's vectors by ``k=1`` …, whatever ``vectors`` says."""
        return {f"k={k}": formulas.two_level_shares(self.guests, k, self.q) for k in self.strong}

    def shares(self) -> dict[str, Shares]:
        """Every vector of the design by its name, but the worst, which is not yet known."""
        named: dict[str, Shares] = {}
        if "two-level" in self.vectors or WORST in self.vectors:
            two_level = self.two_level_shares()
            named |= two_level if "two-level" in self.vectors else {}
        if "equal" in self.vectors:
            named["equal"] = formulas.equal_shares(self.guests)
        if "zipf" in self.vectors:
            named["zipf"] = formulas.zipf_shares(self.guests, self.zipf_exponent)
        return named | {name: formulas.shares_of(weights) for name, weights in self.user_vectors.items()}

    def search_method(self) -> Search:
        trial_s = self.length_of_trial_s
        if self.search == "rfc2544":
            return Rfc2544Search(trial_s, self.resolution)
        if self.search == "tst009":
            return Tst009Search(trial_s, self.resolution, self.verifications)
        from virtgauge.suites.forwarding.mlrsearch import MlrSearch  # half a second, which other plans spare

        return MlrSearch(trial_s, self.duration_sum_s, self.exceed_ratio, self.resolution, self.budget_s)
