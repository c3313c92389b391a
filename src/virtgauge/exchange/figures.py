"""The estimates of a run, and the formats of others that hold figures instead of trials: OpenMetrics and Bencher."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.errors import printable
from virtgauge.ledger.records import ArmRecord, Manifest
from virtgauge.results import quantities
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measure of one arm in one cell."""

    measure: Measure
    cell: Cell
    arm: ArmRecord
    values: tuple[float, ...]  # one a repetition, by ascending block, in the measure's base unit
    estimate: Estimate  # the median over the repetitions


def cell_text(cell: Cell) -> str:
    """A cell within its suite: ``timer_cost function=rdtsc load=idle``."""
    return " ".join([cell.probe, *(f"{factor}={level}" for factor, level in cell.levels)])


def chosen_of(table: ResultTable, measures: Sequence[Measure] | None) -> list[Measure]:
    """Of these measures, or of all, those of the suites that a run has; what they need is read."""
    wanted = [one for named in MEASURES.values() for one in named.values()] if measures is None else measures
    chosen = [one for one in wanted if one.suite in table.suites]
    table.read(chosen)
    return chosen


def read_figures(table: ResultTable, measures: Sequence[Measure] | None = None) -> list[Figure]:
    """The estimates of these measures, or of all, so far: cell by cell, the arms of a cell in the plan's order."""
    return [
        Figure(measure, cell, arm, tuple(values.values()), table.estimate(measure, cell, arm.name))
        for measure in chosen_of(table, measures)
        for cell in table.cells(measure.suite)
        for arm in table.arms
        if (values := table.values(measure, cell, arm.name))
    ]


_UNITS = {
    quantities.DURATION.name: ("seconds", 1e-9),
    quantities.BIT_RATE.name: ("bits_per_second", 1.0),
    quantities.FRAME_RATE.name: ("frames_per_second", 1.0),
    quantities.OPERATION_RATE.name: ("operations_per_second", 1.0),
    quantities.ROW_RATE.name: ("rows_per_second", 1.0),
    quantities.WORK_RATE.name: ("units_per_second", 1.0),
    quantities.SHARE.name: ("ratio", 0.01),
    quantities.SIZE.name: ("bytes", 1.0),
    quantities.FACTOR.name: ("ratio", 1.0),
    quantities.RATIO.name: ("ratio", 1.0),
    quantities.BYTE_RATE.name: ("bytes_per_second", 1.0),
    quantities.EVENT_RATE.name: ("events_per_second", 1.0),
    quantities.CPUS.name: ("processors", 1.0),
    quantities.FLUSH_RATE.name: ("flushes_per_second", 1.0),
    quantities.FLUSHES.name: ("flushes", 1.0),
}
"""By quantity, its unit here and how many of it the base unit of the catalogue has; without one: a plain number."""


def openmetrics(manifest: Manifest, found: Sequence[Figure]) -> str:
    """The whole exposition.

    Of each measure: ``virtgauge_SUITE_MEASURE_UNIT``, the same with ``_low`` and ``_high`` before the unit for the
    interval's ends, where there is one, and with ``_repetitions`` for how many stand behind it.  Factors are labels;
    one that is called like a label of ours has ``factor_`` before it.
    """
    by_measure = itertools.groupby(found, lambda one: one.measure.full_name)
    lines = [line for _, figures in by_measure for line in _families(manifest, [*figures])]
    return "".join(f"{line}\n" for line in [*lines, "# EOF"])


def _families(manifest: Manifest, figures: list[Figure]) -> Iterator[str]:
    measure = figures[0].measure
    unit, factor = _UNITS.get(measure.quantity.name, ("", 1.0))
    base = _name(f"virtgauge_{measure.full_name}")
    labels = [_labels(manifest, figure) for figure in figures]
    estimates = [figure.estimate for figure in figures]
    for suffix, about, values in (
        ("", "median over the repetitions", [one.point for one in estimates]),
        ("_low", "lower end of the interval", [one.low for one in estimates]),
        ("_high", "upper end of the interval", [one.high for one in estimates]),
    ):
        scaled = [None if value is None else value * factor for value in values]
        yield from _family(f"{base}{suffix}", unit, f"{measure.meaning}; {about}", zip(labels, scaled, strict=True))
    counts = [float(one.n) for one in estimates]
    yield from _family(f"{base}_repetitions", "", "how many stand behind it", zip(labels, counts, strict=True))


def _family(name: str, unit: str, about: str, samples: Iterable[tuple[str, float | None]]) -> Iterator[str]:
    present = [(labels, value) for labels, value in samples if value is not None]
    if present:
        full = f"{name}_{unit}" if unit else name
        yield f"# TYPE {full} gauge"
        if unit:
            yield f"# UNIT {full} {unit}"
        yield f"# HELP {full} {_escaped(about)}"
        for labels, value in present:
            yield f"{full}{{{labels}}} {value:.12g}"


def _labels(manifest: Manifest, figure: Figure) -> str:
    arm = figure.arm
    own = {
        "run": manifest.run_id,
        "plan": manifest.plan_name,
        "platform": arm.name,
        "kind": arm.kind,
        "role": arm.role,
        "emulated": str(arm.emulated).lower(),
        "probe": figure.cell.probe,
    }
    levels = {_name(factor): level for factor, level in figure.cell.levels}
    theirs = {f"factor_{name}" if name in own or name.startswith("__") else name: of for name, of in levels.items()}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in (own | theirs).items())


def _name(text: str) -> str:
    return re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", text)


def _escaped(text: str) -> str:
    return printable(text, lines=True).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


NAME_LIMIT = 1024
SLUG_LIMIT = 64


def bencher(_: Manifest, found: Sequence[Figure]) -> str:
    """The whole document; figures that are missing are left out."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for figure in found:
        estimate = figure.estimate
        if estimate.point is not None:
            metric = {"value": estimate.point}
            if estimate.low is not None and estimate.high is not None:
                metric |= {"lower_value": estimate.low, "upper_value": estimate.high}
            marked = f" ({figure.arm.mark})" if figure.arm.mark else ""
            name = f"{figure.arm.name}{marked}: {figure.measure.suite} {cell_text(figure.cell)}"
            benchmarks.setdefault(_within(name, NAME_LIMIT), {})[slug(figure.measure.full_name)] = metric
    return json.dumps(benchmarks, allow_nan=False, indent=1)


def slug(name: str) -> str:
    """A measure's slug: ``timing-sleep-lateness-p99-9``."""
    return _within(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), SLUG_LIMIT)


def _within(text: str, limit: int) -> str:
    """Cut to a length, and told apart from others that begin alike by a hash of the whole."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: limit - len(digest) - 1]}-{digest}"
