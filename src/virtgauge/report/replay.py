"""The papers' conclusions beside what a run measured: of a suite, and all in one place for plans named ``paper:…``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from virtgauge.claims.papers import SOURCES, on_paper
from virtgauge.claims.verdicts import SEVERITY, CheckedClaim, Evidence, Hearing, Verdict, of_platforms
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.load import PAPER_PREFIX
from virtgauge.results.formatting import first_of, joined
from virtgauge.specs.blocks import Block, Column, Row, Text, table_of
from virtgauge.specs.context import Context

if TYPE_CHECKING:
    from virtgauge.report.compose import SuiteReport

NOT_PART = "not part of this run"
_NOTHING_DECIDES = "no platform whose figures decide was measured"
_EMULATED_ONLY = "measured on emulated platforms alone, whose figures decide nothing"
_MOST_REASONS = 2


@dataclasses.dataclass(frozen=True)
class ReplayedClaim:
    """One conclusion."""

    paper: CheckedClaim  # what it says, and the same test on the paper's own figures
    run: tuple[Hearing, ...]  # on this run's, by platform or for all together; empty where nothing could be judged
    verdict: Verdict  # of this run
    reason: str  # of the verdict, in words
    at_one_level: CheckedClaim | None = None  # of storage, with all databases at one level of durability

    @property
    def told(self) -> list[tuple[str, CheckedClaim]]:
        """What decides, by arm: of those that have figures, for why others have none is the verdict's reason."""
        found = [
            (one.arm, one.checked)
            for one in self.run
            if one.checked.verdict is not Verdict.UNTESTABLE or any(figure.measured for figure in one.checked.evidence)
        ]
        return [*found, *([("At one level of durability", self.at_one_level)] if self.at_one_level else [])]

    @property
    def open_somewhere(self) -> bool:
        """Whether it is undecided on some platform."""
        return any(one.checked.verdict is Verdict.UNDECIDED for one in self.run)


@dataclasses.dataclass(frozen=True)
class ReplayedPart:
    """The conclusions of a paper that one suite is about."""

    suite: str  # its name
    title: str  # ``Kirova et al. 2019: clocks and sleeps``.
    citation: str  # of the paper
    measured: bool  # whether the suite was part of this run
    claims: tuple[ReplayedClaim, ...]  # all, in the paper's order


@dataclasses.dataclass(frozen=True)
class Replay:
    """Every conclusion of every paper."""

    parts: tuple[ReplayedPart, ...]  # in the papers' order
    emulated: tuple[str, ...]  # labels of platforms whose figures decide nothing
    lowest_confidence: float | None  # of the intervals that decide; None where there is none

    @property
    def claims(self) -> tuple[ReplayedClaim, ...]:
        """The conclusions of all parts that were measured."""
        return tuple(claim for part in self.parts if part.measured for claim in part.claims)

    @property
    def summary(self) -> str:
        """As :func:`in_words` has it."""
        return in_words(self.claims) if self.claims else "nothing was measured yet"

    @property
    def blocks(self) -> Iterator[Block]:
        """For the terminal: of each part that was measured what could be tested; the page has all, and why not."""
        for part in self.parts:
            if not part.measured:
                yield Text((f"{part.title}: {len(part.claims)} claims, {NOT_PART}",))
                continue
            tested = (one for one in part.claims if one.verdict is not Verdict.UNTESTABLE)
            rows = (Row((one.verdict.value,), "", (one.paper.text, one.reason)) for one in tested)
            columns = (Column("claim", text=True), Column("because", text=True))
            yield Text((in_words(part.claims),), part.title, "finding")
            yield from table_of("", ("verdict",), columns, rows)
        if self.emulated:
            yield Text(tuple(f"{label} is emulated: its figures decide no claim" for label in self.emulated))


def in_words(claims: Sequence[ReplayedClaim]) -> str:
    """``5 of 20 testable claims confirmed, 10 contradicted (6 of these undecided on other platforms), 5 undecided here;
    6 not testable here``.
    """
    counts = Counter(claim.verdict for claim in claims)
    untestable = counts.pop(Verdict.UNTESTABLE, 0)
    partly = sum(claim.verdict is Verdict.CONTRADICTED and claim.open_somewhere for claim in claims)
    others = f" ({partly} of these undecided on other platforms)" if partly else ""
    apart = f"; {untestable} {Verdict.UNTESTABLE}" if untestable else ""
    return (
        f"{counts[Verdict.CONFIRMED]} of {counts.total()} testable claims confirmed, "
        f"{counts[Verdict.CONTRADICTED]} contradicted{others}, {counts[Verdict.UNDECIDED]} undecided here{apart}"
    )


def conclusions(context: Context) -> tuple[ReplayedClaim, ...]:
    """Every conclusion of a suite's paper beside what a run measured; empty where it has no paper."""
    labels = {arm.name: arm.label for arm in context.all_arms}
    emulated = any(arm.emulated for arm in context.arms)
    return tuple(
        ReplayedClaim(one.paper, one.run, *judge(one.run, labels, emulated=emulated), one.at_one_level)
        for one in context.spec.claims(context)
    )


def replay_of(plan_name: str, arms: Sequence[ArmRecord], suites: Sequence[SuiteReport]) -> Replay | None:
    """Every conclusion of every paper, where a run is a replay: its plan is named so; else None."""
    if not plan_name.startswith(PAPER_PREFIX):
        return None
    measured, parts = {suite.suite: suite.claims for suite in suites}, []
    for name, (source, subject) in SOURCES.items():
        untested = (ReplayedClaim(paper, (), Verdict.UNTESTABLE, NOT_PART) for paper in on_paper(name))
        claims = measured[name] if name in measured else tuple(untested)
        parts.append(ReplayedPart(name, f"{source.short}: {subject}", source.citation, name in measured, claims))
    confidences = [one.confidence for suite in suites for one in suite.estimates if one.confidence is not None]
    emulated_arms = tuple(arm.label for arm in arms if arm.usable and arm.emulated and arm.role != "aa")
    return Replay(tuple(parts), emulated_arms, min(confidences, default=None))


def judge(hearings: Sequence[Hearing], labels: Mapping[str, str], *, emulated: bool) -> tuple[Verdict, str]:
    """The verdict of all platforms together, and why; ``emulated``: something was measured on an emulated one."""
    verdict = of_platforms(hearings)
    if verdict is Verdict.UNTESTABLE:
        reasons = [found.text for one in hearings for found in one.checked.evidence if not found.measured]
        known = list(dict.fromkeys(reason.rstrip(".") for reason in reasons if reason))
        otherwise = _EMULATED_ONLY if emulated and not hearings else _NOTHING_DECIDES
        return verdict, first_of(known, _MOST_REASONS) or otherwise
    evidence = [found for one in hearings if one.checked.verdict is verdict for found in one.checked.evidence]
    told = [_reason(verdict, evidence) + _where(verdict, hearings, labels)]
    others = {one: _where(one, hearings, labels) for one in SEVERITY if one is not verdict}
    return verdict, "; ".join([*told, *(f"{one.value}{where}" for one, where in others.items() if where)])


def _reason(verdict: Verdict, evidence: Sequence[Evidence]) -> str:
    decided = sum(one.agrees is not None for one in evidence)
    undecided = sum(one.agrees is None and one.measured for one in evidence)
    if verdict is Verdict.CONFIRMED:
        return "every figure that decides agrees"
    if verdict is Verdict.CONTRADICTED:
        against = sum(one.agrees is False for one in evidence)
        said = "the one figure that decides says" if decided == 1 else f"{against} of {decided} figures that decide say"
        return f"{said} otherwise"
    if undecided:
        return "one figure leaves it open" if undecided == 1 else f"{undecided} figures leave it open"
    return "no figure decides"


def _where(verdict: Verdict, hearings: Sequence[Hearing], labels: Mapping[str, str]) -> str:
    """`` on Host and gVisor``; nothing where the run was checked as a whole."""
    names = [labels.get(one.arm, one.arm) for one in hearings if one.checked.verdict is verdict and one.arm]
    return f" on {joined(names)}" if names else ""
