"""A run as it happens: read from its ledger, only what is new, and only when something was written."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

from virtgauge.analysis.estimate import median_estimate
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import ArmRecord, EventRecord, GuestRecord, TrialRecord
from virtgauge.ledger.store import ALL_BLOCKS, Ledger
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable
from virtgauge.serve.overview import Overview, Overviews, State, Tally
from virtgauge.serve.runs import FoundRun, Stamp, instant, plain, read_or_say, same_ledger, utc_time
from virtgauge.specs.blocks import Column, Place, Row, Table, Value
from virtgauge.specs.suites import headline_measures

_EVENTS = 8
_GENTLY = 100  # Trials taken in at one look while a run is under way: hundredths of a second of a processor
_ROWS = 60  # Of one measure on the page; the report has them all


class RunningFigures:
    """Running medians: what the headline measures say so far, per arm and cell, each repetition one value.

    Only the repetitions in which trials ended since the last look are read, so a look at a long run costs no more.
    """

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._blocks: defaultdict[tuple[str, Cell, str], dict[int, float]] = defaultdict(dict)
        self._known: dict[tuple[str, Cell, str], Value] = {}
        self._cells: defaultdict[str, dict[Cell, None]] = defaultdict(dict)

    def add(self, ledger: Ledger, blocks: Sequence[int]) -> None:
        """Take in the repetitions in which trials ended since the last time."""
        if not blocks:
            return
        ledger.blocks = min(blocks), max(blocks)
        table = ResultTable(ledger)
        measures = [measure for measure in headline_measures() if measure.suite in table.suites]
        table.read(measures)
        for measure in measures:
            for cell, arm in itertools.product(table.cells(measure.suite), table.trials.arms):
                if values := table.values(measure, cell, arm):
                    place = measure.full_name, cell, arm
                    self._blocks[place].update(values)
                    self._known.pop(place, None)
                    self._cells[measure.full_name][cell] = None
        ledger.blocks = ALL_BLOCKS

    def tables(self, arms: Sequence[ArmRecord]) -> list[Table]:
        """A table for every measure that has a figure, in the order of the catalogue, with a column for each arm."""
        return [self._table(measure, arms) for measure in headline_measures() if self._cells.get(measure.full_name)]

    def _table(self, measure: Measure, arms: Sequence[ArmRecord]) -> Table:
        cells = list(self._cells[measure.full_name])
        shared = set.intersection(*(set(cell.levels) for cell in cells)) if len(cells) > 1 else set()
        probes = {cell.probe for cell in cells}
        rows = []
        for cell in cells[:_ROWS]:
            levels = [f"{factor} {level}" for factor, level in cell.levels if (factor, level) not in shared]
            named = [cell.probe, *levels] if len(probes) > 1 or not levels else levels
            rows.append(Row((", ".join(named),), "", tuple(self._value(measure, cell, arm.name) for arm in arms)))
        common = ", ".join(f"{factor} {level}" for factor, level in cells[0].levels if (factor, level) in shared)
        further = f"{len(cells) - _ROWS} further cells are in the report" if len(cells) > _ROWS else ""
        told = " · ".join(filter(None, (measure.full_name, measure.better.clause, common, further)))
        columns = tuple(Column(", ".join(filter(None, (arm.label, arm.mark)))) for arm in arms)
        return Table(measure.meaning[:1].upper() + measure.meaning[1:], ("Measured",), columns, tuple(rows), told)

    def _value(self, measure: Measure, cell: Cell, arm: str) -> Value | None:
        place = measure.full_name, cell, arm
        if place not in self._known and (values := self._blocks.get(place)):
            found = median_estimate([*values.values()], measure.quantity.unit, self._confidence)
            self._known[place] = Value(measure.name, Place(measure.suite, cell.text, arm), found, measure.quantity)
        return self._known.get(place)


@dataclasses.dataclass(frozen=True)
class LiveRun:
    """What the page of a run shows."""

    overview: Overview  # as in the list
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the arms, by name
    now: str = ""  # what is under way as far as the ledger says: the last guest that was started; empty of an ended run
    last: TrialRecord | None = None  # the last trial that ended
    remaining: str = ""  # expected time to the end; empty where it is not known
    figures: Sequence[Table] = ()  # the running medians
    # up to which trial they are; while a run is under way, those of a long one are read little by little
    taken: int = 0
    invalid: Sequence[TrialRecord] = ()  # the last trials that do not count, the newest first
    course: Sequence[EventRecord] = ()  # the last events, the newest first
    problem: str = ""  # why there is nothing more; empty when all is well


class RunWatch:
    """Follows one run, whose line of the list ``overviews`` keep."""

    def __init__(self, run: FoundRun, overviews: Overviews) -> None:
        self._run, self._overviews = run, overviews
        self._seen: LiveRun | None = None
        self._stamp: Stamp = ()
        self._figures: RunningFigures | None = None  # None where nothing of the ledger was taken in
        self._newest = 0

    def look(self) -> LiveRun:
        """What is known by now; reads nothing when nothing was written since the last look."""
        stamp = self._run.stamp()
        overview = self._overviews.of(self._run)
        behind = overview.tally is not None and self._newest < overview.tally.newest
        if self._seen is not None and stamp == self._stamp and not (behind and not self._seen.problem):
            self._seen = dataclasses.replace(self._seen, overview=overview)
            return self._seen
        if not same_ledger(self._stamp, stamp):
            self._figures = None
        self._stamp = stamp
        if overview.tally is None:
            self._seen = LiveRun(overview, problem=overview.problem)
            return self._seen
        found = read_or_say(self._run.folder, functools.partial(self._read_ledger, overview, overview.tally))
        if isinstance(found, str):
            self._figures, found = None, LiveRun(overview, problem=found)
        self._seen = found
        return found

    def _read_ledger(self, overview: Overview, tally: Tally, ledger: ReadOnlyLedger) -> LiveRun:
        manifest, events = ledger.manifest(), ledger.events()
        labels = {arm.name: plain(arm.label) for arm in manifest.arms}
        if self._figures is None:
            self._figures, self._newest = RunningFigures(manifest.confidence), 0
        attempts = ledger.attempts(self._newest, _GENTLY if self._overviews.measuring else -1)
        self._figures.add(ledger, [one.block for one in attempts])
        self._newest = attempts[-1].trial_id if attempts else self._newest
        running = overview.state is State.RUNNING
        return LiveRun(
            overview=overview,
            labels=labels,
            now=_now(ledger.last_guest(), labels, overview) if running else "",
            last=ledger.trial(tally.newest) if tally.newest else None,
            remaining=_remaining(overview, tally, events) if running else "",
            figures=self._figures.tables([arm for arm in manifest.arms if arm.usable]),
            taken=self._newest,
            invalid=[ledger.trial(number) for number in reversed(tally.invalid)],
            course=events[: -_EVENTS - 1 : -1],
        )


def _remaining(overview: Overview, tally: Tally, events: Sequence[EventRecord]) -> str:
    """From the pace since the run began or went on, once that was a whole repetition of every arm at least."""
    began = next((event.at for event in reversed(events) if event.kind in ("started", "resumed")), None)
    if began is None or not overview.scheduled:
        return ""
    since = instant(began)
    starts = [start for start in map(instant, tally.begun.values()) if start >= since]
    if len(starts) < 2:
        return ""
    # Whole repetitions are alike; within one, arms and cells take their own times.
    per_block_s = (starts[-1] - starts[0]).total_seconds() / (len(starts) - 1)
    trials_per_block = overview.scheduled / max(overview.repetitions or 1, len(tally.begun))
    left_s = (overview.scheduled - tally.settled) / trials_per_block * per_block_s
    return f"about {_duration_text(left_s)}" if left_s > 0 else ""


def _duration_text(seconds: float) -> str:
    """About how long: ``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{max(round(seconds, -1), 10):.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def ended(trial: TrialRecord) -> str:
    """When a trial ended; where that cannot be told, when it began."""
    try:
        return utc_time(instant(trial.started_at) + datetime.timedelta(microseconds=trial.elapsed_ns / 1000))
    except (ValueError, OverflowError):
        return utc_time(trial.started_at)


def measured(trial: TrialRecord) -> str:
    """What a trial measured: ``timing timer_cost: function rdtsc, load idle``."""
    levels = ", ".join(f"{factor} {level}" for factor, level in trial.factors.items())
    return f"{trial.suite} {trial.probe}: {levels}"


def _now(guest: GuestRecord | None, labels: Mapping[str, str], overview: Overview) -> str:
    """The trial under way is not in the ledger; the guest that it is made on is."""
    if guest is None:
        return "the first guest is being started"
    of = f" of {overview.repetitions}" if overview.repetitions and guest.block < overview.repetitions else ""
    what = "did not come up" if guest.error is not None else "measuring"
    return (
        f"{labels.get(guest.arm, plain(guest.arm))}, repetition {guest.block + 1}{of}: {what}; "
        f"guest started at {utc_time(guest.launched_at)} UTC"
    )
