"""What a run says of each measure in each cell on each arm: the figures that formats of results, not trials, take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.errors import UsageError
from virtgauge.ledger.records import ArmRecord, Manifest
from virtgauge.measures.catalogue import MEASURES, find_measure, headline_measures
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measure of one arm in one cell.

    Attributes:
        values: one a repetition, by ascending block, in the measure's base unit.
        estimate: the median over the repetitions.
    """

    measure: Measure
    probe: str
    factors: dict[str, str]
    arm: ArmRecord
    values: tuple[float, ...]
    estimate: Estimate

    @property
    def cell(self) -> str:
        """The cell in words: ``timer_cost function=rdtsc load=idle``."""
        return " ".join([self.probe, *(f"{factor}={level}" for factor, level in self.factors.items())])


@dataclasses.dataclass(frozen=True)
class RunFigures:
    """A run's figures, cell by cell, the arms within a cell in the plan's order."""

    manifest: Manifest
    figures: tuple[Figure, ...]


def chosen_measures(names: Sequence[str], *, headline: bool) -> list[Measure]:
    """The measures of these full names (``timing.sleep_lateness.p99``).

    Args:
        names: none: all measures, or the headline ones.
        headline: whether only these by default.

    Raises:
        UsageError: there is no such measure.
    """
    if not names:
        return headline_measures() if headline else [one for named in MEASURES.values() for one in named.values()]
    found = []
    for name in names:
        suite, dot, rest = name.partition(".")
        if not dot or suite not in MEASURES:
            raise UsageError(
                f"--measure {name}: it does not begin with a suite and a dot",
                "`virtgauge measures` lists suites and measures; write timing.sleep_lateness.p99",
            )
        found.append(find_measure(suite, rest))
    return found


def read_figures(table: ResultTable, measures: Sequence[Measure]) -> RunFigures:
    """The estimates of these measures.

    Args:
        table: of a run, also of one in progress.
        measures: which.
    """
    wanted = [one for one in measures if one.suite in table.suites]
    table.read(wanted)
    figures = [
        Figure(measure, cell.probe, cell.factors, arm, tuple(values.values()), table.estimate(measure, cell, arm.name))
        for measure in wanted
        for cell in table.cells(measure.suite)
        for arm in table.arms
        if (values := table.values(measure, cell, arm.name))
    ]
    return RunFigures(table.manifest, tuple(figures))
