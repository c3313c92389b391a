"""A run in one line: what it is, how far it is, and whether it goes on."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import tomllib
from collections.abc import Mapping, Sequence

from virtgauge.errors import VirtgaugeError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import SCHEDULED, EventRecord, Manifest
from virtgauge.serve.formatting import moment, plain
from virtgauge.serve.found import Controller, FoundRun, Stamp, controller_of, same_ledger
from virtgauge.serve.tally import Tally, TrialCounter
from virtgauge.serve.verdicts import VerdictBook, VerdictCounts

COURSE = ("started", "resumed", "interrupted", "completed", "ended incomplete")
"""The kinds of events that say where a run stands; the last of them holds."""
_DEFAULT_ATTEMPTS = 3


class State(enum.StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # it went to its end, and some trials could not be made
    INTERRUPTED = "interrupted"
    UNFINISHED = "unfinished"  # and whether it goes on cannot be seen by this user
    UNREADABLE = "unreadable"


@dataclasses.dataclass(frozen=True)
class Overview:
    """One line of the list.

    Attributes:
        run: its identifier and folder.
        state: see :class:`State`.
        name, plan, created: for people; ``created`` is empty of a ledger that cannot be read.
        order: of the list, the newest first: ISO 8601 or empty.
        platforms: labels of the usable arms, without the A/A arm.
        skipped: labels of those that could not be used.
        tally: of trials; None when it cannot be read.
        repetitions: that the plan asks for.
        scheduled: how many trials the run is to make, where it says so.
        confidence: of the intervals asked for.
        verdicts: on the run's requirements, once they were reckoned.
        problem: why it cannot be read.
    """

    run: FoundRun
    state: State
    name: str
    plan: str = ""
    created: str = ""
    order: str = ""
    platforms: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    tally: Tally | None = None
    repetitions: int | None = None
    scheduled: int | None = None
    confidence: float = 0.95
    verdicts: VerdictCounts | None = None
    problem: str = ""

    @property
    def share(self) -> float | None:
        """How much of the run is done, from 0 to 1; None when that is not known."""
        if self.tally is None or not self.scheduled:
            return None
        return min(1.0, self.tally.settled / self.scheduled)


@dataclasses.dataclass(frozen=True)
class _Known:
    """A line, what its ledger looked like from outside when it was read, and the counts to go on from."""

    stamp: Stamp
    overview: Overview
    counter: TrialCounter | None


class Overviews:
    """Lines of the list, each read again only when its run has changed."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._verdicts = VerdictBook()
        self.measuring = False
        """Whether any run was under way when all were looked at last."""

    def of(self, run: FoundRun) -> Overview:
        """The line of one run; one that cannot be read says why."""
        stamp = run.stamp()
        known = self._known.get(run.run_id)
        if known is None or known.stamp != stamp:
            counter = known.counter if known is not None and same_ledger(known.stamp, stamp) else None
            known = _Known(stamp, *_read_overview(run, counter))
            self._known[run.run_id] = known
        overview = known.overview
        if overview.state is State.UNFINISHED:
            return dataclasses.replace(overview, state=_unfinished(run))
        return dataclasses.replace(overview, verdicts=self._verdicts.of(run))

    def of_all(self, runs: Mapping[str, FoundRun]) -> dict[str, Overview]:
        """The lines of these runs by identifier; what was known of others is forgotten."""
        self._known = {run_id: self._known[run_id] for run_id in runs if run_id in self._known}
        self._verdicts.keep_only(runs)
        lines = {run_id: self.of(run) for run_id, run in runs.items()}
        ended = [line.run for line in lines.values() if line.state in (State.COMPLETE, State.INCOMPLETE)]
        self.measuring = any(line.state is State.RUNNING for line in lines.values())
        if self.measuring or not self._verdicts.judge(ended):
            return lines
        return {run_id: self.of(run) for run_id, run in runs.items()}


def _unfinished(run: FoundRun) -> State:
    states = {Controller.AT_WORK: State.RUNNING, Controller.GONE: State.INTERRUPTED}
    return states.get(controller_of(run.folder), State.UNFINISHED)


def _read_overview(run: FoundRun, counter: TrialCounter | None) -> tuple[Overview, TrialCounter | None]:
    """A run's line from its ledger; ``UNFINISHED`` stands for every run that has not ended."""
    name = plain(run.folder.name)
    try:
        with ReadOnlyLedger.open(run.folder) as ledger:
            manifest, events = ledger.manifest(), ledger.events()
            attempts, repetitions = _of_plan(manifest)
            counter = counter or TrialCounter(attempts)
            counter.add(ledger.attempts(after=counter.newest))
            line = _overview(run, name, manifest, events)
            return dataclasses.replace(line, tally=counter.tally(), repetitions=repetitions), counter
    except VirtgaugeError as error:
        problem = error.message
    except Exception as error:  # whatever a damaged or foreign file makes of the reader, the list goes on
        problem = f"its ledger cannot be read: {type(error).__name__}: {error}"
    return Overview(run, State.UNREADABLE, name, problem=plain(problem)), None


def _overview(run: FoundRun, name: str, manifest: Manifest, events: Sequence[EventRecord]) -> Overview:
    arms = [arm for arm in manifest.arms if arm.role != "aa"]
    return Overview(
        run=run,
        state=state_of(events),
        name=name,
        plan=plain(manifest.plan_name),
        created=moment(manifest.created_at),
        order=plain(manifest.created_at),
        platforms=tuple(plain(arm.label) for arm in arms if arm.usable),
        skipped=tuple(plain(arm.label) for arm in arms if not arm.usable),
        scheduled=_scheduled(events),
        confidence=float(manifest.confidence),
    )


def state_of(events: Sequence[EventRecord]) -> State:
    """What the last word on the run's course says."""
    last = next((event.kind for event in reversed(events) if event.kind in COURSE), "")
    return {"completed": State.COMPLETE, "ended incomplete": State.INCOMPLETE}.get(last, State.UNFINISHED)


def _of_plan(manifest: Manifest) -> tuple[int, int | None]:
    """Attempts at a trial and repetitions; the plan's defaults where it cannot be understood."""
    try:
        plan = tomllib.loads(manifest.plan_text)
    except tomllib.TOMLDecodeError:
        return _DEFAULT_ATTEMPTS, None
    attempts, repetitions = plan.get("attempts"), plan.get("repetitions")
    return (
        attempts if isinstance(attempts, int) else _DEFAULT_ATTEMPTS,
        repetitions if isinstance(repetitions, int) else None,
    )


def _scheduled(events: Sequence[EventRecord]) -> int | None:
    last = next((event.detail for event in reversed(events) if event.kind == SCHEDULED), "")
    digits = "".join(itertools.takewhile(str.isdecimal, last))
    return int(digits) if 0 < len(digits) < 10 else None
