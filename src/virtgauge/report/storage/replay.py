"""The paper's Tables IV and V and this run's figures beside them, with what explains each and their difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.storage.limits import Limit, flush_limit_per_s
from virtgauge.measures.quantities import significant
from virtgauge.report.storage.model import Cell, Key, PaperCell, ReplayedCell, Series
from virtgauge.report.storage.paper_cells import Places, paper_cells
from virtgauge.report.storage.vocabulary import PAPER_LEVELS, database_title, rate

_PAPER_DISK = "rotational:7200"
_LIKE = 1.25
"""Rates within this factor of each other are called the same (ours)."""
_PER_TURN = 20.0
"""Single writes that one turn of the disk may bring, up to which a flushing database's figure is set against it."""


def replay(places: Places, cells: Sequence[Cell], nominal: float) -> tuple[ReplayedCell, ...]:
    """All 48 cells, in the paper's order; those without a figure of ours say why."""
    by_key = {cell.key: cell for cell in cells}
    return tuple(_replayed(places, by_key, cell, nominal) for cell in paper_cells())


def _replayed(places: Places, cells: dict[Key, Cell], paper: PaperCell, nominal: float) -> ReplayedCell:
    stand, key = places.stands.get(paper.server), places.key(paper)
    if stand is None or key is None:
        missing = Estimate.missing("", "")
        why = _why_none(places, cells, paper)
        return ReplayedCell(paper, None, None, missing, missing, "", (why, *_of_the_paper(paper)))
    series = cells[key].of(stand.arm.name)
    assert series is not None  # the key was chosen for having rates of this arm
    found = median_estimate(list(places.rates(paper).values()), key.unit, nominal)
    ratio = found.mapped(lambda per_s: per_s / paper.per_s, "ratio")
    limit = series.explanation.limit.value if series.explanation else ""
    said = [*series.reasons, *_of_the_paper(paper), *_difference(paper, key, series, ratio, stand.why)]
    return ReplayedCell(paper, stand.arm.name, key, found, ratio, limit, tuple(said))


def _why_none(places: Places, cells: dict[Key, Cell], paper: PaperCell) -> str:
    if paper.server not in places.stands:
        return "This run has no platform beside the reference."
    if paper.many_clients and places.many is None:
        return "This run has one client only."
    level = PAPER_LEVELS[paper.database]
    arm = places.stands[paper.server].arm.name
    for cell in cells.values():
        series = cell.of(arm)
        meant = (database_title(cell.key.database), cell.key.operation) == (paper.database, paper.name)
        if meant and cell.key.durability == level and series is not None and series.missing:
            return f"No valid figure: {series.missing.rstrip('.')}."
    at = f" at the paper’s level ({level})" if paper.operation == "write" else ""
    return f"Not measured: {paper.database}{at}."


def _of_the_paper(paper: PaperCell) -> Iterator[str]:
    """What the paper's own figure says, from its disk's turns and its kind of acknowledgement."""
    if paper.operation == "read":
        return
    level = PAPER_LEVELS[paper.database]
    if level == "flushed":
        turns = flush_limit_per_s(_PAPER_DISK, None)
        assert turns is not None
        per_turn = paper.per_s / paper.values / turns
        told = f"The paper’s {rate(paper.per_s)} are {significant(per_turn)} statements to a turn of its 7200 rpm disk"
        if paper.server == "virtual" and not paper.many_clients and per_turn > _LIKE:
            told += ", more than one client can have flushed: its virtual machine acknowledged flushes early"
        elif not paper.many_clients and per_turn > 1 / _LIKE:
            told += ": it waited for one each time"
        elif paper.many_clients and _LIKE < per_turn < _PER_TURN:
            told += ": group commit"
        yield f"{told}."
    elif level == "none":
        yield "The paper’s is of sending as well: its client did not wait for an answer."


def _difference(paper: PaperCell, key: Key, series: Series, ratio: Estimate, stand: str) -> Iterator[str]:
    """Why ours differs from the paper's, or not."""
    if ratio.point is None:
        return
    same = 1 / _LIKE <= ratio.point <= _LIKE
    limit = series.explanation.limit if series.explanation else None
    if same and limit is Limit.FLUSHES:
        yield "The limit is the device’s, so the rate is the same on any hardware."
    elif same:
        yield "About the paper’s figure."
    elif stand:
        yield f"This run’s is {stand}, so its factor says little of virtual machines."
    elif limit is Limit.FLUSHES and key.flushes != _PAPER_DISK and paper.server == "physical":
        yield f"Another device than the paper’s makes the factor of {significant(ratio.point)}."
    else:
        yield (
            f"What remains, a factor of {significant(ratio.point)}, is the hardware and software of 2012 against this "
            "machine’s."
        )
