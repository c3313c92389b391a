"""Writes a run into an archive: its files first, its entry last, and then what the entry no longer names goes."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import re

import pyarrow.parquet as pq

from virtgauge.errors import VirtgaugeError
from virtgauge.exchange.archive.entries import VERSION, ArchivedFile, Entry, read_entry, write_entry
from virtgauge.exchange.archive.place import Place
from virtgauge.exchange.rows import COLUMNS, Row, read_rows
from virtgauge.exchange.tables import SCHEMA, table_of
from virtgauge.ledger.records import Manifest
from virtgauge.ledger.store import Ledger, utc_now
from virtgauge.measures.catalogue import MEASURES
from virtgauge.results.columns import STATUSES, read_marks
from virtgauge.results.table import ResultTable

FILE_SCHEMA = SCHEMA.remove(SCHEMA.get_field_index("suite"))

ROWS_IN_MEMORY = 200_000
"""Of a suite, before they are sorted and written."""
_GROUP_ROWS = 20_000
"""A query for one measure passes over the other groups by their statistics."""


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
    """
    table = ResultTable(ledger)
    manifest = table.manifest
    name, digest = archive_name(manifest), _digest(table)
    try:
        known = read_entry(place, name)
        if known is not None and known.digest == digest:
            return ArchivedRun(Archived.KNOWN, known)
        files = _write_trials(place, table, f"{name}-{digest[:12]}", manifest.created_at[:7])
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
        )
        write_entry(place, entry)
        if known is not None:
            _remove(place, {one.path for one in known.files} - {one.path for one in files})
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
    digest = hashlib.sha256(
        repr((VERSION, COLUMNS, sorted(one.full_name for own in MEASURES.values() for one in own.values()))).encode()
    )
    trials = table.trials
    for mark, attempt, status in zip(read_marks(table.ledger), trials.attempt, trials.status, strict=False):
        digest.update(f"{mark.number} {mark.key} {attempt} {STATUSES[status]}\n".encode())
    return digest.hexdigest()


def _write_trials(place: Place, table: ResultTable, name: str, month: str) -> tuple[ArchivedFile, ...]:
    with contextlib.ExitStack() as stack:
        parts: dict[str, _SuiteFile] = {}
        for row in read_rows(table):
            if row.suite not in parts:
                folder = f"trials/suite={row.suite}/month={month}"
                place.files.create_dir(place.path(folder), recursive=True)
                parts[row.suite] = stack.enter_context(_SuiteFile(place, row.suite, f"{folder}/{name}.parquet"))
            parts[row.suite].add(row)
        for part in parts.values():
            part.flush()
    return tuple(ArchivedFile(path=part.path, suite=suite, rows=part.rows) for suite, part in parts.items())


class _SuiteFile:
    """One suite's file in the writing."""

    def __init__(self, place: Place, suite: str, path: str) -> None:
        self.path = path
        self.suite = suite
        self.rows = 0
        self._gathered: list[Row] = []
        # A file that is left half has a name that no entry will ever hold.
        self._stream = place.files.open_output_stream(place.path(path))
        self._writer = pq.ParquetWriter(self._stream, FILE_SCHEMA, compression="zstd")

    def __enter__(self) -> _SuiteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._stream.close()

    def add(self, row: Row) -> None:
        self._gathered.append(row)
        if len(self._gathered) >= ROWS_IN_MEMORY:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            ordered = sorted(self._gathered, key=lambda row: (row.measure or "", row.arm))
            table = table_of(ordered)
            self._writer.write_table(table.drop_columns(["suite"]), row_group_size=_GROUP_ROWS)
            self.rows += len(ordered)
            self._gathered = []


def _remove(place: Place, paths: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            place.files.delete_file(place.path(path))
