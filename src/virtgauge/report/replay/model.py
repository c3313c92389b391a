"""The papers' conclusions and what a run says of them, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from virtgauge.claims.verdicts import CheckedClaim, Hearing, Verdict, counted


@dataclasses.dataclass(frozen=True)
class ReplayedClaim:
    """One conclusion.

    Attributes:
        name: unique within its part.
        place: in the paper.
        text: what the paper says.
        note: how it is judged, and what is ours in that; may be empty.
        paper: the same test on the paper's own figures.
        run: on this run's, by platform or for all together; empty where nothing could be judged.
        verdict: of this run.
        reason: of the verdict, in words.
    """

    name: str
    place: str
    text: str
    note: str
    paper: CheckedClaim
    run: tuple[Hearing, ...]
    verdict: Verdict
    reason: str


@dataclasses.dataclass(frozen=True)
class ReplayedPart:
    """The conclusions of a paper that one suite is about.

    Attributes:
        suite: its name.
        title: ``Kirova et al. 2019: clocks and sleeps``.
        citation: of the paper.
        measured: whether the suite was part of this run.
        claims: all, in the paper's order.
    """

    suite: str
    title: str
    citation: str
    measured: bool
    claims: tuple[ReplayedClaim, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many conclusions have each verdict."""
        return counted(claim.verdict for claim in self.claims)


@dataclasses.dataclass(frozen=True)
class Replay:
    """Every conclusion of every paper.

    Attributes:
        parts: in the papers' order.
        emulated: labels of platforms whose figures decide nothing.
        lowest_confidence: of the intervals that decide; None where there is none.
    """

    parts: tuple[ReplayedPart, ...]
    emulated: tuple[str, ...]
    lowest_confidence: float | None

    @property
    def counts(self) -> dict[str, int]:
        """Over all parts."""
        return counted(claim.verdict for part in self.parts for claim in part.claims)

    @property
    def summary(self) -> str:
        """``12 of 199 claims confirmed, 9 contradicted, 20 undecided here, 158 not testable here``."""
        return in_words(self.counts)


def in_words(counts: dict[str, int]) -> str:
    """How many claims have each verdict."""
    (first, confirmed), *others = counts.items()
    rest: Iterable[str] = (f"{number} {verdict}" for verdict, number in others)
    return f"{confirmed} of {sum(counts.values())} claims {first}, {', '.join(rest)}"
