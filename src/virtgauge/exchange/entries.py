"""What an archive holds, for whoever reads it: a folder, or a prefix of a bucket in an object store that speaks S3.

    ROOT/trials/suite=timing/month=2025-03/RUN-DIGEST.parquet     rows: a trial and a measure each
    ROOT/levels/RUN-DIGEST.parquet                                rows: a :class:`Level` each
    ROOT/runs/RUN.json                                            the :class:`Entry`: which files are the run's

Readers follow the entries and never list files: what an interrupted writer left is not seen.  A run has one file of
levels, of every figure the median over its repetitions, written once with the run: a report of an archive reads these
and no trial, and a run more costs the same however many there are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset
from pydantic import BaseModel, Field

from virtgauge.errors import UsageError
from virtgauge.exchange.place import Place

VERSION = 1  # Of the archive's layout
_RUNS = "runs"


class ArchivedFile(BaseModel, extra="forbid", frozen=True):
    """A file of trials."""

    # below the archive's root
    path: Annotated[str, Field(pattern=r"^trials/suite=[a-z]+/month=\d{4}-\d{2}/[A-Za-z0-9._-]+\.parquet$")]
    suite: str  # of all its trials
    rows: Annotated[int, Field(ge=0)]  # in it


class Entry(BaseModel, extra="forbid", frozen=True):
    """One archived run."""

    version: int  # of the layout
    archive: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]  # the run's name in the archive, unique
    # run, plan, created_at: as in its manifest
    run: str
    plan: str
    created_at: str
    trials: Annotated[int, Field(ge=0)]  # number of them
    digest: str  # of the trials and the measures; the same of a run that has not changed
    archived_at: str  # ISO 8601, UTC
    files: tuple[ArchivedFile, ...]
    # of its levels, below the archive's root; None of a run that was archived before there were such files
    levels: Annotated[str, Field(pattern=r"^levels/[A-Za-z0-9._-]+\.parquet$")] | None = None
    # What was recorded beside the figures, by the hosts' names in the levels; empty of a run archived before that was
    # kept.
    facts: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    reference: str = ""  # the arm with which others are compared; empty without one
    finished: bool = True  # whether the run had recorded its end

    @property
    def paths(self) -> set[str]:
        """The paths of all its files, below the archive's root."""
        return {one.path for one in self.files} | ({self.levels} if self.levels else set())


def read_entry(place: Place, archive: str) -> Entry | None:
    """A run's entry; None where the archive does not hold it."""
    path = place.path(_RUNS, f"{archive}.json")
    try:
        return _parsed(place, path)
    except FileNotFoundError:
        return None


def read_entries(place: Place) -> list[Entry]:
    """Every archived run. Raises UsageError: there is no archive, or one that this virtgauge does not know."""
    try:
        paths = [path for path in place.found(_RUNS) if path.endswith(".json")]
        entries = [_parsed(place, path) for path in paths]
    except OSError as error:
        raise UsageError(f"{place.name}: cannot be read: {error}", "check address, endpoint and keys") from error
    if not entries:
        raise UsageError(f"{place.name}: holds no archive", "`virtgauge archive add RUN --to FOLDER` makes one")
    return entries


def write_entry(place: Place, entry: Entry) -> None:
    """Make a run visible, in the place of its earlier entry."""
    place.files.create_dir(place.path(_RUNS), recursive=True)
    place.write(place.path(_RUNS, f"{entry.archive}.json"), entry.model_dump_json(indent=1).encode())


def _parsed(place: Place, path: str) -> Entry:
    try:
        document = json.loads(place.read(path))
        if isinstance(document, dict) and document.get("version") != VERSION:
            raise UsageError(
                f"{path}: has version {str(document.get('version'))[:40]} of the archive; this one reads {VERSION}",
                "use the virtgauge that wrote it",
            )
        return Entry.model_validate(document)
    except (ValueError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{path}: is no entry of an archive: {first}", "remove it, and archive the run anew"
        ) from error


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
LEVELS_SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in Level._fields])
_UNREADABLE = (OSError, ValueError, pa.ArrowException)


def read_levels(
    place: Place, paths: Sequence[str], measures: Collection[str] | None = None
) -> tuple[pa.Table, dict[str, str]]:
    """The levels of these measures, or of all, in these files, in no order; and of unreadable ones, by path, why."""
    wanted = None if measures is None else pc.field("measure").isin([*measures])
    try:
        return _read_levels(place, paths, wanted), {}
    except _UNREADABLE:
        tables, unread = [LEVELS_SCHEMA.empty_table()], {}
        for path in paths:
            try:
                tables.append(_read_levels(place, [path], wanted))
            except _UNREADABLE as error:
                unread[path] = str(error).splitlines()[0]
        return pa.concat_tables(tables), unread


def _read_levels(place: Place, paths: Sequence[str], wanted: pc.Expression | None) -> pa.Table:
    """Raises OSError, ValueError, ArrowException: a file is missing or damaged."""
    if not paths:
        return LEVELS_SCHEMA.empty_table()
    for path in paths:
        place.require_file(path)
    files = dataset.dataset([*paths], schema=LEVELS_SCHEMA, format="parquet", filesystem=place.files)
    found = files.to_table(filter=wanted)
    found.validate(full=True)
    for name in set(Level._fields) - {"low", "high", "confidence"}:
        if found[name].null_count:
            raise ValueError(f"{name} is missing")
    for name in ("level", "low", "high"):  # a figure that is none says nothing
        size = pc.abs(found[name])
        sound = pc.or_(pc.equal(size, 0.0), pc.and_(pc.greater(size, 1e-30), pc.less(size, 1e30)))
        found = found.filter(pc.fill_null(sound, True))
    return found
