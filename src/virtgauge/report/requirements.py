"""What a run's requirements come to, for every form of the report: verdicts and ranks, as data and in words."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.ranking import Ranking, rankings
from virtgauge.decisions.requirements import BoundRequirement, resolve
from virtgauge.decisions.verdicts import CellVerdict, Judge, Verdict
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.load import parse_plan
from virtgauge.results.formatting import NONE, confidence, count, first_of, printable, share
from virtgauge.results.quantities import BY_UNIT, significant
from virtgauge.results.table import ResultTable

# Of an outcome, the worst first: its mark and colour in the terminal, its badge's, and what is said of several
OUTCOMES: Mapping[Outcome | None, tuple[str, str, str, str]] = {
    Outcome.FAIL: ("✗ FAIL", "red", "bad", "not met"),
    Outcome.INCONCLUSIVE: ("? undecided", "yellow", "warn", "undecided"),
    Outcome.PASS: ("✓ pass", "green", "good", "met"),
    None: ("– not judged", "dim", "", "not judged"),
}


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
        return next((one for one in OUTCOMES if one in outcomes), None)

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


def margin_text(cell: CellVerdict | None) -> str:
    """``38 % to spare``, ``4.1 % beyond the bound``, ``11.9 times the bound``; a dash where there is none."""
    if cell is None or cell.margin is None:
        return NONE
    if abs(cell.margin) > 1:
        return f"{significant(1 + abs(cell.margin))} times the bound"
    return f"{share(abs(cell.margin))} {'to spare' if cell.margin >= 0 else 'beyond the bound'}"


def conditions_text(cell: CellVerdict | None) -> str:
    """The levels of the cell that a verdict rests on."""
    if cell is None:
        return ""
    levels = [f"{factor} {level}" for factor, level in cell.factors.items() if level not in ("", "default")]
    return ", ".join([*([f"host {cell.host}"] if cell.host else []), *levels])


_MOST_HOSTS = 8  # That are named; the JSON has all


def hosts_text(verdict: Verdict) -> str:
    """``not met on south; met on north, west``, by all cells of each host; empty where there is one host only."""
    outcomes: dict[str, set[Outcome]] = {}
    for cell in verdict.cells:
        if cell.host:
            outcomes.setdefault(cell.host, set()).add(cell.outcome)
    on: dict[str, list[str]] = {said: [] for *_, said in OUTCOMES.values()}
    for host, found in outcomes.items():
        on[next(said for outcome, (*_, said) in OUTCOMES.items() if outcome in found)].append(host)
    return "; ".join(f"{said} on {first_of(hosts, _MOST_HOSTS, ', ')}" for said, hosts in on.items() if hosts)


def more_text(verdict: Verdict) -> str:
    """How many more repetitions would decide it, in words; empty where it is decided, or not judged."""
    if verdict.outcome is not Outcome.INCONCLUSIVE or verdict.decisive is None:
        return ""
    if verdict.more is None:  # where it is not open, its reason says that repetitions would not help
        return "the number of repetitions that would decide it is unknown" if verdict.decisive.open else ""
    if not verdict.more:
        return ""
    return f"about {count(verdict.more, 'more repetition')} would decide it"


def _sentence(decisions: Decisions) -> str:
    counts = Counter(verdict.outcome for verdict in decisions.verdicts)
    order = (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, None)
    parts = ", ".join(f"{counts[outcome]} {OUTCOMES[outcome][-1]}" for outcome in order if counts[outcome])
    levels = " and ".join(confidence(one) for one in sorted({one.confidence for one in decisions.requirements}))
    return f"Requirements, each on each platform: {parts}, at {levels} confidence."


def print_decisions(decisions: Decisions, labels: Mapping[str, str], console: Console) -> None:
    """Print the verdicts below each requirement, then the overall ranks; nothing without any, no text as markup."""
    if not decisions.requirements:
        return
    console.print(Text(_sentence(decisions), style="bold"))
    for required in decisions.requirements:
        named = "" if required.name == required.text else f"{required.name}: "
        console.print(Text(printable(named + required.text)))
        lines = Table.grid(padding=(0, 2))
        for verdict in (one for one in decisions.verdicts if one.requirement == required.name):
            word, style, *_ = OUTCOMES[verdict.outcome]
            label = printable(labels.get(verdict.arm, verdict.arm))
            lines.add_row(Text(f"  {word}", style=style), Text(label), Text(printable(_said(decisions, verdict))))
        console.print(lines)
    if decisions.overall is not None and decisions.overall.ranks:
        places: dict[int, list[str]] = {}
        for rank in decisions.overall.ranks:
            places.setdefault(rank.rank, []).append(printable(labels.get(rank.arm, rank.arm)))
        console.print(Text("Ranks: " + "; ".join(f"{place}. {', '.join(names)}" for place, names in places.items())))


def _said(decisions: Decisions, verdict: Verdict) -> str:
    """Figure, margin, and why: of what did not pass, and of what is required over hours."""
    parts = [decisions.figure(verdict)] if verdict.decisive else []
    if verdict.outcome is not None and verdict.decisive is not None and verdict.decisive.margin is not None:
        parts.append(margin_text(verdict.decisive))
    over = any(one.over for one in decisions.requirements if one.name == verdict.requirement)
    if verdict.outcome is not Outcome.PASS or over:
        parts += filter(None, (verdict.reason, more_text(verdict)))
    parts += filter(None, (hosts_text(verdict),))
    return "; ".join(parts)


def shown(decisions: Decisions, arms: Sequence[ArmRecord]) -> dict[str, Any]:
    """What the section of the page is made from; ``arms`` are the run's."""
    judged = {verdict.arm for verdict in decisions.verdicts}
    return {
        "decisions": decisions,
        "arms": [arm for arm in arms if arm.name in judged and arm.usable],
        "verdicts": {(verdict.requirement, verdict.arm): verdict for verdict in decisions.verdicts},
        "ranks": {(ranking.requirement, one.arm): one.rank for ranking in decisions.rankings for one in ranking.ranks},
        "sentence": _sentence(decisions),
    }
