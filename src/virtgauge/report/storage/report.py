"""The storage suite's part of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.reference import table
from virtgauge.report.sections import SuitePage, SuiteRecords, SuiteReport
from virtgauge.report.storage import page, terminal
from virtgauge.report.storage.cells import CellBuilder
from virtgauge.report.storage.durability import durability_rows, ranking_shares
from virtgauge.report.storage.headlines import headlines
from virtgauge.report.storage.model import StorageFindings
from virtgauge.report.storage.not_measured import not_measured
from virtgauge.report.storage.paper_cells import Places
from virtgauge.report.storage.paper_claims import examined_claims
from virtgauge.report.storage.replay import replay
from virtgauge.report.storage.results import Results
from virtgauge.report.storage.vocabulary import OPERATION_WORDS, SHORT_LEVELS, clients_words, database_title
from virtgauge.report.trial_results import flag_counts
from virtgauge.report.verdicts import HeardClaim, Hearing

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


class StorageReport(SuiteReport):
    """How fast each database stores and reads sensor data, at what durability, and what explains it."""

    suite: ClassVar[str] = "storage"
    title: ClassVar[str] = "Sensor-data storage"
    findings: StorageFindings

    def __init__(self, records: SuiteRecords) -> None:
        self.arms = tuple(records.shown_arms)
        results = Results(records.trials, records.histograms)
        builder = CellBuilder(records.arms, results, records.facts, records.nominal)
        cells = builder.cells(results.keys)
        places = Places(results, records.arms)
        self.aa_ratios = tuple(builder.aa_ratios)
        self.findings = StorageFindings(
            headlines=headlines(records.arms, cells),
            cells=cells,
            durability=durability_rows(results, records.arms, records.nominal),
            ranking=ranking_shares(results, records.arms, records.nominal),
            replay=replay(places, cells, records.nominal),
            not_measured=not_measured(results, records.arms),
            paper_claims=examined_claims(places, results, records.nominal),
            citation=table("storage_ops").source.citation,
            flags={arm.name: flag_counts(results.of_arm(arm.name)) for arm in self.arms},
        )

    @property
    def claims(self) -> tuple[HeardClaim, ...]:
        return tuple(HeardClaim(claim.paper, (Hearing("", claim.run),)) for claim in self.findings.paper_claims)

    @property
    def estimates(self) -> Iterable[Estimate]:
        return (series.rate for cell in self.findings.cells for series in cell.series)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        operation = factors.get("operation", probe)
        parts = [
            database_title(factors.get("database", "")),
            SHORT_LEVELS.get(factors.get("durability", ""), factors.get("durability", "")),
            OPERATION_WORDS.get(operation, operation),
            clients_words(int(factors.get("clients", "1"))),
        ]
        usual = {"flushes": "as-is", "loop": "closed", "write_mode": "default"}
        parts += [factors[name] for name, level in usual.items() if factors.get(name, level) != level]
        return f"Storage: {' · '.join(part for part in parts if part)}"

    def page(self, frame: PageFrame) -> SuitePage:
        return page.suite_page(self.findings, self.arms, frame)

    def print(self, console: Console) -> None:
        terminal.print_findings(self.findings, self.arms, console)
