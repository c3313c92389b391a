"""The runs that are compared: what is read of each, once."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from virtgauge.analysis.comparison import aa_band, band_of, paired_difference, paired_ratio
from virtgauge.errors import UsageError
from virtgauge.ledger.damage import is_figure
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import ArmRecord, Manifest, TrialStatus, has_finished
from virtgauge.ledger.store import LEDGER_NAME
from virtgauge.results.columns import STATUSES, Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable

Figures = Mapping[tuple[str, Cell, str], Mapping[int, float]]  # By measure, cell and arm, of each block; none empty
LEAST_SERIES = 4  # Runs; with three, one that differs cannot be told from a change
_LIMIT_S = 600.0  # A ledger that takes longer to read is damaged, or made to do harm


@dataclasses.dataclass(frozen=True)
class ReadRun:
    """One run."""

    folder: Path  # where it was read
    manifest: Manifest
    figures: Figures  # of the measures that are compared
    repetitions: int  # with a valid trial
    finished: bool  # whether it recorded its end

    @property
    def version(self) -> list[str]:
        """Major and minor one of the virtgauge that measured it."""
        return self.manifest.tool_version.split(".")[:2]

    def blocks(self, measure: Measure, cell: Cell, arm: str) -> Mapping[int, float]:
        """An arm's figures in a cell, by block; empty where it has none."""
        return self.figures.get((measure.full_name, cell, arm), {})

    def cells(self, measure: Measure) -> list[Cell]:
        """Those in which any arm has a figure, in the order of the ledger."""
        return list(dict.fromkeys(cell for name, cell, _ in self.figures if name == measure.full_name))

    def arm(self, name: str) -> ArmRecord | None:
        return next((arm for arm in self.manifest.arms if arm.name == name), None)

    def name_of(self, role: str) -> str:
        """Of the arm with that role; empty where the plan had none."""
        return next((arm.name for arm in self.manifest.arms if arm.role == role), "")


class Side(NamedTuple):
    """A measure of an arm in a cell of one of the runs that are compared."""

    run: ReadRun
    measure: Measure
    cell: Cell
    arm: str

    @property
    def blocks(self) -> Mapping[int, float]:
        return self.run.blocks(self.measure, self.cell, self.arm)

    @property
    def ratios(self) -> dict[int, float]:
        """To the reference of the same block; empty of the reference itself, and where a figure is not positive."""
        reference = self.run.name_of("reference")
        own, beside = self.blocks, self._replace(arm=reference).blocks
        both = sorted(own.keys() & beside.keys()) if self.arm != reference else []
        if any(own[block] <= 0 or beside[block] <= 0 for block in both):
            return {}
        return {block: own[block] / beside[block] for block in both}

    def band(self, by_ratio: bool, nominal: float) -> float | None:
        """What identical arms of the run differ by: a factor, or in the measure's unit; None when that is not known."""
        aa, reference = (self._replace(arm=self.run.name_of(role)).blocks for role in ("aa", "reference"))
        if by_ratio:
            return aa_band(paired_ratio(aa, reference, nominal))
        return band_of([paired_difference(aa, reference, self.measure.quantity.unit, nominal)])


def read_run(folder: Path, measures: Sequence[Measure]) -> ReadRun:
    """Read a run.

    Raises UsageError: there is none, of another ledger version, or without a valid trial; DamagedError: its ledger is
    not as it was written.
    """
    with ReadOnlyLedger.for_command(folder, _LIMIT_S) as ledger:
        table = ResultTable(ledger)
        trials, wanted = table.trials, [measure for measure in measures if measure.suite in table.suites]
        table.read(wanted)
        figures = {
            (measure.full_name, cell, arm): values
            for measure in wanted
            for cell in table.cells(measure.suite)
            for arm in table.trials.arms
            if (values := table.values(measure, cell, arm))
        }
        finished = has_finished(ledger.events())
        manifest = table.manifest
    for (name, _, arm), blocks in figures.items():
        for block, value in blocks.items():
            if not is_figure(value):
                raise UsageError(
                    f"{folder}: {name} of {arm} in repetition {block} is {value}, no figure",
                    "leave this run out, or compare other measures with --measure",
                )
    repetitions = len(set(trials.block[trials.status == STATUSES.index(TrialStatus.VALID)].tolist()))
    if not repetitions:
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"{folder}: not one of its {trials.number.size} trials is valid, so there is nothing to compare",
            f"`virtgauge report {quoted}` says why; `virtgauge resume {quoted}` goes on",
        )
    return ReadRun(folder, manifest, figures, repetitions, finished)


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Runs, and the runs within folders of runs. Raises UsageError: a folder is neither."""
    found: list[Path] = []
    for path in paths:
        is_run = (path / LEDGER_NAME).is_file()
        within = [path] if is_run else sorted(entry.parent for entry in path.glob(f"*/{LEDGER_NAME}"))
        if not within:
            raise UsageError(
                f"{path}: neither a run nor a folder of runs", f"a run has a {LEDGER_NAME}; `virtgauge run` makes one"
            )
        found += within
    return list(dict.fromkeys(found))
