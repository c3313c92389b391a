"""Figures in a person's units, and comparisons in words."""

from __future__ import annotations

from collections.abc import Mapping

from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.analysis.estimate import Estimate
from virtgauge.errors import printable as printable  # of a report's words it is one
from virtgauge.measures.quantities import significant

NONE = "–"

LOADS = {"idle": "idle", "cpu": "CPU load", "io": "I/O load", "": ""}
PROBES = {
    "timer_cost": ("Timer cost", "the time it takes to read a clock once"),
    "sleep_lateness": ("Sleep lateness", "how long after its deadline a sleep wakes"),
}
STATISTICS = {
    "p50": "median",
    "half_iqr": "half IQR",
    "mad": "MAD",
    "p90": "p90",
    "p99": "p99",
    "p99.9": "p99.9",
    "p99.99": "p99.99",
    "min": "min",
    "max": "max",
    "mean": "mean",
}
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def load_label(load: str) -> str:
    """``CPU load`` for ``cpu``; a load without a name of its own keeps its level's."""
    return LOADS.get(load, load)


def probe_title(probe: str) -> str:
    """What a probe measures, as a heading."""
    return PROBES[probe][0] if probe in PROBES else probe.replace("_", " ")


def probe_meaning(probe: str) -> str:
    """What a probe measures, in a clause; empty for one that is not known here."""
    return PROBES[probe][1] if probe in PROBES else ""


def _unit_of(ns: float) -> tuple[float, str]:
    for size, name in _UNITS:
        if abs(float(significant(ns))) >= size:
            return size, name
    return _UNITS[-1]


def duration(ns: float | None) -> str:
    """``23.0 ns``, ``62.1 µs``; a dash for None."""
    if ns is None:
        return NONE
    size, name = _unit_of(ns)
    return f"{significant(ns / size)} {name}"


def exact_duration(ns: float) -> str:
    """A duration that is given rather than measured: ``100 µs``, ``1.5 ms``."""
    size, name = _unit_of(ns)
    return f"{ns / size:g} {name}"


def duration_interval(estimate: Estimate) -> str:
    """``22.8–23.4 ns``, ``650 ns–1.15 µs``; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    low, high = duration(estimate.low), duration(estimate.high)
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"{low}–{high}"


def ratio(estimate: Estimate) -> str:
    """The point of a ratio: ``53×``, ``1.31×``, ``1.004×``; a dash when missing."""
    if estimate.point is None:
        return NONE
    return f"{_ratio_digits(estimate.point, _decimals(estimate))}×"


def ratio_interval(estimate: Estimate) -> str:
    """``50–56×``, ``10.6–11.2×``; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    decimals = _decimals(estimate)
    return f"{_ratio_digits(estimate.low, decimals)}–{_ratio_digits(estimate.high, decimals)}×"


def _decimals(estimate: Estimate) -> int:
    """Two, and three where an interval that excludes 1 would otherwise seem to reach it."""
    figures = [figure for figure in (estimate.low, estimate.point, estimate.high) if figure is not None]
    return 3 if estimate.excludes(1) and any(abs(figure - 1) < 0.005 for figure in figures) else 2


def _ratio_digits(value: float, decimals: int = 2) -> str:
    if 0.1 <= value < 9.995:
        return f"{value:.{decimals}f}"
    return significant(value, 2 if 19.95 <= value < 99.5 or value < 0.1 else 3)


def confidence(value: float | None) -> str:
    """``95 %``, ``93.8 %``; a dash for None."""
    return NONE if value is None else f"{float(f'{value * 100:.1f}'):g} %"


def share(value: float | None) -> str:
    """``3.1 %``; a dash for None."""
    return NONE if value is None else f"{value:.1%}".replace("%", " %")


def amount(value: float) -> str:
    """``12,300``, ``3.14``: three significant digits, thousands apart."""
    return f"{float(significant(value)):,.0f}" if abs(value) >= 100 else significant(value)


def band(widest: float) -> str:
    """How far apart identical arms may seem, from a factor of 1 or more: ``up to 3.1 %``, ``up to 54×``."""
    return f"up to {share(widest - 1)}" if widest < 1.5 else f"up to {_ratio_digits(widest)}×"


def comparison_phrases(medians: Mapping[str, Comparison], reference: str) -> str:
    """How an arm's medians compare with the reference's, by probe: what differs first, then what was not shown to.

    ``reads the clock 53× slower than the host (50–56×); sleeps wake 32 % later (28–35 %)``
    """
    differing, undecided = [], []
    for probe, comparison in medians.items():
        about, higher, lower = _DIFFERENCES.get(probe, (probe_title(probe), "is higher: {}", "is lower: {}"))
        if comparison.distinguishable:
            word = higher if comparison.judgement is Judgement.HIGHER else lower
            amount, interval = _amount(comparison)
            differing.append(f"{word.format(amount)} {interval}")
        elif comparison.ratio.has_interval:
            undecided.append(f"{about} ({ratio_interval(comparison.ratio)})")
        else:
            undecided.append(f"{about} ({comparison.reason})")
    if differing and reference:
        differing[0] = _with_reference(differing[0], reference)
    if undecided:
        to = "" if differing else f" to {reference}"
        differing.append(f"no difference{to} shown in {' or '.join(undecided)}")
    return "; ".join(differing)


def _with_reference(phrase: str, reference: str) -> str:
    """Name the reference just before the interval."""
    head, _, interval = phrase.rpartition(" (")
    return f"{head} than {reference} ({interval}"


_DIFFERENCES = {
    "timer_cost": ("reading the clock", "reads the clock {} slower", "reads the clock {} faster"),
    "sleep_lateness": ("waking from a sleep", "sleeps wake {} later", "sleeps wake {} closer to their deadline"),
}


def _amount(comparison: Comparison) -> tuple[str, str]:
    """``53×`` and ``(50–56×)``; below 1.5, ``32 %`` and ``(28–35 %)``."""
    estimate = comparison.ratio
    assert estimate.point is not None and estimate.low is not None and estimate.high is not None
    point, low, high = estimate.point, estimate.low, estimate.high
    if comparison.judgement is Judgement.LOWER:
        point, low, high = 1 / point, 1 / high, 1 / low
    if point >= 1.5:
        return f"{_ratio_digits(point)}×", f"({_ratio_digits(low)}–{_ratio_digits(high)}×)"
    # In per cent of the reference, so that nothing is more than 100 % faster.
    ends = sorted(abs(value - 1) * 100 for value in (estimate.low, estimate.high))
    return f"{significant(abs(estimate.point - 1) * 100, 2)} %", f"({'–'.join(significant(end, 2) for end in ends)} %)"
