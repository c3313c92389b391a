"""What a run says while it goes on.  Displays (:mod:`virtgauge.console`) turn it into bars, lines or nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.ledger.records import Attempt, TrialRecord, TrialStatus


@dataclasses.dataclass(frozen=True)
class RunStarted:
    """A run begins or goes on; ``remaining_s`` as :class:`TrialEnded` has it."""

    run: str
    trials_total: int
    trials_done: int
    remaining_s: float | None = None
    about: str = ""  # how long it will take, and how that is known


@dataclasses.dataclass(frozen=True)
class GuestStarting:
    """A fresh guest is being launched."""

    arm: str
    block: int


@dataclasses.dataclass(frozen=True)
class TrialProgress:
    """The trial under way; ``done`` from 0 to 1."""

    key: str
    done: float


@dataclasses.dataclass(frozen=True)
class TrialEnded:
    """A trial is in the ledger."""

    key: str
    arm: str
    status: str
    reason: str | None  # the first fatal flag or the error, for a trial that is not valid
    trials_done: int  # cells that need no further attempt, of ``trials_total``
    trials_total: int
    remaining_s: float | None  # expected time to the end of the run; None while too little is known of its platforms
    # reason (``steal``, ``foreign-load``) of each take that was left out and repeated within the trial
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, trial: TrialRecord, done: int, total: int, remaining_s: float | None) -> TrialEnded:
        left_out = tuple(one["reason"] for one in trial.accounting.get("left_out", ()))
        return cls(trial.key, trial.arm, trial.status.value, trial.reason, done, total, remaining_s, left_out)


@dataclasses.dataclass(frozen=True)
class Notice:
    """Something the user should know now: a skipped platform, a failed launch, an arm given up."""

    text: str
    warning: bool = True


@dataclasses.dataclass(frozen=True)
class RunEnded:
    """The run is complete, or was interrupted."""

    complete: bool
    valid: int
    not_valid: int
    elapsed_s: float

    @classmethod
    def of(cls, complete: bool, trials: Sequence[Attempt], elapsed_s: float) -> RunEnded:
        """How a run ended, by all attempts at its trials."""
        valid = sum(trial.status is TrialStatus.VALID for trial in trials)
        return cls(complete, valid, len(trials) - valid, elapsed_s)


ProgressEvent = RunStarted | GuestStarting | TrialProgress | TrialEnded | Notice | RunEnded


class ProgressDisplay:
    """Receives the events of a run; this one shows nothing."""

    def show(self, event: ProgressEvent) -> None:
        """Called in order, from the event loop; must not block."""

    def notice(self, text: str, *, warning: bool = True) -> None:
        self.show(Notice(text, warning))

    def close(self) -> None:
        """No further event will come."""
