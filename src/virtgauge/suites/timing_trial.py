"""One trial of the timing suite, measured in one piece or, where nothing runs beside it, slice by slice."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.agent.channel import Channel, Reply
from virtgauge.agent.frames import ProtocolError
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.suites.answers import decode_histogram, elapsed_by_clock, merged
from virtgauge.suites.base import Cell, Elapsed, Measurement, Sliced
from virtgauge.suites.file_load import load_flags

_RAW = {"distribution", "clocks_start", "clocks_end"}
_SUMMED = {
    *("backward", "interrupted", "elapsed_ns", "cpu_ns", "steal_ns"),
    *("voluntary_switches", "involuntary_switches", "major_faults"),
}


class TimingTrial(Sliced):
    """A cell on a guest, as far as it has been measured.

    Attributes:
        file_load: what the file load beside it came to, once it has been stopped; None without one.
    """

    def __init__(
        self, cell: Cell, channel: Channel, beside: Mapping[str, Any] | None, on_progress: Callable[[float], None]
    ) -> None:
        self._cell, self._channel, self._beside, self._on_progress = cell, channel, beside, on_progress
        self._kept: list[Measurement] = []
        self._wanted, self._max_ns = int(cell.params["samples"]), int(cell.params["max_ns"])
        self._n = self._elapsed_ns = 0
        self.file_load: dict[str, Any] | None = None

    @property
    def done(self) -> float:
        return max(self._n / self._wanted, self._elapsed_ns / self._max_ns)

    async def measure(self, seconds: float | None) -> Measurement:
        seed = random.getrandbits(63)  # which raw values are kept and how sleeps are dephased: no part of the design
        before, left_ns = self.done, self._max_ns - self._elapsed_ns
        limit_ns = left_ns if seconds is None else min(left_ns, int(seconds * 1e9))
        wanted = self._wanted - self._n
        params = dict(self._cell.params) | {"samples": wanted, "max_ns": limit_ns, "seed": seed}
        reply = await self._channel.request(
            "probe",
            name=self._cell.probe,
            params=params,
            load=self._beside,
            on_progress=lambda share: self._on_progress(before + (1 - before) * share * limit_ns / left_ns),
        )
        return _slice(self._cell, reply)

    def keep(self, slice_: Measurement) -> None:
        self._kept.append(slice_)
        self._n += slice_.histograms[self._cell.probe].n
        self._elapsed_ns += int(slice_.result["usage"]["elapsed_ns"])
        self._on_progress(min(self.done, 1.0))

    def joined(self) -> Measurement:
        histogram = merged([one.histograms[self._cell.probe] for one in self._kept])
        if histogram is None:
            raise ValueError("no slice was kept")
        result = _joined_result([one.result for one in self._kept]) | {"requested": self._wanted, "n": histogram.n}
        flags = _flags(histogram, self._wanted, result)
        if self.file_load is not None:
            result["load"] = self.file_load | {"achieved": result["usage"].get("machine")}
            flags += load_flags(self.file_load)
        outside = [one.controller_elapsed_ns for one in self._kept]
        steal = [one.guest_steal_ns for one in self._kept]
        return Measurement(
            result=result,
            histograms={self._cell.probe: histogram},
            samples=_joined_samples(self._kept, [int(one.result["n"]) for one in self._kept]),
            flags=flags,
            guest_clocks=_joined_clocks([one.guest_clocks for one in self._kept]),
            controller_elapsed_ns=_total(outside),
            guest_steal_ns=_total(steal),
        )


def _slice(cell: Cell, reply: Reply) -> Measurement:
    value = reply.value
    try:
        histogram = decode_histogram(value["distribution"])
        clocks = elapsed_by_clock(value["clocks_start"], value["clocks_end"])
        steal = value["usage"].get("steal_ns")
        int(value["usage"]["elapsed_ns"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the result of {cell.probe} is not what docs/protocol.md says: {error!r}") from error
    return Measurement(
        result={k: v for k, v in value.items() if k not in _RAW} | {"n": histogram.n},
        histograms={cell.probe: histogram},
        samples=reply.samples,
        guest_clocks=clocks,
        controller_elapsed_ns=reply.finished_ns - reply.sent_ns,
        guest_steal_ns=steal,
    )


def _flags(histogram: Histogram, wanted: int, result: Mapping[str, Any]) -> tuple[Flag, ...]:
    flags = []
    if histogram.n == 0:
        flags.append(Flag("empty", "the probe returned no sample"))
    elif histogram.n < wanted:
        flags.append(Flag("short", f"{histogram.n} of {wanted} samples in the time allowed", fatal=False))
    if result.get("hptime_fallback_reason"):
        detail = f"hptime answered from the system's clock: {result['hptime_fallback_reason']}"
        flags.append(Flag("hptime-refused", detail, fatal=False))
    if (backward := int(result.get("backward") or 0)) > 0:
        flags.append(Flag("clock-backward", f"{backward} reads gave an earlier time than the one before", fatal=False))
    return tuple(flags)


def _joined_result(slices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The scalars of several slices as those of one trial."""
    if len(slices) == 1:
        return dict(slices[0])
    samples = [float(one["n"]) for one in slices]
    joined: dict[str, Any] = {}
    for name in slices[0]:
        values = [one.get(name) for one in slices]
        known = [value for value in values if value is not None]
        if name == "usage" and len(known) == len(values):
            joined[name] = _joined_usage(known)
        elif name == "resolution_ps":  # the smallest step that was seen
            joined[name] = min(known, default=None)
        elif name == "overhead_ps":
            joined[name] = statistics.median_low(known) if known else None
        elif name in {"zero_share", "cpu_ns_per_sleep"}:
            joined[name] = float(np.average(known, weights=samples)) if len(known) == len(values) else None
        elif name in _SUMMED:
            joined[name] = _total(values)
        else:
            joined[name] = known[0] if known else None
    return joined


def _joined_usage(slices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``usage`` of several spans: counts add up, rates are those of all the time."""
    elapsed = [float(one.get("elapsed_ns") or 0) for one in slices]
    joined: dict[str, Any] = {}
    for name, first in slices[0].items():
        values = [one.get(name) for one in slices]
        if isinstance(first, Mapping):
            joined[name] = _joined_usage([value for value in values if isinstance(value, Mapping)])
        elif name in _SUMMED:
            joined[name] = _total(values)
        elif name.endswith(("_share", "_per_s")):
            known = None not in values and sum(elapsed) > 0
            joined[name] = float(np.average(np.array(values, dtype=float), weights=elapsed)) if known else None
        else:
            joined[name] = first
    return joined


def _joined_clocks(slices: Sequence[Sequence[Elapsed]]) -> tuple[Elapsed, ...]:
    """What passed by each clock in all slices together; a clock that was not read in each is left out."""
    joined = []
    for first in slices[0]:
        readings = [one for clocks in slices for one in clocks if one.clock == first.clock]
        if len(readings) == len(slices):
            elapsed, uncertainty = (
                sum(one.elapsed_ns for one in readings),
                sum(one.uncertainty_ns for one in readings),
            )
            joined.append(Elapsed(first.clock, elapsed, uncertainty))
    return tuple(joined)


def _joined_samples(slices: Sequence[Measurement], counts: Sequence[int]) -> dict[str, npt.NDArray[np.int64]]:
    """Raw values of all slices, each of which is represented by its share of the samples.

    A slice's own are a uniform choice among ``counts`` values, so a choice among those is one too.
    """
    joined = {}
    for series in slices[0].samples:
        kept = [one.samples.get(series, np.empty(0, dtype=np.int64)) for one in slices]
        capacity = max(map(len, kept))
        if len(slices) > 1 and sum(counts) > capacity:
            generator = np.random.default_rng()
            shares = generator.multinomial(capacity, np.array(counts) / sum(counts))
            kept = [
                generator.choice(values, min(share, len(values)), replace=False)
                for values, share in zip(kept, shares, strict=True)
            ]
        joined[series] = np.concatenate(kept)
    return joined


def _total(values: Sequence[Any]) -> Any:
    """The sum; None where any is not known."""
    return None if None in values else sum(values)
