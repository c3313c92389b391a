"""Back-to-back frames (RFC 9004): the longest burst at the highest rate of which no frame is lost."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Protocol

from virtgauge.analysis.forwarding import corrected_buffer_s, implied_buffer_s
from virtgauge.suites.forwarding.trial import TrialResult


class Bursting(Protocol):
    """Something that frames can be sent to back to back."""

    async def burst(self, frames: int, rate_pps: float) -> TrialResult:
        """Send so many as fast as possible; the rate is what is expected of the tester."""
        ...


@dataclasses.dataclass(frozen=True)
class BackToBack:
    """Bursts.

    Attributes:
        rate_pps: at which frames followed each other, which is what the tester did and not what it was asked for.
        bursts: the longest without loss, of each repetition; frames.
        implied_buffer_s, corrected_buffer_s: of the mean burst, and less what is forwarded meanwhile.
        reason: why there is no figure.
    """

    rate_pps: float
    bursts: tuple[int, ...] = ()
    implied_buffer_s: float | None = None
    corrected_buffer_s: float | None = None
    reason: str = ""


async def back_to_back(
    device: Bursting, rate_pps: float, throughput_pps: float, *, repeats: int, longest_s: float = 2.0
) -> BackToBack:
    """Find the longest burst, as often as wanted.

    Args:
        rate_pps: the tester's or the medium's highest.
        throughput_pps: the no-drop rate; a device that forwards the highest rate has no longest burst.
        longest_s: no longer burst is tried.
    """
    if throughput_pps >= 0.99 * rate_pps:
        return BackToBack(rate_pps, reason="the device forwards the highest rate that the tester can offer")
    longest = int(rate_pps * longest_s)
    found = [await _longest_burst(device, rate_pps, longest) for _ in range(repeats)]
    bursts = tuple(frames for frames, _ in found)
    rate_pps = statistics.fmean(pps for _, pps in found)
    if throughput_pps >= rate_pps:
        return BackToBack(rate_pps, bursts, reason="the tester's bursts are slower than what the device forwards")
    if max(bursts) >= longest:
        return BackToBack(rate_pps, bursts, reason=f"bursts of {longest_s:g} s and more pass without loss")
    mean = statistics.fmean(bursts)
    return BackToBack(
        rate_pps, bursts, implied_buffer_s(mean, rate_pps), corrected_buffer_s(mean, rate_pps, throughput_pps)
    )


async def _longest_burst(device: Bursting, rate_pps: float, longest: int) -> tuple[int, float]:
    """Bisect the number of frames, to the frame; with the rate of the longest that passed."""
    low, high, pps = 0, longest + 1, rate_pps
    while high - low > 1:
        middle = (low + high) // 2
        trial = await device.burst(middle, rate_pps)
        if trial.lost == 0:
            low, pps = middle, trial.offered_pps
        else:
            high = middle
    return low, pps
