"""Putting runs into an archive: each there once, whole or not at all; see :mod:`virtgauge.exchange.entries`.

A run's files are written first and its entry last; then what the entry no longer names goes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from virtgauge.analysis.estimate import median_estimate
from virtgauge.errors import VirtgaugeError
from virtgauge.exchange.entries import (
    LEVELS_SCHEMA,
    VERSION,
    ArchivedFile,
    Entry,
    Level,
    read_entry,
    read_levels,
    write_entry,
)
from virtgauge.exchange.figures import chosen_of
from virtgauge.exchange.place import Place
from virtgauge.exchange.trials import COLUMNS, FILE_SCHEMA, Row, host_facts, read_rows, table_of
from virtgauge.ledger.damage import is_figure
from virtgauge.ledger.records import HostRecord, Manifest, has_finished
from virtgauge.ledger.store import Ledger, utc_now
from virtgauge.report.settings import recorded_facts
from virtgauge.results.columns import STATUSES, read_marks
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES, row_labels
from virtgauge.suites.cell_settings import plan_of, settings_of

ROWS_IN_MEMORY = 200_000  # Of a suite, before they are sorted and written
_GROUP_ROWS = 20_000  # A query for one measure passes over the other groups by their statistics


class Archived(enum.StrEnum):
    """What became of a run."""

    NEW = "archived"
    RENEWED = "archived anew: it has changed"
    MENDED = "archived anew: files of it were missing or damaged there"
    KNOWN = "in the archive already"


@dataclasses.dataclass(frozen=True)
class ArchivedRun:
    """A run in the archive, and what it took."""

    outcome: Archived
    entry: Entry

    @property
    def text(self) -> str:
        """``archived (540 trials as quick-0123456789ab)``."""
        return f"{self.outcome} ({self.entry.trials} trials as {self.entry.archive})"


class ArchiveWriteError(VirtgaugeError):
    """The place does not take what is written."""

    def __init__(self, place: Place, cause: Exception) -> None:
        super().__init__(
            f"cannot write to {place.name}: {cause}",
            "check address, endpoint, keys and free space; the run is as it was there before, and here",
        )


def archive_run(place: Place, ledger: Ledger, *, host: str = "") -> ArchivedRun:
    """Make the archive hold a run as it is now, once; ``host`` is its machine's name, of a fleet's run none.

    Raises ArchiveWriteError: the place refuses, and the archive shows what it showed before; UsageError: it is of
    another version; ChangedError: the run went on meanwhile.
    """
    table = ResultTable(ledger)
    manifest = table.manifest
    host = "" if manifest.hosts else host or _machine(manifest)
    finished = has_finished(ledger.events())
    name, digest = archive_name(manifest), _digest(table, host, finished)
    outcome, stem, archived_at = Archived.NEW, f"{name}-{digest[:12]}", utc_now()
    try:
        known = read_entry(place, name)
        if known is not None:
            outcome = Archived.RENEWED
        if known is not None and known.digest == digest:
            if known.levels is not None:
                if _is_whole(place, known):
                    return ArchivedRun(Archived.KNOWN, known)
                outcome = Archived.MENDED
            # No file is overwritten: what is sound of them stays until the entry names the new ones.
            stem += hashlib.sha256(archived_at.encode()).hexdigest()[:12]
        levels, begun = f"levels/{stem}.parquet", set[str]()
        try:
            files = _write_trials(place, table, stem, host, begun)
            begun.add(levels)
            with _created(place, levels) as stream:
                made = table_of([*_levels_of(name, table, host)], LEVELS_SCHEMA)
                pq.write_table(made, stream, compression="zstd")
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(place, begun)
            raise
        entry = Entry(
            version=VERSION,
            archive=name,
            run=manifest.run_id,
            plan=manifest.plan_name,
            created_at=manifest.created_at,
            trials=table.trials.number.size,
            digest=digest,
            archived_at=archived_at,
            files=files,
            levels=levels,
            facts=_facts(manifest, host),
            reference=table.reference,
            finished=finished,
        )
        ledger.confirm()
        write_entry(place, entry)
        if known is not None:
            _remove(place, known.paths - entry.paths)
    except OSError as error:
        raise ArchiveWriteError(place, error) from error
    return ArchivedRun(outcome, entry)


def require_writable(place: Place) -> None:
    """Try by a small object whether runs can be put there. Raises ArchiveWriteError."""
    path = place.path("try")
    try:
        place.write(path, b"virtgauge")
    except OSError as error:
        raise ArchiveWriteError(place, error) from error
    with contextlib.suppress(OSError):  # where things can be put and not removed, it stays
        place.files.delete_file(path)


def _is_whole(place: Place, entry: Entry) -> bool:
    """Whether the files that an entry names are there and can be read."""
    try:
        for one in entry.files:
            place.require_file(place.path(one.path))
            if pq.read_metadata(place.path(one.path), filesystem=place.files).num_rows != one.rows:
                return False
    except (OSError, ValueError, pa.ArrowException):
        return False
    return entry.levels is not None and not read_levels(place, [place.path(entry.levels)])[1]


def _machine(manifest: Manifest) -> str:
    """What tells a run's machine from others as far as it keeps and is nobody's secret: processor and product."""
    known = dict(recorded_facts(manifest, manifest.fingerprint, ()))
    product = known.get("hypervisor product", "")
    return f"{known.get('cpu model', 'unknown processor')} ({product})" if product else ""


def _facts(manifest: Manifest, host: str) -> Mapping[str, Mapping[str, str]]:
    """What is recorded of each host, by its name in the levels."""
    arms = [arm for arm in manifest.arms if arm.role != "aa"]
    hosts = {one.name: one.fingerprint for one in manifest.hosts} or {host: manifest.fingerprint}
    return {name: dict(recorded_facts(manifest, fingerprint, arms)) for name, fingerprint in hosts.items()}


def archive_name(manifest: Manifest) -> str:
    """A run's name in archives: its own, and a digest that tells it from runs of that name on other machines."""
    identity = repr((manifest.run_id, manifest.created_at, manifest.seed, manifest.plan_text, manifest.fingerprint))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.run_id)[:60].strip(".-") or "run"
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _digest(table: ResultTable, *said: object) -> str:
    """A ledger only grows, so its trials' names say its state; what is said of them hangs on columns and measures."""
    described = sorted((one.full_name, one.quantity.unit) for own in MEASURES.values() for one in own.values())
    kinds = VERSION, COLUMNS, Level._fields, [*Entry.model_fields], described
    digest = hashlib.sha256(repr((*kinds, *said)).encode())
    trials = table.trials
    for mark, attempt, status in zip(read_marks(table.ledger), trials.attempt, trials.status, strict=True):
        digest.update(f"{mark.number} {mark.key} {attempt} {STATUSES[status]}\n".encode())
    return digest.hexdigest()


def _write_trials(place: Place, table: ResultTable, name: str, host: str, begun: set[str]) -> tuple[ArchivedFile, ...]:
    """A file for each suite; what was begun is told even where this fails."""
    writers: dict[str, pq.ParquetWriter] = {}
    gathered: defaultdict[str, list[Row]] = defaultdict(list)
    written: Counter[str] = Counter()

    def path(suite: str) -> str:
        return f"trials/suite={suite}/month={table.manifest.created_at[:7]}/{name}.parquet"

    with contextlib.ExitStack() as stack:

        def flush(suite: str) -> None:
            if suite not in writers:
                # One that a killed command left half has a name that no entry holds until this run is archived again.
                begun.add(path(suite))
                stream = stack.enter_context(_created(place, path(suite)))
                writers[suite] = stack.enter_context(pq.ParquetWriter(stream, FILE_SCHEMA, compression="zstd"))
            ordered = sorted(gathered.pop(suite), key=lambda row: (row.measure or "", row.arm))
            writers[suite].write_table(table_of(ordered).drop_columns(["suite"]), row_group_size=_GROUP_ROWS)
            written[suite] += len(ordered)

        for row in read_rows(table, host=host):
            gathered[row.suite].append(row)
            if len(gathered[row.suite]) >= ROWS_IN_MEMORY:
                flush(row.suite)
        for suite in list(gathered):
            flush(suite)
    return tuple(ArchivedFile(path=path(suite), suite=suite, rows=rows) for suite, rows in written.items())


def _created(place: Place, path: str) -> pa.NativeFile:
    """A new file below the archive's root, open. Raises OSError: the place refuses."""
    whole = place.path(path)
    place.files.create_dir(whole.rpartition("/")[0], recursive=True)
    return place.files.open_output_stream(whole)


def _levels_of(name: str, table: ResultTable, host: str) -> Iterator[Level]:
    manifest, plan = table.manifest, plan_of(table.manifest)
    settings = {} if plan is None else settings_of(plan)
    labels = row_labels(manifest.arms)
    hosts: list[tuple[HostRecord | None, tuple[str, str, str]]] = [
        (one, host_facts(one.name, one.fingerprint)) for one in manifest.hosts
    ]
    hosts = hosts or [(None, host_facts(host, manifest.fingerprint))]
    for measure in chosen_of(table, None):
        for cell in table.cells(measure.suite):
            own_settings = json.dumps(settings[cell], sort_keys=True, default=str) if cell in settings else ""
            for arm in table.arms:
                values = {} if arm.role == "aa" else table.values(measure, cell, arm.name)
                for owner, facts in hosts if values else ():
                    own = [one for block, one in values.items() if owner is None or owner.owns(block)]
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


def _remove(place: Place, paths: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            place.files.delete_file(place.path(path))
