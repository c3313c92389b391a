"""What an archive holds: an entry for each run, written last, so that a run is there whole or not at all.

    ROOT/trials/suite=timing/month=2025-03/RUN-DIGEST.parquet     rows: a trial and a measure each
    ROOT/runs/RUN.json                                            the entry: which files are the run's

Readers follow the entries and never list the files of trials: what an interrupted writer left is not seen.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from virtgauge.errors import UsageError
from virtgauge.exchange.archive.place import Place

VERSION = 1
"""Of the archive's layout."""

_RUNS = "runs"


class ArchivedFile(BaseModel):
    """A file of trials.

    Attributes:
        path: below the archive's root.
        suite: of all its trials.
        rows: in it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(pattern=r"^trials/suite=[a-z]+/month=\d{4}-\d{2}/[A-Za-z0-9._-]+\.parquet$")]
    suite: str
    rows: Annotated[int, Field(ge=0)]


class Entry(BaseModel):
    """One archived run.

    Attributes:
        version: of the layout.
        archive: the run's name in the archive, unique.
        run, plan, created_at: as in its manifest.
        trials: number of them.
        digest: of the trials and the measures; the same of a run that has not changed.
        archived_at: ISO 8601, UTC.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    archive: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]
    run: str
    plan: str
    created_at: str
    trials: Annotated[int, Field(ge=0)]
    digest: str
    archived_at: str
    files: tuple[ArchivedFile, ...]


def read_entry(place: Place, archive: str) -> Entry | None:
    """A run's entry; None where the archive does not hold it."""
    path = place.path(_RUNS, f"{archive}.json")
    try:
        return _parsed(place, path)
    except FileNotFoundError:
        return None


def read_entries(place: Place) -> list[Entry]:
    """Every archived run.

    Raises:
        UsageError: there is no archive, or one that this virtgauge does not know.
    """
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
                f"{path}: has version {document.get('version')!r} of the archive; this virtgauge reads {VERSION}",
                "use the virtgauge that wrote it",
            )
        return Entry.model_validate(document)
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{path}: is no entry of an archive: {first}", "remove it, and archive the run anew"
        ) from error
