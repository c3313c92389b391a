"""Figures in a person's units, and comparisons in words."""

from __future__ import annotations

import math

from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.analysis.estimate import Estimate

NONE = "–"

LOADS = {"idle": "idle", "cpu": "CPU load", "": ""}
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
    return LOADS.get(load, load)


def probe_title(probe: str) -> str:
    return PROBES[probe][0] if probe in PROBES else probe.replace("_", " ")


def probe_meaning(probe: str) -> str:
    return PROBES[probe][1] if probe in PROBES else ""


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without exponent or superfluous zeros after a whole number."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    # 999.7 rounds up to 1000, which needs one decimal less.
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    text = f"{rounded:.{max(decimals, 0)}f}"
    return text


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
    """``22.8–23.4 ns``: both ends in one unit; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    size, name = _unit_of(max(abs(estimate.low), abs(estimate.high)))
    return f"{significant(estimate.low / size)}–{significant(estimate.high / size)} {name}"


def ratio(value: float | None) -> str:
    """``53×``, ``1.31×``; a dash for None."""
    return NONE if value is None else f"{_ratio_digits(value)}×"


def ratio_interval(estimate: Estimate) -> str:
    """``50–56×``; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    return f"{_ratio_digits(estimate.low)}–{_ratio_digits(estimate.high)}×"


def _ratio_digits(value: float) -> str:
    return significant(value, 3) if value < 10 else significant(value, 2 if value < 100 else 3)


def confidence(value: float | None) -> str:
    """``95 %``, ``93.8 %``; a dash for None."""
    return NONE if value is None else f"{float(f'{value * 100:.1f}'):g} %"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}".replace("%", " %")


def _against(comparison: Comparison, worse: str, better: str, same: str) -> str:
    """``53× slower (50–56×)``, ``4.1 % faster (2.0–5.5 %)``, or that no difference was shown."""
    estimate = comparison.ratio
    if estimate.point is None or estimate.low is None or estimate.high is None:
        return f"{same}: {comparison.reason}"
    if comparison.judgement is Judgement.INCONCLUSIVE:
        return f"{same} ({ratio_interval(estimate)})"
    word = worse if comparison.judgement is Judgement.HIGHER else better
    point, low, high = estimate.point, estimate.low, estimate.high
    if comparison.judgement is Judgement.LOWER:
        point, low, high = 1 / point, 1 / high, 1 / low
    if point >= 1.5:
        return f"{ratio(point)} {word} ({_ratio_digits(low)}–{_ratio_digits(high)}×)"
    # In per cent of the reference, so that "faster" never exceeds 100 %.
    change = sorted(abs(value - 1) * 100 for value in (estimate.low, estimate.high))
    text = f"{significant(abs(estimate.point - 1) * 100, 2)} % {word}"
    return f"{text} ({significant(change[0], 2)}–{significant(change[1], 2)} %)"


def clock_phrase(comparison: Comparison, reference: str) -> str:
    """How reading the clock compares with the reference."""
    if not comparison.distinguishable:
        return _against(comparison, "", "", f"no difference to {reference} shown in reading the clock")
    return f"reads the clock {_against(comparison, f'slower than {reference}', f'faster than {reference}', '')}"


def sleep_phrase(comparison: Comparison) -> str:
    """How sleeping compares with the reference."""
    if not comparison.distinguishable:
        return _against(comparison, "", "", "no difference shown in how late sleeps wake")
    return f"sleeps wake {_against(comparison, 'later', 'closer to their deadline', '')}"
