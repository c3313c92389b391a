"""What this run's figures say of a paper's conclusion."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence


class Verdict(enum.StrEnum):
    """On a conclusion."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided here"
    UNTESTABLE = "not testable here"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One figure of a test.

    Attributes:
        text: in words, with the figure, or why there is none.
        agrees: with the conclusion; None where it does not decide.
        measured: whether there is a figure at all.
    """

    text: str
    agrees: bool | None
    measured: bool = True

    @classmethod
    def none(cls, reason: str) -> Evidence:
        """Nothing was measured that could decide."""
        return cls(reason, None, measured=False)


@dataclasses.dataclass(frozen=True)
class ExaminedClaim:
    """A conclusion of a paper and what this run says of it."""

    name: str
    place: str
    text: str
    note: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]


def verdict_of(evidence: Sequence[Evidence]) -> Verdict:
    """Contradicted if any figure says so, confirmed if all agree and none is missing."""
    agreement = [one.agrees for one in evidence]
    if False in agreement:
        return Verdict.CONTRADICTED
    if evidence and None not in agreement:
        return Verdict.CONFIRMED
    return Verdict.UNDECIDED if any(one.measured for one in evidence) else Verdict.UNTESTABLE
