"""Where the wall time of a run went, by what its ledger says.

A run's time is laid out without gaps: from one moment that the ledger knows to the next, every interval
is given to one activity, so that the parts add up to the whole.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterator, Sequence

from virtgauge.ledger.records import EventRecord, GuestRecord, TrialRecord

_BEGINNINGS = {"started", "resumed"}
_ENDS = {"interrupted", "completed", "ended incomplete"}


class Activity(enum.Enum):
    """What a run does, in words for a table."""

    MEASURING = "measuring: the probes' loops"
    AROUND = "trials around the loops: load on and off, calibration, transfer"
    RECORDING = "between trials: record, samples, progress"
    LAUNCHING = "launching guests, until the agent is ready"
    ASKING = "facts of a fresh guest, and their record"
    CLOSING = "last record of a guest, and closing it"
    FAILED_LAUNCH = "launches that failed"
    OTHER = "before the first guest"


@dataclasses.dataclass(frozen=True)
class _Moment:
    """From here on the run was at this activity."""

    at_s: float
    activity: Activity


def run_time(
    events: Sequence[EventRecord], guests: Sequence[GuestRecord], trials: Sequence[TrialRecord]
) -> dict[Activity, float]:
    """Seconds by activity, of all the sessions of a run; the time between an interruption and its resumption is none.

    Launches and trials are as long as the run measured them; moments are known to the millisecond.
    """
    spent = dict.fromkeys(Activity, 0.0)
    moments = sorted([*_guest_moments(guests), *_trial_moments(trials)], key=lambda moment: moment.at_s)
    for begin, end in _sessions(events, moments):
        inside = [moment for moment in moments if begin <= moment.at_s < end]
        cursor, activity = begin, Activity.OTHER
        for moment in inside:
            spent[activity] += moment.at_s - cursor
            cursor, activity = moment.at_s, moment.activity
        spent[activity] += end - cursor
    loops = sum(_loop_s(trial) for trial in trials)
    spent[Activity.MEASURING] += loops
    spent[Activity.AROUND] -= loops
    return spent


def _guest_moments(guests: Sequence[GuestRecord]) -> Iterator[_Moment]:
    for guest in guests:
        launched = seconds(guest.launched_at)
        if guest.ready_ns is None:
            yield _Moment(launched, Activity.FAILED_LAUNCH)
        else:
            yield _Moment(launched, Activity.LAUNCHING)
            yield _Moment(launched + guest.ready_ns / 1e9, Activity.ASKING)


def _trial_moments(trials: Sequence[TrialRecord]) -> Iterator[_Moment]:
    on_guests = [trial for trial in trials if trial.guest_id is not None]  # the others were never begun
    last = {trial.guest_id: trial.trial_id for trial in on_guests}
    for trial in on_guests:
        begun = seconds(trial.started_at)
        yield _Moment(begun, Activity.AROUND)
        after = Activity.CLOSING if last[trial.guest_id] == trial.trial_id else Activity.RECORDING
        left_out_ns = sum(one["elapsed_ns"] for one in trial.accounting.get("left_out", ()))
        spent_ns = trial.elapsed_ns + left_out_ns + trial.accounting.get("waited_ns", 0)
        yield _Moment(begun + spent_ns / 1e9, after)


def _sessions(events: Sequence[EventRecord], moments: Sequence[_Moment]) -> Iterator[tuple[float, float]]:
    """Beginning and end of each session; one that was killed ends with the last that it recorded."""
    begin: float | None = None
    for event in events:
        at = seconds(event.at)
        if event.kind in _BEGINNINGS:
            if begin is not None:
                yield begin, _last_before(at, begin, moments)
            begin = at
        elif event.kind in _ENDS and begin is not None:
            yield begin, at
            begin = None
    if begin is not None:
        yield begin, _last_before(float("inf"), begin, moments)


def _last_before(bound: float, begin: float, moments: Sequence[_Moment]) -> float:
    return max((moment.at_s for moment in moments if begin <= moment.at_s < bound), default=begin)


def _loop_s(trial: TrialRecord) -> float:
    usage = trial.result.get("usage") or {}
    return min(float(usage.get("elapsed_ns") or 0), float(trial.elapsed_ns)) / 1e9


def seconds(moment: str) -> float:
    """A moment of the ledger as seconds since the epoch."""
    return datetime.datetime.fromisoformat(moment).timestamp()
