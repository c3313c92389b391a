"""A run as tidy rows: one for each trial and measure, trials that do not count among them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.ledger.records import HostRecord
from virtgauge.measures.catalogue import MEASURES
from virtgauge.results.columns import STATUSES, Cell, read_endings, read_marks
from virtgauge.results.measure import Column, Measure
from virtgauge.results.table import ResultTable


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
        value: in ``unit``; None for a trial that does not count, and where one that does cannot say it.
        unit: the base unit of the measure's quantity.
        better: ``lower``, ``higher`` or ``neither``.
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


def chosen_of(table: ResultTable, measures: Sequence[Measure] | None) -> list[Measure]:
    """Of these measures, or of all, those of the suites that a run has; what they need is read."""
    wanted = [one for named in MEASURES.values() for one in named.values()] if measures is None else measures
    chosen = [one for one in wanted if one.suite in table.suites]
    table.read(chosen)
    return chosen


def column_of(table: ResultTable, measure: Measure) -> Column:
    """A measure's figure of each trial, in the order of :class:`Trials`; NaN of those that do not count."""
    found = np.full(table.trials.number.size, np.nan)
    found[table.trials.counted] = table.column(measure)
    return found


def measures_by_cell(table: ResultTable, measures: Sequence[Measure]) -> dict[Cell, list[tuple[Measure, Column]]]:
    """Of each cell its measures, each with :func:`column_of`."""
    columns = [(one, column_of(table, one)) for one in measures]
    return {
        cell: [told for told in columns if told[0].suite == cell.suite and cell.probe in told[0].probes]
        for cell in table.cells()
    }


def read_rows(table: ResultTable, measures: Sequence[Measure] | None = None) -> Iterator[Row]:
    """Every trial of a run, in the order of the ledger.

    Args:
        table: of a run, also of one in progress.
        measures: only these; then trials that have none of them are left out.
    """
    trials, manifest = table.trials, table.manifest
    arms = {arm.name: arm for arm in manifest.arms}
    by_cell = measures_by_cell(table, chosen_of(table, measures))
    levels = {cell: json.dumps(cell.factors, ensure_ascii=False) for cell in trials.cells}
    hosts = {host.name: _host_facts(host, host.fingerprint) for host in manifest.hosts}
    alone = _host_facts(None, manifest.fingerprint)
    endings = read_endings(table.ledger)
    run = {
        "run": manifest.run_id,
        "created_at": manifest.created_at,
        "plan": manifest.plan_name,
        "version": manifest.tool_version,
    }
    columns = (trials.cell, trials.arm, trials.block, trials.attempt, trials.status)
    places = zip(*(column.tolist() for column in columns), strict=True)
    # A run in progress may have trials by now that the columns lack.
    for row, ((cell_at, arm_at, block, attempt, status), mark) in enumerate(
        zip(places, read_marks(table.ledger), strict=False)
    ):
        cell, arm = trials.cells[cell_at], arms.get(trials.arms[arm_at])
        host = next((one for one in manifest.hosts if one.owns(block)), None)
        flags, error = endings.get(mark.number, ((), None))
        shared: dict[str, Any] = {
            **run,
            **(alone if host is None else hosts[host.name]),
            "suite": cell.suite,
            "probe": cell.probe,
            "arm": trials.arms[arm_at],
            "platform": mark.platform,
            "role": arm.role if arm else "",
            "emulated": arm.emulated if arm else False,
            "factors": levels[cell],
            "block": block,
            "attempt": attempt,
            "trial_id": mark.number,
            "key": mark.key,
            "status": STATUSES[status].value,
            "flags": " ".join(flag.name for flag in flags),
            "error": error,
            "started_at": mark.started_at,
            "elapsed_ns": mark.elapsed_ns,
        }
        for measure, column in by_cell[cell]:
            value = float(column[row])
            yield Row(
                **shared,
                measure=measure.name,
                value=None if math.isnan(value) else value,
                unit=measure.quantity.unit,
                better=measure.better.value,
            )
        if not by_cell[cell] and measures is None:
            yield Row(**shared, measure=None, value=None, unit=None, better=None)


def _host_facts(host: HostRecord | None, fingerprint: Mapping[str, Any]) -> dict[str, str]:
    identity = fingerprint.get("identity")
    known = identity if isinstance(identity, Mapping) else {}
    return {
        "host": host.name if host else "",
        "cpu": str(known.get("cpu_model") or ""),
        "kernel": str(known.get("kernel_release") or ""),
    }
