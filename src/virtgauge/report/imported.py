"""The part of a report that is about imported trials: each platform in one sentence, beside the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.headline import Headline, Measured, Said, Tone, compared, tone_of
from virtgauge.report.spec_report import SpecReport
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import ratio_with_interval
from virtgauge.results.measure import Better
from virtgauge.specs.blocks import Value, values_of
from virtgauge.specs.context import Context
from virtgauge.specs.imported import IMPORTED, levels_in_words, shown_measures

_MOST_FIGURES = 3


class ImportedReport(SpecReport):
    """What other tools measured, beside the reference."""

    suite: ClassVar[str] = IMPORTED.name
    title: ClassVar[str] = IMPORTED.title
    spec = IMPORTED

    def headlines_of(self, context: Context) -> tuple[Headline, ...]:
        return headline.headlines(context.all_arms, lambda arm, against: _said(context, arm, against))

    @property
    def estimates(self) -> Iterable[Estimate]:
        names = {one.name for one in self.spec.measures if one.headline}
        told = values_of(self.findings.blocks)
        return (one.estimate for one in told if isinstance(one, Value) and one.measure in names)

    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        return f"{probe}: {levels_in_words(Cell(self.suite, probe, tuple(factors.items())))}"


def _said(context: Context, arm: ArmRecord, against: str) -> Said:
    table = context.table
    own = [
        (cell, measure)
        for cell in context.cells
        for measure in shown_measures(context)
        if measure.headline and table.has(measure, cell, arm.name)
    ]
    if not own:
        tried = [cell for cell in context.cells if table.tried(cell, arm.name)]
        return Said(table.ending(tried[-1], arm.name) if tried else "nothing was imported", Tone.MISSING)
    beside = [
        table.compared(measure, cell, arm.name)
        if arm.role != "reference" and table.has(measure, cell, table.reference)
        else None
        for cell, measure in own
    ]
    points = [measure.quantity.text(table.estimate(measure, cell, arm.name).point) for cell, measure in own]
    parts, name = [], f" {against}"
    for (cell, measure), point, change in list(zip(own, points, beside, strict=True))[:_MOST_FIGURES]:
        told = ""
        if against and change is not None:
            told = f", {compared(change, name)}"
            name = ""  # once is enough
        parts.append(f"{measure.name} {point} ({levels_in_words(cell)}{told})")
    more = len(own) - _MOST_FIGURES
    if more > 0:
        parts.append(f"{more} more figure{'s' * (more > 1)} below")
    tones = {
        tone_of([change], better=Judgement.LOWER if measure.better is Better.LOWER else Judgement.HIGHER)
        for (_, measure), change in zip(own, beside, strict=True)
    }
    tone = next((one for one in (Tone.SLOWER, Tone.FASTER) if one in tones), Tone.SAME)
    measured = (_measured(*one) for one in zip((measure.name for _, measure in own), points, beside, strict=True))
    return Said("; ".join(parts), tone, headline.figures(measured))


def _measured(name: str, point: str, beside: Comparison | None) -> Measured:
    """``completion.p99 1.20 ms``, ``completion.p99 1.31× (1.28–1.35×)``."""
    return Measured(name, point, beside, lambda: ratio_with_interval(beside.ratio) if beside else "")
