"""What the isolation paper concludes, each conclusion with the tests that decide it.

The conclusions are data (``isolation_claims.toml``).  The same tests are made on what the paper's text states in
figures (``isolation.csv``) and on those of each platform of a run.  A test first names the figures that it is about, in
the paper's terms:

- ``benchmarks`` and ``loads``: ``cpu`` (Dhrystone, Whetstone), ``memory``, ``memory-write`` (of loads), ``disk``,
  ``none``;
- ``policies`` and ``on``: what the guests may use, and which of them has it;
- ``shares``: declared, 0 … 1;
- ``energy_saving``: whether the processor changes its clock by itself; not given where that does not matter.

and the quantity: ``q`` of equation 1 and its parts ``q_share`` and ``q_rate``; ``relative``, the rate beside the
reference's; ``given``, what a guest does with a policy beside what it does without, nobody else being there;
``under_load``, what it does under a load beside what it does without, under the same policy.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.reference.claim_file import Bounded, read_claims

Benchmark = Literal["cpu", "memory", "disk"]
Load = Literal["none", "cpu", "memory", "memory-write", "disk"]
Policy = Literal["none", "limit", "reservation", "limit+reservation"]
Quantity = Literal["q", "relative", "q_share", "q_rate", "given", "under_load"]
Extreme = Literal["lowest", "highest"]


class Range(BaseModel):
    """Shares, both ends included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_least: float = 0.0
    at_most: float = 1.0

    def includes(self, share: float) -> bool:
        """Whether a share lies within, up to how it is written."""
        return self.at_least - 1e-9 <= share <= self.at_most + 1e-9


class Selection(BaseModel):
    """Figures in the paper's terms; see the module."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantity: Quantity = "q"
    benchmarks: Annotated[tuple[Benchmark, ...], Field(min_length=1)]
    loads: Annotated[tuple[Load, ...], Field(min_length=1)]
    policies: Annotated[tuple[Policy, ...], Field(min_length=1)] = ("limit+reservation",)
    on: Literal["tested", "loading"] = "tested"
    shares: Range = Range()
    energy_saving: bool | None = None


class Bounds(Bounded):
    """Each of the figures lies within bounds, or the lowest or the highest of them does."""

    kind: Literal["bounds"]
    of: Selection
    which: Literal["each", "lowest", "highest"] = "each"


class Compared(Bounded):
    """The ratio of two figures lies within bounds: at every place that has both, or of the lowest or highest of each.

    Places are compared that differ in benchmark or load alone.  ``mirrored``: at the share s on one guest and 1 − s on
    the other, so that the same is left for the tested one.
    """

    kind: Literal["compared"]
    of: Selection
    to: Selection
    which: Literal["each", "lowest", "highest"] = "each"
    mirrored: bool = False


class Losses(Bounded):
    """What the lowest figure falls short of 1, beside what another lowest one does, lies within bounds."""

    kind: Literal["losses"]
    of: Selection
    to: Selection


class Spread(Bounded):
    """Of otherwise equal places the highest figure over all loads, beside the lowest, lies within bounds."""

    kind: Literal["spread"]
    of: Selection


class Untestable(BaseModel):
    """What no figure of the paper's or ours decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["untestable"]
    reason: str


Test = Annotated[Bounds | Compared | Losses | Spread | Untestable, Field(discriminator="kind")]


class Claim(BaseModel):
    """One conclusion.

    Attributes:
        name: short and unique.
        place: where the paper says it.
        text: what it says, in its words or close to them.
        note: how it is judged, and what is ours in that.
        tests: all must agree.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    place: str
    text: str
    note: str = ""
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]


@functools.cache
def isolation_claims() -> tuple[Claim, ...]:
    """Every conclusion, in the paper's order."""
    return read_claims("isolation_claims.toml", Claim)
