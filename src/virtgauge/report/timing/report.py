"""The timing suite's part of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.measures.values import CellKey
from virtgauge.report.sections import SuitePage, SuiteRecords, SuiteReport
from virtgauge.report.timing import page, terminal
from virtgauge.report.timing.causes import Cause, causes
from virtgauge.report.timing.factors import Place, ProbeFactors, Repetitions, probe_factors
from virtgauge.report.timing.headlines import headlines
from virtgauge.report.timing.loads import achieved_loads
from virtgauge.report.timing.model import TimingFindings, function_label
from virtgauge.report.timing.paired_cells import Medians
from virtgauge.report.timing.paper_claims import examined_claims, on_paper
from virtgauge.report.timing.published import citations, published_rows
from virtgauge.report.timing.run_claims import run_claims
from virtgauge.report.timing.run_figures import RunFigures, in_the_papers_terms
from virtgauge.report.timing.series import CellBuilder, ordered_cells
from virtgauge.report.verdicts import HeardClaim, Hearing
from virtgauge.report.words import load_label, probe_title

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


class TimingReport(SuiteReport):
    """What clocks and sleeps cost, why, and what determines it."""

    suite: ClassVar[str] = "timing"
    title: ClassVar[str] = "Timing"
    findings: TimingFindings

    def __init__(self, records: SuiteRecords) -> None:
        self.arms = tuple(records.shown_arms)
        keys = ordered_cells(records.trials)
        builder = CellBuilder(records.arms, records.trials, records.figures, records.nominal, records.raw)
        cells = tuple(builder.cell(key) for key in keys)
        published = published_rows(cells, records.arms)
        self.aa_ratios = tuple(builder.aa_ratios)
        self.findings = TimingFindings(
            headlines=headlines(records.arms, cells),
            cells=cells,
            causes=_causes(builder, keys, records),
            loads=achieved_loads(records.trials, [arm.name for arm in self.arms], records.nominal),
            published=published,
            citations=citations(published),
            factors=_factors(builder, keys, records.arms, records.nominal),
            paper_claims=examined_claims(),
            run_claims=run_claims(_in_the_papers_terms(builder, keys, records)),
        )

    @property
    def claims(self) -> tuple[HeardClaim, ...]:
        return tuple(
            HeardClaim(paper, (Hearing("", run),))
            for paper, run in zip(on_paper(), self.findings.run_claims, strict=True)
        )

    @property
    def estimates(self) -> Iterable[Estimate]:
        return (series.statistics["p50"] for cell in self.findings.cells for series in cell.series)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        return f"{probe_title(probe)}: {function_label(factors)} · {load_label(factors.get('load', ''))}"

    def page(self, frame: PageFrame) -> SuitePage:
        return page.suite_page(self.findings, self.arms, frame)

    def print(self, console: Console) -> None:
        terminal.print_findings(self.findings, self.arms, console)


def _in_the_papers_terms(builder: CellBuilder, keys: Sequence[CellKey], records: SuiteRecords) -> RunFigures:
    """The run's repetitions, those of the A/A arm among them, for the paper's conclusions."""
    cells = {
        key: {
            arm.name: {block: figures.statistics for block, figures in builder.measured(key, arm.name).items()}
            for arm in records.arms
        }
        for key in keys
    }
    return RunFigures(in_the_papers_terms(cells), records.arms, records.nominal)


def _causes(builder: CellBuilder, keys: Sequence[CellKey], records: SuiteRecords) -> dict[str, tuple[Cause, ...]]:
    medians = {arm.name: _medians(builder, keys, arm.name) for arm in records.arms}
    reference = next((medians[arm.name] for arm in records.arms if arm.role == "reference"), None)
    found = {}
    for arm in records.arms:
        if medians[arm.name]:
            trials = [trial for trial in records.trials if trial.arm == arm.name]
            facts = records.facts.get(arm.name, {})
            against = None if arm.role == "reference" else reference
            found[arm.name] = causes(facts, medians[arm.name], trials, records.nominal, against)
    return found


def _medians(builder: CellBuilder, keys: Sequence[CellKey], arm: str) -> Medians:
    """An arm's medians, by cell and block."""
    found = {}
    for suite, probe, items in keys:
        measured = builder.measured((suite, probe, items), arm)
        medians = {b: value for b, figures in measured.items() if (value := figures.statistics["p50"]) is not None}
        if medians:
            found[probe, frozenset(items)] = medians
    return found


def _factors(
    builder: CellBuilder, keys: Sequence[CellKey], arms: Sequence[ArmRecord], nominal: float
) -> tuple[ProbeFactors, ...]:
    """The tests of factors, probe by probe."""
    probes: dict[tuple[str, str], dict[Place, Repetitions]] = {}
    for key in keys:
        suite, probe, items = key
        factors = dict(items)
        for arm in arms:
            measured = builder.measured(key, arm.name)
            if measured:
                place = (function_label(factors), arm.name, factors.get("load", ""))
                repetitions = {block: figures.statistics for block, figures in measured.items()}
                probes.setdefault((suite, probe), {})[place] = repetitions
    found = (probe_factors(suite, probe, cells, arms, nominal) for (suite, probe), cells in probes.items())
    return tuple(one for one in found if one is not None)
