"""How far a run is: its trials counted as they come, each read once."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable

from virtgauge.ledger.read_only import Attempt
from virtgauge.ledger.records import TrialStatus

SPOILT = 10
"""So many of the last trials that do not count are shown."""
_SETTLING = frozenset({TrialStatus.VALID.value, TrialStatus.UNSUPPORTED.value})
_SPOILT = frozenset({TrialStatus.INVALID.value, TrialStatus.FAILED.value})


@dataclasses.dataclass(frozen=True)
class Tally:
    """How many trials a run has by now.

    Attributes:
        valid: that count.
        not_valid: invalid or failed attempts; kept, shown and repeated.
        unsupported: that a guest could not do.
        settled: cells of the design that need no further attempt.
        blocks: repetitions begun.
        newest: number of the last trial; 0 without one.
        invalid: numbers of the last trials that do not count, ascending.
        begun: when the first trial of each repetition was started, as the ledger has it, in their order.
    """

    valid: int = 0
    not_valid: int = 0
    unsupported: int = 0
    settled: int = 0
    blocks: int = 0
    newest: int = 0
    invalid: tuple[int, ...] = ()
    begun: tuple[str, ...] = ()


class TrialCounter:
    """Counts a run's trials.

    Args:
        attempts: how often a trial is tried in all, as the run's plan says.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._statuses: Counter[str] = Counter()
        self._settled: set[str] = set()
        self._begun: dict[int, str] = {}
        self._invalid: deque[int] = deque(maxlen=SPOILT)
        self.newest = 0

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Count those that came after the newest."""
        for one in attempts:
            self.newest = one.trial_id
            self._statuses[one.status] += 1
            self._begun.setdefault(one.block, one.started_at)
            if one.status in _SETTLING or one.number >= self._attempts:
                self._settled.add(one.key)
            if one.status in _SPOILT:
                self._invalid.append(one.trial_id)

    def tally(self) -> Tally:
        """The counts so far."""
        return Tally(
            valid=self._statuses[TrialStatus.VALID.value],
            not_valid=sum(self._statuses[status] for status in _SPOILT),
            unsupported=self._statuses[TrialStatus.UNSUPPORTED.value],
            settled=len(self._settled),
            blocks=len(self._begun),
            newest=self.newest,
            invalid=tuple(self._invalid),
            begun=tuple(self._begun.values()),
        )
