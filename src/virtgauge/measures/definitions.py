"""The measures of each suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from virtgauge.results import quantities
from virtgauge.results.measure import Better, Measure, Statistic, field
from virtgauge.specs.measures import durations


def imported_measures() -> Iterator[Measure]:
    """What other tools measured."""
    suite, higher = "imported", Better.HIGHER
    fio, cyclictest, pgbench, trex = (frozenset({name}) for name in ("fio", "cyclictest", "pgbench", "trex"))
    yield Measure(
        *(suite, "fio.iops", quantities.OPERATION_RATE, higher, "what fio read, wrote or trimmed", fio),
        source=field("iops"),
        headline=True,
    )
    yield Measure(
        *(suite, "fio.bandwidth", quantities.BIT_RATE, higher, "the same in bits", fio),
        source=field("bits_per_s"),
    )
    yield Measure(
        *(suite, "pgbench.throughput", quantities.OPERATION_RATE, higher, "transactions that succeeded", pgbench),
        source=field("transactions_per_s"),
        headline=True,
    )
    yield Measure(
        *(suite, "pgbench.failed", quantities.SHARE, Better.LOWER, "transactions that failed or were skipped", pgbench),
        source=field("failed_share", factor=100),
    )
    yield Measure(
        *(suite, "trex.throughput", quantities.FRAME_RATE, higher, "the highest load within the allowed loss", trex),
        source=field("throughput_pps"),
        headline=True,
    )
    yield Measure(
        *(suite, "trex.received", quantities.FRAME_RATE, higher, "frames that came back at a fixed load", trex),
        source=field("received_pps"),
        headline=True,
    )
    yield Measure(
        *(suite, "trex.lost", quantities.SHARE, Better.LOWER, "frames that did not come back", trex),
        source=field("lost_percent"),
    )
    for name, meaning, probes, histogram, headline in (
        ("fio.completion", "the time from submission to completion, by fio", fio, "clat", "p99"),
        ("fio.submission", "the time that submitting took, by fio", fio, "slat", ""),
        ("fio.total", "the time from when fio made an operation to its completion", fio, "lat", ""),
        ("cyclictest.latency", "how late a thread woke, by cyclictest", cyclictest, "latency", "p99 max"),
        ("pgbench.latency", "a transaction's time, by pgbench", pgbench, "transaction", "p99"),
        ("trex.latency", "a frame's latency, by TRex", trex, "latency", "p99"),
    ):
        for measure in durations(suite, name, meaning, probes, histogram, headline):
            otherwise = field(histogram, measure.statistic)
            yield dataclasses.replace(measure, source=Statistic(histogram, measure.statistic, otherwise))
