"""A suite's part of a report, made of its declaration: on the page, in the terminal, and as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from markupsafe import Markup, escape
from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.report import compose
from virtgauge.report.blocks_text import print_blocks
from virtgauge.report.drawing import figure_of
from virtgauge.report.headline import Headline
from virtgauge.report.sections import Section as PageSection
from virtgauge.report.sections import SuitePage, SuiteRecords
from virtgauge.results.columns import Cell
from virtgauge.specs.blocks import Block, Chart, Section, Table, Text, Value, values_of
from virtgauge.specs.context import Context
from virtgauge.specs.model import SuiteSpec

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


@dataclasses.dataclass(frozen=True)
class SpecFindings:
    """Everything that a suite's report says, as data."""

    headlines: tuple[Headline, ...]
    summary: tuple[Block, ...]
    sections: tuple[Section, ...]
    paper_claims: tuple[ClaimCheck, ...] = ()

    @property
    def blocks(self) -> list[Block]:
        """Those of the summary and of all sections."""
        return [*self.summary, *(block for section in self.sections for block in section.blocks)]


class SpecReport:
    """A suite's part of a report.

    Args:
        records: of the run.

    Attributes:
        suite: its name.
        title: what the page calls it.
        arms: those with trials, in the order in which all that it says shows them.
        findings: everything that it says.
        aa_ratios: of the figures that decide, A/A arm to reference: one for each cell where both were measured.
    """

    suite: ClassVar[str]
    title: ClassVar[str]
    spec: ClassVar[SuiteSpec]

    def __init__(self, records: SuiteRecords) -> None:
        spec, table = self.spec, records.table
        self.context = context = Context(spec, table, records.arms, records.facts)
        table.read(spec.measures)
        self.arms = tuple(context.arms)
        self.findings = SpecFindings(
            headlines=self.headlines_of(context),
            summary=compose.blocks(context, spec.summary),
            sections=tuple(compose.sections(context)),
            paper_claims=self.hear(context),
        )
        ratios = [
            table.aa_ratio(spec.measure(one.measure), cell)
            for one in spec.agreement
            for cell in context.where(one.where)
        ]
        self.aa_ratios = tuple(one for one in ratios if one is not None and one.point is not None)

    def headlines_of(self, context: Context) -> tuple[Headline, ...]:
        """One sentence for each arm, as the declaration has it."""
        return compose.headlines(context)

    def hear(self, context: Context) -> tuple[ClaimCheck, ...]:
        """Every conclusion of the suite's paper, on the paper's figures and on the run's; none without a paper."""
        return ()

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """One sentence for each arm of the plan but the A/A arm, the reference first."""
        return self.findings.headlines

    @property
    def claims(self) -> tuple[ClaimCheck, ...]:
        """Every conclusion of the suite's paper, and what this run says of it; empty where it has no paper."""
        return self.findings.paper_claims

    @property
    def estimates(self) -> Iterable[Estimate]:
        """The figures that decide, whose confidence a reader must know."""
        return (one.estimate for one in values_of(self.findings.summary) if isinstance(one, Value))

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        """What a cell is called in the list of trials: ``Timer cost: rdtsc · idle``."""
        spec = self.context.spec
        return f"{spec.prefix}{spec.cell_name(Cell(spec.name, probe, tuple(factors.items())))}"

    def page(self, frame: PageFrame) -> SuitePage:
        """Its parts of the page."""
        made = [PageSection(one.anchor, one.title, self._section(one, frame)) for one in self.findings.sections]
        return SuitePage(self._blocks("summary", self.findings.summary, frame), tuple(made), self.context.spec.glossary)

    def print(self, console: Console) -> None:
        """Its figures in the terminal, below the headlines."""
        print_blocks(self.findings, {arm.name: arm for arm in self.arms}, console)

    def _section(self, section: Section, frame: PageFrame) -> Markup:
        body = self._blocks(section.anchor, section.blocks, frame)
        title = escape(f"{self.title}: {section.title[:1].lower()}{section.title[1:]}")
        if section.folded:
            count = Markup(' <span class="count">({})</span>').format(_counted(section.blocks))
            return Markup("<details><summary><h2>{}</h2>{}</summary>{}</details>").format(title, count, body)
        return Markup("<h2>{}</h2>{}").format(title, body)

    def _blocks(self, anchor: str, blocks: tuple[Block, ...], frame: PageFrame) -> Markup:
        drawn = {}
        for place, block in enumerate(blocks):
            if isinstance(block, Chart):
                figure, data = figure_of(block, f"{self.suite}-{anchor}-{place}", frame.arms)
                drawn[place] = frame.draw([figure], data, self.arms)
        return frame.render("blocks.html", blocks=blocks, drawn=drawn)


def _counted(blocks: Iterable[Block]) -> str:
    """How much a fold holds: ``18 charts, 36 rows``."""
    charts = sum(len(one.panels) for one in blocks if isinstance(one, Chart))
    rows = sum(len(one.rows) for one in blocks if isinstance(one, Table))
    texts = sum(len(one.paragraphs) for one in blocks if isinstance(one, Text)) if not charts and not rows else 0
    parts = ((charts, "chart"), (rows, "row"), (texts, "note"))
    return ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in parts if number)
