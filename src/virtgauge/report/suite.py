"""A suite's part of a report, made of its declaration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from virtgauge.analysis.estimate import Estimate
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.report import compose
from virtgauge.results.columns import Cell
from virtgauge.specs.blocks import Block, Section, Value, values_of
from virtgauge.specs.context import Context
from virtgauge.specs.headline import Headline


@dataclasses.dataclass(frozen=True)
class SuiteReport:
    """Everything that a report says of a suite."""

    context: Context
    headlines: tuple[Headline, ...]  # one sentence for each arm of the plan but the A/A arm, the reference first
    summary: tuple[Block, ...]  # below the headlines
    sections: tuple[Section, ...]
    # every conclusion of the suite's paper, and what this run says of it; empty where it has no paper
    claims: tuple[ClaimCheck, ...]
    # of the figures that decide, A/A arm to reference: one for each cell where both were measured
    aa_ratios: tuple[Estimate, ...]

    @property
    def suite(self) -> str:
        return self.context.spec.name

    @property
    def title(self) -> str:
        return self.context.spec.title

    @property
    def blocks(self) -> list[Block]:
        return [*self.summary, *(block for section in self.sections for block in section.blocks)]

    @property
    def estimates(self) -> Iterable[Estimate]:
        """The figures that decide, whose confidence a reader must know: of the summary, else the headline measures."""
        told = [one for one in values_of(self.summary) if isinstance(one, Value)]
        first = {one.name for one in self.context.spec.measures if one.headline}
        told = told or [one for one in values_of(self.blocks) if isinstance(one, Value) and one.measure in first]
        return (one.estimate for one in told)

    def cell_name(self, cell: Cell) -> str:
        """What a cell is called in the list of trials: ``Timer cost: rdtsc · idle``."""
        return f"{self.context.spec.prefix}{self.context.spec.cell_name(cell)}"


def suite_report(context: Context) -> SuiteReport:
    """What a run says of a suite."""
    spec, table = context.spec, context.table
    table.read(spec.measures)
    ratios = [
        table.aa_ratio(spec.measure(one.measure), cell) for one in spec.agreement for cell in context.where(one.where)
    ]
    summary = compose.blocks(context, spec.summary)
    return SuiteReport(
        context,
        compose.headlines(context),
        summary,
        tuple(compose.sections(context, summary)),
        spec.claims(context),
        tuple(one for one in ratios if one is not None and one.point is not None),
    )
