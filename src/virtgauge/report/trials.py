"""The list of a run's trials: made of columns, a line when it is asked for; and trials and facts as rows of a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from virtgauge.ledger.records import TrialStatus
from virtgauge.results.columns import STATUSES
from virtgauge.results.table import ResultTable

if TYPE_CHECKING:
    from virtgauge.report.model import Report


class TrialLine(NamedTuple):
    """One attempt at one trial, valid or not."""

    trial_id: int
    cell: int  # index in :attr:`virtgauge.report.model.Report.cells`
    arm: str
    block: int
    attempt: int
    status: str
    flags: tuple[str, ...]  # ``name: detail``, fatal ones first
    error: str | None
    samples: int | None
    median_ns: float | None  # of this trial alone; None when it brought no histogram
    # CPU time of neither guest nor controller as a share of the machine's, where it was accounted
    foreign_share: float | None


class TrialLines:
    """Every trial of a table, which is not needed afterwards, in the order of the ledger."""

    def __init__(self, table: ResultTable) -> None:
        self._trials = table.trials
        self._ways = table.ways()
        self._endings = table.endings.by_number

    def __len__(self) -> int:
        return self._trials.number.size

    def __iter__(self) -> Iterator[TrialLine]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> TrialLine:
        trials = self._trials
        columns = (trials.number, trials.cell, trials.arm, trials.block, trials.attempt, trials.status)
        number, cell, arm, block, attempt, status = (int(column[place]) for column in columns)
        flags, error = self._endings.get(number, ((), None))
        share, samples, median = (None if np.isnan(way[place]) else float(way[place]) for way in self._ways)
        told = tuple(f"{flag.name}: {flag.detail}" for flag in sorted(flags, key=lambda flag: not flag.fatal))
        of = (number, cell, trials.arms[arm], block, attempt, STATUSES[status].value)
        return TrialLine(*of, told, error, None if samples is None else int(samples), median, share)

    def sums(self) -> Iterator[tuple[int, str, int, int, int]]:
        """Of each cell, by its place, and arm how many there are, how many are valid, and their samples."""
        trials, samples = self._trials, self._ways[1]
        for (place, cell), arm in itertools.product(enumerate(trials.cells), trials.arms):
            if (rows := trials.tried_at(cell, arm)).size:
                valid = trials.statuses(rows).get(TrialStatus.VALID.value, 0)
                yield place, arm, rows.size, valid, int(np.nansum(samples[rows]))

    def invalid(self) -> Iterator[TrialLine]:
        """The trials that do not count."""
        places = np.flatnonzero(self._trials.status != STATUSES.index(TrialStatus.VALID))
        return (self[place] for place in places.tolist())


MOST_INVALID_TRIALS = 200  # Of those that do not count, so many stand in the page's markup; its table of trials has all
MOST_TRIALS = 10_000  # Of more, the page sums up what every platform did of each cell; an export has all


def trial_columns(report: Report) -> dict[str, Any]:
    """All trials by columns; repeated texts once, referred to by number."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    rows = [
        (
            *(trial.trial_id, number(report.cell_names[trial.cell]), number(trial.arm), trial.block, trial.attempt),
            *(number(trial.status), trial.samples),
            None if trial.median_ns is None else float(f"{trial.median_ns:.4g}"),
            None if trial.foreign_share is None else round(trial.foreign_share, 4),
            number(note_of(trial)),
        )
        for trial in report.trials
    ]
    names = ("id", "what", "arm", "block", "attempt", "status", "samples", "median", "foreign", "note")
    return {"texts": list(texts), "columns": {name: [row[at] for row in rows] for at, name in enumerate(names)}}


def note_of(trial: TrialLine) -> str:
    """Error and flags of a trial in one line."""
    return "; ".join([*([trial.error] if trial.error else []), *trial.flags])


def flattened(facts: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as rows ``cpu model → …``; what is unknown is left out."""
    if isinstance(facts, Mapping):
        return [row for key, inner in facts.items() for row in flattened(inner, f"{prefix} {key}".strip())]
    if isinstance(facts, list | tuple):
        if any(isinstance(inner, Mapping | list | tuple) for inner in facts):
            return [row for place, inner in enumerate(facts) for row in flattened(inner, f"{prefix} {place}")]
        return [(prefix, " ".join(map(str, facts)))]
    if isinstance(facts, bool):
        return [(prefix, "yes" if facts else "no")]
    return [] if facts is None else [(prefix, str(facts))]
