"""A histogram's bins as the bytes of a row: steps and counts, compressed."""

from __future__ import annotations

import zlib

import numpy as np

from virtgauge.ledger.records import Histogram


def pack(histogram: Histogram) -> bytes:
    """Its bins and counts."""
    steps = np.diff(histogram.values, prepend=np.int64(0)).astype("<i8")  # small steps compress well
    return zlib.compress(steps.tobytes() + histogram.counts.astype("<u8").tobytes(), level=6)


def unpack(unit: str, bins: bytes, minimum: int, maximum: int, mean: float) -> Histogram:
    """The inverse of :func:`pack`."""
    raw = zlib.decompress(bins)
    half = len(raw) // 2
    return Histogram(
        unit=unit,
        values=np.cumsum(np.frombuffer(raw[:half], dtype="<i8")),
        counts=np.frombuffer(raw[half:], dtype="<u8"),
        minimum=minimum,
        maximum=maximum,
        mean=mean,
    )
