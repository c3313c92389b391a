"""The list of a run's trials, made of columns, a line when it is asked for; and tables of trials and of facts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from virtgauge.ledger.records import TrialStatus, moment
from virtgauge.results.columns import STATUSES
from virtgauge.results.formatting import duration, share
from virtgauge.results.quantities import DURATION
from virtgauge.results.table import ResultTable
from virtgauge.specs.blocks import Block, Column, Place, Row, Text, Value, table_of

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


_MOST_INVALID = 200  # Of those that do not count, so many stand in the page's markup; its list of trials has all
MOST_TRIALS = 10_000  # Of more, the page sums up what every platform did of each cell; an export has all
_LEFT_OUT = "What was left out of trials because of steal or foreign load"
_text = functools.partial(Column, text=True)


def trial_blocks(report: Report) -> Iterator[Block]:
    """How the trials of each platform ended, what was left out of them, and which do not count."""
    statuses, rows = [one.value for one in TrialStatus], []
    for arm in (arm for arm in report.arms if arm.record.usable):
        counts = (*(arm.trials.get(one, 0) for one in statuses), arm.guests, arm.failed_guests)
        ready = Value("ready", Place("run", "*", arm.record.name), arm.ready, DURATION)
        rows.append(Row((), arm.record.name, (*map(str, counts), ready)))
    yield from table_of("", (), (*statuses, "guests", "guests that failed", "ready in"), rows)
    rows = []
    for one in (one for one in report.left_out if one.takes):
        told = (str(one.takes), duration(one.left_out_ns), share(one.share), duration(one.waited_ns))
        rows.append(Row((), one.arm, (*told, duration(one.kept_ns), share(one.steal_at_most))))
    columns = ("takes left out", "time", "of all", "waited", "time that counts", "steal in it, at most")
    yield from table_of(_LEFT_OUT, (), columns, rows, folded=True)
    rows = []
    for line in itertools.islice(report.trials.invalid(), _MOST_INVALID):
        told = (report.cell_names[line.cell], str(line.block), str(line.attempt), line.status)
        rows.append(Row((str(line.trial_id),), line.arm, (*told, note_of(line))))
    number = len(report.trials) - report.valid
    more = f"The first {len(rows)} of {number:,}." if number > len(rows) else ""
    ended = (_text("Measured"), "block", "attempt", _text("status"), _text("why"))
    yield from table_of("Trials that do not count", ("#",), ended, rows, more, folded=True)
    rows = [Row((), guest.arm, (str(guest.block), guest.error)) for guest in report.guests if guest.error]
    yield from table_of("Guests that did not come up", (), ("block", _text("why")), rows)
    if len(report.trials) > MOST_TRIALS:
        sums = report.trials.sums()
        rows = [
            Row((report.cell_names[cell],), arm, tuple(f"{one:,}" for one in numbers)) for cell, arm, *numbers in sums
        ]
        counted = ("trials", "valid", "samples")
        yield from table_of("Trials by what was measured", ("Measured",), counted, rows, folded=True)


def environment_blocks(report: Report) -> Iterator[Block]:
    """Which platforms were skipped, what is known of host and guests, and the course of the run."""
    skipped = [arm.record for arm in report.arms if not arm.record.usable]
    rows = [Row((), arm.name, (arm.reason, arm.fix)) for arm in skipped]
    yield from table_of("Skipped platforms", (), (_text("Why"), _text("What would enable it")), rows)
    if not rows:
        yield Text(("Every platform of the plan was usable.",))
    run, inside = report.run, {f"Inside {one.record.label}": one.facts for one in report.arms if one.facts}
    for title, facts in ({"Host": run.fingerprint} | inside).items():
        rows = [Row((name,), "", (value,)) for name, value in flattened(facts)]
        yield from table_of(title, ("Fact",), (_text("Value"),), rows, folded=True)
    if not run.fingerprint:
        yield Text(("Nothing is recorded of the host.",))
    rows = [Row((moment(event.at), event.kind), "", (event.detail,)) for event in report.events]
    yield from table_of("Course of the run", ("When, UTC", "What"), (_text("More"),), rows, folded=True)


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
