"""What a run found: figures by measure, cell and arm.  Nothing else reads trials."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from virtgauge.analysis.comparison import (
    Comparison,
    Difference,
    Judgement,
    aa_band,
    band_of,
    compare,
    compare_differences,
    paired_difference,
    paired_ratio,
)
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.ledger.read_only import HostLedger, ReadOnlyLedger
from virtgauge.ledger.records import ArmRecord, HostRecord, Manifest, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.requirements import Budget
from virtgauge.results.columns import Account, Cell, Integers, Trials, read_result, read_results
from virtgauge.results.distributions import Distributions
from virtgauge.results.endings import Endings
from virtgauge.results.measure import Across, Column, Derived, Field, Measure, Relative, Source, Statistic

Blocks = Mapping[int, float]  # A figure of each repetition, by its block, in the measure's base unit
_Place = tuple[str, frozenset[str], Source]
_OfProbes = tuple[frozenset[str], Field]  # What is read of these probes' results
Made = TypeVar("Made")
_CellPlace = tuple[str, str, frozenset[tuple[str, str]]]
_Figures = tuple[str, Cell, str]  # A measure's in a cell, of an arm
_MOST_KEPT, _MOST_VALUES = 64, 500_000
"""The repetitions of so many figures, and of so many values together, are kept for what asks for the same ones next."""


class ResultTable:
    """The figures of one run: of valid trials, the last of each block.

    Columns are read when a figure asks for them, once.  A cell that was never tried, or not by an arm, has no figures.
    The ledger, which may be of a run in progress, stays open as long as the table is used.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._columns: dict[_Place, Column] = {}
        self._estimates: dict[_Figures, Estimate] = {}
        self._comparisons: dict[tuple[str, Cell, str, tuple[Cell, str]], Comparison] = {}
        self._identical: dict[tuple[str, Cell], Estimate | None] = {}
        self._selected: dict[_Figures, tuple[Integers, Column]] = {}
        self._by_block: dict[_Figures, Blocks] = {}
        self._details: dict[tuple[Any, ...], dict[int, Any]] = {}

    @classmethod
    def open(cls, folder: Path, host: str | None = None) -> ResultTable:
        """Open a run to read it; of a fleet's run, one host's part where one is named.

        Raises UsageError: there is no such run or host.
        """
        return cls(ReadOnlyLedger.for_command(folder) if host is None else HostLedger.of(folder, host))

    @functools.cached_property
    def manifest(self) -> Manifest:
        return self.ledger.manifest()

    @functools.cached_property
    def trials(self) -> Trials:
        """The columns that every trial has."""
        return Trials.read(self.ledger)

    @functools.cached_property
    def endings(self) -> Endings:
        """How every trial ended."""
        return Endings(self.ledger, self.trials)

    @functools.cached_property
    def distributions(self) -> Distributions:
        """Histograms and raw values of the trials."""
        return Distributions(self.ledger, self.trials)

    # -- what there is -----------------------------------------------------------------------------------

    @property
    def arms(self) -> tuple[ArmRecord, ...]:
        """The arms in the plan's order, skipped ones included."""
        return self.manifest.arms

    @property
    def confidence(self) -> float:
        """The confidence that is wanted of intervals."""
        return self.manifest.confidence

    @functools.cached_property
    def claims_confidence(self) -> float:
        """The confidence of intervals that decide on claims: higher where repetitions were added until they did."""
        plan = tomllib.loads(self.manifest.plan_text) if "claims = true" in self.manifest.plan_text else {}
        if "budget" not in plan:
            return self.confidence
        return Budget.model_validate(plan["budget"]).claims_confidence(self.confidence, plan["repetitions"])

    @functools.cached_property
    def reference(self) -> str:
        """The arm with which others are compared; empty without one."""
        return next((arm.name for arm in self.arms if arm.role == "reference"), "")

    @functools.cached_property
    def aa(self) -> str:
        """The reference once more; empty without one."""
        return next((arm.name for arm in self.arms if arm.role == "aa"), "")

    def processor(self, arm: str) -> str:
        """Of the computer that an arm's guests ran on, by which computers are told apart."""
        own = next((one.processor for one in self.arms if one.name == arm), "")
        return own or str(self.manifest.fingerprint.get("identity", {}).get("cpu_model") or "this host’s processor")

    def elsewhere(self, arm: str) -> str:
        """Why an arm's ratio to the reference is one of computers, too; empty where both ran on one."""
        own, reference = self.processor(arm), self.processor(self.reference)
        return "" if own == reference else f"on another computer ({own}) than the reference ({reference})"

    @functools.cached_property
    def suites(self) -> tuple[str, ...]:
        """The suites that were tried, in the order of the ledger."""
        return tuple(dict.fromkeys(cell.suite for cell in self.trials.cells))

    def cells(self, suite: str | None = None) -> list[Cell]:
        """The cells that were tried, in the order of the ledger: all, or those of a suite."""
        return [cell for cell in self.trials.cells if suite in (None, cell.suite)]

    @functools.cached_property
    def _found(self) -> dict[_CellPlace, Cell]:
        return {(cell.suite, cell.probe, frozenset(cell.levels)): cell for cell in self.trials.cells}

    def find(self, suite: str, probe: str, levels: Mapping[str, str]) -> Cell | None:
        """The cell that has just these levels, in whatever order; None where it was never tried."""
        return self._found.get((suite, probe, frozenset(levels.items())))

    def beside(self, cell: Cell, factor: str, usual: str) -> Cell | None:
        """The cell that differs in one factor alone: it has its usual level, or not the factor; None without one."""
        rest = {name: level for name, level in cell.levels if name != factor}
        found = (self.find(cell.suite, cell.probe, one) for one in (rest, rest | {factor: usual}))
        return next((one for one in found if one is not None), None)

    def tried(self, cell: Cell, arm: str) -> bool:
        """Whether an arm was tried in a cell at all."""
        return self.trials.tried_at(cell, arm).size > 0

    def numbers(self, cell: Cell, arm: str) -> dict[int, int]:
        """The trial that counts of each block, by its number in the ledger."""
        rows = self.trials.counting_at(cell, arm)
        return dict(zip(self.trials.block[rows].tolist(), self.trials.number[rows].tolist(), strict=True))

    # -- figures -----------------------------------------------------------------------------------------

    def values(self, measure: Measure, cell: Cell, arm: str) -> Blocks:
        """A figure of each repetition, by ascending block; blocks that have none are left out."""

        def made() -> Blocks:
            blocks, figures = self._repetitions(measure, cell, arm)
            return dict(zip(blocks.tolist(), figures.tolist(), strict=True))

        return self._kept(self._by_block, (measure.full_name, cell, arm), made)

    def _repetitions(self, measure: Measure, cell: Cell, arm: str) -> tuple[Integers, Column]:
        """The blocks that have a figure, and the figures."""
        made = functools.partial(self._select, measure, cell, arm)
        return self._kept(self._selected, (measure.full_name, cell, arm), made)

    def _kept(self, few: dict[_Figures, Made], key: _Figures, make: Callable[[], Made]) -> Made:
        """What is kept of a figure, or made now."""
        if key not in few:
            if len(few) >= self._most_kept:
                few.clear()
            few[key] = make()
        return few[key]

    @functools.cached_property
    def _most_kept(self) -> int:
        """How many figures are kept: fewer of a long run."""
        repetitions = int(self.trials.block.max(initial=0)) + 1
        return max(2, min(_MOST_KEPT, _MOST_VALUES // repetitions))

    def _select(self, measure: Measure, cell: Cell, arm: str) -> tuple[Integers, Column]:
        at = self.trials.counted_at(cell, arm)
        if at.start == at.stop or not measure.fits(cell):
            return np.empty(0, dtype=np.int64), np.empty(0)
        source = measure.source
        if isinstance(source, Statistic) and source.otherwise is None:
            # Straight from what is known already: a column of each measure would take it all once more.
            found, _ = self._statistic(source, self.trials.counted[at])
        else:
            found = self._source(measure, source)[at]
        there = ~np.isnan(found)
        return self.trials.block[self.trials.counted[at][there]], found[there]

    def has(self, measure: Measure, cell: Cell, arm: str) -> bool:
        """Whether an arm has any figure in a cell."""
        return bool(self._repetitions(measure, cell, arm)[0].size)

    def estimate(self, measure: Measure, cell: Cell, arm: str) -> Estimate:
        """The median over repetitions; one that is missing says why."""
        key = measure.full_name, cell, arm
        if key not in self._estimates:
            unit, (blocks, values) = measure.quantity.unit, self._repetitions(measure, cell, arm)
            if not values.size:
                self._estimates[key] = Estimate.missing(unit, self.missing_reason(measure, cell, arm))
            elif measure.by_ratio:
                by_block = dict(zip(blocks.tolist(), values.tolist(), strict=True))
                self._estimates[key] = paired_ratio(by_block, dict.fromkeys(by_block, 1.0), self.confidence)
            else:
                self._estimates[key] = median_estimate(values, unit, self.confidence)
        return self._estimates[key]

    def compared(self, measure: Measure, cell: Cell, arm: str, base: tuple[Cell, str] | None = None) -> Comparison:
        """The ratio to the reference, or to another place, guarded by what identical arms (A/A) differ by.

        Of two cells it is that where these differ more; nothing where they are not known to in both.  Where the lower
        figure may be higher, or the higher one lower, nothing is shown.
        """
        there = base or (cell, self.reference)
        key = measure.full_name, cell, arm, there
        if key not in self._comparisons:
            own, other = self.values(measure, cell, arm), self.values(measure, *there)
            identical = (self.aa_ratio(measure, one) for one in {cell, there[0]})
            aa = max(identical, key=lambda one: aa_band(one) or math.inf)
            found = compare(own, other, aa, measure.quantity.unit, self.confidence)
            if found.distinguishable and (reason := self._open_side(measure, (cell, arm), there, found.judgement)):
                found = dataclasses.replace(found, judgement=Judgement.INCONCLUSIVE, reason=reason)
            self._comparisons[key] = found
        return self._comparisons[key]

    def _open_side(self, measure: Measure, own: tuple[Cell, str], other: tuple[Cell, str], shown: Judgement) -> str:
        """Why two figures may differ less than shown; empty where they do not."""
        lower, higher = (other, own) if shown is Judgement.HIGHER else (own, other)
        if self.may_be_lower(measure, *higher):
            return "the higher figure leaves out trials in which it was below all that was tried"
        return "the lower figure is a lower bound" if self.may_be_higher(measure, *lower) else ""

    def may_be_higher(
        self, measure: Measure, cell: Cell, arm: str, host: HostRecord | None = None, *, every: bool = False
    ) -> bool:
        """Whether a figure, or the upper end of its interval, is a lower bound, as it may be where more than a tenth of
        its trials is; of ``every`` trial's, where one is.

        Of all repetitions, or of one host's.
        """
        if not (found := self.endings.flagged(cell, arm, measure.bounded_by)):
            return False
        valid = [block for block in self.numbers(cell, arm) if host is None or host.owns(block)]
        bounded = set(found).intersection(valid)
        return bool(bounded) and (every or too_many(len(bounded), len(valid)))

    def may_be_lower(self, measure: Measure, cell: Cell, arm: str) -> bool:
        """Whether a figure leaves out more than a tenth of its trials, for it was below all that was tried."""
        found = self.endings.flagged(cell, arm, measure.below_by)
        return too_many(len(found), len(self.numbers(cell, arm)))

    def differed(self, measure: Measure, cell: Cell, arm: str, base: tuple[Cell, str] | None = None) -> Difference:
        """The difference from the reference, or from another place, guarded likewise."""
        unit, there = measure.quantity.unit, base or (cell, self.reference)
        own, other = self.values(measure, cell, arm), self.values(measure, *there)
        aa, reference = (
            {one: self.values(measure, one, of) for one in {cell, there[0]}} for of in (self.aa, self.reference)
        )
        identical = [paired_difference(aa[one], reference[one], unit, self.confidence) for one in aa]
        return compare_differences(own, other, band_of(identical), unit, self.confidence)

    def aa_ratio(self, measure: Measure, cell: Cell) -> Estimate | None:
        """What identical arms differ by in a cell; None where there are no figures of both."""
        key = measure.full_name, cell
        if key not in self._identical:
            aa, reference = self.values(measure, cell, self.aa), self.values(measure, cell, self.reference)
            self._identical[key] = paired_ratio(aa, reference, self.confidence) if aa and reference else None
        return self._identical[key]

    def ratio(self, measure: Measure, test: tuple[Cell, str], base: tuple[Cell, str]) -> Estimate:
        """The ratio of the figures at two places, each a cell and an arm, over the blocks that have both."""
        return paired_ratio(self.values(measure, *test), self.values(measure, *base), self.confidence)

    def column(self, measure: Measure) -> Column:
        """The figure of each trial of :attr:`Trials.counted`, in that order; NaN where it has none."""
        return self._within(self._source(measure, measure.source), measure.fits)

    def read(self, measures: Iterable[Measure]) -> None:
        """Read what several measures need and no more, at once, which saves going through the ledger for each."""
        wanted: dict[str, dict[_OfProbes, None]] = {}
        statistics: dict[str, set[str]] = {}
        for measure in measures:
            for one in _leaves(measure.source):
                if isinstance(one, Statistic):
                    statistics.setdefault(one.histogram, set()).add(one.name)
                elif (measure.suite, measure.probes, one) not in self._columns:
                    wanted.setdefault(measure.suite, {})[measure.probes, one] = None
        for suite, fields in wanted.items():
            self._read_fields(suite, fields)
        for histogram, names in statistics.items():
            self.distributions.statistics(histogram, names)

    def _source(self, measure: Measure, source: Source) -> Column:
        suite, probes, _ = key = measure.suite, measure.probes, source
        if key not in self._columns:
            if isinstance(source, Field):
                self._read_fields(suite, [(probes, source)])
            elif isinstance(source, Statistic):
                found, lacks = self._statistic(source, self.trials.counted)
                if source.otherwise is not None:
                    found = np.where(np.isnan(lacks), self._source(measure, source.otherwise), found)
                self._columns[key] = self._within(found, lambda cell: cell.suite == suite and cell.probe in probes)
            elif isinstance(source, Relative):
                self._columns[key] = self._relative(measure, source)
            elif isinstance(source, Across):
                self._columns[key] = self._across(measure, source)
            else:
                self._columns[key] = source.function(*(self._source(measure, one) for one in source.of))
        return self._columns[key]

    def _statistic(self, source: Statistic, rows: Integers) -> tuple[Column, Column]:
        """A statistic of some trials, and how many values each has."""
        told = self.distributions.statistics(source.histogram, {source.name})
        found, n = (told[name][rows] for name in (source.name, "n"))
        return np.where(n < source.least, np.nan, found) if source.least else found, n

    def _across(self, measure: Measure, source: Across) -> Column:
        column, blocks = self._empty(), self.trials.block[self.trials.counted]
        for cell, arm in itertools.product(self.cells(measure.suite), self.trials.arms):
            at = self.trials.counted_at(cell, arm)
            found = source.function(self, cell, arm) if cell.probe in measure.probes and at.start < at.stop else ""
            if not isinstance(found, str):
                column[at] = [found.get(block, np.nan) for block in blocks[at].tolist()]
        return column

    def _relative(self, measure: Measure, source: Relative) -> Column:
        own, column, blocks = self._source(measure, source.of), self._empty(), self.trials.block[self.trials.counted]
        for cell, arm in itertools.product(self.cells(measure.suite), self.trials.arms):
            if cell.probe in measure.probes and not (source.of_reference and self.elsewhere(arm)):
                place, part = self._base(measure, source, cell, arm)
                at, base = self.trials.counted_at(cell, arm), self.trials.counted_at(*place)
                _, here, there = np.intersect1d(blocks[at], blocks[base], assume_unique=True, return_indices=True)
                whole = part * own[base][there]
                column[at][here] = np.divide(own[at][here], whole, out=np.full_like(whole, np.nan), where=whole > 0)
        return column

    def _base(self, measure: Measure, source: Relative, cell: Cell, arm: str) -> tuple[tuple[Cell, str], float]:
        """The cell and arm by whose figure an arm's in a cell is divided, and which part of that."""
        figures, of = self._source(measure, source.of), self.reference if source.of_reference else arm
        found = [((one, of), part) for one, part in source.to(cell)]
        return next((one for one in found if (figures[self.trials.counted_at(*one[0])] > 0).any()), found[0])

    def bases(self, measure: Measure, cell: Cell, arm: str) -> list[tuple[Cell, str]]:
        """The cells, each with an arm, to whose figures an arm's in a cell are relative."""
        return [self._base(measure, one, cell, arm)[0] for one in measure.relatives]

    def _within(self, column: Column, fits: Callable[[Cell], bool]) -> Column:
        """A column in some cells only."""
        there = np.array([*map(fits, self.trials.cells)], dtype=bool)
        return np.where(there[self.trials.cell[self.trials.counted]], column, np.nan) if column.size else column

    def _places(self, numbers: Sequence[int]) -> Integers:
        """Of trials by number, their places among those that count; −1 of others.

        A run in progress has new trials meanwhile, with larger numbers.
        """
        return self._counted_places[np.minimum(numbers, self._counted_places.size - 1)]

    @functools.cached_property
    def _counted_places(self) -> Integers:
        """The place of each trial that counts, by its number; −1 of all others, and at the end."""
        places = np.full(int(self.trials.number.max(initial=0)) + 2, -1, dtype=np.int64)
        places[self.trials.number[self.trials.counted]] = np.arange(self.trials.counted.size)
        return places

    def _empty(self) -> Column:
        return np.full(self.trials.counted.size, np.nan)

    def _read_fields(self, suite: str, fields: Iterable[_OfProbes]) -> None:
        columns = {one: self._empty() for one in fields}
        together: dict[tuple[_OfProbes, ...], list[str]] = {}  # so that no result is read twice
        for probe in sorted(frozenset().union(*(probes for probes, _ in columns))):
            together.setdefault(tuple(one for one in columns if probe in one[0]), []).append(probe)
        for asked, probes in together.items():
            paths = [*dict.fromkeys(one.path for _, one in asked)]  # of entries of one list it is the same
            for numbers, rows in read_results(self.ledger, suite, probes, paths):
                places, found = self._places(numbers), dict(zip(paths, rows, strict=True))
                there = places >= 0
                for one in asked:
                    columns[one][places[there]] = one[1].numbers(found[one[1].path])[there]
        self._columns |= {(suite, *one): column for one, column in columns.items()}

    def missing_reason(self, measure: Measure, cell: Cell, arm: str) -> str:
        """Why an arm has no figure in a cell, as its last trial there tells."""
        last = self.endings.last(cell, arm)
        if last is None or last.status is not TrialStatus.VALID:
            return self.endings.ending(cell, arm)
        if never := measure.never(cell):
            return never
        for place in self.bases(measure, cell, arm):
            if place[1] != arm and (apart := self.elsewhere(arm)):
                return f"measured {apart}, whose work tells nothing of this one’s"
            if not self.numbers(cell, arm).keys() & self.numbers(*place).keys():
                return "no block has a valid trial of this cell and of the one that it is relative to"
        if measure.relatives:
            return measure.lacking or "a ratio needs positive figures; see the difference"
        if isinstance(measure.source, Across) and isinstance(why := measure.source.function(self, cell, arm), str):
            return why
        if isinstance(measure.source, Statistic):
            return f"too few values for {measure.source.name}, or none"
        why = next((f": {flag.detail}" for flag in last.flags if flag.name in measure.below_by), "")
        return f"the result has no {measure.name}{why}"

    def ways(self) -> tuple[Column, Column, Column]:
        """How every trial went, valid or not; NaN where that was not recorded.

        The CPU time of neither guest nor controller as a share of the machine's; how many values the histogram of the
        trial's probe has, and their median in nanoseconds.
        """
        trials = self.trials
        samples, medians = np.full((2, trials.number.size), np.nan)
        for place, cell in enumerate(trials.cells):
            own, told = trials.cell == place, self.distributions.statistics(cell.probe, {"p50"})
            samples[own], medians[own] = told["n"][own], told["p50"][own]
        counted = self._account
        with np.errstate(divide="ignore", invalid="ignore"):  # of a trial that took no time
            shares = counted.foreign_ns / (counted.processors * counted.elapsed_ns)
        return np.where(np.isfinite(shares), shares, np.nan), samples, medians

    def accounts(self) -> Iterator[tuple[Cell, str, Integers, Account]]:
        """By cell and arm the places in :attr:`trials` of every trial, valid or not, and what was counted beside it."""
        for cell, arm in itertools.product(self.trials.cells, self.trials.arms):
            if (places := self.trials.tried_at(cell, arm)).size:
                yield cell, arm, places, self._account.at(places)

    @functools.cached_property
    def _account(self) -> Account:
        return Account.read(self.ledger, self.trials.span[1])

    # -- whole results -----------------------------------------------------------------------------------

    def attempted_results(self, suite: str) -> Iterator[tuple[Cell, str, int, bool, dict[str, Any]]]:
        """Of every attempt of a suite cell, arm, block, whether it counts, and the whole result, in ledger order."""
        asked = "SELECT trial_id, result FROM trials WHERE suite = ? AND block BETWEEN ? AND ? ORDER BY trial_id"
        trials, counted = self.trials, set(self.trials.counted.tolist())
        places = {number: place for place, number in enumerate(trials.number.tolist())}
        for number, text in self.ledger.rows(asked, (suite, *self.ledger.blocks)):
            if (place := places.get(number)) is not None:  # a run in progress has new trials meanwhile
                cell, arm = trials.cells[trials.cell[place]], trials.arms[trials.arm[place]]
                yield cell, arm, int(trials.block[place]), place in counted, json.loads(text)

    def details(
        self, cell: Cell, arm: str, paths: tuple[tuple[str, ...], ...], make: Callable[..., Made]
    ) -> dict[int, Made]:
        """For what no measure has: of each repetition, by ascending block, what is made of some parts of its result.

        ``paths`` are of keys that lead to the parts; a part that is not there is None.  The trials of all cells and
        arms are read at once, and what is made of each is kept.
        """
        key = cell.suite, cell.probe, paths, make
        if key not in self._details:
            self._details[key] = {
                number: make(*parts)
                for numbers, rows in read_results(self.ledger, cell.suite, [cell.probe], paths)
                for counts, number, parts in zip(
                    self._places(numbers) >= 0, numbers, zip(*rows, strict=True), strict=True
                )
                if counts
            }
        return {block: self._details[key][number] for block, number in self.numbers(cell, arm).items()}

    def last_result(self, cell: Cell, arm: str) -> dict[str, Any]:
        """The whole result of the last repetition; empty where there is none."""
        at = self.trials.counted_at(cell, arm)
        if at.start == at.stop:
            return {}
        return read_result(self.ledger, int(self.trials.number[self.trials.counted[at]].max()))


def too_many(lacking: int, of: int) -> bool:
    """Whether so many repetitions have no figure, or only a bound of it, that the others do not stand for all."""
    return 10 * lacking > of


def _leaves(source: Source | None) -> Iterator[Field | Statistic]:
    """What a source is read from."""
    if isinstance(source, Field):
        yield source
    elif isinstance(source, Statistic):
        yield source
        yield from _leaves(source.otherwise)
    elif isinstance(source, Relative):
        yield from _leaves(source.of)
    elif isinstance(source, Derived):
        for one in source.of:
            yield from _leaves(one)
