"""How many of a run's requirements are met, for the list: reckoned from runs that have ended, while none is under way.

To judge takes the figures of all trials, so a run is judged once, and only a few a second.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable

from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.serve.found import FoundRun, Stamp

_JUDGING_S = 1.0
"""In one look at the list, before the pages are answered; what is left is judged in the next."""


@dataclasses.dataclass(frozen=True)
class VerdictCounts:
    """Of requirements on platforms."""

    passed: int
    failed: int
    inconclusive: int
    not_judged: int


class VerdictBook:
    """The counts of runs by what their ledgers held when they were judged."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, VerdictCounts | None]] = {}

    def of(self, run: FoundRun) -> VerdictCounts | None:
        """A run's counts; None when it requires nothing, or has not been judged yet."""
        known = self._known.get(run.run_id)
        return known[1] if known is not None and known[0] == run.stamp() else None

    def judge(self, runs: Iterable[FoundRun]) -> bool:
        """Judge those of these runs that were not, for about a second; whether there were any."""
        ends, any_judged = time.monotonic() + _JUDGING_S, False
        for run in runs:
            stamp = run.stamp()
            if self._known.get(run.run_id, ((), None))[0] != stamp:
                self._known[run.run_id] = stamp, count_verdicts(run)
                any_judged = True
                if time.monotonic() > ends:
                    break
        return any_judged

    def keep_only(self, run_ids: Iterable[str]) -> None:
        """Forget the runs that are no longer there."""
        self._known = {run_id: self._known[run_id] for run_id in run_ids if run_id in self._known}


def count_verdicts(run: FoundRun) -> VerdictCounts | None:
    """Judge a run; None when it requires nothing, or cannot be judged: its report says why."""
    try:
        with ReadOnlyLedger.open(run.folder) as ledger:
            return _counted(ledger)
    except Exception:  # a damaged or foreign file; the line of the run says so where it matters
        return None


def _counted(ledger: ReadOnlyLedger) -> VerdictCounts | None:
    from virtgauge.analysis.bounds import Outcome
    from virtgauge.report.requirements import decisions_of
    from virtgauge.results.table import ResultTable

    decisions = decisions_of(ResultTable(ledger))
    if not decisions.requirements:
        return None
    counts = Counter(verdict.outcome for verdict in decisions.verdicts)
    return VerdictCounts(
        passed=counts[Outcome.PASS],
        failed=counts[Outcome.FAIL],
        inconclusive=counts[Outcome.INCONCLUSIVE],
        not_judged=counts[None],
    )
