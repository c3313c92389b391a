"""The isolation suite's part of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.reference import table
from virtgauge.report.isolation import page, terminal
from virtgauge.report.isolation.cells import CellBuilder
from virtgauge.report.isolation.headlines import headlines
from virtgauge.report.isolation.model import IsolationFindings
from virtgauge.report.isolation.not_measured import not_measured
from virtgauge.report.isolation.paper_claims import examined_claims
from virtgauge.report.isolation.policies import applied_policies
from virtgauge.report.isolation.published import beside_ours
from virtgauge.report.isolation.ratios import Ratios, smallest_settings
from virtgauge.report.isolation.results import Results
from virtgauge.report.isolation.sentences import resource_sentences
from virtgauge.report.isolation.vocabulary import SHORT_CORES, benchmark_words, load_words, policy_words
from virtgauge.report.sections import SuitePage, SuiteRecords, SuiteReport
from virtgauge.report.trial_results import flag_counts
from virtgauge.report.verdicts import HeardClaim, Hearing

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


class IsolationReport(SuiteReport):
    """What a noisy neighbour costs on each platform, and what a policy saves."""

    suite: ClassVar[str] = "isolation"
    title: ClassVar[str] = "Performance isolation"
    findings: IsolationFindings

    def __init__(self, records: SuiteRecords) -> None:
        self.arms = tuple(records.shown_arms)
        names = {arm.role: arm.name for arm in records.arms if arm.role != "test"}
        told = [arm.name for arm in self.arms if arm.role != "aa"]
        results = Results(records.trials, records.histograms, names.get("reference", ""), names.get("aa"))
        builder = CellBuilder(records.arms, results, records.nominal)
        cells = tuple(builder.cell(key) for key in results.keys)
        ratios = Ratios(results, told, records.nominal)
        interference = ratios.interference()
        sentences = resource_sentences(interference, cells, builder.aa_ratios, told, results.wake_tail)
        self.aa_ratios = tuple(builder.aa_ratios.values())
        self.findings = IsolationFindings(
            headlines=headlines(records.arms, sentences, cells),
            wake_tail=results.wake_tail,
            sentences=sentences,
            cells=cells,
            interference=interference,
            pressure=ratios.pressure(),
            conservation=ratios.conservation(),
            smallest=smallest_settings(cells, told),
            policies=applied_policies(results, told),
            not_measured=not_measured(results, records.arms, sentences),
            published=beside_ours(cells, records.arms),
            paper_claims=examined_claims(results, records.arms, records.nominal),
            citation=table("isolation").source.citation,
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
        return (series.relative for cell in self.findings.cells for series in cell.series)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        benchmark = benchmark_words(factors.get("benchmark", probe), factors.get("block", ""))
        load = load_words(factors.get("load", "none"), int(float(factors.get("intensity", "100"))))
        share = float(factors.get("share", "100")) / 100
        policy = policy_words(factors.get("policy", "none"), factors.get("on", ""), share)
        cores = factors.get("cores", "")
        return f"Isolation: {benchmark} · {load} · {SHORT_CORES.get(cores, cores)} · {policy}"

    def page(self, frame: PageFrame) -> SuitePage:
        return page.suite_page(self.findings, self.arms, frame)

    def print(self, console: Console) -> None:
        terminal.print_findings(self.findings, self.arms, console)
