"""What settings buy: each beside the same guest without it, ranked by what it was shown to bring.

A setting is a level of a factor (timer slack, scheduling class, idle states), or what a platform's table ``tuning`` has
more than that of a platform that is the same otherwise.  Its base differs in nothing else.  Figures are paired by block
and judged as all comparisons are (:mod:`virtgauge.analysis.comparison`), by what identical arms (A/A) differ by in that
of the two cells where they do most.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from virtgauge.analysis.comparison import Comparison
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import NONE, beside, change_phrase
from virtgauge.specs.blocks import Block, Column, Finding, Place, Row, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.model import Factor
from virtgauge.specs.timing_insights import USUAL, cell_label

_COLUMNS = {"p99": "p99", "max": "max", "p50": "median", "missed": "missed"}  # Statistics, the one that ranks first
_COLUMNS_OF = {"sleep_lateness": ("p99", "max", "p50"), "cycle": tuple(_COLUMNS)}  # By probe
_MOST_TOLD, _MOST_OPEN = 3, 40  # Settings that are told in a sentence, and rows of a table that is not folded


class Bought(NamedTuple):
    """What one setting brings on one arm."""

    setting: str  # ``SCHED_FIFO``, ``vcpu_cpus = [1]``
    by: str  # what was measured: ``cycle of 1 ms, CPU load``
    arm: ArmRecord
    place: Place
    figures: Mapping[str, Value]  # with the setting, by statistic, each compared with the base's
    names: frozenset[str]  # of what is set, as a plan has them: ``policy``, ``vcpu_cpus``

    @property
    def ranked(self) -> bool:
        """Not of an emulated arm, nor of one on another computer than the A/A pair."""
        return all(one.ranked for one in self.figures.values())

    @property
    def better(self) -> list[str]:
        """Statistics that were shown to be lower."""
        return [name for name, one in self.figures.items() if one.judged == "better"]

    @property
    def worse(self) -> list[str]:
        """Statistics that were shown to be higher."""
        return [name for name, one in self.figures.items() if one.judged == "worse"]

    @property
    def helps(self) -> bool:
        """Whether something was shown to be better, and nothing to be worse."""
        return bool(self.better) and not self.worse

    @property
    def verdict(self) -> str:
        """``helps: p99, max``; ``not shown``."""
        if not self.ranked:
            return f"not judged: {self.arm.mark or 'on another computer'}"
        shown = (("helps", self.better), ("costs", self.worse))
        said = [f"{word}: {', '.join(_COLUMNS[name] for name in names)}" for word, names in shown if names]
        return "; ".join(said) or "not shown"

    @property
    def order(self) -> tuple[bool, int, int, float]:
        """What helps first, by the ratio of the first statistic that was shown to be lower; others by the p99's."""
        first = next(iter(self.better or self.figures))
        found = self.figures[first].compared
        ratio = found.ratio.point if isinstance(found, Comparison) else None
        group = (not self.better) + bool(self.worse)
        return not self.ranked, group, [*_COLUMNS].index(first), 1.0 if ratio is None else ratio

    @property
    def sentence(self) -> str:
        """``SCHED_FIFO (cycle of 1 ms, CPU load): p99 12× lower (10–15×), max 31 % lower (20–40 %)``."""
        said = []
        for name in self.better:
            found = self.figures[name].compared
            change = change_phrase(found, "higher", "lower") if isinstance(found, Comparison) else "deadlines are fewer"
            said.append(f"{_COLUMNS[name]} {change}")
        return f"{self.setting} ({' '.join(self.by.split())}): {', '.join(said)}."

    @property
    def line(self) -> str:
        """``SCHED_FIFO (cycle of 1 ms, CPU load, Host): p99 0.12× (0.10–0.15×), max 0.69× (0.60–1.1×); helps: p99``."""
        compared = ((name, one.compared, one.quantity) for name, one in self.figures.items())
        found = [(name, beside(of, quantity)) for name, of, quantity in compared if of is not None]
        told = ", ".join(f"{_COLUMNS[name]} {ratio}" for name, ratio in found if ratio) or NONE
        return " ".join(f"{self.setting} ({self.by}, {self.arm.label}): {told}; {self.verdict}".split())


def what_settings_buy(context: Context) -> Iterator[Block]:
    """What helps most in a sentence each, then all settings ranked."""
    found = sorted(bought(context), key=lambda one: one.order)
    helping = [one for one in found if one.helps]
    yield from (Text((one.sentence,), one.arm.label, "finding") for one in helping[:_MOST_TOLD])
    if found and not helping:
        yield Text(("No setting was shown to help.",))
    rows = []
    for number, one in enumerate(found, 1):
        effect = Finding("setting.effect", one.place, one.verdict)
        figures = (one.figures.get(name) for name in _COLUMNS)
        rows.append(Row((f"{number}" if one.helps else "–", one.setting, one.by), one.arm.name, (effect, *figures)))
    yield from table_of(
        "",
        ("Rank", "Setting", "Measured by"),
        (Column("shown", text=True), *_COLUMNS.values()),
        rows,
        _by_chance(context, found),
        folded=len(rows) > _MOST_OPEN,
    )


def _by_chance(context: Context, found: Sequence[Bought]) -> str:
    """What judging many figures by themselves means for each; empty where none is judged."""
    compared = (value.compared for one in found if one.ranked for value in one.figures.values())
    judged = sum(one is not None and one.band is not None for one in compared)
    chance = judged * (1 - context.table.confidence) / 2
    said = (
        f"{judged} figures are judged, each by itself: if no setting changed anything, up to {chance:.2g} of them "
        "would be expected to seem lower all the same. Of two whose intervals overlap it is not shown which buys more."
    )
    return said if judged else ""


def bought(context: Context) -> Iterator[Bought]:
    """Every setting that was measured with and without; of platforms, where no factor has a base of its own."""
    untuned = {arm.name: _base_arm(context, arm) for arm in context.own_arms}
    for cell in context.where({"probe": _COLUMNS_OF}):
        factor_and_cell = _base_cell(context, cell)
        for arm in context.own_arms:
            if factor_and_cell is not None:
                factor, other = factor_and_cell
                base, names, by = (other, arm.name), {factor.name}, ""
                setting, against = context.text(cell, factor.name), f"{factor.name}={factor.usual}"
            elif (less := untuned[arm.name]) is not None:
                base, names, by = (cell, less.name), _tuning(arm).keys() - _tuning(less), f"\nbeside {less.name}"
                more = (f"{name} = {json.dumps(one)}" for name, one in _tuning(arm).items() if name in names)
                setting, against = ", ".join(more), f"tuning={less.name}"
            else:
                continue
            if context.measured(cell, arm.name) and context.measured(*base):
                place = context.place(cell, arm.name, against)
                figures = {name: _figure(context, place, name, cell, base) for name in _COLUMNS_OF[cell.probe]}
                yield Bought(setting, cell_label(context, base[0]) + by, arm, place, figures, frozenset(names))


def _figure(context: Context, place: Place, name: str, cell: Cell, base: tuple[Cell, str]) -> Value:
    """A statistic with the setting, compared with the base's."""
    measure, test = context.spec.measure(f"{cell.probe}.{name}"), (cell, place.arm)
    found = (context.table.differed if measure.by_difference else context.table.compared)(measure, *test, base)
    estimate, better = context.estimate(measure, *test), measure.better
    return context.of(measure.name, place, estimate, measure.quantity, compared=found, better=better)


def _base_cell(context: Context, cell: Cell) -> tuple[Factor, Cell] | None:
    """The one factor that is not at its usual level, and the cell where it is; None where there is no such."""
    apart = [name for name, usual in USUAL.items() if context.level(cell, name) not in usual]
    if len(apart) != 1:
        return None
    factor = context.spec.factor(apart[0])
    found = context.table.beside(cell, factor.name, factor.usual)
    return None if found is None else (factor, found)


def _base_arm(context: Context, arm: ArmRecord) -> ArmRecord | None:
    """The same platform with less of a tuning, as much as there is; None where there is none."""

    def rest(one: ArmRecord) -> dict[str, Any]:
        return {name: value for name, value in one.settings.items() if name not in ("tuning", "found")}

    less = [one for one in context.own_arms if rest(one) == rest(arm) and _tuning(one).items() < _tuning(arm).items()]
    return max(less, key=lambda one: len(_tuning(one)), default=None)


def _tuning(arm: ArmRecord) -> dict[str, Any]:
    told = arm.settings.get("tuning")
    return told if isinstance(told, dict) else {}
