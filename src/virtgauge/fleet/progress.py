"""What is done of a fleet's run, and what is known of each of its batches."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from virtgauge.fleet.placement import Placed
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger

_SETTLED = {TrialStatus.VALID, TrialStatus.UNSUPPORTED}


@dataclasses.dataclass
class Progress:
    """What the merged ledger says of the trials of a fleet, by key."""

    attempts: int
    known: defaultdict[str, dict[int, TrialStatus]]

    @classmethod
    def read(cls, ledger: Ledger, attempts: int) -> Progress:
        """As it stands."""
        progress = cls(attempts, defaultdict(dict))
        for trial in ledger.trials():
            progress.add(trial)
        return progress

    def add(self, trial: TrialRecord) -> None:
        self.known[trial.key][trial.attempt] = trial.status

    def is_done(self, key: str) -> bool:
        """Whether no further attempt is needed, or allowed."""
        found = self.known.get(key, {})
        return any(status in _SETTLED for status in found.values()) or max(found, default=0) >= self.attempts

    def done(self, placed: Placed) -> int:
        """Cells of a batch that need no more."""
        return sum(self.is_done(placed.batch.trial_key(cell)) for cell in placed.batch.cells)

    def is_complete(self, placed: Placed) -> bool:
        return self.done(placed) == len(placed.batch.cells)

    def of(self, placed: Placed) -> tuple[tuple[str, int, str], ...]:
        """Key, attempt and status of what is known of a batch."""
        keys = [placed.batch.trial_key(cell) for cell in placed.batch.cells]
        return tuple((key, n, status.value) for key in keys for n, status in self.known.get(key, {}).items())
