"""The trial records of the storage suite, by cell and arm."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.ledger.records import TrialRecord
from virtgauge.report.storage.model import Key
from virtgauge.report.storage.vocabulary import LEVELS, OPERATIONS
from virtgauge.report.trial_results import CellTrials, Histograms


def key_of(trial: TrialRecord) -> Key:
    """The cell that a trial belongs to."""
    factors = trial.factors
    return Key(
        operation=factors.get("operation", trial.probe),
        of=factors.get("of") or factors.get("crash") or "",
        database=factors["database"],
        durability=factors.get("durability", ""),
        flushes=factors.get("flushes", "as-is"),
        clients=int(factors.get("clients", "1")),
        values=int(factors.get("values", "1")),
        index=factors.get("index", "yes") == "yes",
        loop=factors.get("loop", "closed"),
        write_mode=factors.get("write_mode", "default"),
    )


class Results(CellTrials[Key]):
    """All results of a run.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
    """

    def __init__(self, trials: Sequence[TrialRecord], histograms: Histograms) -> None:
        super().__init__(trials, histograms, key_of)

    @functools.cached_property
    def keys(self) -> list[Key]:
        """Every cell that was tried: by operation, level and flush profile, then database as in the plan."""
        tried = self.tried_keys
        databases = list(dict.fromkeys(key.database for key in tried))
        operations = [*OPERATIONS, *(key.operation for key in tried)]
        levels = [*LEVELS, *(key.durability for key in tried)]

        def rank(key: Key) -> tuple[Any, ...]:
            return (
                *(operations.index(key.operation), -levels.index(key.durability), key.flushes),
                *(databases.index(key.database), key.clients, key.values, not key.index),
                *(key.offered_per_s or 0.0, key.write_mode, key.of),
            )

        return sorted(tried, key=rank)

    def rates(self, key: Key, arm: str) -> dict[int, float]:
        """Operations per second, of statements with many values rows per second, by block."""
        return self.scalar(key, arm, "rows_per_s" if key.many_values else "operations_per_s")


def settings_of(trials: Mapping[int, TrialRecord]) -> dict[str, str]:
    """What a level was set to, as the last result recorded it."""
    for trial in reversed(list(trials.values())):
        settings = trial.result.get("settings")
        if isinstance(settings, Mapping):
            return {str(name): str(value) for name, value in settings.items()}
        if settings:
            return {"profile": str(settings)}
    return {}
