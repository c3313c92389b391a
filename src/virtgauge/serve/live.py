"""A run as it happens: read from its ledger, only what is new, and only when something was written."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from virtgauge.errors import VirtgaugeError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import EventRecord, GuestRecord, Manifest, TrialRecord
from virtgauge.serve.figures import FigureTable, RunningFigures
from virtgauge.serve.formatting import duration_text, instant, moment, plain
from virtgauge.serve.found import FoundRun, Stamp, same_ledger
from virtgauge.serve.overview import Overview, Overviews, State
from virtgauge.serve.tally import Tally

_EVENTS = 8
_GENTLY = 100
"""Trials whose figures are taken in at one look while a run is under way: hundredths of a second of a processor."""


@dataclasses.dataclass(frozen=True)
class InvalidTrial:
    """A trial that does not count, and why."""

    ended: str
    arm: str
    what: str
    repetition: int
    attempt: int
    status: str
    reason: str


@dataclasses.dataclass(frozen=True)
class PlatformLine:
    """An arm of the plan: what it is, or why it could not be used."""

    label: str
    kind: str
    notes: tuple[str, ...]
    reason: str
    fix: str


@dataclasses.dataclass(frozen=True)
class LiveRun:
    """What the page of a run shows.

    Attributes:
        overview: as in the list.
        now: what is under way as far as the ledger says: the last guest that was started; empty of an ended run.
        last: the last trial that ended.
        remaining: expected time to the end; empty where it is not known.
        platforms: of the plan.
        figures: the running medians.
        taken: up to which trial they are; while a run is under way, those of a long one are read little by little.
        invalid: the last trials that do not count, the newest first.
        course: the last events, the newest first: moment, kind and detail.
        problem: why there is nothing more; empty when all is well.
    """

    overview: Overview
    now: str = ""
    last: str = ""
    remaining: str = ""
    platforms: tuple[PlatformLine, ...] = ()
    figures: tuple[FigureTable, ...] = ()
    taken: int = 0
    invalid: tuple[InvalidTrial, ...] = ()
    course: tuple[tuple[str, str, str], ...] = ()
    problem: str = ""


class RunWatch:
    """Follows one run.

    Args:
        run: as it was found.
        overviews: where its line of the list is kept.
    """

    def __init__(self, run: FoundRun, overviews: Overviews) -> None:
        self._run, self._overviews = run, overviews
        self._seen: LiveRun | None = None
        self._stamp: Stamp = ()
        self._restart()

    def _restart(self) -> None:
        self._newest = 0
        self._figures: RunningFigures | None = None

    def look(self) -> LiveRun:
        """What is known by now; reads nothing when nothing was written since the last look."""
        stamp = self._run.stamp()
        overview = self._overviews.of(self._run)
        behind = overview.tally is not None and self._newest < overview.tally.newest
        if self._seen is not None and stamp == self._stamp and not (behind and not self._seen.problem):
            if overview != self._seen.overview:
                self._seen = dataclasses.replace(self._seen, overview=overview)
            return self._seen
        if not same_ledger(self._stamp, stamp):
            self._restart()
        self._stamp = stamp
        self._seen = self._read(overview)
        return self._seen

    def _read(self, overview: Overview) -> LiveRun:
        if overview.state is State.UNREADABLE:
            return LiveRun(overview, problem=overview.problem)
        try:
            with ReadOnlyLedger.open(self._run.folder) as ledger:
                return self._read_ledger(overview, ledger)
        except VirtgaugeError as error:
            problem = error.message
        except Exception as error:  # the file may be anything; the page says what is wrong with it
            problem = f"its ledger cannot be read: {type(error).__name__}: {error}"
        self._restart()
        return LiveRun(overview, problem=plain(problem))

    def _read_ledger(self, overview: Overview, ledger: ReadOnlyLedger) -> LiveRun:
        manifest, events = ledger.manifest(), ledger.events()
        tally = overview.tally or Tally()
        labels = {arm.name: plain(arm.label) for arm in manifest.arms}
        trials = ledger.trials(self._newest, _GENTLY if self._overviews.measuring else -1)
        if self._figures is None:
            self._figures = RunningFigures(overview.confidence)
        self._figures.add(ledger, trials)
        self._newest = trials[-1].trial_id if trials else self._newest
        last = ledger.trial(tally.newest) if tally.newest else None
        running = overview.state is State.RUNNING
        arms = [arm for arm in manifest.arms if arm.usable]
        return LiveRun(
            overview=overview,
            now=_now(ledger.last_guest(), labels, overview) if running else "",
            last=_trial_words(last, labels) if last else "",
            remaining=_remaining(overview, tally, events) if running else "",
            platforms=_platforms(manifest),
            figures=self._figures.tables(arms),
            taken=self._newest,
            invalid=tuple(_invalid(ledger.trial(number), labels) for number in reversed(tally.invalid)),
            course=tuple(
                (moment(event.at), plain(event.kind, 40), plain(event.detail)) for event in reversed(events[-_EVENTS:])
            ),
        )


def _invalid(trial: TrialRecord, labels: dict[str, str]) -> InvalidTrial:
    reason = trial.error or next((f"{flag.name}: {flag.detail}" for flag in trial.flags if flag.fatal), "")
    return InvalidTrial(
        ended=moment(_end(trial) or trial.started_at),
        arm=labels.get(trial.arm, plain(trial.arm)),
        what=_what(trial),
        repetition=trial.block + 1,
        attempt=trial.attempt,
        status=plain(trial.status.value),
        reason=plain(reason),
    )


def _remaining(overview: Overview, tally: Tally, events: Sequence[EventRecord]) -> str:
    """From the pace since the run began or went on, once that was a whole repetition of every arm at least."""
    began = next((event.at for event in reversed(events) if event.kind in ("started", "resumed")), None)
    if began is None or not overview.scheduled:
        return ""
    since = instant(began)
    starts = [start for start in map(instant, tally.begun) if start >= since]
    if len(starts) < 2:
        return ""
    # Whole repetitions are alike; within one, arms and cells take their own times.
    per_block_s = (starts[-1] - starts[0]).total_seconds() / (len(starts) - 1)
    trials_per_block = overview.scheduled / max(overview.repetitions or 1, tally.blocks)
    left_s = (overview.scheduled - tally.settled) / trials_per_block * per_block_s
    return f"about {duration_text(left_s)}" if left_s > 0 else ""


def _end(trial: TrialRecord) -> datetime.datetime | None:
    try:
        return instant(trial.started_at) + datetime.timedelta(microseconds=trial.elapsed_ns / 1000)
    except (ValueError, OverflowError):
        return None


def _what(trial: TrialRecord) -> str:
    levels = ", ".join(f"{factor} {level}" for factor, level in trial.factors.items())
    return plain(f"{trial.suite} {trial.probe}: {levels}")


def _trial_words(trial: TrialRecord, labels: dict[str, str]) -> str:
    arm = labels.get(trial.arm, plain(trial.arm))
    return f"{moment(_end(trial) or trial.started_at)}: {arm}, repetition {trial.block + 1}, {_what(trial)}"


def _now(guest: GuestRecord | None, labels: dict[str, str], overview: Overview) -> str:
    """The trial under way is not in the ledger; the guest that it is made on is."""
    if guest is None:
        return "the first guest is being started"
    of = f" of {overview.repetitions}" if overview.repetitions and guest.block < overview.repetitions else ""
    what = "did not come up" if guest.error is not None else "measuring"
    return (
        f"{labels.get(guest.arm, plain(guest.arm))}, repetition {guest.block + 1}{of}: {what}; "
        f"guest started at {moment(guest.launched_at)} UTC"
    )


def _platforms(manifest: Manifest) -> tuple[PlatformLine, ...]:
    lines = []
    for arm in manifest.arms:
        notes = [word for word, holds in (("reference", arm.role == "reference"), ("emulated", arm.emulated)) if holds]
        lines.append(
            PlatformLine(
                label=plain(arm.label),
                kind=plain(arm.kind),
                notes=tuple(notes),
                reason="" if arm.usable else plain(arm.reason),
                fix="" if arm.usable else plain(arm.fix or ""),
            )
        )
    return tuple(lines)
