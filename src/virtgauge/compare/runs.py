"""The runs that are compared: what is read of each, once."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path

from virtgauge.errors import UsageError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import ArmRecord, Manifest, TrialStatus
from virtgauge.ledger.store import LEDGER_NAME
from virtgauge.measures.catalogue import find_measure, headline_measures
from virtgauge.measures.measure import Measure
from virtgauge.measures.values import MeasuredValues, read_values
from virtgauge.report.findings import has_finished

_LIMIT_S = 600.0
"""A ledger that takes longer to read is damaged, or made to do harm."""


@dataclasses.dataclass(frozen=True)
class ReadRun:
    """One run.

    Attributes:
        folder: where it was read.
        values: of its valid trials.
        blocks: repetitions with a valid trial.
        finished: whether it recorded its end.
    """

    folder: Path
    manifest: Manifest
    values: MeasuredValues
    blocks: int
    finished: bool

    @property
    def identity(self) -> tuple[str, str, int]:
        """The same of a run and its copies only."""
        return self.manifest.run_id, self.manifest.created_at, self.manifest.seed

    def arm(self, name: str) -> ArmRecord | None:
        """An arm of the manifest by name."""
        return next((arm for arm in self.manifest.arms if arm.name == name), None)

    @property
    def reference(self) -> ArmRecord | None:
        return next((arm for arm in self.manifest.arms if arm.role == "reference"), None)

    @property
    def aa(self) -> ArmRecord | None:
        """The reference measured once more; None where the plan had none."""
        return next((arm for arm in self.manifest.arms if arm.role == "aa"), None)


def named_measures(names: Sequence[str]) -> list[Measure]:
    """Measures by their full names; those by which runs are compared when none is named.

    Raises:
        UsageError: there is no such measure.
    """
    if not names:
        return headline_measures()
    found = {}
    for full in names:
        suite, dot, name = full.partition(".")
        if not dot:
            raise UsageError(f"--measure {full}: a measure is named with its suite", "as in timing.sleep_lateness.p99")
        found[full] = find_measure(suite, name)
    return list(found.values())


def read_run(folder: Path, measures: Sequence[Measure]) -> ReadRun:
    """Read a run.

    Raises:
        UsageError: there is none, of another ledger version, damaged, or without a valid trial.
    """
    with ReadOnlyLedger.open(folder, _LIMIT_S) as ledger:
        try:
            trials = ledger.trials()
            figures = read_values(ledger, measures, trials)
            values = MeasuredValues(figures)
            manifest, finished = ledger.manifest(), has_finished(ledger.events())
        except (sqlite3.Error, zlib.error, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{folder}: its {LEDGER_NAME} cannot be read: {error}", "restore it from a copy, or leave this run out"
            ) from error
    strange = next((one for one in figures if not math.isfinite(one.value)), None)
    if strange is not None:
        raise UsageError(
            f"{folder}: {strange.measure.full_name} of trial {strange.trial.trial_id} is {strange.value}, no number",
            "leave this run out, or compare other measures with --measure",
        )
    blocks = {trial.block for trial in trials if trial.status is TrialStatus.VALID}
    if not blocks:
        raise UsageError(
            f"{folder}: not one of its {len(trials)} trials is valid, so there is nothing to compare",
            f"`virtgauge report {folder}` says why; `virtgauge resume {folder}` goes on",
        )
    return ReadRun(folder, manifest, values, len(blocks), finished)


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Runs, and the runs within folders of runs.

    Raises:
        UsageError: a folder is neither.
    """
    found: list[Path] = []
    for path in paths:
        if (path / LEDGER_NAME).is_file():
            found.append(path)
            continue
        within = sorted(entry.parent for entry in path.glob(f"*/{LEDGER_NAME}"))
        if not within:
            raise UsageError(
                f"{path}: neither a run nor a folder of runs", f"a run has a {LEDGER_NAME}; `virtgauge run` makes one"
            )
        found += within
    return list(dict.fromkeys(found))
