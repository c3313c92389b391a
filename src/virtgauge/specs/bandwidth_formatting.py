"""What the bandwidth suite varies, in words; errors and their differences in per cent and points of it."""

from __future__ import annotations

from typing import Any

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.packets import rate_text
from virtgauge.results.columns import Cell
from virtgauge.results.quantities import significant
from virtgauge.specs.model import Factor

SYSTEM, PRECISE = "system", "hptime"
TIMINGS = (PRECISE, SYSTEM, "gettimeofday+usleep")  # In the order of tables; mixed ones follow
BASES = (SYSTEM, "gettimeofday+usleep")  # What other timings are compared with, the first that was measured
INSIDE, SHIM = "inside", "shim"
THROUGH = (INSIDE, SHIM)
ESTIMATORS = ("kite2", "yaz-original")  # In the order of tables; others, which runs of older versions hold, follow
NO_TRAFFIC = "none"
AS_IS = "as-is"  # The capacity of a path that nobody shapes, or knows
_TIMING_WORDS = {SYSTEM: "system timing", PRECISE: "hptime"}
_THROUGH_WORDS = {INSIDE: "built in", SHIM: "by the shim"}


def timing_text(timing: str) -> str:
    """``hptime``, ``system timing``, ``clock hptime, sleep system``."""
    if timing in _TIMING_WORDS:
        return _TIMING_WORDS[timing]
    clock, plus, sleep = timing.partition("+")
    return f"clock {clock}, sleep {sleep}" if plus else timing


def timed_of(cell: Cell) -> str:
    """The level of timing and the way of swapping it together."""
    return f"{cell.factors.get('timing', '')}|{cell.factors.get('through', INSIDE)}"


def timed_text(level: str) -> str:
    """``hptime``, ``hptime by the shim``, ``system timing, without the shim`` (the same program as it is)."""
    timing, _, through = level.rpartition("|")
    if through != SHIM:
        return timing_text(timing)
    return f"{timing_text(timing)}{' by the shim' if timing == PRECISE else ', without the shim'}"


def versus(through: str, timing: str, base: str) -> str:
    """``hptime against system timing, built in``."""
    return f"{timing_text(timing)} against {timing_text(base)}, {_THROUGH_WORDS.get(through, through)}"


def traffic_of(cell: Cell) -> str:
    """The kind of cross traffic; that of none is none."""
    return cell.factors.get("traffic", NO_TRAFFIC) if float(cell.factors.get("cross_mbps", "0")) else NO_TRAFFIC


def cross_of(cell: Cell) -> str:
    """How much cross traffic was asked for."""
    return f"{float(cell.factors['cross_mbps']):g}" if traffic_of(cell) != NO_TRAFFIC else "0"


def number_of(cell: Cell, name: str) -> str:
    """A level that is a number, written as all of them are; ``as-is`` stays."""
    level = cell.factors.get(name, "0")
    return level if level == AS_IS else f"{float(level):g}"


def link_of(cell: Cell) -> str:
    """Capacity, delay and loss together."""
    return "|".join(number_of(cell, name) for name in ("capacity_mbps", "delay_ms", "loss"))


def path_of(cell: Cell) -> str:
    """A link and what others send over it."""
    return "|".join((link_of(cell), cross_of(cell), traffic_of(cell)))


def link_text(level: str) -> str:
    """``1 Gbit/s``, ``10 Gbit/s, 20 ms``."""
    capacity, *others = level.split("|")
    delay, loss = (float(one) for one in others)
    parts = ["as it is" if capacity == AS_IS else mbps(float(capacity))]
    parts += [f"{delay:g} ms"] if delay else []
    parts += [f"{loss * 100:g} % lost"] if loss else []
    return ", ".join(parts)


def path_text(level: str) -> str:
    """``300 Mbit/s, 150 Mbit/s constant``, ``300 Mbit/s, no cross traffic``."""
    *link, cross, traffic = level.split("|", 4)
    if link[0] == AS_IS:
        return "as it is"
    return f"{link_text('|'.join(link))}, {cross_text(cross, traffic)}"


def cross_text(cross: str, traffic: str) -> str:
    """``no cross traffic``, ``150 Mbit/s constant``."""
    return "no cross traffic" if traffic == NO_TRAFFIC else f"{mbps(float(cross))} {traffic}"


def mbps(rate: float) -> str:
    """``300 Mbit/s``, ``1.25 Gbit/s``."""
    return rate_text(rate * 1e6)


def per_cent(value: float) -> str:
    """Two significant digits and at most two decimals, without the sign: ``1.2``, ``18``, ``0.04``."""
    size = abs(value)
    return f"{size:.2f}" if size < 0.095 else significant(size, 2) if size < 99.5 else f"{size:.0f}"


def off(estimate: Estimate) -> str:
    """An error without its sign, and its interval: ``1.2 % off (0.9–1.5 %)``."""
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = f" ({per_cent(estimate.low)}–{per_cent(estimate.high)} %)"
    return f"{per_cent(estimate.point or 0.0)} % off{interval}"


def points(value: float) -> str:
    """A difference of errors: ``+1.2``, ``−0.31``, in percentage points."""
    return f"{'±' if per_cent(value) == '0.00' else '+' if value > 0 else '−'}{per_cent(value)}"


def points_interval(estimate: Estimate) -> str:
    """``−2.4 to −1.5``; empty without one."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{points(estimate.low)} to {points(estimate.high)}"


def _silent(name: str, **more: Any) -> Factor:
    """Whose levels are named together with others'."""
    return Factor(name, text=lambda level: "", **more)


FACTORS = (
    Factor("estimator", levels=ESTIMATORS),
    Factor("timed", "timing", tuple(f"{one}|{how}" for how in THROUGH for one in TIMINGS), "", timed_text, timed_of),
    _silent("timing"),
    _silent("through", usual=INSIDE),
    Factor("pacing", "sent by", usual="auto", text=lambda level: "" if level == "auto" else level),
    *(
        _silent(name, of=lambda cell, name=name: number_of(cell, name))
        for name in ("capacity_mbps", "delay_ms", "loss")
    ),
    _silent("traffic", levels=(NO_TRAFFIC,), of=traffic_of),
    _silent("cross_mbps", label="cross traffic", of=cross_of),
    _silent("link", of=link_of),
    Factor("path", text=path_text, of=path_of),
)
