"""What a run's requirements come to: verdicts and ranks, for every form of the report."""

from __future__ import annotations

import dataclasses
from collections import Counter

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.ranking import Ranking, rankings
from virtgauge.decisions.requirements import BoundRequirement, resolve
from virtgauge.decisions.verdicts import CellVerdict, Judge, Verdict
from virtgauge.plan.load import parse_plan
from virtgauge.results.formatting import NONE
from virtgauge.results.quantities import BY_UNIT
from virtgauge.results.table import ResultTable


@dataclasses.dataclass(frozen=True)
class ReportedRequirement:
    """A requirement in words.

    Attributes:
        name: unique in the run.
        text: measure, bound and conditions.
        meaning: of the measure, in a clause.
        source: where the bound comes from; empty where the plan does not say.
        confidence: of its verdicts.
        unit: the base unit of its verdicts' estimates.
        suite, probes: of the trials that its measure is taken from.
    """

    name: str
    text: str
    meaning: str
    source: str
    confidence: float
    unit: str
    suite: str
    probes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Decisions:
    """Everything that a run decides.

    Attributes:
        requirements: in the order of the plan.
        verdicts: of each on each platform that it is for.
        rankings: by each requirement's measure, and the overall one, whose requirement is empty, last.
        sequential: repetitions were added until all was decided, and intervals hold whenever one stops.
    """

    requirements: tuple[ReportedRequirement, ...]
    verdicts: tuple[Verdict, ...]
    rankings: tuple[Ranking, ...]
    sequential: bool

    def counts(self) -> dict[str, int]:
        """How many verdicts there are of each outcome; ``not judged`` among them."""
        return dict(Counter(verdict.outcome.value if verdict.outcome else "not judged" for verdict in self.verdicts))

    @property
    def outcome(self) -> Outcome | None:
        """Of all together: failed if any failed, undecided if any is; None without a verdict."""
        outcomes = {verdict.outcome for verdict in self.verdicts} - {None}
        for one in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS):
            if one in outcomes:
                return one
        return None

    @property
    def overall(self) -> Ranking | None:
        return self.rankings[-1] if self.rankings else None

    def figure(self, verdict: Verdict) -> str:
        """The figure that the verdict rests on, with its interval: ``62.1 µs (60.3 µs to 64.0 µs)``."""
        return NONE if verdict.decisive is None else self.cell_figure(verdict.requirement, verdict.decisive)

    def cell_figure(self, requirement: str, cell: CellVerdict) -> str:
        """One cell's."""
        quantity, estimate = BY_UNIT[self._unit_of(requirement)], cell.estimate
        if estimate.point is None:
            return NONE
        text = quantity.text(estimate.point)
        if estimate.low is not None:
            text += f" ({quantity.text(estimate.low)} to {quantity.text(estimate.high)})"
        return text

    def required_probes(self, suite: str, arm: str) -> list[str]:
        """Probes of a suite whose figures are required of a platform: those of what fails first."""
        probes = {one.name: one.probes for one in self.requirements if one.suite == suite}
        own = [one for one in self.verdicts if one.arm == arm and one.requirement in probes]
        own.sort(key=lambda verdict: verdict.outcome is not Outcome.FAIL)
        return list(dict.fromkeys(probe for verdict in own for probe in probes[verdict.requirement]))

    def _unit_of(self, requirement: str) -> str:
        return next(one.unit for one in self.requirements if one.name == requirement)


def decisions_of(table: ResultTable) -> Decisions:
    """What a run's requirements come to so far; empty of a run that requires nothing.

    Only the figures of the measures that are required are read.
    """
    manifest = table.manifest
    if "[[require]]" not in manifest.plan_text:  # most runs; a plan of another version need not be read
        return Decisions((), (), (), False)
    plan = parse_plan(manifest.plan_text, f"{manifest.run_id}/plan.toml")
    platforms = [arm.name for arm in manifest.arms if arm.role != "aa"]
    requirements = resolve(plan.requirements, None, platforms, plan.confidence, manifest.run_id)
    verdicts = Judge(requirements, table, any_time_valid=plan.budget is not None).verdicts()
    return Decisions(
        requirements=tuple(_reported(one) for one in requirements),
        verdicts=tuple(verdicts),
        rankings=tuple(rankings(requirements, verdicts, table)),
        sequential=plan.budget is not None,
    )


def _reported(one: BoundRequirement) -> ReportedRequirement:
    return ReportedRequirement(
        one.name,
        one.text,
        one.measure.meaning,
        one.required.source,
        one.confidence,
        one.quantity.unit,
        one.measure.suite,
        tuple(sorted(one.measure.probes)),
    )
