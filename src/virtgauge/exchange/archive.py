"""An archive of runs: a folder, or a prefix of a bucket in an object store that speaks S3.

    ROOT/trials/suite=timing/month=2025-03/RUN-DIGEST.parquet     rows: a trial and a measure each
    ROOT/levels/RUN-DIGEST.parquet                                its figures, see :mod:`virtgauge.exchange.levels`
    ROOT/runs/RUN.json                                            the entry: which files are the run's

A run's files are written first and its entry last, so that a run is there whole or not at all; then what the entry no
longer names goes.  Readers follow the entries and never list the files of trials: what an interrupted writer left is
not seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from virtgauge.errors import UsageError, VirtgaugeError
from virtgauge.exchange.levels import Level, write_levels
from virtgauge.exchange.place import Place
from virtgauge.exchange.trials import COLUMNS, SCHEMA, Row, read_rows, table_of
from virtgauge.ledger.records import Manifest
from virtgauge.ledger.store import Ledger, utc_now
from virtgauge.measures.catalogue import MEASURES
from virtgauge.results.columns import STATUSES, read_marks
from virtgauge.results.table import ResultTable

VERSION = 1  # Of the archive's layout

_RUNS = "runs"


class ArchivedFile(BaseModel):
    """A file of trials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # below the archive's root
    path: Annotated[str, Field(pattern=r"^trials/suite=[a-z]+/month=\d{4}-\d{2}/[A-Za-z0-9._-]+\.parquet$")]
    suite: str  # of all its trials
    rows: Annotated[int, Field(ge=0)]  # in it


class Entry(BaseModel):
    """One archived run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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

    @property
    def paths(self) -> set[str]:
        """Of all its files, below the archive's root."""
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


FILE_SCHEMA = SCHEMA.remove(SCHEMA.get_field_index("suite"))

ROWS_IN_MEMORY = 200_000  # Of a suite, before they are sorted and written
_GROUP_ROWS = 20_000  # A query for one measure passes over the other groups by their statistics


class Archived(enum.StrEnum):
    """What became of a run."""

    NEW = "archived"
    RENEWED = "archived anew: it has changed"
    KNOWN = "in the archive already"


@dataclasses.dataclass(frozen=True)
class ArchivedRun:
    """A run in the archive, and what it took."""

    outcome: Archived
    entry: Entry


class ArchiveWriteError(VirtgaugeError):
    """The place does not take what is written."""

    def __init__(self, place: Place, cause: Exception) -> None:
        super().__init__(
            f"cannot write to {place.name}: {cause}",
            "check address, endpoint, keys and free space; the run is as it was there before, and here",
        )


def archive_run(place: Place, ledger: Ledger) -> ArchivedRun:
    """Make the archive hold a run as it is now, once.

    Raises:
        ArchiveWriteError: the place refuses; the archive shows what it showed before.
        UsageError: the archive is of another version.
        ChangedError: the run went on meanwhile.
    """
    table = ResultTable(ledger)
    manifest = table.manifest
    name, digest = archive_name(manifest), _digest(table)
    try:
        known = read_entry(place, name)
        if known is not None and known.digest == digest and known.levels is not None:
            return ArchivedRun(Archived.KNOWN, known)
        stem = f"{name}-{digest[:12]}"
        files, levels = _write_trials(place, table, stem, manifest.created_at[:7]), f"levels/{stem}.parquet"
        try:
            write_levels(place, place.path(levels), name, table)
        except OSError:
            with contextlib.suppress(OSError):
                _remove(place, {levels, *(one.path for one in files)} - (known.paths if known else set()))
            raise
        entry = Entry(
            version=VERSION,
            archive=name,
            run=manifest.run_id,
            plan=manifest.plan_name,
            created_at=manifest.created_at,
            trials=table.trials.number.size,
            digest=digest,
            archived_at=utc_now(),
            files=files,
            levels=levels,
        )
        ledger.confirm()
        write_entry(place, entry)
        if known is not None:
            _remove(place, known.paths - entry.paths)
    except OSError as error:
        raise ArchiveWriteError(place, error) from error
    return ArchivedRun(Archived.RENEWED if known else Archived.NEW, entry)


def archive_name(manifest: Manifest) -> str:
    """A run's name in archives: its own, and a digest that tells it from runs of that name on other machines."""
    identity = repr((manifest.run_id, manifest.created_at, manifest.seed, manifest.plan_text, manifest.fingerprint))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.run_id)[:60].strip(".-") or "run"
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _digest(table: ResultTable) -> str:
    """A ledger only grows, so its trials' names say its state; what is said of them hangs on columns and measures."""
    digest = hashlib.sha256(repr((VERSION, COLUMNS, Level._fields, sorted(_described()))).encode())
    trials = table.trials
    for mark, attempt, status in zip(read_marks(table.ledger), trials.attempt, trials.status, strict=True):
        digest.update(f"{mark.number} {mark.key} {attempt} {STATUSES[status]}\n".encode())
    return digest.hexdigest()


def _described() -> Iterator[tuple[str, str]]:
    """Every measure, and its unit."""
    for own in MEASURES.values():
        yield from ((one.full_name, one.quantity.unit) for one in own.values())


def _write_trials(place: Place, table: ResultTable, name: str, month: str) -> tuple[ArchivedFile, ...]:
    writers: dict[str, pq.ParquetWriter] = {}
    gathered: defaultdict[str, list[Row]] = defaultdict(list)
    written: Counter[str] = Counter()

    def path(suite: str) -> str:
        return f"trials/suite={suite}/month={month}/{name}.parquet"

    begun: set[str] = set()

    def give_up(kind: object, *_: object) -> None:
        if kind is not None:
            with contextlib.suppress(OSError):
                _remove(place, begun)

    with contextlib.ExitStack() as stack:
        stack.push(give_up)

        def flush(suite: str) -> None:
            if suite not in writers:
                whole = place.path(path(suite))
                place.files.create_dir(whole.rpartition("/")[0], recursive=True)
                # One that a killed command left half has a name that no entry holds until this run is archived again.
                begun.add(path(suite))
                stream = stack.enter_context(place.files.open_output_stream(whole))
                writers[suite] = stack.enter_context(pq.ParquetWriter(stream, FILE_SCHEMA, compression="zstd"))
            ordered = sorted(gathered.pop(suite), key=lambda row: (row.measure or "", row.arm))
            writers[suite].write_table(table_of(ordered).drop_columns(["suite"]), row_group_size=_GROUP_ROWS)
            written[suite] += len(ordered)

        for row in read_rows(table):
            gathered[row.suite].append(row)
            if len(gathered[row.suite]) >= ROWS_IN_MEMORY:
                flush(row.suite)
        for suite in list(gathered):
            flush(suite)
    return tuple(ArchivedFile(path=path(suite), suite=suite, rows=rows) for suite, rows in written.items())


def _remove(place: Place, paths: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            place.files.delete_file(place.path(path))
