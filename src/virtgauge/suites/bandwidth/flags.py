"""What makes an estimate invalid, or has to be said with it.  That it is far from the truth is a result, no flag."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from virtgauge.ledger.records import Flag

_SHORT_SHARE, _SHORT_BPS = 0.03, 1e6
_CHANCE = 4.0
"""Standard deviations that the number of exponential gaps in a span may be off."""
_CHANGED = 0.02
_STALLED = 0.1


@dataclasses.dataclass(frozen=True)
class TrialConditions:
    """Under which an estimate was made; rates in bit/s.

    Attributes:
        cross_asked_bps, cross_counted_bps: of the others, as the shaper counts.
        cross_frames: of theirs, that were counted.
        poisson: their gaps are exponential.
        declared_bps: what the path was shaped to.
        before_bps, after_bps: what it let pass before the estimate and after it; None where that was not seen.
        overrun: frames that the link emulator lost because they came faster than it takes them.
        refused: why the sender could not pace it; None where it could.
        silence: why there was no estimate; None where there was one, or a refusal.
        stamp: who stamped packets.
        streams, stalled: trains, and those of them in which the sender stood still.
        at_ceiling: the estimate is the highest that the estimator tries, in bit/s; None where it is not.
        hptime_fallback_reason: why hptime was not used where it should have been; None where it was.
    """

    cross_asked_bps: float
    cross_counted_bps: float
    cross_frames: int
    poisson: bool
    declared_bps: float
    before_bps: float | None
    after_bps: float | None
    overrun: int
    refused: str | None
    silence: str | None
    stamp: str | None
    streams: int
    stalled: int
    at_ceiling: float | None
    hptime_fallback_reason: str | None


def flags_of(found: TrialConditions) -> Iterator[Flag]:
    """Every flag that applies."""
    yield from _fatal(found)
    if found.refused is not None:
        yield Flag("cannot-pace", found.refused, fatal=False)
    if found.stamp == "program":
        yield Flag("user-timestamps", "the receiver's program stamped packets, and not its kernel", fatal=False)
    if found.streams and found.stalled > _STALLED * found.streams:
        text = f"the sender stalled in {found.stalled} of {found.streams} trains, which were sent again"
        yield Flag("sender-stalls", text, fatal=False)
    if found.at_ceiling is not None:
        text = (
            f"{found.at_ceiling / 1e6:.0f} Mbit/s is the highest that the estimator tries: at least this is available"
        )
        yield Flag("ceiling", text, fatal=False)
    if found.hptime_fallback_reason is not None:
        yield Flag("hptime-refused", f"timed by the system's clock: {found.hptime_fallback_reason}", fatal=False)


def _fatal(found: TrialConditions) -> Iterator[Flag]:
    asked, counted = found.cross_asked_bps, found.cross_counted_bps
    if abs(counted - asked) > allowance_bps(asked, found.cross_frames if found.poisson else None):
        text = f"of {asked / 1e6:g} Mbit/s cross traffic {counted / 1e6:.1f} were counted"
        yield Flag("cross-traffic-short", text)
    if found.silence is not None:
        yield Flag("no-estimate", found.silence)
    before, after = found.before_bps, found.after_bps
    if before is not None and after is not None and abs(after / before - 1) > _CHANGED:
        text = f"the path let pass {before / 1e6:.1f} Mbit/s before the estimate and {after / 1e6:.1f} after it"
        yield Flag("path-changed", text)
    elif before is not None and abs(before / found.declared_bps - 1) > _CHANGED:
        text = f"flooded, the path let pass {before / 1e6:.1f} of its {found.declared_bps / 1e6:g} Mbit/s"
        yield Flag("path-short", text)
    if found.overrun:
        text = f"the link emulator lost {found.overrun} frames, which came faster than it takes them"
        # Then the path was less than it says; of a sender that refused before, that says nothing.
        yield Flag("link-overrun", text, fatal=found.refused is None)


def allowance_bps(asked_bps: float, frames: int | None) -> float:
    """How far the counted cross traffic may be from what was asked for.

    Args:
        asked_bps: nothing is allowed beside none but what little rates may be off.
        frames: counted, where their gaps are exponential, so that their number varies by its root; else None.
    """
    chance = _CHANCE / math.sqrt(frames) if frames else 0.0
    return max(_SHORT_BPS, asked_bps * (_SHORT_SHARE + chance))
