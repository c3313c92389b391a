"""Figures of a report that is made of blocks, by what they are of."""

from __future__ import annotations

from virtgauge.report import Report
from virtgauge.specs.blocks import Finding, Table, Value, values_of


def shown(built: Report, suite: str, measure: str, arm: str, *levels: str) -> list[Value | Finding]:
    """Every figure of a measure on an arm in cells with these levels, each once."""
    found = {
        one.place.cell: one
        for one in values_of(built.suite(suite).blocks)
        if (one.measure, one.place.arm) == (measure, arm) and set(levels) <= set(one.place.cell.split(";"))
    }
    return list(found.values())


def value(built: Report, suite: str, measure: str, arm: str, *levels: str) -> Value:
    """The one figure of a measure on an arm in the one cell with these levels."""
    (one,) = shown(built, suite, measure, arm, *levels)
    assert isinstance(one, Value)
    return one


def told(built: Report, suite: str, measure: str, arm: str, *levels: str) -> Finding:
    """The one finding that is no figure."""
    (one,) = shown(built, suite, measure, arm, *levels)
    assert isinstance(one, Finding)
    return one


def tables(built: Report, suite: str, anchor: str) -> list[Table]:
    """The tables of a section."""
    found = built.suite(suite)
    blocks = next((one.blocks for one in found.sections if one.anchor == anchor), ())
    return [one for one in blocks if isinstance(one, Table)]
