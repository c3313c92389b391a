"""The account from outside as rows: CPU time received, entitled to and seen, throttling, stolen time, I/O wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.measures.quantities import significant
from virtgauge.report.isolation.model import Cell, IsolationFindings, Series
from virtgauge.report.isolation.tables import title_of
from virtgauge.report.words import NONE, share

_STEADY = 0.03
"""A frequency that changed by less did not change."""


@dataclasses.dataclass(frozen=True)
class AccountRow:
    """One platform in one cell; ``first`` marks the first of a cell."""

    first: bool
    cell: Cell
    arm: ArmRecord
    series: Series

    @property
    def blind(self) -> int:
        """Trials whose guest was stopped and saw nothing of it."""
        return self.series.flags.get("guest-blind", 0)

    @property
    def frequency_changed(self) -> bool:
        """Whether the core's frequency changed during the trials."""
        ratio = self.series.frequency_ratio.point
        return ratio is not None and abs(ratio - 1) > _STEADY


@dataclasses.dataclass(frozen=True)
class AccountTable:
    """Every cell of one benchmark on one number of cores."""

    title: str
    rows: tuple[AccountRow, ...]


def account_tables(found: IsolationFindings, arms: Sequence[ArmRecord]) -> list[AccountTable]:
    """Every cell whose CPU time was counted, by benchmark and cores."""
    told = [arm for arm in arms if arm.role != "aa"]
    groups: dict[str, list[AccountRow]] = {}
    for cell in found.cells:
        own = [(arm, series) for arm in told if (series := cell.of(arm.name)) is not None and _counted(series)]
        rows = [AccountRow(number == 0, cell, arm, series) for number, (arm, series) in enumerate(own)]
        groups.setdefault(title_of(cell.key), []).extend(rows)
    return [AccountTable(title, tuple(rows)) for title, rows in groups.items() if rows]


def _counted(series: Series) -> bool:
    return series.missing is None and series.received_cpus.point is not None


def cpus(estimate: Estimate) -> str:
    """``0.498``; a dash when missing."""
    return NONE if estimate.point is None else significant(estimate.point)


def part(estimate: Estimate) -> str:
    """``12.3 %``; a dash when missing."""
    return share(estimate.point)


def blind_words(found: IsolationFindings, arms: Sequence[ArmRecord]) -> list[tuple[ArmRecord, int]]:
    """Platforms whose guests were stopped and saw nothing of it, with the number of trials."""
    counts = [(arm, found.flags.get(arm.name, {}).get("guest-blind", 0)) for arm in arms]
    return [(arm, number) for arm, number in counts if number]
