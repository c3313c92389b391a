"""A run as tidy rows: one for each trial and measure, trials that do not count among them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.ledger.records import ArmRecord, Manifest, TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.measures.catalogue import MEASURES
from virtgauge.measures.measure import Measure
from virtgauge.measures.values import read_values

TRIALS_AT_ONCE = 2000
"""At least so many trials are read before rows are made of them: whole blocks, for some measures relate two trials."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure of one trial, or that there is none.

    Attributes:
        run, created_at, plan, version: of the run, and the virtgauge that measured it.
        host: of a fleet's run, as its plan names it; empty where the run had one host only.
        cpu, kernel: of that host's fingerprint; empty where unknown.
        arm, platform, role, emulated: as in the manifest.
        trial_id, key, block, attempt, status, started_at, elapsed_ns, error: as in the ledger.
        flags: names of the validity flags, with blanks between.
        factors: levels by factor, as a JSON object in the order of the plan.
        measure: its name within the suite; None for a trial whose probe has none.
        value: in ``unit``; None for a trial that is not valid, and where a valid one cannot say it.
        unit: the base unit of the measure's quantity.
        better: ``lower`` or ``higher``.
    """

    run: str
    created_at: str
    plan: str
    version: str
    host: str
    cpu: str
    kernel: str
    suite: str
    probe: str
    measure: str | None
    arm: str
    platform: str
    role: str
    emulated: bool
    factors: str
    block: int
    attempt: int
    trial_id: int
    key: str
    status: str
    flags: str
    error: str | None
    started_at: str
    elapsed_ns: int
    value: float | None
    unit: str | None
    better: str | None


COLUMNS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(Row))


def read_rows(ledger: Ledger, measures: Sequence[Measure] | None = None) -> Iterator[Row]:
    """Every trial of a run, in the order of its blocks; memory holds some blocks at a time.

    Args:
        ledger: of a run, also of one in progress.
        measures: only these; then trials that have none of them are left out.
    """
    manifest = ledger.manifest()
    arms = {arm.name: arm for arm in manifest.arms}
    everything = [one for named in MEASURES.values() for one in named.values()]
    wanted = everything if measures is None else list(measures)
    for trials in _blocks(ledger.trials()):
        suites = {trial.suite for trial in trials}
        asked = [measure for measure in wanted if measure.suite in suites]
        values = {(one.measure.full_name, one.trial.trial_id): one.value for one in read_values(ledger, asked, trials)}
        by_probe: dict[tuple[str, str], list[Measure]] = {}
        for trial in trials:
            place = trial.suite, trial.probe
            if place not in by_probe:
                by_probe[place] = [one for one in asked if one.suite == trial.suite and trial.probe in one.probes]
            shared = _of_trial(manifest, arms.get(trial.arm), trial)
            for measure in by_probe[place]:
                value = values.get((measure.full_name, trial.trial_id))
                yield Row(
                    **shared,
                    measure=measure.name,
                    value=value,
                    unit=measure.quantity.unit,
                    better=measure.better.value,
                )
            if not by_probe[place] and measures is None:
                yield Row(**shared, measure=None, value=None, unit=None, better=None)


def _blocks(trials: Iterable[TrialRecord]) -> Iterator[list[TrialRecord]]:
    """Trials by whole blocks, several blocks together where they are small."""
    by_block: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        by_block.setdefault(trial.block, []).append(trial)
    gathered: list[TrialRecord] = []
    for block in sorted(by_block):
        gathered += by_block[block]
        if len(gathered) >= TRIALS_AT_ONCE:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _of_trial(manifest: Manifest, arm: ArmRecord | None, trial: TrialRecord) -> dict[str, Any]:
    host = next((one for one in manifest.hosts if one.owns(trial.block)), None)
    fingerprint = host.fingerprint if host else manifest.fingerprint
    identity = _mapping(fingerprint.get("identity"))
    return {
        "run": manifest.run_id,
        "created_at": manifest.created_at,
        "plan": manifest.plan_name,
        "version": manifest.tool_version,
        "host": host.name if host else "",
        "cpu": str(identity.get("cpu_model") or ""),
        "kernel": str(identity.get("kernel_release") or ""),
        "suite": trial.suite,
        "probe": trial.probe,
        "arm": trial.arm,
        "platform": trial.platform,
        "role": arm.role if arm else "",
        "emulated": arm.emulated if arm else False,
        "factors": json.dumps(trial.factors, ensure_ascii=False),
        "block": trial.block,
        "attempt": trial.attempt,
        "trial_id": trial.trial_id,
        "key": trial.key,
        "status": trial.status.value,
        "flags": " ".join(flag.name for flag in trial.flags),
        "error": trial.error,
        "started_at": trial.started_at,
        "elapsed_ns": trial.elapsed_ns,
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
