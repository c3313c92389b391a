"""Which platform is to be preferred: ranks that platforms share where nothing tells them apart.

Two platforms are told apart on a measure when their paired ratio excludes 1 and exceeds what identical arms differ by
(:mod:`virtgauge.analysis.comparison`).  With p platforms and c cells, any of which may tell them apart, the interval is
that of c p (p − 1) / 2 comparisons (Bonferroni).
A platform's rank is one more than the number of platforms that are better, so that what cannot be told apart from the
best shares its rank.  That is not an ordering by points: A and B may share a rank, and B and C, while A is better than
C.  With few repetitions the intervals are as wide as those allow, smallest to largest.

Overall, a platform that fails a requirement stands behind every one that fails none; among those of the same standing,
one is better than another if it is better by some requirement and worse by none (Pareto).  No requirement is weighed
against another.  Emulated figures never rank, nor do those of another computer than the reference's; where neither way
is better nothing does.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

from virtgauge.analysis.bounds import Outcome
from virtgauge.analysis.comparison import Judgement, judge_ratio, paired_ratio
from virtgauge.decisions.requirements import BoundRequirement
from virtgauge.decisions.verdicts import Verdict
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better
from virtgauge.results.table import ResultTable

_NO_FIGURE = "no valid trial has this figure"
_NEITHER = "of this figure neither less nor more is better"


@dataclasses.dataclass(frozen=True)
class Rank:
    """One platform's place."""

    arm: str  # the platform
    rank: int  # from 1; shared by those that cannot be told apart
    better: tuple[str, ...]  # names of the platforms that are better


@dataclasses.dataclass(frozen=True)
class Ranking:
    """An order of platforms."""

    requirement: str  # by whose measure; empty for the overall ranking
    ranks: tuple[Rank, ...]  # the best first
    unranked: dict[str, str]  # platforms without a place, with the reason


def rankings(
    requirements: Sequence[BoundRequirement], verdicts: Sequence[Verdict], table: ResultTable
) -> list[Ranking]:
    """A ranking for each requirement, and the overall one last; empty without requirements."""
    if not requirements:
        return []
    found = [_by_measure(requirement, table) for requirement in requirements]
    return [*found, _overall(found, verdicts, table)]


def _by_measure(requirement: BoundRequirement, table: ResultTable) -> Ranking:
    measure = requirement.measure
    cells = [cell for cell in table.cells(measure.suite) if requirement.covers(cell)]
    rankable, unranked = _rankable(table)
    for arm in list(rankable):
        if not any(table.values(measure, cell, arm.name) for cell in cells):
            rankable.remove(arm)
            unranked[arm.name] = _NO_FIGURE
    if requirement.better is Better.NEITHER:
        return Ranking(requirement.name, (), unranked | {arm.name: _NEITHER for arm in rankable})
    names = [arm.name for arm in rankable]
    comparisons = max(1, len(cells) * len(names) * (len(names) - 1) // 2)
    nominal = 1 - (1 - requirement.confidence) / comparisons

    values = functools.cache(lambda arm, cell: table.values(measure, cell, arm))
    identical = {
        cell: paired_ratio(values(table.aa, cell), values(table.reference, cell), nominal) if table.aa else None
        for cell in cells
    }

    def judgement(one: str, other: str, cell: Cell) -> Judgement:
        ratio = paired_ratio(values(one, cell), values(other, cell), nominal)
        return judge_ratio(ratio, identical[cell], nominal)[0]

    good = Judgement.LOWER if requirement.better is Better.LOWER else Judgement.HIGHER
    beats: dict[tuple[str, str], bool] = {}
    for one, other in itertools.combinations(names, 2):
        said = {judgement(one, other, cell) for cell in cells} - {Judgement.INCONCLUSIVE}
        beats[one, other] = said == {good}
        beats[other, one] = bool(said) and good not in said
    return Ranking(requirement.name, _ranks(names, lambda one, other: beats[one, other]), unranked)


def _overall(rankings: Sequence[Ranking], verdicts: Sequence[Verdict], table: ResultTable) -> Ranking:
    rankable, unranked = _rankable(table)
    for arm in list(rankable):
        if all(ranking.unranked.get(arm.name) == _NO_FIGURE for ranking in rankings):
            rankable.remove(arm)
            unranked[arm.name] = "no valid trial has a figure that is required"
    failing = {verdict.arm for verdict in verdicts if verdict.outcome is Outcome.FAIL}
    worse_than = [{rank.arm: set(rank.better) for rank in ranking.ranks} for ranking in rankings]

    def better(one: str, other: str) -> bool:
        if (one in failing) != (other in failing):
            return other in failing
        ahead = any(one in behind.get(other, ()) for behind in worse_than)
        return ahead and not any(other in behind.get(one, ()) for behind in worse_than)

    return Ranking("", _ranks([arm.name for arm in rankable], better), unranked)


def _rankable(table: ResultTable) -> tuple[list[ArmRecord], dict[str, str]]:
    unranked = {}
    rankable = []
    for arm in table.arms:
        if arm.role == "aa":
            continue
        if not arm.usable:
            unranked[arm.name] = f"not measured: {arm.reason}"
        elif arm.emulated:
            unranked[arm.name] = f"{arm.mark}: its figures never rank"
        elif apart := table.elsewhere(arm.name):
            unranked[arm.name] = apart
        else:
            rankable.append(arm)
    return rankable, unranked


def _ranks(names: Sequence[str], better: Callable[[str, str], bool]) -> tuple[Rank, ...]:
    ranks = []
    for name in names:
        ahead = tuple(other for other in names if other != name and better(other, name))
        ranks.append(Rank(name, len(ahead) + 1, ahead))
    return tuple(sorted(ranks, key=lambda rank: rank.rank))
