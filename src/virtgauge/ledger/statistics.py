"""What one histogram says: the statistics with which every account of a distribution begins, and its bytes in a row.

Statistics are recorded beside each histogram, so that a report over many trials need not unpack any.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.distribution import Distribution, merge, samples_needed
from virtgauge.ledger.records import Histogram

STATISTICS = ("p50", "half_iqr", "mad", "p90", "p99", "p99.9", "p99.99", "min", "max", "mean")
TAILS = {"p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}

NS_PER_UNIT = {"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}  # Of histograms of durations
MOST_BINS = 2**17  # Of a histogram: those of three digits over 64 bits are 56,000


def merged(histograms: Sequence[Histogram]) -> Histogram | None:
    """All values together, of several units those of the first; None without any."""
    return merge(one for one in histograms if one.unit == histograms[0].unit) if histograms else None


def statistics_of(distribution: Distribution) -> dict[str, float | None]:
    """The :data:`STATISTICS` of values, in their unit; a quantile is None where too few values lie beyond it."""
    tails = (float(value) for value in distribution.quantiles([*TAILS.values()]))
    found: dict[str, float | None] = {
        "p50": distribution.interpolated_median,
        "half_iqr": distribution.half_iqr,
        "mad": distribution.mad,
        "min": float(distribution.minimum),
        "max": float(distribution.maximum),
        "mean": distribution.mean,
    }
    for (name, share), value in zip(TAILS.items(), tails, strict=True):
        found[name] = value if distribution.n >= samples_needed(share) else None
    return found


def pack(histogram: Histogram) -> bytes:
    """Its bins and counts."""
    steps = np.diff(histogram.values, prepend=np.int64(0)).astype("<i8")  # small steps compress well
    return zlib.compress(steps.tobytes() + histogram.counts.astype("<u8").tobytes(), level=6)


def unpack(unit: str, bins: bytes, minimum: int, maximum: int, mean: float) -> Histogram:
    """The inverse of :func:`pack`. Raises ValueError or zlib.error: the bytes are none of its, or are too many."""
    values, counts, _ = unpack_all([bins])
    return Histogram(values, counts, minimum, maximum, mean, unit)


def unpack_all(packed: Iterable[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Bins and counts of several, one after the other, and how many bins each has. Raises as :func:`unpack`."""
    steps, counts, sizes = [], [], []
    for one in packed:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(one, 16 * MOST_BINS)
        if not unpacking.eof or len(raw) % 16:
            raise ValueError(f"{len(one)} bytes are not those of a histogram of {MOST_BINS} bins at most")
        half = len(raw) // 2
        steps.append(raw[:half])
        counts.append(raw[half:])
        sizes.append(half // 8)
    size = np.array(sizes, dtype=np.int64)
    sums = np.zeros(int(size.sum()) + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(b"".join(steps), dtype="<i8"), out=sums[1:])
    # What went before is taken off; sums that exceed 64 bits wrap around, and back.
    values = sums[1:] - np.repeat(sums[np.cumsum(size) - size], size)
    return values, np.frombuffer(b"".join(counts), dtype="<u8"), size
