"""The bandwidth suite's part of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.reference import table
from virtgauge.report.bandwidth import page, terminal
from virtgauge.report.bandwidth.accuracy import accuracies
from virtgauge.report.bandwidth.cells import CellBuilder
from virtgauge.report.bandwidth.effects import Effects
from virtgauge.report.bandwidth.headlines import headlines
from virtgauge.report.bandwidth.model import BandwidthFindings
from virtgauge.report.bandwidth.not_measured import not_measured
from virtgauge.report.bandwidth.pacing import pacings
from virtgauge.report.bandwidth.paper_claims import examined_claims
from virtgauge.report.bandwidth.paths import path_accounts
from virtgauge.report.bandwidth.published import beside_ours
from virtgauge.report.bandwidth.results import Results, key_of_factors
from virtgauge.report.sections import SuitePage, SuiteRecords, SuiteReport
from virtgauge.report.trial_results import flag_counts
from virtgauge.report.verdicts import HeardClaim, Hearing

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


class BandwidthReport(SuiteReport):
    """What estimates of available bandwidth are worth on each platform, and what precise timing does for them."""

    suite: ClassVar[str] = "bandwidth"
    title: ClassVar[str] = "Available bandwidth"
    findings: BandwidthFindings

    def __init__(self, records: SuiteRecords) -> None:
        self.arms = tuple(records.shown_arms)
        names = {arm.role: arm.name for arm in records.arms if arm.role != "test"}
        told = [arm.name for arm in self.arms if arm.role != "aa"]
        results = Results(
            records.trials, records.histograms, names.get("reference", ""), names.get("aa"), records.nominal
        )
        builder = CellBuilder(records.arms, results)
        cells = tuple(builder.cell(key) for key in results.keys)
        timing = Effects(results, told)
        effects = timing.by_cell()
        pooled = timing.pooled(effects)
        accuracy = accuracies(results, told)
        self.aa_ratios = tuple(builder.aa_ratios)
        self.findings = BandwidthFindings(
            headlines=headlines(records.arms, accuracy, pooled, cells),
            cells=cells,
            accuracy=accuracy,
            effects=effects,
            pooled=pooled,
            pacing=pacings(results, told),
            paths=path_accounts(results, told),
            not_measured=not_measured(results, records.arms),
            published=beside_ours(cells, records.arms),
            paper_claims=examined_claims(results, records.arms),
            citation=table("bandwidth").source.citation,
            flags={arm.name: flag_counts(results.of_arm(arm.name)) for arm in self.arms},
        )

    @property
    def claims(self) -> tuple[HeardClaim, ...]:
        return tuple(
            HeardClaim(claim.paper, tuple(Hearing(one.arm, one.examined) for one in claim.arms))
            for claim in self.findings.paper_claims
        )

    @property
    def estimates(self) -> Iterable[Estimate]:
        return (series.median_mbps for cell in self.findings.cells for series in cell.series)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        return f"Bandwidth: {key_of_factors(factors).label}"

    def page(self, frame: PageFrame) -> SuitePage:
        return page.suite_page(self.findings, self.arms, frame)

    def print(self, console: Console) -> None:
        terminal.print_findings(self.findings, self.arms, console)
