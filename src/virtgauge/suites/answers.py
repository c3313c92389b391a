"""Parts of docs/protocol.md that the answers of several probes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.ledger.records import Histogram
from virtgauge.suites.base import Elapsed

_CLOCKS = {"monotonic_raw_ns": "CLOCK_MONOTONIC_RAW", "monotonic_ns": "CLOCK_MONOTONIC", "tsc_ns": "TSC"}


def decode_histogram(value: Mapping[str, Any]) -> Histogram:
    """A ``distribution``.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    values = np.frombuffer(value["values"], dtype="<i8").astype(np.int64)
    counts = np.frombuffer(value["counts"], dtype="<u8").astype(np.uint64)
    return histogram_of(value, values, counts)


def histogram_of(value: Mapping[str, Any], values: npt.NDArray[np.int64], counts: npt.NDArray[np.uint64]) -> Histogram:
    """A histogram of these bins, whose unit, number and extremes are the answer's.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if len(values) != len(counts) or np.any(np.diff(values) <= 0) or int(counts.sum()) != int(value["n"]):
        raise ValueError("bins do not ascend, or do not add up to n")
    return Histogram(
        unit=str(value["unit"]),
        values=values,
        counts=counts,
        minimum=int(value["min"]),
        maximum=int(value["max"]),
        mean=float(value["mean"]),
    )


def merged(histograms: Sequence[Histogram]) -> Histogram | None:
    """All values of several histograms of the same unit; None of none."""
    if not histograms:
        return None
    values, position = np.unique(np.concatenate([h.values for h in histograms]), return_inverse=True)
    counts = np.zeros(len(values), dtype=np.uint64)
    np.add.at(counts, position, np.concatenate([h.counts for h in histograms]))
    n = sum(h.n for h in histograms)
    return Histogram(
        unit=histograms[0].unit,
        values=values,
        counts=counts,
        minimum=min(h.minimum for h in histograms),
        maximum=max(h.maximum for h in histograms),
        mean=sum(h.mean * h.n for h in histograms) / n,
    )


def elapsed_by_clock(start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Elapsed, ...]:
    """What passed between two ``clocks``, by each clock that was read both times.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    uncertainty = float(start["bracket_ns"]) + float(end["bracket_ns"])
    return tuple(
        Elapsed(clock=clock, elapsed_ns=float(end[field]) - float(start[field]), uncertainty_ns=uncertainty)
        for field, clock in _CLOCKS.items()
        if start.get(field) is not None and end.get(field) is not None
    )
