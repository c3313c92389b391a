"""What makes a storage trial invalid, or has to be said with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from virtgauge.ledger.records import Flag
from virtgauge.suites.storage.calibration import near_the_limit
from virtgauge.suites.storage.databases.base import Profile
from virtgauge.suites.storage.disk_probe import DiskWatch
from virtgauge.suites.storage.outcomes import Measured, StreamResult

_FEWER = 0.9
"""Some of the acknowledgements of the measured span may have waited for a flush before it."""


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """Under which a trial was made.

    Attributes:
        measured: what the loads came to.
        client_limit_per_s: what the client alone comes to; None where that is not known.
        profile: the level's settings; None for a server that is there already.
        written: statements that wrote in the measured span; 0 where something else was measured.
        waiting: how many of them may wait for one flush together: clients × pipeline.
        flushes: counted from before the warm-up to after the end; None where nobody counts.
        uncounted: why nobody does, where somebody was to.
        period_ms: of a level that flushes periodically.
        disk: the idle disk, before and after.
    """

    measured: Measured
    client_limit_per_s: float | None
    profile: Profile | None
    written: int
    waiting: int
    flushes: int | None
    uncounted: str | None
    period_ms: int
    disk: DiskWatch


def flags_of(found: Circumstances) -> Iterator[Flag]:
    """Every flag that applies."""
    yield from answer_flags(found.measured.streams)
    limit, reached = found.client_limit_per_s, found.measured.operations_per_s
    if near_the_limit(reached, limit):
        text = f"{reached:,.0f} of the client's own {limit:,.0f} operations/s"
        yield Flag("client-limited", f"{text}: the database may be faster", fatal=False)
    yield from _flush_flags(found)
    # What waits for no flush does not notice a change of the disk.
    waits = found.profile is not None and found.profile.flushes_each_write and found.written > 0
    if (changed := found.disk.flag(waits=waits)) is not None:
        yield changed


def answer_flags(streams: Sequence[StreamResult]) -> Iterator[Flag]:
    """Wrong answers, failures, and nothing at all."""
    wrong, errors = (sum(getattr(stream, name) for stream in streams) for name in ("wrong", "errors"))
    if wrong:
        said = next((stream.first_error for stream in streams if stream.wrong and stream.first_error), None)
        detail = f"{wrong} reads brought other readings than were written" + (f": {said}" if said else "")
        yield Flag("wrong-answer", detail)
    if errors:
        said = next((stream.first_error for stream in streams if stream.errors and stream.first_error), "unnamed")
        yield Flag("errors", f"{errors} operations failed, the first with: {said}")
    if any(stream.operations == 0 for stream in streams) and not wrong and not errors:
        yield Flag("empty", "not a single operation was done in the time measured")


def _flush_flags(found: Circumstances) -> Iterator[Flag]:
    """Counted flushes that contradict the level."""
    flushes, profile = found.flushes, found.profile
    if found.uncounted is not None and profile is not None and found.written:
        text = f"{found.uncounted}: whether {profile.name} flushes as its level says was not verified"
        yield Flag("flushes-uncounted", text, fatal=False)
    if flushes is None or profile is None or not found.written:
        return
    if profile.flushes_each_write:
        least = _FEWER * found.written / found.waiting - 1
        if flushes < least:
            text = (
                f"{flushes} flushes for {found.written} writes, of which at most {found.waiting} could wait for one "
                f"together: {profile.name} does not flush before it acknowledges"
            )
            yield Flag("flushes", text)
    elif flushes > found.written / 2 and flushes > 10 + 4 * found.measured.elapsed_ns / (found.period_ms * 1e6):
        text = f"{flushes} flushes for {found.written} writes: {profile.name} flushes more than its level says"
        yield Flag("flushes", text)
