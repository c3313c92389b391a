"""The part of a report that is about imported trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.report.imported import formatting, terminal
from virtgauge.report.imported.figures import SUITE, FigureBuilder, origins
from virtgauge.report.imported.headlines import headlines
from virtgauge.report.imported.model import ImportedFindings
from virtgauge.report.sections import Section, SuitePage, SuiteRecords, SuiteReport

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame

_READING = {
    "Imported": "Measured by another tool, and not by virtgauge: nobody watched foreign load, steal and clocks, and "
    "repetitions are paired with the reference's by their numbers, in the order in which they were imported unless "
    "somebody said otherwise. fio's own bins are up to 1.6 % wide.",
}


class ImportedReport(SuiteReport):
    """What other tools measured, beside the reference."""

    suite: ClassVar[str] = SUITE
    title: ClassVar[str] = "Imported results"
    findings: ImportedFindings

    def __init__(self, records: SuiteRecords) -> None:
        self.arms = tuple(records.shown_arms)
        builder = FigureBuilder(records, self.arms)
        figures = tuple(builder.figures())
        self.aa_ratios = tuple(builder.aa_ratios)
        self.findings = ImportedFindings(
            headlines=headlines(records.arms, figures, records.trials),
            figures=figures,
            origins=origins(records.trials, self.arms),
        )

    @property
    def estimates(self) -> Iterable[Estimate]:
        return (series.estimate for figure in self.findings.figures if figure.headline for series in figure.series)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        return f"{probe}: {', '.join(f'{factor} {level}' for factor, level in factors.items())}"

    def page(self, frame: PageFrame) -> SuitePage:
        shared = {"found": self.findings, "arms": self.arms, "say": formatting}
        table = frame.render("imported/figures.html", **shared)
        head = frame.render("imported/glance.html", **shared)
        return SuitePage(head, (Section("figures", "Imported", table),), _READING)

    def print(self, console: Console) -> None:
        terminal.print_findings(self.findings, self.arms, console)
