"""A run in one line: what it is, how far it is, whether it goes on, and which of its requirements are met."""

from __future__ import annotations

import dataclasses
import enum
import re
import time
import tomllib
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import (
    COMPLETED,
    INCOMPLETE,
    SCHEDULED,
    Attempt,
    EventRecord,
    Manifest,
    TrialStatus,
    course_of,
)
from virtgauge.serve.runs import FoundRun, Stamp, is_measured, read_or_say, same_ledger

_COUNTS, _DEFAULT_ATTEMPTS = ("attempts", "repetitions"), 3
_SHOWN = 10
_SETTLING = frozenset({TrialStatus.VALID, TrialStatus.UNSUPPORTED})
_NOT_COUNTED = frozenset({TrialStatus.INVALID, TrialStatus.FAILED})
_QUIET_S = 600.0  # Of a run that goes on, a trial is written in less
_JUDGING_S = 1.0  # In one look at the list; to judge takes the figures of all trials, and the next look goes on


class State(enum.StrEnum):
    """The state of a run."""

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # it went to its end, and some trials could not be made
    INTERRUPTED = "interrupted"
    UNFINISHED = "unfinished"  # and whether it goes on cannot be seen by this user
    UNREADABLE = "unreadable"


_ENDED = {COMPLETED: State.COMPLETE, INCOMPLETE: State.INCOMPLETE}


class Tally:
    """The trials of a run, counted as they come; the plan says how many attempts at each are made in all."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._settled: set[str] = set()
        self.statuses: Counter[str] = Counter()  # how many trials ended so
        self.newest = 0  # number of the last trial; 0 without one
        self.invalid: deque[int] = deque(maxlen=_SHOWN)  # numbers of the last that do not count, ascending
        self.begun: dict[int, str] = {}  # by repetition, when its first trial was started, as the ledger has it

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Count those that came after the newest."""
        for one in attempts:
            self.newest = one.trial_id
            self.statuses[one.status] += 1
            self.begun.setdefault(one.block, one.started_at)
            if one.status in _SETTLING or one.attempt >= self._attempts:
                self._settled.add(one.key)
            if one.status in _NOT_COUNTED:
                self.invalid.append(one.trial_id)

    @property
    def not_valid(self) -> int:
        """Invalid or failed attempts; kept, shown and repeated."""
        return sum(self.statuses[status] for status in _NOT_COUNTED)

    @property
    def settled(self) -> int:
        """Cells of the design that need no further attempt."""
        return len(self._settled)


@dataclasses.dataclass(frozen=True)
class Overview:
    """One line of the list."""

    run: FoundRun
    state: State
    # manifest, tally: None of a ledger that cannot be read
    manifest: Manifest | None = None
    tally: Tally | None = None
    repetitions: int | None = None  # that the plan asks for
    scheduled: int | None = None  # how many trials the run is to make, where it says so
    # how many requirements on platforms have which outcome; None until they were judged
    verdicts: Mapping[str, int] | None = None
    problem: str = ""  # why it cannot be read

    @property
    def is_under_way(self) -> bool:
        """Whether it is being measured, or may be: another user's, which was written a short while ago."""
        return self.state is State.RUNNING or (self.state is State.UNFINISHED and self.run.quiet_s < _QUIET_S)

    @property
    def share(self) -> float | None:
        """How much of the run is done, from 0 to 1; None when that is not known."""
        if self.tally is None or not self.scheduled:
            return None
        return min(1.0, self.tally.settled / self.scheduled)


class Overviews:
    """Lines of the list, each read again only when its run has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, Overview]] = {}
        self.measuring = False  # whether any run was under way when all were looked at last

    def of(self, run: FoundRun) -> Overview:
        """The line of one run; one that cannot be read says why."""
        stamp = run.stamp()
        read, line = self._known.get(run.run_id, ((), None))
        if line is None or read != stamp:
            line = _read_overview(run, line.tally if line is not None and same_ledger(read, stamp) else None)
            self._known[run.run_id] = stamp, line
        if line.state is State.UNFINISHED:
            states = {True: State.RUNNING, False: State.INTERRUPTED, None: State.UNFINISHED}
            return dataclasses.replace(line, state=states[is_measured(run.folder)])
        return line

    def of_all(self, runs: Mapping[str, FoundRun]) -> dict[str, Overview]:
        """The lines of these runs by identifier; what was known of others is forgotten."""
        self._known = {run_id: known for run_id, known in self._known.items() if run_id in runs}
        lines = {run_id: self.of(run) for run_id, run in runs.items()}
        self.measuring = any(line.is_under_way for line in lines.values())
        if not self.measuring:
            lines |= self._judged(lines)
        return lines

    def _judged(self, lines: Mapping[str, Overview]) -> dict[str, Overview]:
        """The lines of ended runs that are judged now; that takes about a second at most."""
        ends, found = time.monotonic() + _JUDGING_S, dict[str, Overview]()
        for run_id, line in lines.items():
            ended = line.state in (State.COMPLETE, State.INCOMPLETE)
            if ended and line.verdicts is None and time.monotonic() < ends:
                found[run_id] = dataclasses.replace(line, verdicts=_count_verdicts(line.run))
                self._known[run_id] = self._known[run_id][0], found[run_id]
        return found


def _count_verdicts(run: FoundRun) -> Mapping[str, int]:
    from virtgauge.decisions.decisions import decisions_of
    from virtgauge.results.table import ResultTable

    decisions = read_or_say(run.folder, lambda ledger: decisions_of(ResultTable(ledger)))
    if isinstance(decisions, str):  # the line of the run says why, where it matters
        return {}
    return Counter("not judged" if one.outcome is None else one.outcome.value for one in decisions.verdicts)


def _read_overview(run: FoundRun, tally: Tally | None) -> Overview:
    """A run's line from its ledger; ``UNFINISHED`` stands for every run that has not ended."""

    def read(ledger: ReadOnlyLedger) -> Overview:
        manifest, events = ledger.manifest(), ledger.events()
        attempts, repetitions = _of_plan(manifest)
        counted = tally or Tally(attempts)
        counted.add(ledger.attempts(after=counted.newest))
        state = _ENDED.get(course_of(events), State.UNFINISHED)
        return Overview(run, state, manifest, counted, repetitions, _scheduled(events))

    found = read_or_say(run.folder, read)
    return Overview(run, State.UNREADABLE, problem=found) if isinstance(found, str) else found


def _of_plan(manifest: Manifest) -> tuple[int, int | None]:
    """Attempts at a trial and repetitions; the plan's defaults where it cannot be understood."""
    try:
        plan = tomllib.loads(manifest.plan_text)
    except tomllib.TOMLDecodeError:
        plan = {}
    attempts, repetitions = (one if isinstance(one := plan.get(key), int) else None for key in _COUNTS)
    return _DEFAULT_ATTEMPTS if attempts is None else attempts, repetitions


def _scheduled(events: Sequence[EventRecord]) -> int | None:
    last = next((event.detail for event in reversed(events) if event.kind == SCHEDULED), "")
    digits = re.match(r"\d{1,9}(?!\d)", last)
    return int(digits[0]) if digits else None
