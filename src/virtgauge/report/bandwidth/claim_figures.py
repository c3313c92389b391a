"""The figures that the paper's conclusions are tested on: what its text states, and those of one arm of a run."""

from __future__ import annotations

import abc
import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_difference, paired_ratio, unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.outliers import LEAST_VALUES, outliers
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference.bandwidth_claims import Quantity, Selection, Timing, Tool
from virtgauge.report.bandwidth import vocabulary as say
from virtgauge.report.bandwidth.keys import Key, Link, Path
from virtgauge.report.bandwidth.model import PublishedFigure
from virtgauge.report.bandwidth.published import HOST, TIMINGS, TOOLS, published_figures
from virtgauge.report.bandwidth.results import Result, Results, error_of, instants_of, is_refusal, nested
from virtgauge.report.bandwidth.vocabulary import PRECISE, SYSTEM
from virtgauge.report.words import ratio, ratio_interval

_NOT_PRINTED = "the paper prints no figure of this"
_ESTIMATORS: dict[Tool, str] = {"yaz": TOOLS["Yaz"], "kite2": TOOLS["Kite2"]}
_PAPER_TIMINGS: dict[Timing, str] = {"system": SYSTEM, "hptime": PRECISE}
_RATES = ("median_mbps", "half_iqr_mbps", "sent_mbps")
_DIFFERENCES = ("impact", "gain")


@dataclasses.dataclass(frozen=True)
class Found:
    """One figure: what it is of, that in words, and its repetitions by block, where there are any."""

    key: Key
    words: str
    quantity: Quantity
    estimate: Estimate
    values: Mapping[int, float] = dataclasses.field(default_factory=dict)

    @property
    def told(self) -> str:
        """``587 Mbit/s (580–592 Mbit/s)``, ``1.2 % (0.9–1.5 %)``, ``+1.2 points``."""
        return told(self.estimate, self.quantity)


def told(estimate: Estimate, quantity: Quantity) -> str:
    """A figure in its unit, with its interval."""
    if quantity in _RATES:
        point, interval = say.rate(estimate.point), say.rate_interval(estimate)
    elif quantity == "mean_over_median":
        point, interval = ratio(estimate), ratio_interval(estimate)
    elif quantity in _DIFFERENCES:
        point, interval = f"{say.points(estimate.point)} points", say.points_interval(estimate)
    elif quantity == "error":
        point, interval = say.signed(estimate.point), say.signed_interval(estimate)
    else:
        point, interval = say.off(estimate.point), say.off_interval(estimate)
    if estimate.has_interval and estimate.low == estimate.high and estimate.confidence is None:
        return point
    return f"{point} ({interval if estimate.has_interval else 'no interval'})"


class Figures(abc.ABC):
    """Figures by what a test names."""

    @abc.abstractmethod
    def select(self, wanted: Selection) -> Sequence[Found]:
        """Those that a selection is about."""

    @abc.abstractmethod
    def ratio(self, one: Found, other: Found) -> Estimate:
        """Of two figures."""

    @abc.abstractmethod
    def difference(self, one: Found, other: Found) -> Estimate:
        """Of two figures."""

    @abc.abstractmethod
    def rivals(self, wanted: Selection, kind: str) -> Sequence[tuple[str, Found]]:
        """Those of every other virtual platform, with its name; empty unless these are of a platform of that kind."""

    @abc.abstractmethod
    def why_none(self, wanted: Selection) -> str:
        """Why a selection is empty."""


class PaperFigures(Figures):
    """What the text states."""

    def select(self, wanted: Selection) -> Sequence[Found]:
        """As stated; a place of its own for each platform."""
        found = []
        for figure in published_figures():
            value = _stated(figure, wanted.quantity)
            if value is not None and _is_about(figure, wanted):
                unit = "Mbit/s" if wanted.quantity in _RATES else "share"
                estimate = Estimate(value, value, value, None, 1, unit, "stated in the paper’s text")
                words = f"{figure.tool}, {figure.timing}, {figure.platform}, {say.rate(figure.capacity_mbps)}"
                found.append(Found(_paper_key(figure, wanted), words, wanted.quantity, estimate))
        return found

    def ratio(self, one: Found, other: Found) -> Estimate:
        """Of what is stated."""
        return unpaired_ratio(one.estimate, other.estimate)

    def difference(self, one: Found, other: Found) -> Estimate:
        """Of what is stated."""
        value = (one.estimate.point or 0.0) - (other.estimate.point or 0.0)
        return Estimate(value, value, value, None, 1, one.estimate.unit, "difference of what is stated")

    def rivals(self, wanted: Selection, kind: str) -> Sequence[tuple[str, Found]]:
        """The text has QEMU's figures alone."""
        return []

    def why_none(self, wanted: Selection) -> str:
        """The paper has diagrams, and few figures in its text."""
        return _NOT_PRINTED


def _stated(figure: PublishedFigure, quantity: Quantity) -> float | None:
    available = figure.capacity_mbps - figure.cross_mbps
    if quantity == "gain":
        if TIMINGS[figure.timing] != PRECISE:
            return None
        alike = [one for one in published_figures() if _alike(one, figure) and TIMINGS[one.timing] == SYSTEM]
        return abs(alike[0].median_mbps / available - 1) - abs(figure.median_mbps / available - 1) if alike else None
    values: dict[str, float | None] = {
        "median_mbps": figure.median_mbps,
        "sent_mbps": figure.median_mbps,
        "half_iqr_mbps": figure.half_iqr_mbps,
        "error": figure.median_mbps / available - 1,
        "off": abs(figure.median_mbps / available - 1),
    }
    return values.get(quantity)


def _alike(one: PublishedFigure, other: PublishedFigure) -> bool:
    """But for the timing."""
    names = ("tool", "platform", "capacity_mbps", "cross_mbps")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _is_about(figure: PublishedFigure, wanted: Selection) -> bool:
    key = _paper_key(figure, wanted)
    platform = "host" if figure.platform == HOST else "virtual"
    wanted_platform = "host" if wanted.platform == "reference" else wanted.platform
    # Each figure of the text is of one amount of cross traffic, and of some.
    return _fits(key, wanted) and wanted_platform in ("any", platform) and wanted.cross in ("any", "some")


def _paper_key(figure: PublishedFigure, wanted: Selection) -> Key:
    # The way in which the timing was swapped tells the platforms' places apart, but where they are to be compared.
    place = "" if wanted.platform in ("virtual", "reference") else figure.platform
    path = Path(Link(figure.capacity_mbps, 0.0, 0.0), figure.cross_mbps, "")
    return Key(TOOLS[figure.tool], TIMINGS[figure.timing], place, "", path)


def _fits(key: Key, wanted: Selection) -> bool:
    """Whether a place is one that a selection names, leaving aside its cross traffic."""
    timings = {PRECISE} if wanted.quantity == "gain" else {_PAPER_TIMINGS[timing] for timing in wanted.timings}
    tools = set(_ESTIMATORS.values()) if wanted.tool is None else {_ESTIMATORS[wanted.tool]}
    return (
        key.estimator in tools and key.timing in timings and wanted.capacity_mbps.includes(key.path.link.capacity_mbps)
    )


class OurFigures(Figures):
    """Of one arm of a run.

    Args:
        results: of the run.
        arm: that is judged.
        arms: all that may be.
    """

    def __init__(self, results: Results, arm: ArmRecord, arms: Sequence[ArmRecord]) -> None:
        self._results, self._arm, self._arms = results, arm, arms

    @property
    def _is_reference(self) -> bool:
        return self._arm.name == self._results.reference

    def select(self, wanted: Selection) -> Sequence[Found]:
        """With their intervals over repetitions."""
        if self._misses(wanted):
            return []
        name = self._results.reference if wanted.platform == "reference" else self._arm.name
        return list(self._of(name, wanted))

    def _misses(self, wanted: Selection) -> bool:
        """Whether a conclusion is about another kind of platform, or compares one with itself."""
        beside = wanted.platform in ("virtual", "reference") or wanted.quantity == "impact"
        return (beside and self._is_reference) or (wanted.platform == "host" and not self._is_reference)

    def _of(self, name: str, wanted: Selection) -> Iterator[Found]:
        results = self._results
        valued = {
            key: values
            for key in results.keys
            if _fits(key, wanted) and (values := self._values(name, key, wanted.quantity))
        }
        for key in _with_cross(list(valued), wanted):
            estimate = median_estimate(list(valued[key].values()), _unit(wanted.quantity), results.nominal)
            yield Found(key, key.label, wanted.quantity, estimate, valued[key])

    def _values(self, name: str, key: Key, quantity: Quantity) -> dict[int, float]:
        """By block."""
        results = self._results
        if quantity == "impact":
            return _subtracted(
                results.told(key, name, _off_or_refused), results.told(key, results.reference, _off_or_refused)
            )
        if quantity == "gain":
            return _subtracted(
                results.told(key.timed(SYSTEM), name, _off_or_refused), results.told(key, name, _off_or_refused)
            )
        return results.told(key, name, _QUANTITIES[quantity])

    def ratio(self, one: Found, other: Found) -> Estimate:
        """Paired by block."""
        return paired_ratio(one.values, other.values, self._results.nominal)

    def difference(self, one: Found, other: Found) -> Estimate:
        """Paired by block."""
        return paired_difference(one.values, other.values, one.estimate.unit, self._results.nominal)

    def rivals(self, wanted: Selection, kind: str) -> Sequence[tuple[str, Found]]:
        """Of the other arms that are judged, the reference apart."""
        if self._arm.kind != kind or self._is_reference:
            return []
        others = [arm for arm in self._arms if arm.name not in (self._arm.name, self._results.reference)]
        return [(arm.label, found) for arm in others for found in self._of(arm.name, wanted)]

    def why_none(self, wanted: Selection) -> str:
        """What was not measured, or what the conclusion is about instead."""
        if self._misses(wanted):
            return "said of the host" if wanted.platform == "host" else "said of platforms beside the host"
        if wanted.quantity in ("outliers", "low_outliers"):
            return f"of fewer than {LEAST_VALUES} searches in a trial no outliers are told, or nothing was measured"
        tool = "yaz-original or kite2" if wanted.tool is None else _ESTIMATORS[wanted.tool]
        timings = " or ".join(wanted.timings)
        least, most = wanted.capacity_mbps.at_least, wanted.capacity_mbps.at_most
        bounds = [f"from {say.rate(least)}"] if least else []
        bounds += [f"up to {say.rate(most)}"] if most != float("inf") else []
        cross = {"none": ", no cross traffic", "some": ", cross traffic", "most": ", several amounts of cross traffic"}
        capacity = f", capacity {' '.join(bounds)}" if bounds else ""
        return f"not measured: {tool}, {timings} timing{capacity}{cross.get(wanted.cross, '')}"


def _unit(quantity: Quantity) -> str:
    return "Mbit/s" if quantity in _RATES else "ratio" if quantity == "mean_over_median" else "share"


def _subtracted(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    return {block: one[block] - other[block] for block in one.keys() & other.keys()}


def _with_cross(keys: Sequence[Key], wanted: Selection) -> Iterator[Key]:
    """Those with the cross traffic that a selection names."""
    groups: dict[object, list[Key]] = {}
    for key in keys:
        groups.setdefault((key.estimator, key.timing, key.through, key.pacing, key.path.link), []).append(key)
    for group in groups.values():
        levels = [key.path.cross_mbps for key in group]
        for key in group:
            cross = key.path.cross_mbps
            fits = {
                "any": True,
                "none": key.path.free,
                "some": not key.path.free,
                "least": cross == min(levels) < max(levels),
                "most": cross == max(levels) > min(levels),
            }
            if fits[wanted.cross]:
                yield key


def _error_or_refused(result: Result) -> float | None:
    """Of a rate that could not be paced the highest that could is all that can be told, as the paper does."""
    if not is_refusal(result):
        return error_of(result)
    honest, truth = nested(result, "pacing", "honest_mbps"), nested(result, "truth_mbps")
    return None if honest is None or not truth else min(honest / truth - 1, 0.0)


def _off_or_refused(result: Result) -> float | None:
    error = _error_or_refused(result)
    return None if error is None else abs(error)


def _sent(result: Result) -> float | None:
    return nested(result, "pacing", "honest_mbps") if is_refusal(result) else nested(result, "median_mbps")


def _outliers(result: Result) -> float | None:
    found = outliers(instants_of(result))
    return None if found is None else found.all


def _low_outliers(result: Result) -> float | None:
    found = outliers(instants_of(result))
    return None if found is None else found.below


def _mean_over_median(result: Result) -> float | None:
    values = instants_of(result)
    return statistics.fmean(values) / statistics.median(values) if values else None


_QUANTITIES: dict[Quantity, Callable[[Result], float | None]] = {
    "median_mbps": lambda result: nested(result, "median_mbps"),
    "half_iqr_mbps": lambda result: nested(result, "half_iqr_mbps"),
    "error": _error_or_refused,
    "off": _off_or_refused,
    "sent_mbps": _sent,
    "outliers": _outliers,
    "low_outliers": _low_outliers,
    "mean_over_median": _mean_over_median,
}
