"""Estimators, timings and paths in words; rates, errors and their differences in a person's units."""

from __future__ import annotations

from virtgauge.analysis.estimate import Estimate
from virtgauge.bandwidth.rates import rate_text
from virtgauge.measures.quantities import significant
from virtgauge.report.words import NONE, amount

SYSTEM, PRECISE = "system", "hptime"
TIMINGS = (PRECISE, SYSTEM, "gettimeofday+usleep")
"""In the order of tables; mixed ones follow."""
INSIDE, SHIM = "inside", "shim"
THROUGH = (INSIDE, SHIM)
ESTIMATORS = ("kite2", "yaz", "yaz-original")
NO_TRAFFIC = "none"

THROUGH_WORDS = {INSIDE: "built in", SHIM: "by the shim"}
"""How the timing is swapped."""
_TIMING_WORDS = {SYSTEM: "system timing", PRECISE: "hptime"}


def timing_words(timing: str) -> str:
    """``hptime``, ``system timing``, ``clock hptime, sleep system``."""
    if timing in _TIMING_WORDS:
        return _TIMING_WORDS[timing]
    clock, plus, sleep = timing.partition("+")
    return f"clock {clock}, sleep {sleep}" if plus else timing


def arrangement(timing: str, through: str) -> str:
    """``hptime``, ``hptime by the shim``, ``system timing, without the shim``."""
    if through == SHIM:
        return f"{timing_words(timing)}{' ' if timing == PRECISE else ', '}{way(timing, through)}"
    return timing_words(timing)


def way(timing: str, through: str) -> str:
    """How the timing came in: ``built in``, ``by the shim``, ``without the shim`` (the same program as it is)."""
    return "without the shim" if through == SHIM and timing != PRECISE else THROUGH_WORDS.get(through, through)


def rate(mbps: float | None) -> str:
    """``300 Mbit/s``, ``1.25 Gbit/s``; a dash for None."""
    return NONE if mbps is None else rate_text(mbps * 1e6)


def rate_interval(estimate: Estimate) -> str:
    """``290–301 Mbit/s``; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    low, high = rate(estimate.low), rate(estimate.high)
    same_unit = low.split()[1] == high.split()[1]
    return f"{low.split()[0] if same_unit else low}–{high}"


def spread(mbps: float | None) -> str:
    """Mbit/s with three digits: ``3.12``; a dash for None."""
    return NONE if mbps is None else significant(mbps)


def per_cent(part: float) -> str:
    """Two significant digits and at most two decimals, without the sign: ``1.2``, ``18``, ``0.04``."""
    size = abs(part) * 100
    return f"{size:.2f}" if size < 0.095 else significant(size, 2) if size < 99.5 else f"{size:.0f}"


def signed(part: float | None) -> str:
    """``+1.2 %``, ``−18 %``; a dash for None."""
    return NONE if part is None else f"{_sign(part)}{per_cent(part)} %"


def signed_interval(estimate: Estimate) -> str:
    """``−1.2 to +0.4 %``; a dash without one."""
    if estimate.low is None or estimate.high is None:
        return NONE
    return f"{signed(estimate.low).removesuffix(' %')} to {signed(estimate.high)}"


def off(part: float | None) -> str:
    """An error without its sign: ``1.2 %``; a dash for None."""
    return NONE if part is None else f"{per_cent(part)} %"


def off_interval(estimate: Estimate) -> str:
    """``0.9–1.5 %``; a dash without one."""
    if estimate.low is None or estimate.high is None:
        return NONE
    return f"{per_cent(estimate.low)}–{off(estimate.high)}"


def points(part: float | None) -> str:
    """A difference of errors: ``+1.2``, ``−0.31``, in points of per cent; a dash for None."""
    return NONE if part is None else f"{_sign(part)}{per_cent(part)}"


def points_interval(estimate: Estimate) -> str:
    """``−2.4 to −1.5``; a dash without one."""
    if estimate.low is None or estimate.high is None:
        return NONE
    return f"{points(estimate.low)} to {points(estimate.high)}"


def volume(octets: float | None) -> str:
    """``4.21 MB``, ``1.30 GB``; a dash for None."""
    if octets is None:
        return NONE
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if octets >= size:
            return f"{amount(octets / size)} {unit}"
    return f"{octets:.0f} B"


def capitalized(text: str) -> str:
    """With a capital letter, and the rest as it is."""
    return text[:1].upper() + text[1:]


def _sign(part: float) -> str:
    return "±" if per_cent(part) == "0.00" else "+" if part > 0 else "−"
