"""What makes a storage trial invalid, or has to be said with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from virtgauge.ledger.records import Flag
from virtgauge.suites.storage.calibration import NEAR_THE_LIMIT
from virtgauge.suites.storage.client import StreamResult
from virtgauge.suites.storage.databases.base import Profile

DISK_FACTOR = 2.0
"""A disk whose flushes became so much faster or slower was another one at the end than at the beginning."""
_FEWER = 0.9
"""Some of the acknowledgements of the measured span may have waited for a flush before it."""


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """Under which a trial was made.

    Attributes:
        streams: what the loads came to.
        elapsed_ns: the measured span.
        client_limit_per_s: what the client alone comes to; None where that is not known.
        profile: the level's settings; None for a server that is there already.
        written: statements that wrote in the measured span; 0 where something else was measured.
        waiting: how many of them may wait for one flush together: clients × pipeline.
        flushes: counted from before the warm-up to after the end; None where nobody counts.
        period_ms: of a level that flushes periodically.
        disk_before_per_s, disk_after_per_s: flushes on the idle disk; None where it is not ours.
    """

    streams: Sequence[StreamResult]
    elapsed_ns: int
    client_limit_per_s: float | None
    profile: Profile | None
    written: int
    waiting: int
    flushes: int | None
    period_ms: int
    disk_before_per_s: float | None
    disk_after_per_s: float | None

    @property
    def operations_per_s(self) -> float:
        """Of all loads together."""
        return sum(stream.operations for stream in self.streams) * 1e9 / self.elapsed_ns if self.elapsed_ns else 0.0


def flags_of(found: Circumstances) -> Iterator[Flag]:
    """Every flag that applies."""
    yield from answer_flags(found.streams)
    limit = found.client_limit_per_s
    if limit is not None and found.operations_per_s > NEAR_THE_LIMIT * limit:
        text = f"{found.operations_per_s:,.0f} of the client's own {limit:,.0f} operations/s"
        yield Flag("client-limited", f"{text}: the database may be faster", fatal=False)
    yield from _flush_flags(found)
    yield from _disk_flags(found)


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
    elif flushes > found.written / 2 and flushes > 10 + 4 * found.elapsed_ns / (found.period_ms * 1e6):
        text = f"{flushes} flushes for {found.written} writes: {profile.name} flushes more than its level says"
        yield Flag("flushes", text)


def _disk_flags(found: Circumstances) -> Iterator[Flag]:
    before, after = found.disk_before_per_s, found.disk_after_per_s
    if not before or not after or max(before, after) <= DISK_FACTOR * min(before, after):
        return
    # What waits for no flush does not notice.
    waits = found.profile is not None and found.profile.flushes_each_write and found.written > 0
    text = f"the idle disk had {before:,.0f} flushes/s before the trial and {after:,.0f} after it"
    yield Flag("disk-changed", text, fatal=waits)
