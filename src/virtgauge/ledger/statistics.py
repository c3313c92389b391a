"""What one histogram says: the statistics with which every account of a distribution begins, and its bytes in a row.

Statistics are recorded beside each histogram, so that a report over many trials need not unpack any.
"""

from __future__ import annotations

import zlib

import numpy as np

from virtgauge.analysis import distribution as dist
from virtgauge.analysis.distribution import Distribution
from virtgauge.ledger.records import Histogram

STATISTICS = ("p50", "half_iqr", "mad", "p90", "p99", "p99.9", "p99.99", "min", "max", "mean")
TAILS = {"p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}

NS_PER_UNIT = {"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}  # Of histograms of durations
MOST_BINS = 2**17  # Of a histogram: those of three digits over 64 bits are 56,000
_SHARES = (0.25, 0.5, 0.75, *TAILS.values())


def distribution_of(histogram: Histogram) -> Distribution:
    """A histogram's values, in its own unit."""
    minimum, maximum = float(histogram.minimum), float(histogram.maximum)
    return Distribution(histogram.values, histogram.counts, minimum, maximum, histogram.mean)


def statistics_of(distribution: Distribution) -> dict[str, float | None]:
    """The :data:`STATISTICS` of values, in their unit; a quantile is None where too few values lie beyond it."""
    q25, _, q75, *tails = (float(value) for value in distribution.quantiles(_SHARES))
    found: dict[str, float | None] = {
        "p50": distribution.interpolated_median,
        "half_iqr": (q75 - q25) / 2,
        "mad": distribution.mad,
        "min": distribution.minimum,
        "max": distribution.maximum,
        "mean": distribution.mean,
    }
    for (name, share), value in zip(TAILS.items(), tails, strict=True):
        found[name] = value if distribution.n >= dist.samples_needed(share) else None
    return found


def pack(histogram: Histogram) -> bytes:
    """Its bins and counts."""
    steps = np.diff(histogram.values, prepend=np.int64(0)).astype("<i8")  # small steps compress well
    return zlib.compress(steps.tobytes() + histogram.counts.astype("<u8").tobytes(), level=6)


def unpack(unit: str, bins: bytes, minimum: int, maximum: int, mean: float) -> Histogram:
    """The inverse of :func:`pack`. Raises ValueError or zlib.error: the bytes are none of its, or are too many."""
    unpacking = zlib.decompressobj()
    raw = unpacking.decompress(bins, 16 * MOST_BINS)
    if not unpacking.eof or len(raw) % 16:
        raise ValueError(f"{len(bins)} bytes are not those of a histogram of {MOST_BINS} bins at most")
    half = len(raw) // 2
    return Histogram(
        unit=unit,
        values=np.cumsum(np.frombuffer(raw[:half], dtype="<i8")),
        counts=np.frombuffer(raw[half:], dtype="<u8"),
        minimum=minimum,
        maximum=maximum,
        mean=mean,
    )
