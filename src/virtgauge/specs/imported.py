"""The declaration of what other tools measured: every figure in a table for each cell, and where it is from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from virtgauge.results import quantities
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Measure, Statistic, field
from virtgauge.specs.blocks import Block, Column, Row, Table, Text
from virtgauge.specs.context import Context
from virtgauge.specs.measures import durations
from virtgauge.specs.model import Figures, SectionSpec, SuiteSpec

_SHOWN = ("p50", "p99", "p99.9", "max")
"""Of a distribution; the others are in the exports."""
_ASIDE = ("fio.submission", "fio.total")


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


def shown_measures(context: Context) -> list[Measure]:
    """The measures that the report shows."""
    return [
        one
        for one in context.spec.measures
        if not one.statistic or (one.statistic in _SHOWN and not one.name.startswith(_ASIDE))
    ]


def levels_in_words(cell: Cell) -> str:
    """``rw randread, bs 4k``."""
    return ", ".join(f"{factor} {level}" for factor, level in cell.levels)


def _figures(context: Context) -> Iterator[Block]:
    """A table for each cell, of the measures that any arm has there."""
    columns = tuple(Column(arm.label + (" (emulated)" if arm.emulated else "")) for arm in context.arms)
    for cell in context.cells:
        rows = []
        for measure in shown_measures(context):
            if any(context.table.has(measure, cell, arm.name) for arm in context.arms):
                shown = tuple(
                    context.value(measure, cell, arm.name, compared=True)
                    if context.table.tried(cell, arm.name)
                    else None
                    for arm in context.arms
                )
                rows.append(Row((f"{measure.name}\n{measure.meaning}",), "", shown))
        if rows:
            yield Table(f"{cell.probe}: {levels_in_words(cell)}", ("Figure",), columns, tuple(rows))


def _origins(context: Context) -> Iterator[Block]:
    """Which tools' files the trials of each arm were in."""
    files: dict[tuple[str, str], dict[str, None]] = {}
    for cell, arm, _, _, result in context.table.attempted_results(context.spec.name):
        named = files.setdefault((arm, str(result.get("tool", cell.probe))), {})
        named.update(dict.fromkeys(str(source["name"]) for source in result.get("sources", ())))
    order = [arm.name for arm in context.arms]
    told = [
        f"{context.arm(arm).label} by {tool} ({', '.join(named)})"
        for (arm, tool), named in sorted(files.items(), key=lambda one: order.index(one[0][0]))
    ]
    yield Text((f"From files of other tools: {'; '.join(told)}. Virtgauge did not watch what else the machine did.",))


_MEASURES = tuple(imported_measures())

IMPORTED = SuiteSpec(
    name="imported",
    title="Imported results",
    factors=(),
    measures=_MEASURES,
    headline=None,
    summary=(_origins,),
    sections=(SectionSpec("figures", "Imported", (_figures,)),),
    agreement=tuple(Figures(one.name) for one in _MEASURES if one.headline),
    glossary={
        "Imported": "Measured by another tool, and not by virtgauge: nobody watched foreign load, steal and clocks, "
        "and repetitions are paired with the reference's by their numbers, in the order in which they were imported "
        "unless somebody said otherwise. fio's own bins are up to 1.6 % wide.",
    },
)
