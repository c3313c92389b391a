"""What workers measured, into the one ledger of the fleet: every trial once, whatever arrives how often."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from virtgauge.fleet.messages import BatchAnswer, ForeignMessageError, PackedTrial
from virtgauge.ledger.records import GuestRecord, Histogram, TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.plan.schedule import Batch
from virtgauge.suites.base import Cell

_GuestKey = tuple[str, int, str]


class Merger:
    """The only writer of a fleet's ledger.

    A trial is known by key and attempt, a guest by arm, block and the moment of its launch: what is known already is
    passed over.  A batch is merged as a whole or not at all.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._trials = {(trial.key, trial.attempt) for trial in ledger.trials()}
        self._guests = {_guest_key(guest): guest.guest_id for guest in ledger.guests()}

    def merge(self, batch: Batch[Cell], kinds: dict[str, str], answer: BatchAnswer) -> list[TrialRecord]:
        """Record what is new.

        Args:
            batch: that was asked for.
            kinds: of the arms' platforms.
            answer: from a worker that is believed.

        Returns:
            the new trials.

        Raises:
            ForeignMessageError: the answer is not one to this batch; nothing of it is recorded.
            LedgerWriteError: nor is anything when the disk is full.
        """
        _check(batch, kinds, answer)
        new = [packed for packed in answer.trials if (packed.record.key, packed.record.attempt) not in self._trials]
        try:
            prepared = [_prepared(packed) for packed in new]
        except ValueError as error:
            raise ForeignMessageError(f"a trial of the answer cannot be read: {error}") from error
        numbers: dict[int, int] = {}
        guests = dict(self._guests)
        with self._ledger.together():
            for guest in answer.guests:
                key = _guest_key(guest)
                if key not in guests:
                    guests[key] = self._add_guest(guest)
                numbers[guest.guest_id] = guests[key]
            for record, histograms, samples in prepared:
                number = None if record.guest_id is None else numbers[record.guest_id]
                self._ledger.add_trial(dataclasses.replace(record, guest_id=number), histograms, samples)
            for kind, detail in answer.events:
                self._ledger.add_event(kind, detail)
            for arm in self._ledger.manifest().arms:
                if arm.name in answer.emulated and not arm.emulated:  # on one host, and so not to be ranked on any
                    self._ledger.put_arm(dataclasses.replace(arm, emulated=True))
        self._guests = guests
        self._trials |= {(record.key, record.attempt) for record, _, _ in prepared}
        return [record for record, _, _ in prepared]

    def _add_guest(self, guest: GuestRecord) -> int:
        fields = {field.name: getattr(guest, field.name) for field in dataclasses.fields(guest)}
        del fields["guest_id"]
        return self._ledger.add_guest(**fields)


def _prepared(packed: PackedTrial) -> tuple[TrialRecord, dict[str, Histogram], dict[str, npt.NDArray[np.int64]]]:
    histograms = {measure: histogram.histogram() for measure, histogram in packed.histograms.items()}
    return packed.record, histograms, packed.unpacked_samples()


def _guest_key(guest: GuestRecord) -> _GuestKey:
    return guest.arm, guest.block, guest.launched_at


def _check(batch: Batch[Cell], kinds: dict[str, str], answer: BatchAnswer) -> None:
    """Refuse what was not asked for: an answer must not touch the trials of another batch."""
    cells = {batch.trial_key(cell): cell for cell in batch.cells}
    place = (batch.arm, kinds[batch.arm], batch.block)
    guests = {guest.guest_id for guest in answer.guests}
    seen = set()
    for trial in (packed.record for packed in answer.trials):
        cell = cells.get(trial.key)
        fits = (
            cell is not None
            and (trial.arm, trial.platform, trial.block) == place
            and (trial.suite, trial.probe, trial.factors) == (cell.suite, cell.probe, dict(cell.factors))
            and trial.attempt >= 1
            and (trial.key, trial.attempt) not in seen
            and (trial.guest_id is None or trial.guest_id in guests)
        )
        if not fits:
            raise ForeignMessageError(f"the answer holds a trial that was not asked for: {trial.key[:200]!r}")
        seen.add((trial.key, trial.attempt))
    for guest in answer.guests:
        if (guest.arm, guest.platform, guest.block) != place:
            raise ForeignMessageError(f"the answer holds a guest of another batch: {guest.arm[:40]!r}")
