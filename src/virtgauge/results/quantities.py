"""What kinds of figures there are, and their units: the ledger's base unit and those that a person may write.

Units are prefixes on a few words, so a table says all: a value times its unit's factor is in the base unit.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping

from virtgauge.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A kind of figure."""

    name: str  # ``duration``
    unit: str  # the base unit, in which figures are kept
    factors: Mapping[str, float]  # by unit, how many base units it has; ASCII spellings are among them
    shown: tuple[str, ...]  # the units in which a report writes it, ascending by factor
    least: float = 0.0  # a smaller one is written as less than that

    def to_base(self, value: float, unit: str) -> float:
        """A value in the base unit. Raises UsageError: the quantity has no such unit."""
        if unit not in self.factors:
            close = difflib.get_close_matches(unit, self.factors, n=1, cutoff=0.5)
            raise UsageError(
                f"unit = {unit!r}: a {self.name} is not given in it"
                + (f"; did you mean {close[0]!r}?" if close else ""),
                f"use one of {', '.join(self.factors)}",
            )
        return value * self.factors[unit]

    def text(self, value: float | None, digits: int = 3) -> str:
        """A value of the base unit as a person reads it: ``62.1 µs``; a dash for None."""
        if value is None:
            return "–"
        if 0 <= value < self.least:
            return f"< {self.least:g}"
        unit = self.unit_of(value, digits)
        return f"{significant(value / self.factors[unit], digits)} {unit}".rstrip()

    def unit_of(self, value: float, digits: int = 3) -> str:
        """The largest of the shown units of which a value has one, as it is rounded."""
        least = 1 - 0.5 * 10**-digits
        return next((one for one in reversed(self.shown) if abs(value) >= self.factors[one] * least), self.shown[0])


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without exponent or superfluous zeros after a whole number."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    # 999.7 rounds up to 1000, which needs one decimal less.
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(decimals, 0)}f}"


def _prefixed(word: str) -> dict[str, float]:
    return {f"{prefix}{word}": factor for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))}


DURATION = Quantity(
    "duration", "ns", {"ns": 1.0, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}, ("ns", "µs", "ms", "s")
)
BIT_RATE = Quantity("bit rate", "bit/s", _prefixed("bit/s"), ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"))
FRAME_RATE = Quantity(
    "frame rate",
    "frames/s",
    _prefixed("frames/s") | {"pps": 1.0, "kpps": 1e3, "Mpps": 1e6},
    ("frames/s", "kframes/s", "Mframes/s"),
)
OPERATION_RATE = Quantity(
    "rate of operations", "op/s", _prefixed("op/s") | {"ops/s": 1.0, "1/s": 1.0}, ("op/s", "kop/s", "Mop/s")
)
FLUSH_RATE = Quantity("rate of flushes", "flushes/s", _prefixed("flushes/s"), ("flushes/s", "kflushes/s"))
FLUSHES = Quantity("number of flushes", "flushes", {"flushes": 1.0}, ("flushes",))
ROW_RATE = Quantity("rate of rows", "rows/s", _prefixed("rows/s"), ("rows/s", "krows/s", "Mrows/s"))
WORK_RATE = Quantity("rate of work", "units/s", _prefixed("units/s"), ("units/s", "kunits/s", "Munits/s", "Gunits/s"))
SHARE = Quantity("share", "%", {"%": 1.0, "ratio": 100.0, "ppm": 1e-4}, ("%",))
COUNT = Quantity("count", "", {"": 1.0, "1": 1.0, "rows": 1.0, "frames": 1.0, "bytes": 1.0}, ("",))
SIZE = Quantity(
    "size",
    "B",
    {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    ("B", "kB", "MB", "GB"),
)
BYTE_RATE = Quantity("byte rate", "B/s", _prefixed("B/s"), ("B/s", "kB/s", "MB/s", "GB/s"))
CPUS = Quantity("processors", "CPUs", {"CPUs": 1.0}, ("CPUs",))
EVENT_RATE = Quantity("rate of events", "1/s", _prefixed("1/s"), ("1/s",))
PROBABILITY = Quantity("probability", "", {"": 1.0}, ("",), 0.001)  # Of such data where there is no difference
FACTOR = Quantity("factor", "×", {"×": 1.0, "x": 1.0, "ratio": 1.0, "%": 0.01}, ("×",))
"""Of one platform's figure in another's: what a requirement that is compared with the reference bounds."""
RATIO = Quantity("ratio", "ratio", {"ratio": 1.0, "×": 1.0, "%": 0.01}, ("ratio",))
"""Of one figure to another; written with a ×."""

BY_UNIT: Mapping[str, Quantity] = {
    one.unit: one
    for one in (
        *(DURATION, BIT_RATE, FRAME_RATE, OPERATION_RATE, ROW_RATE, WORK_RATE),
        *(SHARE, COUNT, SIZE, FACTOR, FLUSH_RATE, FLUSHES, RATIO, BYTE_RATE, EVENT_RATE, CPUS),
    )
}
"""Each by its base unit, which no two share."""


def running_time(seconds: float | None) -> str:
    """Seconds as a person says them of a run: ``12 min 05 s``, ``1 h 01 min``; an ellipsis for None."""
    if seconds is None:
        return "…"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
