"""The trials of a run as columns, whatever their number: what each is of, and which of them count."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virtgauge.ledger.records import Flag, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.measure import Column

Integers = npt.NDArray[np.int64]
STATUSES = tuple(TrialStatus)
_STATUS_AT = {status.value: place for place, status in enumerate(STATUSES)}
_BETWEEN = "\x1f"  # The parts of what a trial is of: ASCII's separator of units, which names lack and JSON escapes
AT_ONCE = 20_000  # So many rows are read before they are made columns


class Cell(NamedTuple):
    """What trials have in common that differ in arm and repetition only."""

    suite: str
    probe: str
    levels: tuple[tuple[str, str], ...]  # of the factors, in the order of the plan

    @property
    def factors(self) -> dict[str, str]:
        """The level of each factor."""
        return dict(self.levels)

    @property
    def text(self) -> str:
        """The probe and the levels, sorted by factor: ``timer_cost;function=rdtscp;load=idle``."""
        return ";".join([self.probe, *(f"{factor}={level}" for factor, level in sorted(self.levels))])

    def at(self, **levels: str) -> Cell:
        """This cell with other levels."""
        return Cell(self.suite, self.probe, tuple({**self.factors, **levels}.items()))


class Tried(NamedTuple):
    """How one attempt at a trial ended."""

    status: TrialStatus
    flags: tuple[Flag, ...]
    error: str | None


class Account(NamedTuple):
    """What was counted beside trials, each a place of the columns; NaN where it was not."""

    elapsed_ns: Column
    # as in the ledger's ``accounting``
    processors: Column
    steal_ns: Column
    steal_processors: Column  # of how many of them that is
    guest_steal_ns: Column
    foreign_ns: Column
    waited_ns: Column
    kept: Column
    steal_at_most_ns: Column
    left_out: npt.NDArray[np.object_]  # of each trial what was left out; None where that was not counted

    @classmethod
    def read(cls, ledger: Ledger, last: int) -> Account:
        """Of every trial, valid or not, up to the last one, in the order of :class:`Trials`."""
        asked = [f"$.{name}" for name in cls._fields[1:]]
        rows = ledger.rows(
            f"SELECT elapsed_ns, json_extract(accounting{', ?' * len(asked)}) FROM trials "
            "WHERE block BETWEEN ? AND ? AND trial_id <= ? ORDER BY trial_id",
            (*asked, *ledger.blocks, last),
        )
        parts = [cls.of(())]
        for some in chunks(rows):
            told = json.loads(f"[{','.join(text for _, text in some)}]")
            parts.append(cls.of([(elapsed_ns, *one) for (elapsed_ns, _), one in zip(some, told, strict=True)]))
        return cls._make(np.concatenate(column) for column in zip(*parts, strict=True))

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> Account:
        """Of trials as rows of the columns, None where one was not counted."""
        *numbers, left_out = zip(*rows, strict=True) if rows else ((),) * len(cls._fields)
        # An empty list for each of a million trials would take as much as three columns.
        lists = np.fromiter((one if one or one is None else () for one in left_out), dtype=object, count=len(rows))
        made = cls._make([*(np.array(one, dtype=np.float64) for one in numbers), lists])
        own, every = made.steal_processors, made.processors  # of which earlier runs tell alone
        return made._replace(steal_processors=np.where(np.isnan(own), every, own))

    def at(self, places: Integers) -> Account:
        """The account of some of the trials."""
        return Account._make(column[places] for column in self)


@dataclasses.dataclass(frozen=True)
class Trials:
    """Every trial of a run, valid or not, in the order of the ledger; columns of equal length."""

    number: Integers  # of the trial in the ledger
    cell: Integers  # its place in ``cells``
    arm: Integers  # its place in ``arms``
    # block, attempt: as in the ledger
    block: Integers
    attempt: Integers
    status: Integers  # its place in :data:`STATUSES`
    cells: tuple[Cell, ...]  # in the order in which they were first tried
    arms: tuple[str, ...]  # names

    @classmethod
    def read(cls, ledger: Ledger) -> Trials:
        """Read the columns of a ledger; of a host's view, those of its blocks."""
        # What hardly varies between trials comes as one text: five columns of a million rows take longer.
        kind = f" || '{_BETWEEN}' || ".join(("status", "arm", "suite", "probe", "factors"))
        rows = ledger.rows(
            f"SELECT trial_id, block, attempt, {kind} FROM trials WHERE block BETWEEN ? AND ? ORDER BY trial_id",
            ledger.blocks,
        )
        kinds = defaultdict[str, int](itertools.count().__next__)  # places, in the order in which they first came
        parts = [np.empty((4, 0), dtype=np.int64)]
        for some in chunks(rows):
            *numbers, texts = zip(*some, strict=True)
            parts.append(np.array((*numbers, [*map(kinds.__getitem__, texts)]), dtype=np.int64))
        number, block, attempt, places = (np.concatenate(row) for row in zip(*parts, strict=True))
        cells: dict[Cell, int] = {}
        arms: dict[str, int] = {}
        told = []
        for status, arm, suite, probe, factors in (text.split(_BETWEEN, 4) for text in kinds):
            cell = Cell(suite, probe, tuple(json.loads(factors).items()))
            told.append((cells.setdefault(cell, len(cells)), arms.setdefault(arm, len(arms)), _STATUS_AT[status]))
        cell_at, arm_at, status_at = (column[places] for column in np.array(told, dtype=np.int64).reshape(-1, 3).T)
        return cls(number, cell_at, arm_at, block, attempt, status_at, tuple(cells), tuple(arms))

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The numbers of the first and the last trial; 0 without any."""
        return (int(self.number[0]), int(self.number[-1])) if self.number.size else (0, 0)

    @functools.cached_property
    def _place(self) -> Integers:
        return self.cell * len(self.arms) + self.arm

    @functools.cached_property
    def counted(self) -> Integers:
        """Places of the trials that count, the last valid one of each cell, arm and block, in that order."""
        valid = np.flatnonzero(self.status == STATUSES.index(TrialStatus.VALID))
        place, block = self._place[valid], self.block[valid]
        order = np.lexsort((valid, block, place))
        place, block = place[order], block[order]
        last = np.ones(order.size, dtype=bool)
        last[:-1] = (place[1:] != place[:-1]) | (block[1:] != block[:-1])
        return valid[order[last]]

    def statuses(self, wanted: npt.NDArray[np.bool_] | Integers) -> dict[str, int]:
        """How many of some trials ended in each way, by the name of the status."""
        counts = np.bincount(self.status[wanted], minlength=len(STATUSES)).tolist()
        return {status.value: n for status, n in sorted(zip(STATUSES, counts, strict=True)) if n}

    def _slices(self, places: Integers) -> dict[tuple[Cell, str], slice]:
        """The places of each cell and arm, of ascending ones."""
        found, starts = np.unique(places, return_index=True)
        ends = [*starts.tolist(), places.size]
        keys = [(self.cells[place // len(self.arms)], self.arms[place % len(self.arms)]) for place in found.tolist()]
        return {key: slice(*ends[at : at + 2]) for at, key in enumerate(keys)}

    @functools.cached_property
    def _counted_slices(self) -> dict[tuple[Cell, str], slice]:
        return self._slices(self._place[self.counted])

    @functools.cached_property
    def _by_place(self) -> tuple[Integers, dict[tuple[Cell, str], slice]]:
        order = np.argsort(self._place, kind="stable")
        return order, self._slices(self._place[order])

    def counted_at(self, cell: Cell, arm: str) -> slice:
        """Which of :attr:`counted` are an arm's in a cell, by ascending block."""
        return self._counted_slices.get((cell, arm), slice(0, 0))

    def counting_at(self, cell: Cell, arm: str) -> Integers:
        """Places of the trials that count of an arm in a cell, by ascending block."""
        return self.counted[self.counted_at(cell, arm)]

    def tried_at(self, cell: Cell, arm: str) -> Integers:
        """Places of every attempt of an arm in a cell, in the order of the ledger."""
        order, slices = self._by_place
        return order[slices.get((cell, arm), slice(0, 0))]


def chunks(rows: Any) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a cursor, so many at a time."""
    while some := rows.fetchmany(AT_ONCE):
        yield some


class Mark(NamedTuple):
    """What identifies a trial, and when it was: for lists of trials."""

    number: int
    # key, platform, started_at, elapsed_ns: as in the ledger
    key: str
    platform: str
    started_at: str
    elapsed_ns: int


def read_marks(ledger: Ledger) -> Iterator[Mark]:
    """The marks of every trial, in the order of :class:`Trials`."""
    rows = ledger.rows(
        "SELECT trial_id, key, platform, started_at, elapsed_ns FROM trials WHERE block BETWEEN ? AND ? "
        "ORDER BY trial_id",
        ledger.blocks,
    )
    for some in chunks(rows):
        yield from map(Mark._make, some)


def read_results(
    ledger: Ledger, suite: str, probes: Iterable[str], paths: Sequence[tuple[str, ...]]
) -> Iterator[tuple[Sequence[int], Sequence[Sequence[Any]]]]:
    """The numbers of a suite's valid trials, many at once, and of each path what stands there in their results.

    One SELECT reads them all, and no result is decoded beyond what is asked for.
    """
    names = sorted(probes)
    where = (
        f"FROM trials WHERE status = ? AND suite = ? AND probe IN ({','.join('?' * len(names))}) "
        "AND block BETWEEN ? AND ?"
    )
    bound = (TrialStatus.VALID.value, suite, *names, *ledger.blocks)
    # Of two paths or more SQLite makes an array, in which true is not 1.
    asked = ["$" + "".join(f'."{part}"' for part in path) for path in (*paths, *paths[:1])]
    # Python writes NaN into results, which is not JSON for SQLite.
    whole = f"CASE WHEN json_valid(result) THEN json_extract(result{', ?' * len(asked)}) END"
    unread = []
    for some in chunks(ledger.rows(f"SELECT trial_id, {whole} {where}", (*asked, *bound))):
        unread += [number for number, text in some if text is None]
        told = [one for one in some if one[1] is not None]
        if told:
            rows = json.loads(f"[{','.join(text for _, text in told)}]")
            yield [number for number, _ in told], [*zip(*rows, strict=True)][: len(paths)]
    for number in unread:
        result = read_result(ledger, number)
        yield [number], [[_at_path(result, path)] for path in paths]


def read_result(ledger: Ledger, number: int) -> dict[str, Any]:
    """One trial's whole result."""
    ((text,),) = ledger.rows("SELECT result FROM trials WHERE trial_id = ?", (number,))
    result: dict[str, Any] = json.loads(text)
    return result


def _at_path(result: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        result = result.get(part) if isinstance(result, dict) else None
    return result
