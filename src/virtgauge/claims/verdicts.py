"""What figures say of a paper's conclusion."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from virtgauge.analysis.estimate import Estimate


class Verdict(enum.StrEnum):
    """On a conclusion."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided here"
    UNTESTABLE = "not testable here"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One figure of a test."""

    text: str  # in words, with the figure, or why there is none
    agrees: bool | None  # with the conclusion; None where it does not decide
    measured: bool = True  # whether there is a figure at all
    needs: float = 0  # repetitions, with fewer of which it cannot decide; infinite where it never will

    @classmethod
    def none(cls, reason: str, needs: float = math.inf) -> Evidence:
        """Nothing was measured that could decide."""
        return cls(reason, None, measured=False, needs=needs)


@dataclasses.dataclass(frozen=True)
class CheckedClaim:
    """A conclusion of a paper and what this run says of it."""

    name: str
    place: str
    text: str
    note: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]


@dataclasses.dataclass(frozen=True)
class Hearing:
    """What figures of this run say of a conclusion: those of one arm, or, with an empty name, of all together."""

    arm: str
    checked: CheckedClaim


@dataclasses.dataclass(frozen=True)
class ClaimCheck:
    """A conclusion of a paper, on the paper's own figures and on this run's."""

    paper: CheckedClaim
    run: tuple[Hearing, ...]
    # of storage, the same with all databases at one level of durability; None where it does not matter
    at_one_level: CheckedClaim | None = None


def verdict_of(evidence: Sequence[Evidence]) -> Verdict:
    """Contradicted if any figure says so, confirmed if all agree and none is missing."""
    agreement = [one.agrees for one in evidence]
    if False in agreement:
        return Verdict.CONTRADICTED
    if evidence and None not in agreement:
        return Verdict.CONFIRMED
    return Verdict.UNDECIDED if any(one.measured for one in evidence) else Verdict.UNTESTABLE


def counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How often there is each verdict; empty where there is none at all."""
    counts = Counter(verdicts)
    return {verdict.value: counts[verdict] for verdict in Verdict} if counts else {}


def within(estimate: Estimate, at_least: float | None, at_most: float | None, *, strictly: bool = False) -> bool | None:
    """Whether the interval lies within bounds; None where it reaches over one, or where there is none."""
    if estimate.low is None or estimate.high is None:
        return None
    low, high = -math.inf if at_least is None else at_least, math.inf if at_most is None else at_most
    if strictly:
        outside = not _above(estimate.high, low) or not _above(high, estimate.low)
        inside = _above(estimate.low, low) and _above(high, estimate.high)
    else:
        outside = _above(low, estimate.high) or _above(estimate.low, high)
        inside = not _above(low, estimate.low) and not _above(estimate.high, high)
    return False if outside else inside or None


def _above(one: float, other: float) -> bool:
    """By more than rounding: the figures of a coarse clock have a ratio of just 3, of which a logarithm makes more."""
    return one > other and not math.isclose(one, other, rel_tol=1e-9)
