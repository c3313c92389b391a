"""From a ledger to a report: reads, never measures.  Works on a run in progress as well."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import Agreement, agreement
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ONE_MACHINE, ArmRecord, EventRecord, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.measures.figures import TrialFigures, read_figures
from virtgauge.measures.values import CellKey, cell_key
from virtgauge.report.arms import told_apart
from virtgauge.report.decisions.model import decisions_of
from virtgauge.report.hosts.formatting import host_caveats
from virtgauge.report.hosts.model import hosts_of
from virtgauge.report.left_out import left_out_by_arm, left_out_caveats, untold_steal_caveats
from virtgauge.report.model import ArmSummary, Cell, Report, Run, TrialLine
from virtgauge.report.replay.replay import replay_of
from virtgauge.report.sections import SuiteRecords, SuiteReport
from virtgauge.report.suite_arms import arms_of
from virtgauge.report.suites import SUITE_REPORTS
from virtgauge.results.formatting import confidence
from virtgauge.results.table import ResultTable

COMPLETED = "completed"
"""The kind of the event that marks a run's end; without it, a run is under way, was interrupted or ended early."""
CHANGED_HOST = "changed-host"
"""The kind of the event that a run went on although its host had changed."""


def build(ledger: Ledger) -> Report:
    """Everything that a run's ledger says.

    Args:
        ledger: of a finished run, or of one in progress or interrupted: then the report says so.
    """
    manifest, trials, guests, events = ledger.manifest(), ledger.trials(), ledger.guests(), ledger.events()
    manifest = dataclasses.replace(manifest, arms=told_apart(manifest.arms))
    figures = read_figures(ledger, trials)
    arms = tuple(_arm_summary(arm, trials, guests, manifest.confidence) for arm in manifest.arms)
    suites = []
    table = ResultTable(ledger)
    for name, suite_report in SUITE_REPORTS.items():
        own = [trial for trial in trials if trial.suite == name]
        if own:
            facts = {arm.record.name: arm.facts for arm in arms}
            records = SuiteRecords(
                *(arms_of(manifest, name), own, facts, manifest.confidence),
                *(ledger.histograms, table),
            )
            suites.append(suite_report(records))
    agrees = agreement([ratio for suite in suites for ratio in suite.aa_ratios])
    cells = {cell_key(trial): None for trial in trials}
    run = Run(
        run_id=manifest.run_id,
        created_at=manifest.created_at,
        plan_name=manifest.plan_name,
        plan_text=manifest.plan_text,
        seed=manifest.seed,
        confidence=manifest.confidence,
        tool_version=manifest.tool_version,
        agent_sha256=manifest.agent_sha256,
        fingerprint=manifest.fingerprint,
        finished=has_finished(events),
        blocks=len({trial.block for trial in trials if trial.status is TrialStatus.VALID}),
    )
    left_out = left_out_by_arm(manifest.arms, trials)
    hosts = hosts_of(ledger, manifest, trials, lambda *key: _cell_name(suites, *key))
    return Report(
        run=run,
        caveats=(
            *_caveats(run, suites, trials, agrees, events),
            *left_out_caveats(left_out, trials),
            *untold_steal_caveats(manifest.fingerprint, trials),
            *host_caveats(hosts),
        ),
        decisions=decisions_of(table),
        agreement=agrees,
        arms=arms,
        suites=tuple(suites),
        cells=tuple(_cell(key, suites) for key in cells),
        trials=_trial_lines(trials, list(cells), figures),
        guests=tuple(guests),
        events=tuple(events),
        hosts=hosts,
        replay=replay_of(manifest.plan_name, manifest.arms, suites),
        left_out=left_out,
    )


def _cell(key: CellKey, suites: Sequence[SuiteReport]) -> Cell:
    name, probe, items = key
    factors = dict(items)
    return Cell(name, probe, factors, _cell_name(suites, name, probe, factors))


def _cell_name(suites: Sequence[SuiteReport], name: str, probe: str, factors: Mapping[str, str]) -> str:
    suite = next((suite for suite in suites if suite.suite == name), None)
    levels = ", ".join(f"{factor} {level}" for factor, level in factors.items())
    return suite.cell_name(probe, factors) if suite else f"{name} {probe}: {levels}"


def has_finished(events: Sequence[EventRecord]) -> bool:
    """Whether the last that was said of the run's course is that it ended whole."""
    course = [event.kind for event in events if event.kind in (COMPLETED, "started", "resumed", "interrupted")]
    return bool(course) and course[-1] == COMPLETED


def _arm_summary(
    arm: ArmRecord, trials: Sequence[TrialRecord], guests: Sequence[GuestRecord], nominal: float
) -> ArmSummary:
    measured = [trial for trial in trials if trial.arm == arm.name]
    facts = next((guest.facts for guest in guests if guest.arm == arm.name and guest.facts), {})
    own = [guest for guest in guests if guest.arm == arm.name]
    ready = [float(guest.ready_ns) for guest in own if guest.ready_ns is not None and guest.error is None]
    estimate = median_estimate(ready, "ns", nominal) if ready else Estimate.missing("ns", "no guest came up")
    return ArmSummary(
        record=arm,
        ready=estimate,
        guests=len(own),
        failed_guests=sum(guest.error is not None for guest in own),
        trials=dict(sorted(Counter(trial.status.value for trial in measured).items())),
        facts=facts,
    )


def _caveats(
    run: Run,
    suites: Sequence[SuiteReport],
    trials: Sequence[TrialRecord],
    agrees: Agreement,
    events: Sequence[EventRecord],
) -> tuple[str, ...]:
    """What a reader must know before the figures."""
    said = []
    if not run.finished:
        said.append("This run has not finished: these are the figures so far.")
    if not any(trial.status is TrialStatus.VALID for trial in trials):
        said.append("There is no valid trial, so there are no figures; the table of trials says why.")
        return tuple(said)
    if agrees.ok is None:
        said.append("Identical arms (A/A) could not be compared, so no difference is called proven.")
    elif not agrees.ok:
        said.append(
            f"Identical arms (A/A) differ in {agrees.excluding} of {agrees.cells} cells, more than chance explains "
            f"({agrees.tolerated}): order or placement on this machine matters. Smaller differences are inconclusive."
        )
    reached = [estimate.confidence for suite in suites for estimate in suite.estimates]
    lowest = min((one for one in reached if one is not None), default=None)
    if lowest is None:
        said.append("One repetition gives no interval. Six are the least for a 95 % one.")
    elif lowest < run.confidence:
        said.append(
            f"Some intervals reach {confidence(lowest)} confidence, not {confidence(run.confidence)}: that takes more "
            "repetitions. Each says which it has."
        )
    if any(event.kind == ONE_MACHINE for event in events):
        said.append(
            "This fleet was tried on one machine: its hosts may be one and the same and disturb each other, so nothing "
            "can be concluded from how they compare."
        )
    if any(event.kind == CHANGED_HOST for event in events):
        said.append("The host changed during this run (see its course); figures from before and after are mixed.")
    return tuple(said)


def _trial_lines(
    trials: Sequence[TrialRecord], keys: Sequence[CellKey], figures: Mapping[int, TrialFigures]
) -> tuple[TrialLine, ...]:
    places = {key: place for place, key in enumerate(keys)}
    lines = []
    for trial in trials:
        found = figures.get(trial.trial_id)
        flags = sorted(trial.flags, key=lambda flag: not flag.fatal)
        lines.append(
            TrialLine(
                trial_id=trial.trial_id,
                cell=places[cell_key(trial)],
                arm=trial.arm,
                block=trial.block,
                attempt=trial.attempt,
                status=trial.status.value,
                flags=tuple(f"{flag.name}: {flag.detail}" for flag in flags),
                error=trial.error,
                samples=found.samples if found else None,
                median_ns=found.statistics["p50"] if found else None,
                foreign_share=_foreign_share(trial),
                started_at=trial.started_at,
                elapsed_ns=trial.elapsed_ns,
            )
        )
    return tuple(lines)


def _foreign_share(trial: TrialRecord) -> float | None:
    """CPU time of neither guest nor controller as a share of the machine's, where it was accounted."""
    foreign, processors = trial.accounting.get("foreign_ns"), trial.accounting.get("processors")
    if foreign is None or not processors or trial.elapsed_ns <= 0:
        return None
    return float(foreign) / (float(processors) * trial.elapsed_ns)
