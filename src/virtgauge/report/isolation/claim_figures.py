"""The figures that the paper's conclusions are tested on: what its text states, and those of one arm of a run."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio, unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.reference.isolation_claims import Quantity, Range, Selection
from virtgauge.report.isolation.model import Key, PublishedFigure
from virtgauge.report.isolation.published import (
    benchmark_of,
    load_of,
    paper_benchmark,
    paper_loads,
    published_figures,
    shares_of,
)
from virtgauge.report.isolation.results import Results
from virtgauge.report.isolation.vocabulary import NOTHING, SHORT_CORES, Resource, percent, policy_name, short_benchmark
from virtgauge.report.words import share as share_words

_RATIO = "ratio"
_NOT_PRINTED = "the paper prints no figure of this"
_CLOCK_CHANGED = 0.03
"""Relative: a smaller change of the clock within a trial is taken for none, as by the suite's flag."""

_BESIDE: dict[Quantity, Callable[[Key], Key]] = {
    "given": lambda key: key.unbounded,
    "under_load": lambda key: key.unloaded,
}
"""What quantities are beside, of the same arm."""

Which = Literal["each", "lowest", "highest"]


@dataclasses.dataclass(frozen=True)
class Place:
    """What a figure is of, as far as places are told apart; a factor that the paper does not state is empty."""

    benchmark: str
    load: str
    cores: str
    policy: str
    on: str
    share: float | None

    @property
    def left(self) -> float | None:
        """The share that is meant for the tested guest."""
        return None if self.share is None else round(1 - self.share if self.on == "loading" else self.share, 9)


@dataclasses.dataclass(frozen=True)
class Found:
    """One figure, its place, and its place in words; ``values`` are its repetitions by block, where there are any."""

    place: Place
    words: str
    estimate: Estimate
    values: Mapping[int, float] = dataclasses.field(default_factory=dict)


class Figures(abc.ABC):
    """Figures by what a test names."""

    @abc.abstractmethod
    def select(self, wanted: Selection, which: Which) -> Sequence[Found]:
        """Those that a selection is about: every one, or the lowest or the highest alone."""

    @abc.abstractmethod
    def ratio(self, one: Found, other: Found) -> Estimate:
        """Of two figures."""

    @abc.abstractmethod
    def why_none(self, wanted: Selection) -> str:
        """Why a selection is empty."""


class PaperFigures(Figures):
    """What the text states: a figure with one end is a bound, and that end is its lowest or highest."""

    def select(self, wanted: Selection, which: Which) -> Sequence[Found]:
        """As stated; of the lowest those alone that say so."""
        if wanted.quantity not in ("q", "relative"):
            return []
        found = [one for figure in published_figures() if (one := _stated(figure, wanted, which)) is not None]
        return _extreme(found, which)

    def ratio(self, one: Found, other: Found) -> Estimate:
        """Of their ends."""
        return unpaired_ratio(one.estimate, other.estimate)

    def why_none(self, wanted: Selection) -> str:
        """The paper has diagrams, and few figures in its text."""
        return _NOT_PRINTED


def _stated(figure: PublishedFigure, wanted: Selection, which: Which) -> Found | None:
    shares = shares_of(figure)
    narrower = wanted.shares.includes(shares.at_least) and wanted.shares.includes(shares.at_most)
    # What is said of each share of a range is said of those within; where the lowest lies is not.
    wider = which == "each" and shares.includes(wanted.shares.at_least) and shares.includes(wanted.shares.at_most)
    fits = (
        benchmark_of(figure) in wanted.benchmarks
        and load_of(figure) in wanted.loads
        and figure.on == wanted.on
        and wanted.energy_saving in (None, figure.energy_saving)
    )
    ends = {"each": (figure.q_low, figure.q_high), "lowest": (figure.q_low,) * 2, "highest": (figure.q_high,) * 2}[
        which
    ]
    if not fits or not (narrower or wider) or ends == (None, None):
        return None
    low, high = 0.0 if ends[0] is None else ends[0], math.inf if ends[1] is None else ends[1]
    place = Place(benchmark_of(figure), load_of(figure), "", "limit+reservation", figure.on, figure.share)
    if wanted.quantity == "relative":
        left = _one_share(wanted.shares if wider else shares)
        if left is None:
            return None
        left = 1 - left if figure.on == "loading" else left
        low, high = round(low * left, 9), round(high * left, 9)
    point = high if math.isfinite(high) and low == 0 else low
    words = f"{figure.benchmark}, {'no load' if figure.load == NOTHING else f'{figure.load} load'}, {figure.processor}"
    words += "" if figure.share is None else f", {percent(figure.share)} on the {figure.on} guest"
    return Found(place, words, Estimate(point, low, high, None, 1, _RATIO, "stated in the paper’s text"))


def _one_share(shares: Range) -> float | None:
    return shares.at_least if shares.at_least == shares.at_most else None


class OurFigures(Figures):
    """Of one arm of a run.

    Args:
        results: of the run.
        arm: its name.
        nominal: the confidence wanted.
    """

    def __init__(self, results: Results, arm: str, nominal: float) -> None:
        self._results, self._arm, self._nominal = results, arm, nominal
        self._keys = [key for key in results.keys if results.work(key, arm)]
        references = [key for key in self._keys if key == key.reference and key.resource is Resource.CPU]
        self._several_cores = len({key.cores for key in self._keys}) > 1
        self._several_blocks = len({key.block for key in self._keys} - {""}) > 1
        self._saves_energy = any(self._clock_changed(key) for key in references)

    def select(self, wanted: Selection, which: Which) -> Sequence[Found]:
        """With their intervals over repetitions."""
        if wanted.energy_saving not in (None, self._saves_energy):
            return []
        found = []
        for key in self._keys:
            values = self._values(wanted.quantity, key) if _is_wanted(key, wanted) else {}
            if values:
                estimate = median_estimate(list(values.values()), _RATIO, self._nominal)
                found.append(Found(_place(key), self._words(key, wanted), estimate, values))
        return _extreme(found, which)

    def ratio(self, one: Found, other: Found) -> Estimate:
        """Paired by block."""
        return paired_ratio(one.values, other.values, self._nominal)

    def _values(self, quantity: Quantity, key: Key) -> dict[int, float]:
        """By block."""
        if quantity in _BESIDE:
            base = self._results.work(_BESIDE[quantity](key), self._arm)
            work = self._results.work(key, self._arm)
            return {block: work[block] / base[block] for block in work.keys() & base.keys() if base[block] > 0}
        found = self._results.efficiencies(key, self._arm).items()
        return {block: value for block, one in found if (value := getattr(one, quantity)) is not None}

    def _clock_changed(self, key: Key) -> bool:
        before = self._results.nested(key, self._arm, "frequency", "before_hz")
        after = self._results.nested(key, self._arm, "frequency", "after_hz")
        changes = [after[block] / before[block] for block in before.keys() & after.keys() if before[block] > 0]
        return bool(changes) and abs(statistics.median(changes) - 1) > _CLOCK_CHANGED

    def _words(self, key: Key, wanted: Selection) -> str:
        """As short as it can be."""
        benchmark = short_benchmark(key.benchmark, key.block if self._several_blocks else "")
        parts = [f"{benchmark} without a load" if key.alone else f"{benchmark} beside {key.load_label}"]
        parts += [SHORT_CORES.get(key.cores, key.cores)] if self._several_cores else []
        policy = policy_name(key.policy) if len(wanted.policies) > 1 else ""
        at = "" if key.free else f"at {percent(key.share)}"
        return ", ".join([*parts, *filter(None, [f"{policy} {at}".strip()])])

    def why_none(self, wanted: Selection) -> str:
        """For want of energy saving, or of cells."""
        if wanted.energy_saving is True and not self._saves_energy:
            return "the processor keeps its clock here: the paper’s case with energy saving does not arise"
        if wanted.energy_saving is False and self._saves_energy:
            return "the processor changes its clock here: the paper’s case without energy saving does not arise"
        benchmarks, policies = " or ".join(wanted.benchmarks), " or ".join(wanted.policies)
        loads = " or ".join("no load" if load == NOTHING else f"{load} load" for load in wanted.loads)
        shares, one = wanted.shares, _one_share(wanted.shares)
        at = "" if shares == Range() else f", shares from {percent(shares.at_least)} to {percent(shares.at_most)}"
        at = at if one is None else f", a share of {percent(one)}"
        return f"not measured: {benchmarks} beside {loads}, {policies} on the {wanted.on} guest{at}"


def _is_wanted(key: Key, wanted: Selection) -> bool:
    free = key.policy == NOTHING
    return (
        paper_benchmark(key) in wanted.benchmarks
        and bool(paper_loads(key.load) & set(wanted.loads))
        and key.intensity in (0, 100)
        and key.policy in wanted.policies
        and (free or key.on == wanted.on)
        and (free or wanted.shares.includes(key.share))
    )


def _place(key: Key) -> Place:
    benchmark = f"{key.benchmark} {key.block}".strip()
    return Place(benchmark, key.load, key.cores, key.policy, key.on, key.share)


def _extreme(found: Sequence[Found], which: Which) -> Sequence[Found]:
    if which == "each" or not found:
        return found
    chosen = min if which == "lowest" else max
    return [chosen(found, key=lambda one: one.estimate.point or 0.0)]


def told(estimate: Estimate) -> str:
    """``98.5 % (97.9 % to 99.0 %)``; of what the paper states ``above 96.0 %``, ``25.0 % to 28.0 %``."""
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return f"{share_words(estimate.point)} (no interval)"
    if math.isinf(high):
        return f"above {share_words(low)}"
    if low == high:
        return share_words(low)
    ends = f"{share_words(low)} to {share_words(high)}"
    return ends if estimate.confidence is None else f"{share_words(estimate.point)} ({ends})"
