"""Isolation reports of ledgers whose truth is known, and what is looked up in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isolation_results import Design, isolation_arms, isolation_ledger

from virtgauge import report
from virtgauge.report.isolation.model import Cell, Interference, IsolationFindings, ResourceSentence, Series
from virtgauge.report.isolation.vocabulary import Resource

HOST, AA, RUNC, GVISOR, QEMU = isolation_arms()
MEMORY = "memory-write-integer"


def built(folder: Path, *designs: Design, arms: Any = (HOST, AA, RUNC), **fields: Any) -> report.Report:
    """The report of a run in a folder."""
    return report.build(isolation_ledger(folder / "run", list(arms), designs, **fields))


def cell_of(found: IsolationFindings, **levels: Any) -> Cell:
    """The one cell that has these levels."""
    (cell,) = [cell for cell in found.cells if all(getattr(cell.key, name) == at for name, at in levels.items())]
    return cell


def series_of(found: IsolationFindings, arm: str, **levels: Any) -> Series:
    series = cell_of(found, **levels).of(arm)
    assert series is not None
    return series


def interference_of(found: IsolationFindings, arm: str, **levels: Any) -> Interference:
    (one,) = [
        one
        for one in found.interference
        if one.arm == arm and all(getattr(one.key, name) == at for name, at in levels.items())
    ]
    return one


def sentence_of(found: IsolationFindings, arm: str, resource: Resource) -> ResourceSentence:
    return next(one for one in found.sentences if (one.arm, one.resource) == (arm, resource))
