"""The report as data: everything that any of its forms (page, terminal) shows, and how a ledger comes to it.

Reads, never measures, and works on a run in progress as well.  All durations are nanoseconds.  An arm is a platform of
the plan under its name; a cell is one combination of suite, probe and factor levels.  What was found is
the suites' own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.analysis.comparison import Agreement, agreement
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.decisions.decisions import Decisions, decisions_of
from virtgauge.ledger.records import (
    DOUBT,
    ONE_MACHINE,
    ArmRecord,
    EventRecord,
    GuestRecord,
    Manifest,
    TrialStatus,
    has_finished,
)
from virtgauge.ledger.store import Ledger
from virtgauge.report.compose import SuiteReport, suite_report
from virtgauge.report.course import course_caveats
from virtgauge.report.hosts import HostFindings, hosts_of
from virtgauge.report.left_out import LeftOut, Tallies, left_out_by_arm, left_out_caveats, untold_steal_caveats
from virtgauge.report.replay import Replay, replay_of
from virtgauge.report.settings import settings_section
from virtgauge.report.trials import TrialLines
from virtgauge.results.columns import STATUSES, Cell
from virtgauge.results.formatting import confidence
from virtgauge.results.table import ResultTable
from virtgauge.specs.blocks import Section
from virtgauge.specs.suites import cell_name, contexts_of, facts_of, labelled

CHANGED_HOST = "changed-host"  # The kind of the event that a run went on although its host had changed


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
    settings: Section  # without blocks where no platform has any
    hosts: HostFindings | None = None
    replay: Replay | None = None
    left_out: tuple[LeftOut, ...] = ()

    def suite(self, name: str) -> SuiteReport:
        """Raises KeyError: there is none."""
        return {suite.suite: suite for suite in self.suites}[name]

    def arm(self, name: str) -> ArmSummary:
        """Raises KeyError: there is none."""
        return {arm.record.name: arm for arm in self.arms}[name]

    @property
    def statuses(self) -> dict[str, int]:
        return dict(sum((Counter(arm.trials) for arm in self.arms), Counter[str]()))

    @property
    def valid(self) -> int:
        """Number of trials that count."""
        return self.statuses.get(TrialStatus.VALID.value, 0)

    @property
    def unsupported(self) -> int:
        """Number of trials that platform or machine do not support."""
        return self.statuses.get(TrialStatus.UNSUPPORTED.value, 0)

    @property
    def possible(self) -> int:
        """Number of all others."""
        return len(self.trials) - self.unsupported


def build(ledger: Ledger) -> Report:
    """Everything that the ledger of a run says; of one in progress or interrupted, the report says so."""
    guests, events, table = ledger.guests(), ledger.events(), ResultTable(ledger)
    manifest, facts = labelled(table.manifest), facts_of(table.arms, guests)
    arms = tuple(_arm_summary(arm, table, guests, facts) for arm in manifest.arms)
    suites = [suite_report(context) for context in contexts_of(table, facts)]
    agrees = agreement([ratio for suite in suites for ratio in suite.aa_ratios])
    valid = table.trials.status == STATUSES.index(TrialStatus.VALID)
    tallies = Tallies.of(table.accounts())
    left_out = left_out_by_arm(manifest.arms, tallies)
    names = {cell: cell_name(cell) for cell in table.trials.cells}
    hosts = hosts_of(table, manifest, names)
    finished, blocks = has_finished(events), np.unique(table.trials.block[valid]).size
    return Report(
        run=manifest,
        finished=finished,
        blocks=blocks,
        caveats=(
            *_caveats(manifest, suites, agrees, events, blocks),
            *_of_other_computers(table, manifest.arms),
            *course_caveats(table),
            *ledger.samples_caveats(),
            *left_out_caveats(left_out, tallies),
            *untold_steal_caveats(manifest.fingerprint, tallies),
            *(hosts.caveats if hosts else ()),
        ),
        decisions=decisions_of(table),
        agreement=agrees,
        arms=arms,
        suites=tuple(suites),
        cells=table.trials.cells,
        cell_names=tuple(names.values()),
        trials=TrialLines(table),
        guests=tuple(guests),
        events=tuple(events),
        settings=settings_section(manifest.plan_text, manifest.arms, facts),
        hosts=hosts,
        replay=replay_of(manifest.plan_name, manifest.arms, suites),
        left_out=left_out,
    )


def _arm_summary(
    arm: ArmRecord, table: ResultTable, guests: Sequence[GuestRecord], facts: Mapping[str, dict[str, Any]]
) -> ArmSummary:
    own = [guest for guest in guests if guest.arm == arm.name]
    ready = [float(guest.ready_ns) for guest in own if guest.ready_ns is not None and guest.error is None]
    estimate = median_estimate(ready, "ns", table.confidence) if ready else Estimate.missing("ns", "no guest came up")
    return ArmSummary(
        record=arm,
        ready=estimate,
        guests=len(own),
        failed_guests=sum(guest.error is not None for guest in own),
        trials=table.endings.statuses(arm.name),
        facts=facts[arm.name],
    )


def _of_other_computers(table: ResultTable, arms: Sequence[ArmRecord]) -> Iterator[str]:
    """Which arms ran on another computer than the reference."""
    found: dict[str, list[str]] = {}
    for arm in arms:
        if arm.usable and arm.role != "aa" and (where := table.elsewhere(arm.name)):
            found.setdefault(where, []).append(arm.label)
    for where, labels in found.items():
        yield (
            f"{', '.join(labels)} ran {where}: ratios to the reference compare these computers, too. None of them is "
            "called a difference of platforms, judged, ranked, or held against a conclusion of a paper."
        )


def _caveats(
    run: Manifest, suites: Sequence[SuiteReport], agrees: Agreement, events: Sequence[EventRecord], blocks: int
) -> Iterator[str]:
    if not has_finished(events):
        yield "This run has not finished: these are the figures so far."
    if not blocks:
        yield "There is no valid trial, so there are no figures; the table of trials says why."
        return
    if agrees.ok is None:
        yield "Identical arms (A/A) could not be compared, so no difference is called proven."
    elif not agrees.ok:
        yield (
            f"Identical arms (A/A) differ in {agrees.excluding} of {agrees.cells} cells, more than chance explains "
            f"({agrees.tolerated}): order or placement on this machine matters. Smaller differences are inconclusive."
        )
    reached = [estimate.confidence for suite in suites for estimate in suite.estimates]
    lowest = min((one for one in reached if one is not None), default=None)
    if lowest is None:
        yield "One repetition gives no interval. Six are the least for a 95 % one."
    elif lowest < run.confidence:
        yield (
            f"Some intervals reach {confidence(lowest)} confidence, not {confidence(run.confidence)}: that takes more "
            "repetitions. Each says which it has."
        )
    if any(event.kind == ONE_MACHINE for event in events):
        yield (
            "This fleet was tried on one machine: its hosts may be one and the same and disturb each other, so nothing "
            "can be concluded from how they compare."
        )
    if any(event.kind == CHANGED_HOST for event in events):
        yield "The host changed during this run (see its course); figures from before and after are mixed."
    yield from (event.detail for event in events if event.kind == DOUBT)
