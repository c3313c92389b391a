"""A new run of what is sound in a damaged one."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from virtgauge.ledger.damage import DamagedError, Fault
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import INCOMPLETE, Histogram, TrialRecord
from virtgauge.ledger.rows import PROMISE, RowError
from virtgauge.ledger.store import Ledger

_TOLD = 20  # Faults that the new run's course names


class Repaired(NamedTuple):
    """What became of a run."""

    kept: int  # trials
    left_out: tuple[Fault, ...]  # what was not kept, and why; empty of a run that was sound
    samples_lost: tuple[int, ...]  # trials that were kept without their raw values


def repair(folder: Path, new: Path) -> Repaired:
    """Write the sound trials of a run, with their numbers, guests and events, into a new one.

    A trial is sound when its row, all its histograms and their statistics are; statistics are computed anew.
    Raises DamagedError: what was run cannot be read, so that no trial means anything; UsageError: there is no run, or
    the new folder holds one already; VirtgaugeError: the new one finds no room; nothing of it stays.
    """
    trials: list[TrialRecord] = []
    with ReadOnlyLedger.open(folder, limit_s=600) as ledger:
        found = ledger.examine(trials.append)
        if found.manifest is None:
            first = found.faults[0]
            raise DamagedError(ledger.path, first.where, first.problem, found.left)
        left_out, histograms = list(found.faults), {}
        for trial in trials:
            try:
                histograms[trial.trial_id] = ledger.histograms_of(trial.trial_id)
            except (sqlite3.Error, RowError) as error:
                left_out.append(Fault("histograms", trial.trial_id, str(error)))
        if any(fault.table == "histograms" and fault.row is None for fault in left_out):
            left_out += _lacking(trials, histograms)
        unsound = {fault.row for fault in left_out if fault.table in ("trials", "histograms")}
        kept = [trial for trial in trials if trial.trial_id not in unsound]
        guests = {guest.guest_id: guest for guest in found.guests}
        lost: list[int] = []
        ledger.confirm()
        with Ledger.whole(new, found.manifest) as sound:
            for guest in guests.values():
                sound.put_guest(guest)
            for trial in kept:
                try:
                    samples = ledger.samples_of(trial.trial_id)
                    is_lost = PROMISE in trial.accounting and not samples
                except (DamagedError, sqlite3.Error):
                    samples, is_lost = {}, True
                lost += [trial.trial_id] * is_lost
                known = dataclasses.replace(trial, guest_id=trial.guest_id if trial.guest_id in guests else None)
                sound.add_trial(known, histograms[trial.trial_id], samples, number=trial.trial_id)
            for event in found.events:
                sound.put_event(event)
            if left_out:
                told = "; ".join(str(fault)[:200] for fault in left_out[:_TOLD])
                sound.add_event("repaired", f"{len(kept)} trials kept; left out: {told}")
                sound.add_event(INCOMPLETE, "what was damaged is left out")
    return Repaired(len(kept), tuple(left_out), tuple(lost))


def _lacking(trials: list[TrialRecord], histograms: dict[int, dict[str, Histogram]]) -> list[Fault]:
    """Where histograms are lost unseen: the trials that have fewer than others of their probe."""
    measures: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for trial in trials:
        measures[trial.suite, trial.probe] |= histograms.get(trial.trial_id, {}).keys()
    return [
        Fault("histograms", trial.trial_id, "histograms that others of the probe have are lost")
        for trial in trials
        if trial.status == "valid" and measures[trial.suite, trial.probe] - histograms.get(trial.trial_id, {}).keys()
    ]
