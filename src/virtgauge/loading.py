"""A run in Python: the records of its JSON export (:mod:`virtgauge.exchange.tidy`) as Arrow tables.

Nothing is computed here: a figure is that of the report, and of every other export.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from virtgauge.decisions.decisions import decisions_of
from virtgauge.errors import UsageError, nearest, printable
from virtgauge.exchange import tidy
from virtgauge.exchange.figures import chosen_of
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES

RUNS = Path("runs")  # where `virtgauge run` makes the folders of runs that are given none

# What an estimate says beside the reference, and what it says of the figure itself
_COMPARED = [one.name for one in dataclasses.fields(tidy.Estimate) if one.default is None]
_FIGURE = ["value", "low", "high", "confidence", "n", "method", "at_least"]

_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}  # all else is text


def load(run: str | Path, host: str | None = None) -> Run:
    """Open a run: :func:`virtgauge.load`."""
    folder = Path(run)
    if not folder.exists() and (RUNS / folder).is_dir():
        folder = RUNS / folder
    found = Run(folder, host)
    with found._opened() as table:
        for words in table.ledger.samples_caveats():
            warnings.warn(printable(words), stacklevel=3)  # at the line that called virtgauge.load
    return found


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that was recorded or is in progress; each call reads it as it is then, and leaves nothing open.

    A measure is named in full (``timing.sleep_lateness.p99``), or without its suite where no other suite of the run
    has one of that name. Several may be named; without a name all are meant. Every table is a :class:`pyarrow.Table`,
    of which ``to_pandas()`` makes a DataFrame. Figures are in the measure's base unit, which stands in ``unit``; one
    that is missing is null, never zero, and the row says why.

    Tables of measures have the cell of each row: its number ``cell``, its ``probe``, and a column ``factor.NAME`` for
    each factor of these cells, with the level as text, null in a cell that has no such factor.

    Every method raises UsageError where the run has no such measure or is gone, DamagedError where its ledger is not as
    it was written, and ChangedError where it went on while it was read: then call it again.
    """

    folder: Path
    host: str | None = None  # of a fleet's run, the one host that is looked at

    def measures(self) -> pa.Table:
        """What the trials of the run have: a row for each measure, with ``unit``, ``better`` and ``meaning``."""
        with self._opened() as table:
            return _table(tidy.Measure, map(tidy.Measure.of, _held(table)))

    def arms(self) -> pa.Table:
        """A row for each platform, in the plan's order: its ``role``, and whether it is ``emulated`` or was skipped.

        Columns are those of :class:`virtgauge.exchange.tidy.Arm` without the settings.
        """
        with self._opened() as table:
            return _table(tidy.Arm, tidy.arms(table), ("settings", "in_force"))

    def table(self, *measures: str) -> pa.Table:
        """A row for each trial and measure, valid or not, in the order of the trials.

        Columns are those of :class:`virtgauge.exchange.tidy.Row`, then those of the cell. ``value`` is null where
        ``validity`` is not ``valid``, where a later attempt counts, and where a trial has no such figure; ``reason``
        says which. Rows of the same ``block`` are pairs.
        """
        with self._opened() as table:
            chosen = self._chosen(table, measures)
            return _of_cells(table, chosen, tidy.Row, (row for row in tidy.rows(table, chosen) if row.measure))

    def estimates(self, *measures: str) -> pa.Table:
        """A row for each measure, cell and arm: the median over ``n`` repetitions and its interval.

        Columns are those of :class:`virtgauge.exchange.tidy.Estimate` that are of the figure itself, then those of the
        cell. ``confidence`` (0…1) is the one that the interval ``low`` to ``high`` has; ``method`` says how both
        were found, or why one is missing. The method is that of :mod:`virtgauge.analysis.estimate` (Efron 1979,
        Hesterberg 2015).
        """
        with self._opened() as table:
            chosen = self._chosen(table, measures)
            found = _of_cells(table, chosen, tidy.Estimate, tidy.estimates(table, chosen))
            return found.drop_columns(_COMPARED)

    def comparisons(self, *measures: str) -> pa.Table:
        """A row for each measure and cell and each arm that has a figure there, beside the ``reference``.

        Columns are those of :class:`virtgauge.exchange.tidy.Estimate` that compare, then those of the cell. ``ratio``
        is arm / reference and ``difference`` arm − reference in ``unit``, over the ``pairs`` of the same block, each
        with its interval; ``band`` is the factor by which identical arms (A/A) may seem to differ; ``judgement`` is
        ``higher``, ``lower`` or ``inconclusive``, and ``judgement_reason`` says why; measures that are often zero are
        judged by their difference, to which ``band`` does not belong. The method is that of
        :mod:`virtgauge.analysis.comparison`.
        """
        with self._opened() as table:
            chosen = self._chosen(table, measures)
            compared = (one for one in tidy.estimates(table, chosen) if one.judgement is not None)
            found = _of_cells(table, chosen, tidy.Estimate, compared).drop_columns(_FIGURE)
            return found.append_column("reference", pa.array([table.reference] * found.num_rows, pa.string()))

    def verdicts(self) -> pa.Table:
        """A row for each requirement of the plan and platform, as `virtgauge verdict` decides; none without them.

        Columns are those of :class:`virtgauge.exchange.tidy.Verdict`; ``cell`` is the number of the cell that decides.
        """
        with self._opened() as table:
            return _table(tidy.Verdict, tidy.verdicts(table, decisions_of(table)))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[ResultTable]:
        table = ResultTable.open(self.folder, self.host)
        with table.ledger:
            yield table

    def _chosen(self, table: ResultTable, names: Sequence[str]) -> list[Measure]:
        """The measures of these names, each once, or all; what they need is read."""
        held = _held(table)
        times = Counter(one.name for one in held)
        known = {one.name: one for one in held if times[one.name] == 1} | {one.full_name: one for one in held}
        for name in names:
            if name not in known:
                raise UsageError(
                    f"measure = {name!r}: the run in {self.folder} has no such measure{nearest(name, known)}",
                    "`measures()` lists those that it has, with their suites",
                )
        chosen = {known[name].full_name: known[name] for name in names}
        return chosen_of(table, list(chosen.values()) if names else held)


def _held(table: ResultTable) -> list[Measure]:
    """The measures that any trial of a run may have, in the order of the catalogue."""
    cells = table.trials.cells
    return [one for named in MEASURES.values() for one in named.values() if any(map(one.fits, cells))]


def _fields(record: type, left_out: Collection[str] = ()) -> list[pa.Field]:
    """A column for each field of a record, with its type."""
    found: list[pa.Field] = []
    for name, kind in typing.get_type_hints(record).items():
        if name not in left_out:
            known = (_TYPES[one] for one in (kind, *typing.get_args(kind)) if one in _TYPES)
            found.append(pa.field(name, next(known, pa.string())))
    return found


def _table(record: type, found: Iterable[object], left_out: Collection[str] = ()) -> pa.Table:
    return pa.Table.from_pylist([vars(one) for one in found], schema=pa.schema(_fields(record, left_out)))


def _of_cells(
    table: ResultTable, chosen: Sequence[Measure], record: type, found: Iterable[tidy.Row | tidy.Estimate]
) -> pa.Table:
    """Records of some measures, each with the probe and the levels of its cell."""
    cells = table.trials.cells
    own = [cell for cell in cells if any(cell.suite == one.suite and cell.probe in one.probes for one in chosen)]
    columns = ["probe", *dict.fromkeys(f"factor.{factor}" for cell in own for factor, _ in cell.levels)]
    told = [{"probe": cell.probe} | {f"factor.{factor}": level for factor, level in cell.levels} for cell in cells]
    fields = [*_fields(record), *(pa.field(name, pa.string()) for name in columns)]
    return pa.Table.from_pylist([vars(one) | told[one.cell] for one in found], schema=pa.schema(fields))
