"""The levels of an archived run: of every figure the median over its repetitions, what series over runs are made of.

A run has one file of them, written once with the run, so that a run more costs the same however many there are; and a
report of an archive reads these and no trial.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import dataset

from virtgauge.analysis.estimate import median_estimate
from virtgauge.errors import UsageError
from virtgauge.exchange.figures import chosen_of
from virtgauge.exchange.place import Place
from virtgauge.exchange.trials import host_facts
from virtgauge.ledger.damage import is_figure
from virtgauge.ledger.records import HostRecord
from virtgauge.report.model import row_labels
from virtgauge.results.table import ResultTable
from virtgauge.suites.cell_settings import plan_of, settings_of


class Level(NamedTuple):
    """One figure of one run."""

    archive: str  # the run's name in the archive
    # host, cpu, kernel: as of :class:`virtgauge.exchange.trials.Row`
    host: str
    cpu: str
    kernel: str
    version: str  # of virtgauge
    arm: str  # its name in the plan
    label: str  # what it is called
    platform: str  # its kind
    emulated: bool
    measure: str  # its full name
    unit: str  # of the level
    probe: str
    factors: str  # levels by factor, as a JSON object, sorted
    settings: str  # by which the cell was measured, as a JSON object; empty where the plan does not say
    # level, low, high: the median over the repetitions, and the ends of its interval, None where it has none
    level: float
    low: float | None
    high: float | None
    confidence: float | None  # that the interval has, which with few repetitions is less than was asked for
    repetitions: int


_TYPES = {"emulated": pa.bool_(), "repetitions": pa.int32()} | dict.fromkeys(
    ("level", "low", "high", "confidence"), pa.float64()
)
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in Level._fields])


_NUMBERS = ("level", "low", "high")
_MAY_BE_MISSING = {"low", "high", "confidence"}


def write_levels(place: Place, path: str, name: str, table: ResultTable) -> None:
    """The file of a run, which has that name in the archive. Raises OSError: the place refuses."""
    levels = list(_levels_of(name, table))
    columns = zip(*levels, strict=True) if levels else ([] for _ in SCHEMA)
    made = pa.table([pa.array(own, field.type) for own, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    place.files.create_dir(path.rpartition("/")[0], recursive=True)
    with place.files.open_output_stream(path) as stream:
        pq.write_table(made, stream, compression="zstd")


def read_levels(place: Place, paths: Sequence[str], measures: Collection[str]) -> pa.Table:
    """The levels of these measures, by their full names, of the runs with these files, in no order.

    Raises:
        UsageError: a file is missing or damaged.
    """
    if not paths:
        return SCHEMA.empty_table()
    try:
        for path in paths:
            place.require_file(path)
        files = dataset.dataset([*paths], schema=SCHEMA, format="parquet", filesystem=place.files)
        found = files.to_table(filter=pc.field("measure").isin([*measures]))
        found.validate(full=True)
        for name in set(Level._fields) - _MAY_BE_MISSING:
            if found[name].null_count:
                raise ValueError(f"{name} is missing")
    except (OSError, ValueError, pa.ArrowException) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{place.name}: levels cannot be read: {first}", "archive that run anew") from error
    for name in _NUMBERS:  # a figure that is none says nothing
        size = pc.abs(found[name])
        sound = pc.or_(pc.equal(size, 0.0), pc.and_(pc.greater(size, 1e-30), pc.less(size, 1e30)))
        found = found.filter(pc.fill_null(sound, True))
    return found


def _levels_of(name: str, table: ResultTable) -> Iterator[Level]:
    manifest, plan = table.manifest, plan_of(table.manifest)
    settings = {} if plan is None else settings_of(plan)
    labels = row_labels(manifest.arms)
    hosts: list[tuple[HostRecord | None, tuple[str, str, str]]] = [
        (host, host_facts(host, host.fingerprint)) for host in manifest.hosts
    ]
    hosts = hosts or [(None, host_facts(None, manifest.fingerprint))]
    for measure in chosen_of(table, None):
        for cell in table.cells(measure.suite):
            own_settings = json.dumps(settings[cell], sort_keys=True, default=str) if cell in settings else ""
            for arm in table.arms:
                values = {} if arm.role == "aa" else table.values(measure, cell, arm.name)
                for host, facts in hosts if values else ():
                    own = [one for block, one in values.items() if host is None or host.owns(block)]
                    if not own or not all(map(is_figure, own)):
                        continue
                    found = median_estimate(own, measure.quantity.unit, table.confidence)
                    assert found.point is not None
                    yield Level(
                        *(name, *facts, manifest.tool_version, arm.name, labels[arm.name], arm.kind, arm.emulated),
                        *(measure.full_name, measure.quantity.unit, cell.probe),
                        *(json.dumps(cell.factors, sort_keys=True), own_settings),
                        level=found.point,
                        low=found.low,
                        high=found.high,
                        confidence=found.confidence,
                        repetitions=found.n,
                    )
