"""What is said beyond one run: a page like a report's, the same in the terminal, and charts of figures over runs."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text as Line

from virtgauge import __version__
from virtgauge.analysis.change_points import Step
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.page import Page
from virtgauge.report.terminal import print_blocks
from virtgauge.results import formatting
from virtgauge.results.quantities import Quantity
from virtgauge.specs.blocks import Axis, Block, Chart, Section, chart_of

_CAPTION = (
    "The median of each run with its interval, in the order in which the runs were made. An upright line is the first "
    "run of another level; the level lines are the medians of the runs between steps."
)
_FACTS = 4  # That are told of all steps at a place


@dataclasses.dataclass(frozen=True)
class Document:
    """Something that is told in blocks."""

    title: str
    of: str  # what it is of, in a line
    caveats: tuple[str, ...]
    summary: tuple[Block, ...]  # what a first look is about
    sections: tuple[Section, ...]
    reading: Mapping[str, str]  # terms and their explanations
    arms: tuple[ArmRecord, ...]  # that rows and charts name

    def html(self) -> str:
        """The document as one HTML file that needs no network."""
        page = Page(self.arms)
        return page.whole(
            "document.html",
            title=f"{self.title} · virtgauge",
            maker=f"virtgauge {__version__}",
            menu=[("", [page.section(one, self.arms) for one in self.sections])],
            document=self,
            caveats=self.caveats,
            summary=page.blocks("summary", self.summary, self.arms),
        )

    def print(self, console: Console) -> None:
        """In the terminal; texts of a run are printed as they are, control characters taken out."""
        print_blocks(self.summary, (), {}, console)
        for caveat in self.caveats:
            console.print(Line(f"! {formatting.printable(caveat)}", style="yellow"))
        print_blocks((), self.sections, {arm.name: arm for arm in self.arms}, console)


class RunLevel(NamedTuple):
    """One figure of one run."""

    number: int  # of the run, from 1
    run: str
    level: Estimate


def levels_chart(
    title: str,
    more: str,
    quantity: Quantity,
    panels: Iterable[tuple[str, Sequence[Mapping[str, Any]]]],
    runs: Mapping[int, str],
) -> Iterator[Chart]:
    """The rows of :func:`level_rows` by panel, what its caption says further, and what each run is called."""
    axes = Axis("", None, "close", runs), Axis("", quantity, "close")
    yield from chart_of("lines", title, _CAPTION + more, axes, panels)


def level_rows(
    arm: str, levels: Sequence[RunLevel], steps: Sequence[tuple[int, str]], quantity: Quantity, unit: float = 1.0
) -> Iterator[dict[str, Any]]:
    """What is drawn of one figure on one platform.

    ``levels`` have a point each, by ascending run; ``steps`` the number of the first run after each, and what it says.
    ``unit`` is what the height of a level is drawn in, in the levels' unit.
    """
    shared = {"arm": arm, "label": arm}
    for number, run, level in levels:
        drawn = level.mapped(lambda value: value / unit, level.unit)
        place = {"x": number, "y": drawn.point, "low": drawn.low, "high": drawn.high, "at": run}
        interval, confidence = formatting.interval_text(level, quantity), formatting.confidence(level.confidence)
        texts = {
            "t": formatting.point_text(level, quantity),
            "interval": f"{interval} ({confidence})" if interval else "",
        }
        yield {"kind": "ours"} | shared | place | texts
    starts = [0, *(number for number, _ in steps)]
    for start, stop in zip(starts, [*starts[1:], None], strict=True):
        part = [one for one in levels if start <= one.number and (stop is None or one.number < stop)]
        if part:
            middle = statistics.median(one.level.point for one in part if one.level.point is not None) / unit
            guide = {"kind": "guide", "up": middle, "of": f"{arm} {start}", "t": f"{arm}: level"}
            yield from (guide | {"across": one.number} for one in (part[0], part[-1]))
    for number, text in steps:
        yield {"kind": "rule", "x": number, "t": text} | shared


class ToldStep(NamedTuple):
    """A step in words."""

    what: str  # ``worse``, ``better`` or ``changed``
    between: str  # which runs it is
    figure: str  # of what
    step: Step
    quantity: Quantity
    remarks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``worse between run-3 and run-4: 1.31× (1.28–1.35×); kernel 6.1.0 → 6.18.0``."""
        size = formatting.size_text(self.step.size, self.quantity)
        return "; ".join([f"{self.what} {self.between}: {size}", *self.remarks])


def steps_text(steps: Sequence[ToldStep], one: str = "figure", many: str = "figures") -> str:
    """Steps of one kind at one place: ``2 figures worse; most of all Guest, Timer cost, p50: 1.31× (1.28–1.35×)``."""
    largest = max(steps, key=lambda told: told.step.largeness)
    beside = Counter(remark for told in steps for remark in told.remarks)
    facts = [
        f"{fact}{f' ({number} of them)' if number < len(steps) else ''}" for fact, number in beside.most_common(_FACTS)
    ]
    facts += [f"{len(beside) - _FACTS} more in the table"] if len(beside) > _FACTS else []
    most = "; most of all " if len(steps) > 1 else ": "
    size = formatting.size_text(largest.step.size, largest.quantity)
    text = f"{formatting.count(len(steps), one, many)} {largest.what}{most}{largest.figure}: {size}"
    return "; ".join([text, *facts])


def steps_headline(steps: Sequence[int], runs: int) -> str:
    """All series in a sentence, by how many steps each has: ``2 steps in 1 of 40 series over 8 runs``."""
    of = f"{formatting.count(len(steps), 'series', 'series')} over {formatting.count(runs, 'run')}"
    changing = sum(map(bool, steps))
    if not changing:
        return f"no change shown in any of {of}"
    return f"{formatting.count(sum(steps), 'step')} in {changing:,} of {of}"
