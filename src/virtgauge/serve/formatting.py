"""Texts of a run as a page may show them: whatever a ledger holds becomes a short text without control characters."""

from __future__ import annotations

import datetime

from virtgauge.analysis.estimate import Estimate
from virtgauge.results.quantities import Quantity

_LONGEST = 300


def plain(value: object, longest: int = _LONGEST) -> str:
    """Any value as one line; what does not print, marks that turn the direction of writing among it, is replaced."""
    text = str(value)
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(character if character.isprintable() else "�" for character in cut)


def moment(value: object) -> str:
    """A time of the ledger for people: ``2026-03-01 10:00:00``, UTC; whatever else stands there as it is."""
    try:
        return f"{instant(value):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return plain(value, 40)


def instant(value: object) -> datetime.datetime:
    """A time of the ledger, in UTC.

    Raises:
        ValueError: it is none.
    """
    found = datetime.datetime.fromisoformat(str(value))
    if found.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return found.astimezone(datetime.UTC)


def duration_text(seconds: float) -> str:
    """About how long: ``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{max(round(seconds, -1), 10):.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def interval_text(estimate: Estimate, quantity: Quantity) -> str:
    """``22.8–23.4 ns``, ``650 ns–1.15 µs``; empty without an interval."""
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = quantity.text(estimate.low), quantity.text(estimate.high)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low}–{high}"
