"""What the forwarding paper concludes, each conclusion with the test by which our own figures are judged.

The conclusions are data (``forwarding_claims.toml``).  The paper's platforms are named by what it says makes the
difference, their interfaces: ``emulated`` (its Xen) and ``paravirtual`` (its KVM).  A quantity is one of

- ``throughput_mbps``: T|J, in Mbit/s of frames with check sequence;
- ``throughput_pps``: the same in frames/s;
- ``latency_us``: L_tot of equation 7 at the throughput, or at the load that the test names.

Factors are the Jain index of the load (``jain``), the frame size (``frame_bytes``), the offered load (``load_mbps``).
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.reference.claim_file import Bounded, read_claims

Interfaces = Literal["emulated", "paravirtual"]
Quantity = Literal["throughput_mbps", "throughput_pps", "latency_us"]
Factor = Literal["jain", "frame_bytes", "load_mbps"]


class Range(BaseModel):
    """Levels of a factor, both ends included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_least: float | None = None
    at_most: float | None = None

    def includes(self, level: float) -> bool:
        """Whether a level lies within."""
        return (self.at_least is None or level >= self.at_least) and (self.at_most is None or level <= self.at_most)


class _Test(BaseModel):
    """What every test has: the figures that it is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantity: Quantity
    interfaces: tuple[Interfaces, ...]
    where: dict[Factor, Range] = Field(default_factory=dict)
    """Only figures at these levels."""


class Bounds(_Test, Bounded):
    """Every figure lies within bounds."""

    kind: Literal["bounds"]


class Growth(_Test):
    """Along a factor, with every other fixed, the quantity rises, falls or stays.

    The figure is its ratio between the highest and the lowest level, and its interval decides: ``rises`` and ``falls``
    want it beyond 1 and within the bounds, ``flat`` within the bounds alone.  ``linear`` wants a straight line
    to explain at least that part of the variance.
    """

    kind: Literal["growth"]
    factor: Factor
    direction: Literal["rises", "falls", "flat"]
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    linear: Annotated[float, Field(ge=0, le=1)] | None = None


class Comparison(_Test):
    """Cell by cell, the ratio of the first interfaces' figure to the second's lies within bounds."""

    kind: Literal["comparison"]
    interfaces: Annotated[tuple[Interfaces, ...], Field(min_length=2, max_length=2)]
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None


class Interaction(_Test):
    """The factor changes the quantity more with the first interfaces than with the second.

    Compared are the ratios between the highest and the lowest level.
    """

    kind: Literal["interaction"]
    interfaces: Annotated[tuple[Interfaces, ...], Field(min_length=2, max_length=2)]
    factor: Factor


class Valley(_Test):
    """Over the offered load the quantity falls, stays, and rises again: both ends lie above the middle.

    Attributes:
        middle: loads at which it is stable.
        ratio_at_least: of each end that is named to the median of the middle.
    """

    kind: Literal["valley"]
    middle: Range
    ends: tuple[Literal["low", "high"], ...]
    ratio_at_least: float = 1.0


class Untestable(_Test):
    """What the paper supposes, and no figure of its or ours decides."""

    kind: Literal["untestable"]
    reason: str


Test = Annotated[Bounds | Growth | Comparison | Interaction | Valley | Untestable, Field(discriminator="kind")]


class Claim(BaseModel):
    """One conclusion.

    Attributes:
        name: short and unique.
        place: where the paper says it.
        text: what it says, in its words or close to them.
        note: how it is judged on our figures, and what is ours in that.
        tests: all must agree.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    place: str
    text: str
    note: str
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]


@functools.cache
def forwarding_claims() -> tuple[Claim, ...]:
    """Every conclusion, in the paper's order."""
    return read_claims("forwarding_claims.toml", Claim)
