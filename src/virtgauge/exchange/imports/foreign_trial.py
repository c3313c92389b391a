"""What a tool's output says, before it is a trial of a run; and how its files are read and refused."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from virtgauge.analysis.distribution import samples_needed
from virtgauge.errors import UsageError
from virtgauge.ledger.records import TAILS, Flag, Histogram

LONGEST_BYTES = 1 << 30  # A file longer than this is refused rather than read into memory

_LAST_MOMENT = 7_258_118_400  # The year 2200
Model = TypeVar("Model", bound=BaseModel)

NotNegative = Annotated[FiniteFloat, Field(ge=0, le=2**53)]
Count = Annotated[int, Field(ge=0, le=2**43)]  # of ms, too, which are integers of 64 bits in ns


@dataclasses.dataclass(frozen=True)
class ForeignTrial:
    """One measurement of another tool."""

    probe: str  # the tool
    factors: dict[str, str]  # levels that the output names
    result: dict[str, Any]  # figures; durations in ns
    histograms: dict[str, Histogram]  # by measure
    started_at: str  # ISO 8601, UTC
    elapsed_ns: int  # how long it took
    flags: tuple[Flag, ...] = ()  # what a reader should know
    error: str | None = None  # why there is no figure; None of one that ended well


@dataclasses.dataclass(frozen=True)
class Source:
    """A file that was read: its name without folders, and its SHA-256."""

    name: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Repetition:
    """What was measured together: the trials of one output, and the files that it came in."""

    tool: str
    sources: tuple[Source, ...]
    trials: tuple[ForeignTrial, ...]


def refused(path: Path, problem: str, remedy: str) -> UsageError:
    """The error of a file that cannot be imported."""
    return UsageError(f"{path}: {problem}; nothing was imported", remedy)


def read_bytes(path: Path) -> tuple[bytes, Source]:
    """A file, and what to call it. Raises UsageError: it cannot be read, is empty, or is too long."""
    try:
        if path.stat().st_size > LONGEST_BYTES:
            raise refused(path, f"longer than {LONGEST_BYTES >> 30} GiB", "log less: sample, or aggregate by interval")
        content = path.read_bytes()
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    if not content.strip():
        raise refused(path, "is empty", "give the file that the tool wrote; did it end early?")
    return content, Source(path.name, hashlib.sha256(content).hexdigest())


def read_json(path: Path, model: type[Model], remedy: str) -> tuple[Model, Source]:
    """A JSON document as a model; see :func:`read_document` and :func:`validated`."""
    document, source = read_document(path, remedy)
    return validated(path, document, model, remedy), source


def read_document(path: Path, remedy: str) -> tuple[Any, Source]:
    """A JSON document; a tool's warnings before its first brace are passed over.
    Raises UsageError: it cannot be read, or is not JSON.
    """
    content, source = read_bytes(path)
    text = content.decode("utf-8", errors="replace")
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    try:
        return json.loads(text[start:]), source
    except (ValueError, RecursionError) as error:  # of JSON; an integer of too many digits; too many brackets
        raise refused(path, f"is not JSON: {error}", remedy) from error


def validated(path: Path, document: Any, model: type[Model], remedy: str) -> Model:
    """A JSON document as a model. Raises UsageError: naming the file, the field and its value."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        shown = repr(first["input"])
        given = "is missing" if first["type"] == "missing" else f"= {shown[:60]}: {first['msg']}"
        raise refused(path, f"{where} {given}", remedy) from error


def histogram_of_bins(bins: Mapping[int, int], unit: str, minimum: float, maximum: float, mean: float) -> Histogram:
    """A histogram of bins that a tool counted itself; empty ones are left out."""
    counted = sorted((value, count) for value, count in bins.items() if count)
    return Histogram(
        unit=unit,
        values=np.array([value for value, _ in counted], dtype=np.int64),
        counts=np.array([count for _, count in counted], dtype=np.uint64),
        minimum=round(minimum),
        maximum=round(maximum),
        mean=float(mean),
    )


def histogram_of_values(values: npt.NDArray[np.int64], unit: str) -> Histogram:
    """A histogram of values that are not negative, on the bins of an HDR histogram (3 significant digits)."""
    shift = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - 11, 0)
    bins, counts = np.unique((values >> shift) << shift, return_counts=True)
    return Histogram(bins, counts.astype(np.uint64), int(values.min()), int(values.max()), float(values.mean()), unit)


def tail_statistics(percentiles: Mapping[float, float], samples: int) -> dict[str, float]:
    """Of percentiles by number (``99.9``), in ns, those beyond which ten of so many values lie, as of every trial."""
    known = {round(number, 6): value for number, value in percentiles.items()}
    shares = {"p50": 0.5, **TAILS}
    return {
        name: float(known[round(100 * share, 6)])
        for name, share in shares.items()
        if round(100 * share, 6) in known and (name == "p50" or samples >= samples_needed(share))
    }


def moment(seconds: float) -> str:
    """Seconds since the epoch as the ledger writes a time. Raises UsageError: no ledger has such a one."""
    if not 0 <= seconds < _LAST_MOMENT:
        raise UsageError(f"a time of {seconds:g} s since 1970 is no date; nothing was imported", "check the file")
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")


def undated(path: Path, elapsed_s: float) -> str:
    """When a measurement began whose output has no date: by the file's own, which is that of its end."""
    return moment(max(path.stat().st_mtime - elapsed_s, 0))
