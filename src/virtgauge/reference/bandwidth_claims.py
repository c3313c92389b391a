"""What the timing paper concludes about bandwidth estimation (section 3.3), with the tests that decide it.

The conclusions are data (``bandwidth_claims.toml``).  The same tests are made on what the paper's text states in
figures (``bandwidth.csv``) and on those of each platform of a run.  A test first names the figures that it is about, in
the paper's terms:

- ``tool``: ``yaz`` (ours: ``yaz-original``) or ``kite2``;
- ``timings``: ``system`` or ``hptime`` (the paper's HighPerTimer);
- ``capacity_mbps``: of the path;
- ``cross``: ``any`` cross traffic, ``none``, ``some``, or the ``least`` or the ``most`` of the levels that were tried;
- ``platform``: ``any``; ``host`` (of a run, its reference) or ``virtual`` (every other), where a conclusion is about
  one of them; ``reference`` for what another platform is compared with;

and the quantity: ``median_mbps`` and ``half_iqr_mbps`` (which the paper calls MAD) of the instant estimates; ``error``
with its sign and ``off`` without, beside the truth (of a rate that could not be paced, that of the highest that could);
``sent_mbps``, the highest rate that could be sent, or the estimate where nothing was in its way; ``outliers`` and
``low_outliers``, shares beyond Tukey's fences; ``mean_over_median``; ``impact``, what ``off`` is more than the
reference's; ``gain``, what ``off`` is more with system timing than with hptime.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.reference.claim_file import Bounded, read_claims

Tool = Literal["yaz", "kite2"]
Timing = Literal["system", "hptime"]
Cross = Literal["any", "none", "some", "least", "most"]
Platform = Literal["any", "host", "virtual", "reference"]
Quantity = Literal[
    "median_mbps",
    "half_iqr_mbps",
    "error",
    "off",
    "sent_mbps",
    "outliers",
    "low_outliers",
    "mean_over_median",
    "impact",
    "gain",
]


class Range(BaseModel):
    """Rates in Mbit/s, both ends included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_least: float = 0.0
    at_most: float = float("inf")

    def includes(self, mbps: float) -> bool:
        """Whether a rate lies within."""
        return self.at_least <= mbps <= self.at_most


class Selection(BaseModel):
    """Figures in the paper's terms; see the module."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantity: Quantity
    tool: Tool | None = None
    timings: Annotated[tuple[Timing, ...], Field(min_length=1)] = ("system", "hptime")
    capacity_mbps: Range = Range()
    cross: Cross = "any"
    platform: Platform = "any"


class Bounds(Bounded):
    """Each of the figures lies within bounds, or the lowest or the highest of them does.

    A bound of 0 is not reached by 0 itself.
    """

    kind: Literal["bounds"]
    of: Selection
    which: Literal["each", "lowest", "highest"] = "each"


class Compared(Bounded):
    """The ratio (or the difference) of two figures lies within bounds, at every place that has both.

    Places are compared that differ in nothing but what the two selections differ in.  As the only bound 1 (or 0) itself
    is not reached: no difference is none.
    """

    kind: Literal["compared"]
    of: Selection
    to: Selection
    how: Literal["ratio", "difference"] = "ratio"


class Least(BaseModel):
    """The figure is lower on platforms of one kind than on any other virtual one, at every place that has both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["least"]
    of: Selection
    platform: str


class Untestable(BaseModel):
    """What no figure of the paper's or ours decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["untestable"]
    reason: str


Test = Annotated[Bounds | Compared | Least | Untestable, Field(discriminator="kind")]


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
def bandwidth_claims() -> tuple[Claim, ...]:
    """Every conclusion, in the paper's order."""
    return read_claims("bandwidth_claims.toml", Claim)
