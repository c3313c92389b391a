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
from virtgauge.ledger.records import ArmRecord, EventRecord, GuestRecord
from virtgauge.report.hosts import HostFindings
from virtgauge.report.left_out import LeftOut
from virtgauge.report.replay import Replay
from virtgauge.report.requirements import Decisions
from virtgauge.report.suite import SuiteReport
from virtgauge.report.trials import TrialLines


@dataclasses.dataclass(frozen=True)
class Cell:
    """What trials have in common that differ in arm and repetition only, and what to call it."""

    suite: str
    probe: str
    factors: dict[str, str]
    name: str


@dataclasses.dataclass(frozen=True)
class ArmSummary:
    """One arm over the whole run.

    Attributes:
        record: as in the manifest.
        ready: time from launch to the agent's answer, over its guests.
        guests, failed_guests: launched, and of those that did not come up.
        trials: number by status.
        facts: of its first guest, as the agent saw them.
    """

    record: ArmRecord
    ready: Estimate
    guests: int
    failed_guests: int
    trials: dict[str, int]
    facts: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """What was run, and what it takes to run it again."""

    run_id: str
    created_at: str
    plan_name: str
    plan_text: str
    seed: int
    confidence: float
    tool_version: str
    agent_sha256: str
    fingerprint: dict[str, Any]
    finished: bool
    blocks: int


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that is known of a run.  Made by :func:`virtgauge.report.build`."""

    run: Run
    caveats: tuple[str, ...]
    decisions: Decisions
    agreement: Agreement
    arms: tuple[ArmSummary, ...]
    suites: tuple[SuiteReport, ...]
    cells: tuple[Cell, ...]
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
