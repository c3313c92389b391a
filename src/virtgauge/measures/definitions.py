"""The measures of each suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from virtgauge.measures import quantities
from virtgauge.measures.measure import Better, Measure, Scalar

_STATISTICS = {
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "p99.9": "99.9th percentile",
    "p99.99": "99.99th percentile",
    "max": "maximum",
    "min": "minimum",
    "mean": "mean",
    "mad": "median absolute deviation",
    "half_iqr": "half the interquartile range",
}


def _durations(
    suite: str, name: str, meaning: str, probes: frozenset[str], histogram: str, headline: str
) -> Iterator[Measure]:
    for statistic, words in _STATISTICS.items():
        yield Measure(
            suite,
            f"{name}.{statistic}",
            quantities.DURATION,
            Better.LOWER,
            f"{words} of {meaning}",
            probes,
            histogram=histogram,
            statistic=statistic,
            headline=statistic in headline.split(),
        )


def _field(*path: str, factor: float = 1.0, magnitude: bool = False) -> Scalar:
    """A number within a result, in the base unit."""

    def read(result: Mapping[str, Any]) -> float | None:
        value: Any = result
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return abs(float(value) * factor) if magnitude else float(value) * factor

    return read


def _at_load(percent: float, field: str, factor: float = 1.0) -> Scalar:
    def read(result: Mapping[str, Any]) -> float | None:
        for entry in result.get("latency", ()):
            if entry["load_percent"] == percent and entry.get(field) is not None:
                return float(entry[field]) * factor
        return None

    return read


def _entitlement(result: Mapping[str, Any]) -> float | None:
    received, entitled = _field("cpu", "tested")(result), _field("entitled", "tested")(result)
    return 100 * received / entitled if received is not None and entitled else None


def _without_load(factors: Mapping[str, str]) -> Mapping[str, str] | None:
    """The same cell of the isolation suite without its neighbour's load; None of a cell that has none."""
    return None if factors.get("load", "none") == "none" else {**factors, "load": "none", "intensity": "0"}


def timing_measures() -> Iterator[Measure]:
    """Clock reads and sleeps."""
    yield from _durations(
        *("timing", "timer_cost", "the time it takes to read a clock once", frozenset({"timer_cost"})),
        *("timer_cost", "p50 p99"),
    )
    yield from _durations(
        *("timing", "sleep_lateness", "how long after its deadline a sleep wakes", frozenset({"sleep_lateness"})),
        *("sleep_lateness", "p50 p99"),
    )


_ESTIMATES = frozenset({"estimate"})
_THROUGHPUT = frozenset({"throughput"})
_OPERATIONS, _KNEE, _CRASH = frozenset({"operations", "mixed"}), frozenset({"knee"}), frozenset({"crash"})
_KERNEL = frozenset({"kernel"})


def bandwidth_measures() -> Iterator[Measure]:
    """Estimates of available bandwidth."""
    suite, lower = "bandwidth", Better.LOWER
    yield Measure(
        *(suite, "error", quantities.SHARE, lower, "how far the estimate is off the truth, without its sign"),
        *(_ESTIMATES,),
        scalar=_field("error_ratio", factor=100, magnitude=True),
        headline=True,
    )
    yield Measure(
        *(suite, "estimate", quantities.BIT_RATE, Better.HIGHER, "the available bandwidth as it was estimated"),
        *(_ESTIMATES,),
        scalar=_field("median_mbps", factor=1e6),
    )
    yield Measure(
        *(suite, "duration", quantities.DURATION, lower, "how long an estimate took", _ESTIMATES),
        scalar=_field("duration_ns"),
    )
    yield Measure(
        *(suite, "bytes_sent", quantities.SIZE, lower, "what an estimate sent over the path", _ESTIMATES),
        scalar=_field("bytes_sent"),
    )
    yield from _durations(
        suite, "send_lateness", "how late packets were sent", _ESTIMATES, histogram="lateness", headline=""
    )


def forwarding_measures() -> Iterator[Measure]:
    """Rates, loss and latency of virtual routers."""
    suite, higher, lower = "forwarding", Better.HIGHER, Better.LOWER
    yield Measure(
        *(suite, "throughput", quantities.FRAME_RATE, higher, "the highest rate without loss (RFC 2544)", _THROUGHPUT),
        scalar=_field("throughput_pps"),
        headline=True,
    )
    yield Measure(
        *(suite, "throughput_bits", quantities.BIT_RATE, higher, "the same in bits, check sequence included"),
        *(_THROUGHPUT,),
        scalar=_field("throughput_bps"),
    )
    yield Measure(
        *(suite, "partial_drop_rate", quantities.FRAME_RATE, higher, "the highest rate with the loss that is allowed"),
        *(_THROUGHPUT,),
        scalar=_field("pdr", "rate_pps"),
    )
    for percent in (10, 50, 90, 100):
        load = f"at {percent} % of the throughput"
        yield Measure(
            *(suite, f"latency_at_{percent}.weighted_mean", quantities.DURATION, lower),
            *(f"mean latency over the guests {load}", _THROUGHPUT),
            scalar=_at_load(percent, "total_ns"),
        )
        yield Measure(
            *(suite, f"loss_at_{percent}", quantities.SHARE, lower, f"frames lost {load}", _THROUGHPUT),
            scalar=_at_load(percent, "loss_ratio", 100),
        )
        yield from _durations(
            *(suite, f"latency_at_{percent}", f"a frame's latency {load}", _THROUGHPUT, f"latency@{percent}%"),
            *("p99" if percent == 50 else "",),
        )


def storage_measures() -> Iterator[Measure]:
    """Databases: rates, latencies, what a crash lost."""
    suite, higher, lower = "storage", Better.HIGHER, Better.LOWER
    yield Measure(
        *(suite, "throughput", quantities.OPERATION_RATE, higher, "operations that succeeded", _OPERATIONS),
        scalar=_field("operations_per_s"),
        headline=True,
    )
    yield Measure(
        *(suite, "rows", quantities.ROW_RATE, higher, "rows written or read", _OPERATIONS),
        scalar=_field("rows_per_s"),
    )
    yield Measure(
        *(suite, "knee", quantities.OPERATION_RATE, higher, "the highest rate within the latency objective", _KNEE),
        scalar=_field("knee_per_s"),
        headline=True,
    )
    yield Measure(
        *(suite, "lost_rows", quantities.COUNT, lower, "acknowledged rows that a killed server had lost", _CRASH),
        scalar=_field("missing_rows"),
        headline=True,
    )
    yield Measure(
        *(suite, "recovery", quantities.DURATION, lower, "from a server's start after a kill to its answer", _CRASH),
        scalar=_field("recovery_ns"),
    )
    yield Measure(
        *(suite, "server_cpu", quantities.DURATION, lower, "CPU time of the server per operation", _OPERATIONS),
        scalar=_field("server_cpu_ns_per_operation"),
    )
    yield from _durations(
        *(suite, "service", "the time from sending a request to its answer", _OPERATIONS | _KNEE, "service", "p99")
    )
    yield from _durations(
        *(suite, "response", "the time from when a request was due to its answer", _OPERATIONS | _KNEE),
        *("response", "p99"),
    )


def isolation_measures() -> Iterator[Measure]:
    """Work beside a neighbour, and what was promised."""
    suite, higher = "isolation", Better.HIGHER
    yield Measure(
        *(suite, "work", quantities.WORK_RATE, higher, "what the tested guest did, in its benchmark's units", _KERNEL),
        scalar=_field("rate"),
        headline=True,
    )
    yield Measure(
        *(suite, "kept", quantities.SHARE, higher, "the work beside a load, of that without it in the same repetition"),
        *(_KERNEL,),
        scalar=_field("rate"),
        baseline=_without_load,
        headline=True,
    )
    yield Measure(
        *(suite, "entitlement", quantities.SHARE, higher, "CPU time received of that which was promised", _KERNEL),
        scalar=_entitlement,
    )
    yield Measure(
        *(suite, "neighbour_work", quantities.WORK_RATE, higher, "what the loading guest did, in its units", _KERNEL),
        scalar=_field("load", "rate"),
    )
    yield from _durations(suite, "wake", "how late the tested guest woke", _KERNEL, "wake", "p99")
    yield from _durations(suite, "disk", "an operation on the tested guest's disk", _KERNEL, "disk", "p99")


def imported_measures() -> Iterator[Measure]:
    """What other tools measured."""
    suite, higher = "imported", Better.HIGHER
    fio, cyclictest, pgbench = frozenset({"fio"}), frozenset({"cyclictest"}), frozenset({"pgbench"})
    yield Measure(
        *(suite, "fio.iops", quantities.OPERATION_RATE, higher, "what fio read, wrote or trimmed", fio),
        scalar=_field("iops"),
        headline=True,
    )
    yield Measure(
        *(suite, "fio.bandwidth", quantities.BIT_RATE, higher, "the same in bits", fio),
        scalar=_field("bits_per_s"),
    )
    yield Measure(
        *(suite, "pgbench.throughput", quantities.OPERATION_RATE, higher, "transactions that succeeded", pgbench),
        scalar=_field("transactions_per_s"),
        headline=True,
    )
    yield Measure(
        *(suite, "pgbench.failed", quantities.SHARE, Better.LOWER, "transactions that failed or were skipped", pgbench),
        scalar=_field("failed_share", factor=100),
    )
    for name, meaning, probes, histogram, headline in (
        ("fio.completion", "the time from submission to completion, by fio", fio, "clat", "p99"),
        ("fio.submission", "the time that submitting took, by fio", fio, "slat", ""),
        ("fio.total", "the time from when fio made an operation to its completion", fio, "lat", ""),
        ("cyclictest.latency", "how late a thread woke, by cyclictest", cyclictest, "latency", "p99 max"),
        ("pgbench.latency", "a transaction's time, by pgbench", pgbench, "transaction", "p99"),
    ):
        for measure in _durations(suite, name, meaning, probes, histogram, headline):
            yield dataclasses.replace(measure, scalar=_field(histogram, measure.statistic))
