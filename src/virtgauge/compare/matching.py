"""What of one run is compared with what of the others: arms, cells and measures that they have in common.

A cell's key says its levels only: a p99 of 500 sleeps and one of 5000 are of one key, and are not the same figure.  So
cells are held together by their settings too, as the plans had them: durations, numbers of samples, limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.compare.model import ArmPair, SetAside
from virtgauge.compare.runs import ReadRun
from virtgauge.errors import UsageError
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import first_of
from virtgauge.results.measure import Measure
from virtgauge.specs.suites import cell_name, row_labels
from virtgauge.suites.cell_settings import differing, plan_of, settings_of


@dataclasses.dataclass(frozen=True)
class Matched:
    """What is compared."""

    arms: tuple[ArmPair, ...]  # of the base run with those of all others
    cells: tuple[Cell, ...]  # in which anything is compared, in the order of the base run
    places: tuple[tuple[Measure, Cell, ArmPair], ...]  # what is compared
    set_aside: tuple[SetAside, ...]  # what is not, and why


def match(runs: Sequence[ReadRun], measures: Sequence[Measure], wanted: Sequence[str]) -> Matched:
    """Find what the first run has in common with at least one of the others.

    ``wanted`` is ``BASE=OTHER`` or ``NAME`` for each arm; empty for all that are named alike. Raises UsageError: an arm
    that was named is not there or cannot be compared, or nothing is left.
    """
    set_aside: list[SetAside] = []
    arms = _named_arms(runs, wanted) if wanted else _common_arms(runs, set_aside)
    cells = _comparable_cells(runs, measures, set_aside)
    found = [
        (measure, key, pair)
        for key in cells
        for measure in measures
        if measure.suite == key.suite
        for pair in arms
        if runs[0].blocks(measure, key, pair.base)
        and any(run.blocks(measure, key, pair.other) for run in runs[1:] or runs)
    ]
    if not found:
        raise UsageError(
            "the runs have no figure in common: " + (_why(set_aside) or _lacking(runs, measures)),
            "compare runs of one plan, or name other figures with --measure (`virtgauge measures`) or --arm",
        )
    # Without the cells and arms in which nothing is compared.
    cells = [key for key in cells if any(key == one for _, one, _ in found)]
    arms = [pair for pair in arms if any(pair is one for *_, one in found)]
    return Matched(tuple(arms), tuple(cells), tuple(found), tuple(set_aside))


def _named_arms(runs: Sequence[ReadRun], wanted: Sequence[str]) -> list[ArmPair]:
    pairs = []
    for text in dict.fromkeys(wanted):
        name, equals, other_name = text.partition("=")
        other_name = other_name if equals else name
        if len(runs) == 1 and name == other_name:
            raise UsageError(f"--arm {text}: the same platform twice", "name two of them, as A=B, or a second run")
        base = _arm(runs[0], name, text)
        others = [_arm(run, other_name, text) for run in runs[1:] or runs]
        for run, other in zip(runs[1:] or runs, others, strict=True):
            if other.emulated != base.emulated:
                raise UsageError(f"--arm {text}: {_emulation(runs[0], base, run)}", "compare figures of one kind")
        pairs.append(_pair(runs[0], base, (runs[1:] or runs)[0], others[0]))
    return pairs


def _arm(run: ReadRun, name: str, text: str) -> ArmRecord:
    found = run.arm(name)
    if found is None:
        known = ", ".join(arm.name for arm in run.manifest.arms)
        raise UsageError(f"--arm {text}: {run.folder} has no arm {name!r}", f"it has {known}")
    return found


def _common_arms(runs: Sequence[ReadRun], set_aside: list[SetAside]) -> list[ArmPair]:
    """Arms of the base run that another has under the same name; the A/A arm is no platform of its own."""
    pairs, labels = [], row_labels(runs[0].manifest.arms)
    for base in (arm for arm in runs[0].manifest.arms if arm.role != "aa" and arm.usable):
        others = [(run, arm) for run in runs[1:] if (arm := run.arm(base.name)) is not None and arm.usable]
        apart = next((run for run, arm in others if arm.emulated != base.emulated), None)
        if not others:
            set_aside.append(SetAside(labels[base.name], "measured in the base run only"))
        elif apart is not None:
            set_aside.append(SetAside(labels[base.name], _emulation(runs[0], base, apart)))
        else:
            pairs.append(_pair(runs[0], base, *others[0]))
    if not pairs:
        known = "; ".join(f"{run.folder.name}: {', '.join(arm.name for arm in run.manifest.arms)}" for run in runs)
        reasons = _why(set_aside)
        raise UsageError(
            f"the runs have no arm in common that could be compared ({known})" + (f": {reasons}" if reasons else ""),
            "match arms of different names with --arm BASE=OTHER",
        )
    names = {arm.name for arm in runs[0].manifest.arms}
    for run in runs[1:]:
        for arm in run.manifest.arms:
            if arm.name not in names and arm.usable and arm.role != "aa":
                label = row_labels(run.manifest.arms)[arm.name]
                set_aside.append(SetAside(label, f"measured in {run.folder.name} and not in the base run"))
    return pairs


def _pair(base_run: ReadRun, base: ArmRecord, other_run: ReadRun, other: ArmRecord) -> ArmPair:
    """Under the label that it has in its own run, where another may be of the same kind."""
    label, beside = row_labels(base_run.manifest.arms)[base.name], row_labels(other_run.manifest.arms)[other.name]
    alike = label == beside or (base.name, base.label) == (other.name, other.label)
    return ArmPair(base.name, other.name, label if alike else f"{label} → {beside}", base.emulated)


def _emulation(base_run: ReadRun, base: ArmRecord, other: ReadRun) -> str:
    if other is base_run:
        return "one of the two is emulated: they are not comparable"
    first, second = (base_run, other) if base.emulated else (other, base_run)
    return f"emulated in {first.folder.name} and measured in {second.folder.name}: the two are not comparable"


def _comparable_cells(runs: Sequence[ReadRun], measures: Sequence[Measure], set_aside: list[SetAside]) -> list[Cell]:
    """Cells of the base run that were measured alike in all runs that have them."""
    keys = list(dict.fromkeys(cell for measure in measures for cell in runs[0].cells(measure)))
    plans = [plan_of(run.manifest) for run in runs]
    known = [settings_of(plan) if plan is not None else {} for plan in plans]
    kept = []
    for key in keys:
        base = known[0].get(key)
        for run, found in zip(runs[1:], known[1:], strict=True):
            other = found.get(key)
            apart = differing(base, other) if base is not None and other is not None else []
            if apart:
                words = f"measured otherwise in {run.folder.name}: {'; '.join(apart)}"
                set_aside.append(SetAside(cell_name(key), words))
                break
        else:
            kept.append(key)
    return kept


def _why(set_aside: Sequence[SetAside]) -> str:
    return first_of([f"{one.what}: {one.reason}" for one in set_aside], 3)


def _lacking(runs: Sequence[ReadRun], measures: Sequence[Measure]) -> str:
    said = []
    for run in runs:
        has = [measure.full_name for measure in measures if run.cells(measure)]
        said.append(f"{run.folder.name} has {first_of(has, 4, ', ') or 'none of the measures asked for'}")
    return "; ".join(said)
