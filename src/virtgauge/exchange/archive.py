"""An archive of runs: a folder, or a prefix of a bucket in an object store that speaks S3.

    ROOT/trials/suite=timing/month=2025-03/RUN-DIGEST.parquet     rows: a trial and a measure each
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
import os
import re
import urllib.parse
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
from pyarrow import fs
from pydantic import BaseModel, ConfigDict, Field

from virtgauge.errors import UsageError, VirtgaugeError
from virtgauge.exchange.trials import COLUMNS, SCHEMA, Row, read_rows, table_of
from virtgauge.ledger.files import is_regular
from virtgauge.ledger.records import Manifest
from virtgauge.ledger.store import Ledger, utc_now
from virtgauge.measures.catalogue import MEASURES
from virtgauge.results.columns import STATUSES, read_marks
from virtgauge.results.table import ResultTable

_LONGEST_ENTRY = 4 * 2**20  # Bytes
ENDPOINT_VARIABLES = ("VIRTGAUGE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


@dataclasses.dataclass(frozen=True)
class Place:
    """An archive's file system and the path of its root in it."""

    name: str
    files: fs.FileSystem
    root: str

    def path(self, *parts: str) -> str:
        """A path below the root."""
        return "/".join((self.root, *parts))

    def read(self, path: str) -> bytes:
        """A small object, whole. Raises ValueError: it is none."""
        self.require_file(path)
        with self.files.open_input_stream(path) as stream:
            content = bytes(stream.read(_LONGEST_ENTRY + 1))
        if len(content) > _LONGEST_ENTRY:
            raise ValueError(f"longer than {_LONGEST_ENTRY >> 20} MiB")
        return content

    def write(self, path: str, content: bytes) -> None:
        """A small object in one step: a reader sees what was there before, or all of this."""
        if isinstance(self.files, fs.LocalFileSystem):
            partial = Path(path + ".partial")
            partial.unlink(missing_ok=True)  # a link would be written through
            try:
                partial.write_bytes(content)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
            return
        with self.files.open_output_stream(path) as stream:
            stream.write(content)

    def require_file(self, path: str) -> None:
        """Raise ValueError where a pipe would be waited for, a device be read, or a link lead elsewhere."""
        if isinstance(self.files, fs.LocalFileSystem) and os.path.lexists(path) and not is_regular(Path(path)):
            raise ValueError(f"{path} is no file")

    def found(self, folder: str) -> list[str]:
        """The paths of the files below a folder; none where it does not exist."""
        selector = fs.FileSelector(self.path(folder), recursive=True, allow_not_found=True)
        return sorted(one.path for one in self.files.get_file_info(selector) if one.type is fs.FileType.File)


def open_place(location: str, *, endpoint: str | None = None, region: str | None = None) -> Place:
    """The place that a user names: a folder, or ``s3://bucket/prefix``.

    The endpoint is that of an object store that is not Amazon's (``http://127.0.0.1:9000``), by default that of the
    environment (:data:`ENDPOINT_VARIABLES`).  Keys come from the environment, as AWS's own tools take them.

    Raises:
        UsageError: the address is none, or of a kind that is not known.
    """
    if "://" not in location:
        return Place(location, fs.LocalFileSystem(), str(Path(location).resolve()))
    address = urllib.parse.urlsplit(location)
    if address.scheme != "s3" or not address.netloc or address.query or address.username:
        raise UsageError(f"{location}: is no place for an archive", "name a folder, or s3://bucket/prefix")
    endpoint = endpoint or next((os.environ[name] for name in ENDPOINT_VARIABLES if os.environ.get(name)), None)
    options: dict[str, str] = {}
    if endpoint is not None:
        scheme, separator, host = endpoint.partition("://")
        if not separator or scheme not in ("http", "https") or not host.strip("/"):
            raise UsageError(f"--endpoint {endpoint}: is no address", "write http://HOST:PORT or https://HOST:PORT")
        options = {"endpoint_override": host.rstrip("/"), "scheme": scheme}
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        options["region"] = region or "us-east-1"  # asking the store for it, as is done else, needs Amazon's
    try:
        files = fs.S3FileSystem(connect_timeout=10, request_timeout=60, **options)
    except (OSError, ValueError) as error:
        raise UsageError(f"{location}: {error}", "check the endpoint and the keys in the environment") from error
    return Place(location, files, f"{address.netloc}{address.path}".rstrip("/"))


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
        raise UsageError(f"{place.name}: holds no archive", "`virtgauge archive RUN --to FOLDER` makes one")
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
        ledger.confirm()
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
    for mark, attempt, status in zip(read_marks(table.ledger), trials.attempt, trials.status, strict=True):
        digest.update(f"{mark.number} {mark.key} {attempt} {STATUSES[status]}\n".encode())
    return digest.hexdigest()


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
