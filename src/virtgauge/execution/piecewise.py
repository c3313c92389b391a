"""Sessions one by one, in whatever order they are asked for: what a worker of a fleet does."""

from __future__ import annotations

from collections.abc import Iterable

from virtgauge.execution.runner import Runner
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.plan.schedule import Session
from virtgauge.platforms.far.platform import FarHost
from virtgauge.suites.base import Cell


class PiecewiseRunner(Runner):
    """A runner whose sessions somebody else chooses; what is done is derived from the ledger all the same."""

    async def run_one(
        self, session: Session[Cell], known: Iterable[tuple[str, int, TrialStatus]] = (), far: FarHost | None = None
    ) -> list[TrialRecord]:
        """Measure what is missing of a session.

        Args:
            session: of the plan's schedule.
            known: key, attempt and status of trials that another ledger has.
            far: the other machine on which its testers are; None where they are here.

        Returns:
            all of the session's trials in this ledger, earlier attempts among them.

        Raises:
            FarHostLostError: that machine does not answer any more; what had finished is in the ledger.
        """
        self._far = far
        for key, attempt, status in known:
            self._count(key, attempt, status)
        await self._run_session(session)
        keys = {session.trial_key(cell) for cell in session.cells}
        return [trial for trial in self._ledger.trials() if trial.key in keys]
