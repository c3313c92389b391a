"""A plan's ``[[suite.forwarding]]``: the laboratory, the load vectors, the search."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from virtgauge.analysis.forwarding import load_vectors
from virtgauge.analysis.forwarding.line_rate import check_frame_bytes
from virtgauge.analysis.forwarding.load_vectors import Shares
from virtgauge.suites.forwarding.searches.base import Limits, Search
from virtgauge.suites.forwarding.searches.mlrsearch import MlrSearch
from virtgauge.suites.forwarding.searches.rfc2544 import Rfc2544Search
from virtgauge.suites.forwarding.searches.tst009 import Tst009Search
from virtgauge.suites.forwarding.trex import TrexSettings

Vectors = Literal["two-level", "equal", "zipf", "worst"]
WORST = "worst"
"""Stands for the vector by which the device forwards least, to be found among the two-level ones."""


def _is_a_frame(value: int) -> int:
    check_frame_bytes(value)
    return value


Percent = Annotated[float, Field(gt=0, le=400)]
FrameBytes = Annotated[int, AfterValidator(_is_a_frame)]


class ForwardingSettings(BaseModel):
    """One design: load vectors × frame sizes, in one laboratory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    guests: Annotated[int, Field(ge=1, le=64)] = 12
    """N, the virtual routers."""
    switch: Literal["openvswitch", "bridge"] = "openvswitch"
    """What br0 and br1 are: Open vSwitch with one rule a flow, or Linux bridges."""
    cpu_limit: Annotated[float, Field(gt=0, le=64)] | None = None
    """Processors' worth of time that each guest may use; None: no limit, and then J matters little."""
    memory_mib: Annotated[int, Field(ge=16)] | None = None
    """Of each guest; None leaves the platform's own default."""

    vectors: tuple[Vectors, ...] = ("two-level",)
    """``two-level`` is the paper's, one for each k; ``equal``, ``zipf``; ``worst`` searches the worst of the first."""
    k: tuple[int, ...] | None = None
    """Numbers of strongly loaded guests; None: each from 1 to N."""
    q: float = 0.01
    """Part of the load that all slightly loaded guests together carry."""
    zipf_exponent: Annotated[float, Field(ge=0, le=10)] = 1.0
    user_vectors: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Weights of the guests, by a name of one's own."""
    frame_bytes: Annotated[tuple[FrameBytes, ...], Field(min_length=1)] = (64, 128, 512, 1024, 1518)
    """With the check sequence."""

    search: Literal["mlrsearch", "rfc2544", "tst009"] = "mlrsearch"
    trial_s: Annotated[float, Field(gt=0, le=3600)] | None = None
    """None: what the search's standard says, 1 s for mlrsearch and 60 s for the others."""
    duration_sum_s: Annotated[float, Field(gt=0, le=3600)] = 21.0
    """Trial time after which mlrsearch has decided about a load."""
    exceed_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Part of that time which may show loss."""
    verifications: Annotated[int, Field(ge=0, le=20)] = 2
    """How often tst009 repeats a trial with loss."""
    resolution: Annotated[float, Field(gt=0, lt=0.5)] = 0.005
    """Relative distance of the bounds at which a search ends."""
    budget_s: Annotated[float, Field(gt=0, le=86_400)] = 1200.0
    """Offered load after which mlrsearch fails."""
    min_pps: Annotated[float, Field(gt=0)] = 1000.0
    """A device that loses at this load has no throughput."""
    max_pps: Annotated[float, Field(gt=0)] = 20e6
    """No higher load is offered."""
    medium_mbps: Annotated[float, Field(gt=0)] | None = None
    """An Ethernet's speed that is never exceeded; None: the tester alone bounds the load."""

    port: Literal["auto", "xdp_live", "af_xdp", "af_packet"] = "auto"
    """How the tester sends and receives."""
    trex: TrexSettings | None = None
    """A TRex server as the tester, on NICs cabled to this machine, in place of our own ports."""
    calibration_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Length of the tester's own trials on its bare loop."""
    latency_loads: tuple[Percent, ...] = (10, 50, 90, 100)
    """Percentages of the throughput at which latency is measured."""
    load_curve: tuple[Percent, ...] = ()
    """Further ones, for curves of latency and loss against load."""
    latency_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    latency_repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """RFC 2544 wants 20 streams of 120 s."""
    tagged_latency: bool = False
    """Time one frame in the middle of each of these streams, as RFC 2544 does, and not every frame."""
    back_to_back: Annotated[int, Field(ge=0, le=100)] = 0
    """Searches for the longest burst (RFC 9004 wants 50)."""
    late_share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """With more late frames than this at the throughput, the load was not what it says."""
    ledger_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.001
    """Part of a trial's lost frames that may be unattributed."""

    @field_validator("q")
    @classmethod
    def _q_is_a_part(cls, value: float) -> float:
        if not 0 <= value < 1:
            raise ValueError("the light guests' part of the load must be at least 0 and below 1; the paper has 0.01")
        return value

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
            load_vectors.shares_of(weights)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> ForwardingSettings:
        if not self.vectors and not self.user_vectors:
            raise ValueError("vectors is empty: choose at least one, or give user_vectors")
        if clash := self.user_vectors.keys() & {"equal", "zipf", WORST, *(f"k={k}" for k in range(1, 65))}:
            raise ValueError(
                f"user_vectors: {min(clash)!r} is the name of a vector that there already is; choose another"
            )
        if self.trex is not None and (self.tagged_latency or self.back_to_back):
            raise ValueError("trex offers steady loads only: set back_to_back = 0 and tagged_latency = false")
        if self.max_pps <= self.min_pps:
            raise ValueError(f"max_pps = {self.max_pps:g}: it must be above min_pps = {self.min_pps:g}")
        if self.search == "mlrsearch" and self.duration_sum_s < self.length_of_trial_s:
            raise ValueError(
                f"duration_sum_s = {self.duration_sum_s:g}: it must be at least trial_s = {self.length_of_trial_s:g}"
            )
        try:
            self.shares()
        except ValueError as error:
            raise ValueError(f"q = {self.q:g}: {error}") from error
        return self

    @property
    def tester_name(self) -> str:
        """Who sends and receives, as part of a bench's name."""
        return self.port if self.trex is None else f"trex@{self.trex.host}"

    @property
    def strong(self) -> tuple[int, ...]:
        """Every k of the design, ascending."""
        return tuple(sorted(set(self.k or range(1, self.guests + 1))))

    @property
    def length_of_trial_s(self) -> float:
        """Of a search's trials."""
        return self.trial_s or (1.0 if self.search == "mlrsearch" else 60.0)

    def two_level_shares(self) -> dict[str, Shares]:
        """The paper's vectors by ``k=1`` …, whatever ``vectors`` says."""
        return {f"k={k}": load_vectors.two_level_shares(self.guests, k, self.q) for k in self.strong}

    def shares(self) -> dict[str, Shares]:
        """Every vector of the design by its name, but the worst, which is not yet known."""
        named: dict[str, Shares] = {}
        if "two-level" in self.vectors or WORST in self.vectors:
            two_level = self.two_level_shares()
            named |= two_level if "two-level" in self.vectors else {}
        if "equal" in self.vectors:
            named["equal"] = load_vectors.equal_shares(self.guests)
        if "zipf" in self.vectors:
            named["zipf"] = load_vectors.zipf_shares(self.guests, self.zipf_exponent)
        return named | {name: load_vectors.shares_of(weights) for name, weights in self.user_vectors.items()}

    def search_method(self) -> Search:
        """The search with its parameters."""
        trial_s = self.length_of_trial_s
        if self.search == "rfc2544":
            return Rfc2544Search(trial_s, self.resolution)
        if self.search == "tst009":
            return Tst009Search(trial_s, self.resolution, self.verifications)
        return MlrSearch(trial_s, self.duration_sum_s, self.exceed_ratio, self.resolution, self.budget_s)

    def limits(self) -> Limits:
        """Loads of the plan, whatever the tester can."""
        return Limits(self.min_pps, self.max_pps)
