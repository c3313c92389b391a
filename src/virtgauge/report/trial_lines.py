"""The list of a run's trials: made of columns, a line when it is asked for, whatever their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np

from virtgauge.ledger.records import TrialStatus
from virtgauge.results.columns import STATUSES
from virtgauge.results.table import ResultTable


class TrialLine(NamedTuple):
    """One attempt at one trial, valid or not.

    Attributes:
        cell: index in :attr:`virtgauge.report.model.Report.cells`.
        flags: ``name: detail``, fatal ones first.
        median_ns: of this trial alone; None when it brought no histogram.
        foreign_share: CPU time of neither guest nor controller as a share of the machine's, where it was accounted.
    """

    trial_id: int
    cell: int
    arm: str
    block: int
    attempt: int
    status: str
    flags: tuple[str, ...]
    error: str | None
    samples: int | None
    median_ns: float | None
    foreign_share: float | None


class TrialSum(NamedTuple):
    """The attempts of one arm at the trials of one cell: how many, how many are valid, and their samples."""

    cell: int
    arm: str
    trials: int
    valid: int
    samples: int


class TrialLines(Sequence[TrialLine]):
    """Every trial, in the order of the ledger.

    Args:
        table: of the run's figures; it is not needed afterwards.
    """

    def __init__(self, table: ResultTable) -> None:
        self._trials = table.trials
        self._ways = np.array(list(table.ways()), dtype=np.float64).reshape(-1, 3)
        self._endings = table.endings

    def __len__(self) -> int:
        return self._trials.number.size

    @overload
    def __getitem__(self, place: int) -> TrialLine: ...
    @overload
    def __getitem__(self, place: slice) -> list[TrialLine]: ...
    def __getitem__(self, place: int | slice) -> TrialLine | list[TrialLine]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        trials = self._trials
        number = int(trials.number[place])
        flags, error = self._endings.get(number, ((), None))
        share, samples, median = (None if value != value else value for value in self._ways[place].tolist())
        return TrialLine(
            number,
            int(trials.cell[place]),
            trials.arms[trials.arm[place]],
            int(trials.block[place]),
            int(trials.attempt[place]),
            STATUSES[trials.status[place]].value,
            tuple(f"{flag.name}: {flag.detail}" for flag in sorted(flags, key=lambda flag: not flag.fatal)),
            error,
            None if samples is None else int(samples),
            median,
            share,
        )

    def sums(self) -> Iterator[TrialSum]:
        """All by cell and arm, in the order of the cells."""
        trials = self._trials
        keys, place = np.unique(np.stack((trials.cell, trials.arm), axis=1), axis=0, return_inverse=True)
        place = place.reshape(-1)
        valid = trials.status == STATUSES.index(TrialStatus.VALID)
        weights = (None, valid, np.nan_to_num(self._ways[:, 1]))
        counts = [np.bincount(place, weights=one, minlength=len(keys)).astype(np.int64).tolist() for one in weights]
        for (cell, arm), *told in zip(keys.tolist(), *counts, strict=True):
            yield TrialSum(cell, trials.arms[arm], *told)

    def invalid(self) -> Iterator[TrialLine]:
        """Those that do not count."""
        places = np.flatnonzero(self._trials.status != STATUSES.index(TrialStatus.VALID))
        return (self[place] for place in places.tolist())
