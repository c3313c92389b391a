"""Figures in a person's units, and comparisons in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from virtgauge.analysis.comparison import Comparison, Difference, Judgement, Resolution, is_coarse, resolution
from virtgauge.analysis.estimate import Estimate
from virtgauge.errors import printable as printable  # of a report's words it is one
from virtgauge.results.quantities import COUNT, DURATION, RATIO, SHARE, Quantity, significant

NONE = "–"
EVEN_CHANCE = "even chance to see"
"""A true difference of that size is shown in half of all runs: :mod:`virtgauge.analysis.comparison`."""
_MATERIAL = 1.1  # A factor below is slight, and one is told for both directions: the larger one


def count(number: int, one: str, many: str = "") -> str:
    """``1 run``, ``1,234 runs``; ``many`` is the plural where an s alone does not make it."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def joined(names: Sequence[str], last: str = " and ") -> str:
    """``a, b and c``."""
    return last.join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def first_of(names: Sequence[str], most: int, between: str = "; ") -> str:
    """The first so many: ``a; b; and 3 more``, ``a, b and 3 more``."""
    more = f"{';' * (between == '; ')} and {len(names) - most:,} more" if len(names) > most else ""
    return f"{between.join(names[:most])}{more}"


def duration(ns: float | None) -> str:
    """``23.0 ns``, ``62.1 µs``; a dash for None."""
    return DURATION.text(ns)


def exact_duration(ns: float) -> str:
    """A duration that is given rather than measured: ``100 µs``, ``1.5 ms``."""
    unit = DURATION.unit_of(ns)
    return f"{ns / DURATION.factors[unit]:g} {unit}"


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


def p_value(p: float) -> str:
    """``p = 0.012``, ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.01 else f"p = {p:.3f}"


def amount(value: float) -> str:
    """``12,300``, ``3.14``: three significant digits, thousands apart."""
    return f"{float(significant(value)):,.0f}" if abs(value) >= 100 else significant(value)


def band(widest: float) -> str:
    """How far apart identical arms may seem, from a factor of 1 or more: ``up to 3.1 %``, ``up to 54×``."""
    return f"up to {share(widest - 1)}" if widest < 1.5 else f"up to {_ratio_digits(widest)}×"


def factor(value: float) -> str:
    """How many times as much, from 1 up: ``1.02×``, ``1.3×``, ``51×``; never rounded down to 1."""
    if value < 1.0095:
        return f"{max(value, 1.002):.3f}×"
    return f"{value:.2f}×" if value < 1.095 else f"{significant(value, 2)}×"


def change_phrase(comparison: Comparison, higher: str, lower: str) -> str:
    """``12.6× later (11.3–14.1×)``, ``32 % later (28–35 %)``; not shown ``1.05× the reference (0.9–1.2×)``."""
    if not comparison.distinguishable:
        found = comparison.ratio
        return f"{ratio(found)} the reference{f' ({ratio_interval(found)})' if found.has_interval else ''}"
    amount, interval = _amount(comparison)
    return f"{amount} {higher if comparison.judgement is Judgement.HIGHER else lower} {interval}"


def is_slight(found: Difference) -> bool:
    """Whether a ratio that was shown to differ does so by less than a tenth."""
    point = found.estimate.point if isinstance(found, Comparison) and found.distinguishable else None
    return point is not None and abs(point - 1) < _MATERIAL - 1


def ratio_with_interval(estimate: Estimate) -> str:
    """``0.91× (0.90–0.93×)``; without an interval the point alone."""
    return f"{ratio(estimate)} ({ratio_interval(estimate)})" if estimate.has_interval else ratio(estimate)


def size_text(size: Estimate, quantity: Quantity) -> str:
    """How large a change is: a ratio, or a difference of that quantity; with its interval where it has one."""
    if size.point is None or size.unit == "ratio":
        return ratio_with_interval(size)
    text = significant if quantity is RATIO else quantity.text  # "0.6 ratio" would be read as one
    signed = f"{'+' if size.point > 0 else ''}{text(size.point)}"
    if size.low is None or size.high is None:
        return signed
    return f"{signed} ({text(size.low)} to {text(size.high)})"


def even_chance(found: Resolution, unit: str = "ratio") -> str:
    """Of which difference there was an even chance to see it: ``1.3×``, ``1.03× up, 44× down``, ``2.1 points``.

    ``unit`` is ``ratio``, or that of a share.
    """
    assert found.higher is not None and found.lower is not None
    by_ratio = unit == "ratio"
    text = factor if by_ratio else lambda size: f"{significant(size if unit == '%' else 100 * size, 2)} points"
    narrow, wide = sorted((found.higher, found.lower))
    apart = wide > _MATERIAL and math.log(wide) > 2 * math.log(narrow) if by_ratio else wide > 2 * narrow
    return f"{text(found.higher)} up, {text(found.lower)} down" if apart else text(wide)


def _unresolved(comparison: Comparison) -> str:
    """What stands in place of a ratio that says nothing: ``unresolved: even chance to see 51×``; else empty.

    In two lines, which are one on a page.
    """
    found = resolution(comparison)
    wider = max(found.higher or 1.0, found.lower or 1.0)
    return f"unresolved:\n{EVEN_CHANCE} {factor(wider)}" if is_coarse(comparison) else ""


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


def point_text(estimate: Estimate, quantity: Quantity) -> str:
    """A figure with its unit: ``62.1 µs``, ``1.31×``; a count in full, ``16,342,179``; a dash for a missing one."""
    if quantity is COUNT and estimate.point is not None and estimate.method == "counted" and estimate.point % 1 == 0:
        return f"{estimate.point:,.0f}"
    return ratio(estimate) if quantity is RATIO else quantity.text(estimate.point)


def interval_text(estimate: Estimate, quantity: Quantity) -> str:
    """``22.8–23.4 ns``, ``650 ns–1.15 µs``, ``1.28–1.35×``; empty without an interval."""
    if estimate.low is None or estimate.high is None:
        return ""
    if quantity is RATIO:
        return ratio_interval(estimate)
    low, high = quantity.text(estimate.low), quantity.text(estimate.high)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low}–{high}"


def beside(found: Difference, quantity: Quantity, *, short: bool = False) -> str:
    """A comparison with the reference: ``0.91× (0.90–0.93×)``, or that it could not be resolved; empty without one."""
    estimate = found.estimate
    if estimate.point is None:
        return ""
    if isinstance(found, Comparison):
        return _unresolved(found) or (ratio if short else ratio_with_interval)(estimate)
    ends = () if short or estimate.low is None or estimate.high is None else (estimate.low, estimate.high)
    point, *interval = (_signed(one, quantity) for one in (estimate.point, *ends))
    unit = " points" if quantity is SHARE else ""
    return f"{point}{unit}" + (f" ({' to '.join(interval)})" if interval else "")


def _signed(difference: float, quantity: Quantity) -> str:
    """``+1.2 µs``, ``−0.31``: of a share the bare number, as its unit is told once."""
    sign = "+" if difference > 0 else "−" if difference < 0 else ""
    text = quantity.text(abs(difference))
    return sign + (text.removesuffix(" %") if quantity is SHARE else text)


def why_judged(found: Difference) -> str:
    """The reason of a judgement, and the smallest difference of which the comparison had an even chance."""
    said = found.reason
    if isinstance(found, Comparison):
        known = resolution(found)
        said += f" (ratio {ratio_with_interval(found.ratio)})" if _unresolved(found) else ""
        said += "" if known.smallest is None else f"; {EVEN_CHANCE} {even_chance(known)}"
    return said
