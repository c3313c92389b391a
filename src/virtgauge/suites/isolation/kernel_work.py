"""What the agents are asked to do for a cell, and what the probe's answer says (docs/protocol.md, probe ``kernel``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import PlainValidator

from virtgauge.analysis.distribution import gathered
from virtgauge.ledger.records import Histogram
from virtgauge.suites.answers import Running, decode_histogram, decoded
from virtgauge.suites.isolation.benchmarks import Kind, block_bytes, largest_cache_bytes
from virtgauge.suites.isolation.settings import IsolationSettings

_KIB, _MIB = 2**10, 2**20
_PS_PER_NS = 1000


def work_of(
    settings: IsolationSettings, kind: Kind, *, block: str, threads: int, folder: Path | None, seed: int
) -> dict[str, Any]:
    """The parameters of the agent's kernel for a benchmark or a load, but for what a probe or a load needs besides.

    The block is of memory, by its name; the folder on the guest's disk, None where it has none.
    """
    params: dict[str, Any] = {**kind.kernel, "threads": threads, "seed": seed}
    if kind.family == "disk":
        of_operation = settings.disk_random_kib if kind.kernel["order"] == "random" else settings.disk_sequential_kib
        params |= {
            "folder": str(folder or "/"),  # a simulated guest has no disk, and needs none
            "block_bytes": of_operation * _KIB,
            "file_bytes": settings.disk_file_mib * _MIB,
        }
    elif kind.family == "wake":
        params["period_ns"] = settings.wake_period_us * 1000
    elif kind.has_block or kind.family == "cache":
        params["block_bytes"] = block_bytes(block, largest_cache_bytes())
    return params


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a probe brought."""

    # unit, units: of work, of all threads together
    unit: str
    units: int
    elapsed_ns: int  # of the longest thread
    cpu_ns: int  # of all threads, by the guest's own account
    missed_ns: int  # time in which they did not run, by the same account
    threads: int
    slices: tuple[float, ...]  # units a second, of all threads together, in slices of equal length
    direct: bool | None  # of a disk, whether the guest's page cache was left out
    # of a disk's operations, or how late a timer was, in nanoseconds
    latency: Annotated[
        Histogram | None, PlainValidator(lambda value: value and in_nanoseconds(decode_histogram(value)))
    ]
    frequency_before_hz: float
    frequency_after_hz: float
    steal_ns: int | None  # as the guest's kernel counts it; None where it does not

    @property
    def rate(self) -> float:
        return self.units * 1e9 / self.elapsed_ns if self.elapsed_ns else 0.0

    @classmethod
    def decode(cls, value: Mapping[str, Any], slice_ns: int) -> Answer:
        threads, elapsed_ns = value["threads"], int(value["elapsed_ns"])
        found = {
            "threads": len(threads),
            "missed_ns": sum(max(0, int(one["elapsed_ns"]) - int(one["cpu_ns"])) for one in threads),
            "slices": slices_of(threads, elapsed_ns, slice_ns),
            "steal_ns": value["usage"].get("steal_ns"),
        }
        return decoded(cls, {**value, **found})


def slices_of(threads: Sequence[Mapping[str, Any]], elapsed_ns: int, slice_ns: int) -> tuple[float, ...]:
    """Rates of all threads together, in slices of equal length.

    Each thread closes its slices by itself, later than asked for where it did not run at the end; between two of its
    ends its work is taken as even.  What is left over in the end is no slice.  In units a second.
    """
    ends: npt.NDArray[np.int64] = np.arange(0, elapsed_ns + 1, slice_ns, dtype=np.int64)
    done = np.zeros(len(ends))
    for thread in threads:
        at = np.concatenate(([0], np.cumsum(np.asarray(thread["slice_ns"], dtype=np.int64))))
        units = np.concatenate(([0], np.cumsum(np.asarray(thread["slice_units"], dtype=np.int64))))
        done += np.interp(ends, at, units)
    return tuple(float(rate) for rate in np.diff(done) * 1e9 / slice_ns)


def in_nanoseconds(histogram: Histogram) -> Histogram:
    """The same histogram of picoseconds in nanoseconds; bins that become one are added up.
    Raises ValueError: it is of something else.
    """
    if histogram.unit != "ps":
        raise ValueError(f"a latency in {histogram.unit!r}")
    values, counts = gathered((histogram.values + _PS_PER_NS // 2) // _PS_PER_NS, histogram.counts)
    minimum, maximum = (round(end / _PS_PER_NS) for end in (histogram.minimum, histogram.maximum))
    return Histogram(values, counts, minimum, maximum, histogram.mean / _PS_PER_NS, "ns")


@dataclasses.dataclass(frozen=True)
class LoadResult:
    """What the load in the loading guest came to."""

    name: str
    # unit, units: of work; None where it did not tell, and then it may still be at work
    unit: str | None
    units: int | None
    # elapsed_ns, cpu_ns: by its own guest
    elapsed_ns: int | None
    cpu_ns: int | None
    error: str | None = None  # why it ended before it was told to, or did not tell

    @classmethod
    def of(cls, name: str, load: Running) -> Self:
        error = load.silence
        if error is None:
            try:
                return decoded(cls, {**load.answer, "name": name})
            except ValueError as wrong:
                error = f"its result is not what docs/protocol.md says: {wrong!r}"
        return cls(name, None, None, None, None, error)

    @property
    def rate(self) -> float | None:
        return self.units * 1e9 / self.elapsed_ns if self.units is not None and self.elapsed_ns else None

    @property
    def cpus(self) -> float | None:
        return self.cpu_ns / self.elapsed_ns if self.cpu_ns is not None and self.elapsed_ns else None
