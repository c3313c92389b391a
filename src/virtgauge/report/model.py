"""The report as data: everything that any of its forms (page, terminal, JSON) shows.

All durations are nanoseconds.  An arm is a platform of the plan under its name; a cell is one combination of suite,
probe and factor levels.  What was found is the suites' own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from virtgauge.analysis.comparison import Agreement
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, EventRecord, GuestRecord, Manifest
from virtgauge.report.hosts import HostFindings
from virtgauge.report.left_out import LeftOut
from virtgauge.report.replay import Replay
from virtgauge.report.requirements import Decisions
from virtgauge.report.suite import SuiteReport
from virtgauge.report.trials import TrialLines
from virtgauge.results.columns import Cell


@dataclasses.dataclass(frozen=True)
class ArmSummary:
    """One arm over the whole run."""

    record: ArmRecord  # as in the manifest
    ready: Estimate  # time from launch to the agent's answer, over its guests
    # guests, failed_guests: launched, and of those that did not come up
    guests: int
    failed_guests: int
    trials: dict[str, int]  # number by status
    facts: dict[str, Any]  # of its first guest, as the agent saw them


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that is known of a run.  Made by :func:`virtgauge.report.build`."""

    run: Manifest  # what was run, and what it takes to run it again; its arms have a label of their own each
    finished: bool  # whether it ended whole
    blocks: int  # repetitions with a valid trial
    caveats: tuple[str, ...]
    decisions: Decisions
    agreement: Agreement
    arms: tuple[ArmSummary, ...]
    suites: tuple[SuiteReport, ...]
    cells: tuple[Cell, ...]  # that were tried, and what each is called
    cell_names: tuple[str, ...]
    trials: TrialLines
    guests: tuple[GuestRecord, ...]
    events: tuple[EventRecord, ...]
    hosts: HostFindings | None = None
    replay: Replay | None = None
    left_out: tuple[LeftOut, ...] = ()

    def suite(self, name: str) -> SuiteReport:
        """A suite's report by the suite's name; KeyError when the run has nothing of it."""
        return {suite.suite: suite for suite in self.suites}[name]

    def arm(self, name: str) -> ArmSummary:
        """An arm by name; KeyError when there is none."""
        return {arm.record.name: arm for arm in self.arms}[name]

    @property
    def statuses(self) -> dict[str, int]:
        """Number of trials by status, over all arms."""
        return dict(sum((Counter(arm.trials) for arm in self.arms), Counter[str]()))
