"""How the trials of a run ended."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from virtgauge.ledger.records import Flag, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import STATUSES, Cell, Integers, Trials, Tried


class Endings:
    """Status, flags and error of every attempt, valid or not, and what of it a cell and an arm have."""

    def __init__(self, ledger: Ledger, trials: Trials) -> None:
        self._ledger = ledger
        self._trials = trials
        self._flagged: dict[tuple[Cell, str, frozenset[str]], list[int]] = {}

    @functools.cached_property
    def by_number(self) -> dict[int, tuple[tuple[Flag, ...], str | None]]:
        """Flags and error of the trials that have any, by number."""
        known: dict[str, tuple[Flag, ...]] = {}
        found = {}
        for number, flags, error in self._ledger.rows(
            "SELECT trial_id, flags, error FROM trials WHERE (flags != '[]' OR error IS NOT NULL) "
            "AND block BETWEEN ? AND ?",
            self._ledger.blocks,
        ):
            if flags not in known:
                known[flags] = tuple(Flag(**flag) for flag in json.loads(flags))
            found[number] = known[flags], error
        return found

    def attempts(self, cell: Cell, arm: str) -> list[Tried]:
        """How every attempt of an arm in a cell ended, in the order of the ledger."""
        return [*self._tried(self._trials.tried_at(cell, arm))]

    def refused(self, cell: Cell, arm: str) -> str | None:
        """The first error of attempts that an arm does not support; None without any."""
        rows = self._trials.tried_at(cell, arm)
        refused = rows[self._trials.status[rows] == STATUSES.index(TrialStatus.UNSUPPORTED)]
        return next((one.error for one in self._tried(refused) if one.error), None)

    def _tried(self, rows: Integers) -> Iterator[Tried]:
        for status, number in zip(self._trials.status[rows].tolist(), self._trials.number[rows].tolist(), strict=True):
            yield Tried(STATUSES[status], *self.by_number.get(number, ((), None)))

    def flags(self, cells: Iterable[Cell], arm: str, *, counted: bool = False) -> dict[str, int]:
        """How many attempts of an arm in some cells, or those that count, have each flag, the most frequent first."""
        trials, counts = self._trials, Counter[str]()
        for cell in cells:
            rows = trials.counting_at(cell, arm) if counted else trials.tried_at(cell, arm)
            for number in trials.number[rows].tolist():
                if number in self.by_number:
                    counts.update(list(dict.fromkeys(flag.name for flag in self.by_number[number][0])))
        return dict(counts.most_common())

    def flagged(self, cell: Cell, arm: str, names: frozenset[str]) -> list[int]:
        """The blocks whose trial that counts has one of these flags."""
        key = cell, arm, names
        if names and key not in self._flagged:
            rows = self._trials.counting_at(cell, arm)
            tried = zip(self._trials.block[rows].tolist(), self._tried(rows), strict=True)
            self._flagged[key] = [at for at, one in tried if not names.isdisjoint(flag.name for flag in one.flags)]
        return self._flagged.get(key, [])

    def statuses(self, arm: str) -> dict[str, int]:
        """How many trials of an arm ended in each way, by the name of the status."""
        if arm not in self._trials.arms:
            return {}
        return self._trials.statuses(self._trials.arm == self._trials.arms.index(arm))

    def failed(self, cell: Cell, arm: str) -> dict[int, str]:
        """The repetitions that were tried, last in vain because they failed, so that none of them counts; and how."""
        trials, rows = self._trials, self._trials.tried_at(cell, arm)
        rows = rows[~np.isin(trials.block[rows], trials.block[trials.counting_at(cell, arm)])]
        last = dict(zip(trials.block[rows].tolist(), rows.tolist(), strict=True))
        ended = STATUSES.index(TrialStatus.FAILED)
        places = {block: at for block, at in last.items() if trials.status[at] == ended}
        tried = self._tried(np.array([*places.values()], dtype=np.int64))
        return dict(zip(places, map(_ended, tried), strict=True))

    def last(self, cell: Cell, arm: str) -> Tried | None:
        """How the last trial of an arm in a cell ended; None where there was none."""
        return next(self._tried(self._trials.tried_at(cell, arm)[-1:]), None)

    def ending(self, cell: Cell, arm: str) -> str:
        """How a trial ended, in words: ``failed: the guest died``."""
        last = self.last(cell, arm)
        return "not tried" if last is None else _ended(last)

    def in_vain(self, cell: Cell, arm: str) -> list[tuple[int, str]]:
        """Block and ending of attempts that were begun and do not count: nobody knows what happened meanwhile."""
        rows = self._trials.tried_at(cell, arm)
        places = zip(self._trials.number[rows].tolist(), self._trials.block[rows].tolist(), strict=True)
        attempts = zip(places, self.attempts(cell, arm), strict=True)
        return [(block, _ended(one)) for (number, block), one in attempts if number in self._begun_in_vain]

    @functools.cached_property
    def _begun_in_vain(self) -> frozenset[int]:
        """Trials, by number, that took time and brought nothing."""
        rows = self._ledger.rows(
            "SELECT trial_id FROM trials WHERE status IN (?, ?) AND elapsed_ns > 0 AND block BETWEEN ? AND ?",
            (TrialStatus.FAILED.value, TrialStatus.INVALID.value, *self._ledger.blocks),
        )
        return frozenset(number for (number,) in rows)


def _ended(last: Tried) -> str:
    reason = last.error or next((f"{flag.name}: {flag.detail}" for flag in last.flags if flag.fatal), "")
    return f"{last.status.value}: {reason}" if reason else last.status.value
