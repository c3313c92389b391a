"""What a run's requirements come to: verdicts and ranks as data, for every form of the report."""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.ranking import Ranking, rankings
from virtgauge.decisions.requirements import BoundRequirement, resolve
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.plan.load import parse_plan
from virtgauge.results.formatting import NONE
from virtgauge.results.quantities import BY_UNIT
from virtgauge.results.table import ResultTable


@dataclasses.dataclass(frozen=True)
class ReportedRequirement:
    """A requirement in words."""

    name: str  # unique in the run
    text: str  # measure, bound and conditions
    meaning: str  # of the measure, in a clause
    source: str  # where the bound comes from; empty where the plan does not say
    confidence: float  # of its verdicts
    unit: str  # the base unit of its verdicts' estimates
    # suite, probes: of the trials that its measure is taken from
    suite: str
    probes: tuple[str, ...]
    over: str = ""  # the time that it is required over, where it is


@dataclasses.dataclass(frozen=True)
class Decisions:
    """Everything that a run decides."""

    requirements: tuple[ReportedRequirement, ...]  # in the order of the plan
    verdicts: tuple[Verdict, ...]  # of each on each platform that it is for
    # by each requirement's measure, and the overall one, whose requirement is empty, last
    rankings: tuple[Ranking, ...]
    sequential: bool  # repetitions were added until all was decided, and intervals hold whenever one stops

    @property
    def outcome(self) -> Outcome | None:
        """Of all together: failed if any failed, undecided if any is; None without a verdict."""
        outcomes = {verdict.outcome for verdict in self.verdicts} - {None}
        return next((one for one in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS) if one in outcomes), None)

    @property
    def overall(self) -> Ranking | None:
        return self.rankings[-1] if self.rankings else None

    def figure(self, verdict: Verdict) -> str:
        """The figure that the verdict rests on, with its interval: ``62.1 µs (60.3 µs to 64.0 µs)``."""
        if verdict.decisive is None or verdict.decisive.estimate.point is None:
            return NONE
        quantity = BY_UNIT[next(one.unit for one in self.requirements if one.name == verdict.requirement)]
        found = verdict.decisive.estimate
        interval = "" if found.low is None else f" ({quantity.text(found.low)} to {quantity.text(found.high)})"
        return quantity.text(found.point) + interval

    def required_probes(self, suite: str, arm: str) -> list[str]:
        """Probes of a suite whose figures are required of a platform: those of what fails first."""
        probes = {one.name: one.probes for one in self.requirements if one.suite == suite}
        own = [one for one in self.verdicts if one.arm == arm and one.requirement in probes]
        own.sort(key=lambda verdict: verdict.outcome is not Outcome.FAIL)
        return list(dict.fromkeys(probe for verdict in own for probe in probes[verdict.requirement]))


def decisions_of(table: ResultTable) -> Decisions:
    """What a run's requirements come to so far, empty without any; only the figures that are required are read."""
    manifest = table.manifest
    if "[[require]]" not in manifest.plan_text:  # most runs; a plan of another version need not be read
        return Decisions((), (), (), False)
    plan = parse_plan(manifest.plan_text, f"{manifest.run_id}/plan.toml")
    platforms = [arm.name for arm in manifest.arms if arm.role != "aa"]
    requirements = resolve(plan.requirements, None, platforms, plan.confidence, manifest.run_id)
    verdicts = Judge(requirements, table, any_time_valid=plan.budget is not None).verdicts()
    return Decisions(
        requirements=tuple(map(_reported, requirements)),
        verdicts=tuple(verdicts),
        rankings=tuple(rankings(requirements, verdicts, table)),
        sequential=plan.budget is not None,
    )


def _reported(one: BoundRequirement) -> ReportedRequirement:
    of, asked = one.measure, one.required
    return ReportedRequirement(
        *(one.name, one.text, of.meaning, asked.source, one.confidence, one.quantity.unit, of.suite),
        *(tuple(sorted(of.probes)), asked.during or asked.per),
    )
