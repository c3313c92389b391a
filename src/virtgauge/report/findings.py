"""From a ledger to a report: reads, never measures.  Works on a run in progress as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import Agreement, agreement
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, EventRecord, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report.causes import causes
from virtgauge.report.factors import Place, ProbeFactors, Repetitions, probe_factors
from virtgauge.report.headlines import headlines
from virtgauge.report.model import SCHEMA_VERSION, ArmSummary, Cell, Report, Run, TrialLine, function_label
from virtgauge.report.paired_cells import Medians
from virtgauge.report.paper_claims import examined_claims
from virtgauge.report.published import citations, published_rows
from virtgauge.report.series import CellBuilder, CellKey, TrialFigures, cell_key, ordered_cells, read_figures

COMPLETED = "completed"
"""The kind of the event that marks a run's end; without it, a run is under way, was interrupted or ended early."""
CHANGED_HOST = "changed-host"
"""The kind of the event that a run went on although its host had changed."""
TIMING = "timing"
"""The suite whose paper's own conclusions are tested again beside a run of it."""


def build(ledger: Ledger) -> Report:
    """Everything that a run's ledger says.

    Args:
        ledger: of a finished run, or of one in progress or interrupted: then the report says so.
    """
    manifest, trials, guests, events = ledger.manifest(), ledger.trials(), ledger.guests(), ledger.events()
    keys = ordered_cells(trials)
    figures = read_figures(ledger, trials)
    builder = CellBuilder(manifest.arms, trials, figures, manifest.confidence, ledger.samples)
    cells = tuple(builder.cell(key) for key in keys)
    agrees = agreement(builder.aa_ratios)
    medians = {arm.name: _medians(builder, keys, arm.name) for arm in manifest.arms}
    reference = next((medians[arm.name] for arm in manifest.arms if arm.role == "reference"), None)
    arms = tuple(
        _arm_summary(arm, trials, guests, medians[arm.name], reference, manifest.confidence) for arm in manifest.arms
    )
    published = published_rows(cells, manifest.arms)
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
        finished=_finished(events),
        blocks=len({trial.block for trial in trials if trial.status is TrialStatus.VALID}),
    )
    return Report(
        schema_version=SCHEMA_VERSION,
        run=run,
        headlines=headlines(arms, cells),
        caveats=_caveats(run, cells, trials, agrees, events),
        agreement=agrees,
        arms=arms,
        cells=cells,
        published=published,
        citations=citations(published),
        factors=_factors(builder, keys, manifest.arms, manifest.confidence),
        paper_claims=examined_claims() if any(suite == TIMING for suite, _, _ in keys) else (),
        trials=_trial_lines(trials, keys, figures),
        guests=tuple(guests),
        events=tuple(events),
    )


def _factors(
    builder: CellBuilder, keys: Sequence[CellKey], arms: Sequence[ArmRecord], nominal: float
) -> tuple[ProbeFactors, ...]:
    """The tests of factors, probe by probe."""
    probes: dict[tuple[str, str], dict[Place, Repetitions]] = {}
    for key in keys:
        suite, probe, items = key
        factors = dict(items)
        for arm in arms:
            measured = builder.measured(key, arm.name)
            if measured:
                place = (function_label(factors), arm.name, factors.get("load", ""))
                repetitions = {block: figures.statistics for block, figures in measured.items()}
                probes.setdefault((suite, probe), {})[place] = repetitions
    found = (probe_factors(suite, probe, cells, arms, nominal) for (suite, probe), cells in probes.items())
    return tuple(one for one in found if one is not None)


def _medians(builder: CellBuilder, keys: Sequence[CellKey], arm: str) -> Medians:
    """An arm's medians of the timing suite, by cell and block."""
    found = {}
    for suite, probe, items in keys:
        measured = builder.measured((suite, probe, items), arm) if suite == TIMING else {}
        medians = {b: value for b, figures in measured.items() if (value := figures.statistics["p50"]) is not None}
        if medians:
            found[probe, frozenset(items)] = medians
    return found


def _finished(events: Sequence[EventRecord]) -> bool:
    """Whether the last that was said of the run's course is that it ended whole."""
    course = [event.kind for event in events if event.kind in (COMPLETED, "started", "resumed", "interrupted")]
    return bool(course) and course[-1] == COMPLETED


def _arm_summary(
    arm: ArmRecord,
    trials: Sequence[TrialRecord],
    guests: Sequence[GuestRecord],
    medians: Medians,
    reference: Medians | None,
    nominal: float,
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
        causes=causes(facts, medians, measured, nominal, None if arm.role == "reference" else reference)
        if medians
        else (),
    )


def _caveats(
    run: Run,
    cells: Sequence[Cell],
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
    medians = [series.statistics["p50"] for cell in cells for series in cell.series]
    lowest = min((median.confidence for median in medians if median.confidence is not None), default=None)
    if lowest is None:
        said.append("One repetition gives no interval. Six are the least for a 95 % one.")
    elif lowest < run.confidence:
        said.append(
            f"With the repetitions at hand some intervals reach {lowest:.1%} confidence, not the {run.confidence:.0%} "
            "asked for; each says which it has."
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
