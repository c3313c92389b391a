"""Sessions one by one, in whatever order they are asked for: what a worker of a fleet does."""

from __future__ import annotations

from collections.abc import Iterable

from virtgauge.execution.runner import Runner
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.plan.schedule import Batch
from virtgauge.platforms.remote.platform import RemoteHost
from virtgauge.suites.base import Cell


class PiecewiseRunner(Runner):
    """A runner whose batches somebody else chooses; what is done is derived from the ledger all the same."""

    async def run_one(
        self, batch: Batch[Cell], known: Iterable[tuple[str, int, TrialStatus]] = (), remote: RemoteHost | None = None
    ) -> list[TrialRecord]:
        """Measure what is missing of a batch.

        Args:
            batch: of the plan's schedule.
            known: key, attempt and status of trials that another ledger has.
            remote: the other machine on which its testers are; None where they are here.

        Returns:
            all of the batch's trials in this ledger, earlier attempts among them.

        Raises:
            RemoteHostLostError: that machine does not answer any more; what had finished is in the ledger.
        """
        self._remote = remote
        for key, attempt, status in known:
            self._count(key, attempt, status)
        await self._run_batch(batch)
        keys = {batch.trial_key(cell) for cell in batch.cells}
        return [trial for trial in self._ledger.trials() if trial.key in keys]
