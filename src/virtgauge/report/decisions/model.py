"""What a run's requirements come to: verdicts and ranks, for every form of the report."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.ranking import Ranking, rankings
from virtgauge.decisions.requirements import BoundRequirement, understand
from virtgauge.decisions.verdicts import CellVerdict, Judge, Verdict
from virtgauge.ledger.records import Manifest, TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.measures.quantities import BY_UNIT
from virtgauge.measures.values import MeasuredValues
from virtgauge.plan.load import parse_plan
from virtgauge.report.words import NONE


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
    """

    name: str
    text: str
    meaning: str
    source: str
    confidence: float
    unit: str


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

    def _unit_of(self, requirement: str) -> str:
        return next(one.unit for one in self.requirements if one.name == requirement)


def decisions_of(ledger: Ledger, manifest: Manifest, trials: Sequence[TrialRecord]) -> Decisions:
    """What a run's requirements come to so far; empty of a run that requires nothing."""
    if "[[require]]" not in manifest.plan_text:  # most runs; a plan of another version need not be read
        return Decisions((), (), (), False)
    plan = parse_plan(manifest.plan_text, f"{manifest.run_id}/plan.toml")
    platforms = [arm.name for arm in manifest.arms if arm.role != "aa"]
    requirements = understand(plan.requirements, None, platforms, plan.confidence, manifest.run_id)
    measures = {one.measure.full_name: one.measure for one in requirements}.values()
    values = MeasuredValues.read(ledger, measures, trials)
    judge = Judge(requirements, manifest.arms, trials, manifest.hosts, any_time_valid=plan.budget is not None)
    verdicts = judge.verdicts(values)
    return Decisions(
        requirements=tuple(_reported(one) for one in requirements),
        verdicts=tuple(verdicts),
        rankings=tuple(rankings(requirements, verdicts, values, manifest.arms)),
        sequential=plan.budget is not None,
    )


def _reported(one: BoundRequirement) -> ReportedRequirement:
    return ReportedRequirement(
        one.name, one.text, one.measure.meaning, one.required.source, one.confidence, one.quantity.unit
    )
