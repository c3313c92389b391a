"""The figures of today's report, for :mod:`support.figures`: every number and verdict of its model, by meaning.

The model is walked as it is.  :data:`RULES` says of each of its classes where its figures belong (arm, cell, what they
are compared with), what they are called, and which fields are prose or points of a chart.  A class or a kind of value
without a rule is an error, so that no figure is left out unseen.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.figures import Figure, cell_of, differences, write

from virtgauge import report
from virtgauge.analysis.comparison import Comparison, Difference, resolution
from virtgauge.analysis.estimate import Estimate
from virtgauge.claims.verdicts import CheckedClaim
from virtgauge.compare.comparison import Wanted, compare_runs
from virtgauge.decisions.ranking import Ranking
from virtgauge.decisions.verdicts import CellVerdict
from virtgauge.exchange.figures import Figure as Exported
from virtgauge.exchange.figures import read_figures
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import TrialRecord
from virtgauge.report import hosts
from virtgauge.report.answers import identical_arms
from virtgauge.report.compose import SuiteReport
from virtgauge.report.left_out import LeftOut
from virtgauge.report.model import ArmSummary, Report
from virtgauge.report.replay import Replay
from virtgauge.report.trials import TrialLine
from virtgauge.results.table import ResultTable
from virtgauge.specs.blocks import Finding, values_of
from virtgauge.specs.headline import Headline, HeadlineFigure
from virtgauge.specs.suites import headline_measures


@dataclasses.dataclass(frozen=True)
class Place:
    """Where figures belong: the parts of their key, and what their measures' names begin with."""

    suite: str
    cell: str = ""
    arm: str = ""
    against: str = ""
    prefix: str = ""
    suffix: str = ""

    def at(self, **parts: str) -> Place:
        return dataclasses.replace(self, **parts)

    def part_of_cell(self, **parts: object) -> Place:
        return self.at(cell=";".join([self.cell, *(f"+{name}={level}" for name, level in parts.items())]))

    def name(self, measure: str) -> str:
        return f"{self.prefix}{measure}{self.suffix}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """What to make of a class of the model.

    Attributes:
        place: where its figures belong, from where the whole belongs.
        names: measures by field, where they are called differently.
        skip: fields that are keys, prose, or points of a chart.
        verdicts: fields with text that is a finding.
    """

    place: Callable[[Any, Place], Place] = lambda _, place: place
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skip: str = ""
    verdicts: str = ""


def _of_arm(one: Any, place: Place) -> Place:
    return place.at(arm=one.arm)


def _headline_name(one: HeadlineFigure) -> str:
    """Its name with the verb of its value, for some suites have several of one name: ``PostgreSQL stores``."""
    return f"{one.name} {re.split(r'[^a-z ]', one.value)[0]}".strip()


RULES: Mapping[type, Rule] = {
    Headline: Rule(lambda one, place: place.at(arm=one.arm, prefix="headline"), {"tone": ""}, "arm label text mark"),
    HeadlineFigure: Rule(
        lambda one, place: place.at(prefix=f"headline:{_headline_name(one)}"),
        {"judgement": ""},
        "name value change unit probe tone slight weight",
    ),
    # -- every run
    ArmSummary: Rule(
        lambda one, place: place.at(arm=one.record.name), {"guests": "guests", "trials": "trials."}, "record facts"
    ),
    LeftOut: Rule(
        lambda one, place: place.at(arm=one.arm, prefix="left_out."),
        {"reasons": "reason:", "left_out_ns": "duration", "waited_ns": "waited", "kept_ns": "kept"},
        "arm kept_takes told_ns stolen_ns",
    ),
    hosts.HostFindings: Rule(skip="testers"),
    hosts.HostSummary: Rule(
        lambda one, place: place.at(cell=f"*;+host={one.name}"), {"trials": "trials."}, "name processor kernel missing"
    ),
}


UNITS = {"ns": "ns", "mbps": "Mbit/s", "pps": "frames/s"}
"""Of a plain number, by the end of its field's name."""


def _walk(value: object, name: str, place: Place, unit: str = "") -> Iterator[Figure]:
    """The figures of a part of the model; the unit is of a plain number."""

    def figure(part: str = "", against: str | None = None, **fields: Any) -> Figure:
        known = {"cell": place.cell, "arm": place.arm, "against": place.against if against is None else against}
        return Figure(place.suite, place.name(name).rstrip("."), part=part, **known, **fields)

    match value:
        case None:
            return
        case Estimate():
            yield figure(**_told(value))
        case Comparison():
            against = place.against or "reference"
            if value.ratio.point is not None:
                yield figure("ratio", against, **_told(value.ratio), verdict=value.judgement.value)
            verdict = "" if value.ratio.point is not None else value.judgement.value
            if value.difference.point is not None:
                yield figure("difference", against, **_told(value.difference), verdict=verdict)
            yield from _resolved(value, figure, against)
        case Difference():
            against = place.against or "reference"
            if value.estimate.point is not None:
                yield figure("difference", against, **_told(value.estimate), verdict=value.judgement.value)
            yield from _resolved(value, figure, against)
        case bool():
            yield figure(verdict="yes" if value else "no")
        case enum.Enum():
            yield figure(verdict=str(value.value))
        case int() | float():
            yield figure(estimate=float(value), unit=unit)
        case Mapping():
            for key, one in value.items():
                yield from _walk_entry(str(key), one, name, place)
        case tuple() | list():
            for one in value:
                yield from _walk(one, name, place)
        case _ if dataclasses.is_dataclass(value):
            yield from _walk_fields(value, name, place)
        case _:
            raise TypeError(f"{place.suite} {place.name(name)}: no rule for {type(value).__name__} {value!r:.80}")


def _walk_entry(key: str, value: object, name: str, place: Place) -> Iterator[Figure]:
    """One entry of a mapping: by arm, by flag, by stream, by statistic."""
    arms = name == "loss." or (name == "flag:" and isinstance(value, Mapping))
    if arms and not place.arm:
        yield from _walk(value, name, place.at(arm=key))
    elif name in ("service", "response"):
        inner = place.part_of_cell(stream=key) if key else place
        yield from _walk(value, "", inner.at(prefix=f"{name}."))
    elif isinstance(value, str):
        yield Figure(place.suite, place.name(f"{name}.{key}"), place.cell, place.arm, verdict=value)
    else:
        yield from _walk(value, f"{name}{key}", place)


def _walk_fields(value: Any, name: str, place: Place) -> Iterator[Figure]:
    if type(value) not in RULES:
        raise TypeError(f"{place.suite} {place.name(name)}: no rule for the class {type(value).__qualname__}")
    rule = RULES[type(value)]
    inner = rule.place(value, place)
    skipped, verdicts = rule.skip.split(), rule.verdicts.split()
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        if field.name in skipped:
            continue
        told = rule.names.get(field.name, field.name)
        if field.name == "blocks" and isinstance(one, tuple):
            yield from _walk(len(one), "repetitions", inner)
        elif isinstance(one, str) and not isinstance(one, enum.Enum):
            if field.name not in verdicts:
                raise TypeError(f"{type(value).__qualname__}.{field.name} is text: a key, prose or a finding?")
            if one:
                yield Figure(inner.suite, inner.name(told), inner.cell, inner.arm, inner.against, verdict=one)
        elif hasattr(one, "higher"):
            for part in ("higher", "lower", "band"):
                if (limit := getattr(one, part)) is not None:
                    yield Figure(inner.suite, inner.prefix, "", inner.arm, "reference", f"resolution.{part}", limit)
        else:
            yield from _walk(one, told, inner, UNITS.get(field.name.rpartition("_")[2], ""))


def _told(estimate: Estimate) -> dict[str, Any]:
    named = {"estimate": estimate.point, "low": estimate.low, "high": estimate.high}
    return named | {"confidence": estimate.confidence, "n": estimate.n, "unit": estimate.unit}


def _resolved(found: Difference, figure: Callable[..., Figure], against: str) -> Iterator[Figure]:
    estimate = found.estimate
    if estimate.point is None:
        return
    known = resolution(found)
    for part, limit in (("band", found.band), ("resolution.higher", known.higher), ("resolution.lower", known.lower)):
        if limit is not None:
            yield figure(part, against, estimate=limit, unit=estimate.unit)


# -- what is of no suite -------------------------------------------------------------------------------------


def figures_of_run(run: Path) -> list[Figure]:
    """Every figure that a run's report shows or its exports hold."""
    with ReadOnlyLedger.for_command(run) as ledger:
        built, trials = report.build(ledger), ledger.trials()
        exported = read_figures(ResultTable(ledger))
    found = list(_of_report(built, trials))
    return [*found, *_only_exported(found, exported), *_compared_arms(run, built)]


def _only_exported(found: Sequence[Figure], exported: Sequence[Exported]) -> Iterator[Figure]:
    """What the catalogue has and the report does not show, or shows otherwise: then its part is ``exported``."""
    shown = {figure.key: figure for figure in found if figure.estimate is not None}
    for one in exported:
        cell = cell_of(one.cell.probe, one.cell.factors)
        figure = Figure(one.measure.suite, one.measure.name, cell, one.arm.name, **_told(one.estimate))
        if figure.key not in shown:
            yield figure
        elif any(differences(write([shown[figure.key]]), write([figure]))):
            yield dataclasses.replace(figure, part="exported")


def _compared_arms(run: Path, built: Report) -> Iterator[Figure]:
    """What ``virtgauge compare RUN --arm REFERENCE=ARM`` says of the headline measures, for every arm with trials."""
    records = [arm.record for arm in built.arms]
    base = next(record for record in records if record.role == "reference")
    tried = {line.arm for line in built.trials if line.status == "valid"}
    comparable = (one for one in records if one.role == "test" and one.emulated == base.emulated and one.name in tried)
    reference = base.name
    for arm in (one.name for one in comparable):
        found = compare_runs([run], Wanted(headline_measures(), [f"{reference}={arm}"]))
        for change in found.changes:
            measure, own = change.measure, change.own
            at = (cell_of(change.cell.probe, change.cell.factors), arm, f"arm={reference}")
            finding = own.finding.value
            for part, estimate in (("ratio", own.ratio), ("difference", own.difference)):
                if estimate is not None and estimate.point is not None:
                    yield Figure(measure.suite, measure.name, *at, part, **_told(estimate), verdict=finding)
            for part in ("band", "p", "p_adjusted", "needed"):
                yield Figure(measure.suite, measure.name, *at, part, estimate=getattr(own, part))


def _of_report(built: Report, trials: Sequence[TrialRecord]) -> Iterator[Figure]:
    for suite in built.suites:
        yield from _of_suite(suite)
    everything = Place("run")
    yield from _walk(built.arms, "", everything)
    yield from _walk(built.left_out, "", everything)
    for one in built.left_out:
        yield Figure("run", "left_out.takes", arm=one.arm, estimate=one.takes)
        yield Figure("run", "left_out.steal_at_most", arm=one.arm, estimate=one.steal_at_most)
    yield from _agreement(built)
    yield from _decisions(built)
    yield from _trials(built, trials)
    yield from _hosts(built, everything)
    yield from _replay(built.replay)


def _of_suite(suite: SuiteReport) -> Iterator[Figure]:
    place = Place(suite.suite)
    yield from _walk(suite.headlines, "", place)
    yield from _of_blocks(suite)
    for claim in suite.claims:
        yield from _claim(suite.suite, claim.paper, "paper")
        for hearing in claim.run:
            yield from _claim(suite.suite, hearing.checked, "", hearing.arm)
        if claim.at_one_level is not None:
            yield from _claim(suite.suite, claim.at_one_level, "durability=equal")


def _of_blocks(suite: SuiteReport) -> Iterator[Figure]:
    """Every figure in the tables of a suite that is declared, and how many trials stand behind those of a cell."""
    for one in values_of(suite.blocks):
        at = one.place
        place = Place(at.suite, _cell(at.cell), at.arm, at.against)
        if isinstance(one, Finding):
            yield Figure(at.suite, one.measure, place.cell, at.arm, at.against, verdict=one.text)
            continue
        counted = one.estimate.method == "counted"
        yield from _walk(one.estimate.point if counted else one.estimate, one.measure, place, one.quantity.unit)
        yield from _walk(one.compared, one.measure, place)
        yield from _walk(one.rank, "rank", place)
    context = suite.context
    for arm in context.arms:
        for name, number in context.table.endings.flags(context.cells, arm.name).items():
            yield Figure(suite.suite, f"flag:{name}", "", arm.name, estimate=number)
        for cell in context.cells:
            tried = context.table.tried(cell, arm.name)
            if tried:
                numbers, place = (
                    context.table.numbers(cell, arm.name),
                    Place(suite.suite, _cell(cell.text), arm.name),
                )
                yield from _walk(len(numbers), "repetitions", place)
                for name, number in context.table.endings.flags([cell], arm.name).items():
                    yield from _walk(number, f"flag:{name}", place)


def _cell(text: str) -> str:
    """A cell without ``jain``, which follows from the vector."""
    return re.sub(r";jain=[^;]*", "", text)


def _claim(suite: str, checked: CheckedClaim, against: str, arm: str = "") -> Iterator[Figure]:
    name, verdict = f"claim:{checked.name}", checked.verdict.value
    yield Figure(suite, name, arm=arm, against=against, verdict=verdict)
    counts = Counter({True: "agree", False: "contradict", None: "open"}[one.agrees] for one in checked.evidence)
    for part, number in counts.items():
        yield Figure(suite, name, "", arm, against, f"evidence.{part}", estimate=number)


def _agreement(built: Report) -> Iterator[Figure]:
    found, arms = built.agreement, identical_arms(built)
    for name in ("cells", "excluding", "tolerated", "widest"):
        yield Figure("run", f"aa.{name}", estimate=getattr(found, name))
    yield Figure("run", "aa.ok", verdict="" if found.ok is None else "yes" if found.ok else "no")
    yield Figure("run", "aa.headline.good", verdict="yes" if arms.good else "no")
    for name in ("coarse", "figures", "uncounted"):
        yield Figure("run", f"aa.headline.{name}", estimate=getattr(arms, name))
    yield Figure("run", "repetitions", estimate=built.blocks)
    yield Figure("run", "finished", verdict="yes" if built.finished else "no")


def _decisions(built: Report) -> Iterator[Figure]:
    suites = {one.name: one.suite for one in built.decisions.requirements}
    for verdict in built.decisions.verdicts:
        suite, name = suites[verdict.requirement], f"requirement:{verdict.requirement}"
        outcome = verdict.outcome.value if verdict.outcome else "not judged"
        told = _told(verdict.decisive.estimate) if verdict.decisive else {}
        yield Figure(suite, name, arm=verdict.arm, **told, verdict=outcome)
        yield Figure(suite, name, arm=verdict.arm, part="more", estimate=verdict.more)
        for cell in verdict.cells:
            yield from _cell_verdict(name, verdict.arm, cell)
    for ranking in built.decisions.rankings:
        yield from _ranking(suites.get(ranking.requirement, "run"), ranking)
    outcome = built.decisions.outcome
    yield Figure("run", "requirements", verdict=outcome.value if outcome else "")


def _cell_verdict(name: str, arm: str, cell: CellVerdict) -> Iterator[Figure]:
    parts = {"host": cell.host} if cell.host else {}
    at = cell_of(cell.probe, cell.factors, **parts)
    yield Figure(cell.suite, name, at, arm, **_told(cell.estimate), verdict=cell.outcome.value)
    yield Figure(cell.suite, name, at, arm, part="margin", estimate=cell.margin, unit="ratio")
    yield Figure(cell.suite, name, at, arm, part="more", estimate=cell.more)
    yield Figure(cell.suite, name, at, arm, part="trials", estimate=len(cell.trials))


def _ranking(suite: str, ranking: Ranking) -> Iterator[Figure]:
    name = f"requirement:{ranking.requirement}" if ranking.requirement else "requirements"
    for rank in ranking.ranks:
        better = ", ".join(sorted(rank.better))
        yield Figure(suite, name, arm=rank.arm, part="rank", estimate=rank.rank, verdict=better and f"behind {better}")
    for arm in ranking.unranked:
        yield Figure(suite, name, arm=arm, part="rank", verdict="not ranked")


def _trials(built: Report, trials: Sequence[TrialRecord]) -> Iterator[Figure]:
    """How many trials of each cell and arm ended how, and what the list of trials says of each."""
    counts = Counter(
        (trial.suite, cell_of(trial.probe, trial.factors), trial.arm, trial.status.value) for trial in trials
    )
    for (suite, cell, arm, status), number in counts.items():
        yield Figure(suite, f"trials.{status}", cell, arm, estimate=number)
    factors = {trial.trial_id: (trial.probe, trial.factors) for trial in trials}
    for line in built.trials:
        yield from _trial(built.cells[line.cell].suite, line, *factors[line.trial_id])


def _trial(suite: str, line: TrialLine, probe: str, factors: Mapping[str, str]) -> Iterator[Figure]:
    cell = cell_of(probe, factors, block=line.block, attempt=line.attempt)
    flags = ", ".join(sorted({flag.partition(":")[0] for flag in line.flags}))
    verdict = f"{line.status}: {flags}" if flags else line.status
    yield Figure(suite, "trial.median", cell, line.arm, estimate=line.median_ns, verdict=verdict, unit="ns")


def _hosts(built: Report, place: Place) -> Iterator[Figure]:
    if built.hosts is None:
        return
    yield from _walk(dataclasses.replace(built.hosts, rows=()), "", place)
    for row in built.hosts.rows:
        suite, measure, cell, arm = row.measure.suite, row.measure.name, row.cell, row.arm.name
        for host, estimate in row.estimates.items():
            at = cell_of(cell.probe, cell.factors, host=host)
            yield Figure(suite, measure, at, arm, **_told(estimate))
            if host in row.ratios:
                yield Figure(suite, measure, at, arm, "reference", "ratio", **_told(row.ratios[host]))
        if row.test is not None:
            at = cell_of(cell.probe, cell.factors)
            for part in ("h", "df", "p", "p_adjusted"):
                yield Figure(suite, f"hosts.{measure}", at, arm, part=part, estimate=getattr(row.test, part))
            differ = {True: "yes", False: "no", None: ""}[row.test.differ]
            yield Figure(suite, f"hosts.{measure}", at, arm, part="differ", verdict=differ)


def _replay(replay: Replay | None) -> Iterator[Figure]:
    if replay is None:
        return
    yield Figure("run", "replay.lowest_confidence", estimate=replay.lowest_confidence)
    for part in replay.parts:
        for claim in part.claims:
            yield Figure(part.suite, f"claim:{claim.paper.name}", part="replay", verdict=claim.verdict.value)
            yield from _claim(part.suite, claim.paper, "paper")
            for hearing in claim.run:
                yield from _claim(part.suite, hearing.checked, "", hearing.arm)
