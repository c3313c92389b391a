"""The forwarding suite's part of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.reference import table
from virtgauge.report.forwarding import page, terminal
from virtgauge.report.forwarding.cells import CellBuilder
from virtgauge.report.forwarding.headlines import headlines
from virtgauge.report.forwarding.interface_ratios import interface_ratios
from virtgauge.report.forwarding.measured import Quantities
from virtgauge.report.forwarding.model import ForwardingFindings
from virtgauge.report.forwarding.paper_claims import examined_claims, on_paper
from virtgauge.report.forwarding.published import beside_ours
from virtgauge.report.forwarding.results import Results, account_of
from virtgauge.report.sections import SuitePage, SuiteRecords, SuiteReport
from virtgauge.report.trial_results import flag_counts
from virtgauge.report.verdicts import HeardClaim, Hearing

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


class ForwardingReport(SuiteReport):
    """What each platform carries, how late, and where lost frames went."""

    suite: ClassVar[str] = "forwarding"
    title: ClassVar[str] = "Packet forwarding"
    findings: ForwardingFindings

    def __init__(self, records: SuiteRecords) -> None:
        self.arms = tuple(records.shown_arms)
        results = Results(records.trials, records.histograms)
        builder = CellBuilder(records.arms, results, records.nominal)
        keys = results.keys
        cells = tuple(builder.cell(key) for key in keys)
        quantities = Quantities(cells, results)
        ratios = interface_ratios(results, keys, records.arms, records.nominal)
        tried = {arm.name: results.of_arm(arm.name) for arm in self.arms}
        flags = {name: flag_counts(trials) for name, trials in tried.items()}
        self.aa_ratios = tuple(builder.aa_ratios)
        self.findings = ForwardingFindings(
            headlines=headlines(records.arms, cells, flags),
            cells=cells,
            accounts={name: account_of(trials) for name, trials in tried.items()},
            flags=flags,
            interfaces=ratios,
            published=beside_ours(quantities, records.arms, ratios),
            citation=table("forwarding").source.citation,
            paper_claims=examined_claims(quantities, records.arms, records.nominal),
        )

    @property
    def claims(self) -> tuple[HeardClaim, ...]:
        return tuple(
            HeardClaim(paper, (Hearing("", run),))
            for paper, run in zip(on_paper(), self.findings.paper_claims, strict=True)
        )

    @property
    def estimates(self) -> Iterable[Estimate]:
        return (series.throughput_mbps for cell in self.findings.cells for series in cell.series)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        fairness = f" (J {factors['jain']})" if factors.get("jain") else ""
        return f"Forwarding: {factors.get('frame_bytes', '')} B · {factors.get('vector', '')}{fairness}"

    def page(self, frame: PageFrame) -> SuitePage:
        return page.suite_page(self.findings, self.arms, frame)

    def print(self, console: Console) -> None:
        terminal.print_findings(self.findings, self.arms, console)
