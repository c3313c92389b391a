"""What the report says of imported trials, as data: figures in the base unit of their measure."""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.headline import Headline


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's figure.

    Attributes:
        arm: its name.
        estimate: over the repetitions; its method says why where there is none.
        comparison: with the reference; None of the reference itself and where it has no figure.
    """

    arm: str
    estimate: Estimate
    comparison: Comparison | None


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measure in one cell, on every arm that was tried there.

    Attributes:
        probe: the tool.
        factors: as the tool's output and whoever imported it named them.
        measure: of :data:`virtgauge.measures.catalogue.MEASURES`, within the suite ``imported``.
        meaning: in a clause.
        unit: the base unit.
        better: ``lower`` or ``higher``.
        headline: whether it is among the few by which a tool's results are judged.
    """

    probe: str
    factors: dict[str, str]
    measure: str
    meaning: str
    unit: str
    better: str
    headline: bool
    series: tuple[Series, ...]

    @property
    def cell(self) -> str:
        """The levels in words: ``rw randread, bs 4k``."""
        return ", ".join(f"{factor} {level}" for factor, level in self.factors.items())

    def of(self, arm: str) -> Series | None:
        """An arm's figure; None where it was not tried."""
        return next((series for series in self.series if series.arm == arm), None)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where an arm's trials come from."""

    arm: str
    tool: str
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ImportedFindings:
    """Everything that is said of imported trials."""

    headlines: tuple[Headline, ...]
    figures: tuple[Figure, ...]
    origins: tuple[Origin, ...]
