"""The declaration of what other tools measured: every figure in a table for each cell, and where it is from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from virtgauge.ledger.records import ArmRecord
from virtgauge.results import quantities
from virtgauge.results.formatting import change_phrase, count
from virtgauge.results.measure import Better, Measure, Statistic, durations, field, measures
from virtgauge.specs import headline
from virtgauge.specs.blocks import Block, Row, Text, table_of
from virtgauge.specs.context import Context, marked
from virtgauge.specs.headline import HeadlineFigure, Summary, Tone
from virtgauge.specs.model import Factor, Figures, SectionSpec, SuiteSpec

_SHOWN = ("p50", "p99", "p99.9", "max")  # Of a distribution; the others are in the exports
_ASIDE = ("fio.submission", "fio.total")
_MOST_FIGURES = 3  # In a sentence


def imported_measures() -> Iterator[Measure]:
    """What other tools measured."""
    operations, frames, share = quantities.OPERATION_RATE, quantities.FRAME_RATE, quantities.SHARE
    higher, lower, meaning = Better.HIGHER, Better.LOWER, "the highest load within the allowed loss"
    yield from measures(
        *("imported", None),
        ("fio.iops", operations, higher, "what fio read, wrote or trimmed", field("iops")),
        ("fio.bandwidth", quantities.BIT_RATE, higher, "the same in bits", field("bits_per_s")),
        ("pgbench.throughput", operations, higher, "transactions that succeeded", field("transactions_per_s")),
        ("pgbench.failed", share, lower, "transactions that failed or were skipped", field("failed_share", factor=100)),
        ("trex.throughput", frames, higher, meaning, field("throughput_pps")),
        ("trex.received", frames, higher, "frames that came back at a fixed load", field("received_pps")),
        ("trex.lost", share, lower, "frames that did not come back", field("lost_percent")),
        ("hwlatdetect.gaps", quantities.COUNT, lower, "gaps above the threshold of hwlatdetect", field("gaps")),
        headline=("fio.iops", "pgbench.throughput", "trex.throughput", "trex.received", "hwlatdetect.gaps"),
    )
    for name, meaning, histogram, first in (
        ("fio.completion", "the time from submission to completion, by fio", "clat", "p99"),
        ("fio.submission", "the time that submitting took, by fio", "slat", ""),
        ("fio.total", "the time from when fio made an operation to its completion", "lat", ""),
        ("cyclictest.latency", "how late a thread woke, by cyclictest", "latency", "p99 max"),
        ("jitterdebugger.latency", "how late a thread woke, by jitterdebugger", "latency", "p99 max"),
        ("oslat.latency", "gaps in a thread that never sleeps, by oslat", "latency", "p99 max"),
        ("rtla.latency", "how late a timer came, or how long a noise was, by rtla", "latency", "p99 max"),
        ("hwlatdetect.latency", "gaps above its threshold with interrupts off, by hwlatdetect", "latency", "max"),
        ("pgbench.latency", "a transaction's time, by pgbench", "transaction", "p99"),
        ("trex.latency", "a frame's latency, by TRex", "latency", "p99"),
    ):
        for measure in durations("imported", name, meaning, frozenset({name.partition(".")[0]}), histogram, first):
            otherwise = field(histogram, measure.statistic)
            yield dataclasses.replace(measure, source=Statistic(histogram, measure.statistic, otherwise))


def _shown(context: Context) -> list[Measure]:
    """The measures that the report shows."""
    return [
        one
        for one in context.spec.measures
        if not one.statistic or (one.statistic in _SHOWN and not one.name.startswith(_ASIDE))
    ]


def _said(context: Context, arm: ArmRecord, against: str) -> Summary:
    table = context.table
    own = [
        (cell, measure)
        for cell in context.cells
        for measure in _shown(context)
        if measure.headline and table.has(measure, cell, arm.name)
    ]
    if not own:
        tried = [cell for cell in context.cells if table.tried(cell, arm.name)]
        return Summary(table.endings.ending(tried[-1], arm.name) if tried else "nothing was imported", Tone.MISSING)
    name, parts, found = f" {against}", list[str](), list[HeadlineFigure]()
    for cell, measure in own:
        compared = arm.role != "reference" and table.has(measure, cell, table.reference)
        change = table.compared(measure, cell, arm.name) if compared else None
        point, told = measure.quantity.text(table.estimate(measure, cell, arm.name).point), ""
        if against and change is not None and len(parts) < _MOST_FIGURES:
            told, name = f", {headline.compared(change, name)}", ""  # once is enough
        parts.append(f"{measure.name} {point} ({context.spec.cell_name(cell, ('probe',))}{told})")
        said = change_phrase(change, "higher", "lower") if change is not None else ""
        found.append(headline.figure(measure.name, point, change, said, better=measure.better))
    more = len(parts) - _MOST_FIGURES
    parts[_MOST_FIGURES:] = [f"{count(more, 'more figure')} below"] if more > 0 else []
    return Summary("; ".join(parts), headline.tone_of(found), tuple(found))


def _figures(context: Context) -> Iterator[Block]:
    """A table for each cell, of the measures that any arm has there."""
    columns = [marked(arm) for arm in context.arms]
    for cell in context.cells:
        tried = {arm.name: context.table.tried(cell, arm.name) for arm in context.arms}
        rows = []
        for measure in _shown(context):
            if any(context.table.has(measure, cell, arm) for arm in tried):
                shown = (context.value(measure, cell, arm, compared=True) if tried[arm] else None for arm in tried)
                rows.append(Row((f"{measure.name}\n{measure.meaning}",), "", tuple(shown)))
        yield from table_of(context.spec.full_name(cell), ("Figure",), columns, rows)


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
    factors=(Factor("probe"),),
    measures=_MEASURES,
    headline=_said,
    summary=(_origins,),
    sections=(SectionSpec("figures", "Imported", (_figures,)),),
    agreement=tuple(Figures(one.name) for one in _MEASURES if one.headline),
    glossary={
        "Imported": "Measured by another tool, and not by virtgauge: nobody watched foreign load, steal and clocks, "
        "and repetitions are paired with the reference's by their numbers, in the order in which they were imported "
        "unless somebody said otherwise. fio's own bins are up to 1.6 % wide."
    },
)
