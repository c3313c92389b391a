"""Back-to-back frames (RFC 9004): the longest burst at the highest rate of which no frame is lost."""

from __future__ import annotations

import dataclasses
import statistics

from virtgauge.analysis.forwarding.back_to_back import corrected_buffer_s, implied_buffer_s
from virtgauge.suites.forwarding.trial import Device


@dataclasses.dataclass(frozen=True)
class BackToBack:
    """Bursts.

    Attributes:
        rate_pps: at which frames followed each other: the tester's or the medium's highest.
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
    device: Device, rate_pps: float, throughput_pps: float, *, repeats: int, longest_s: float = 2.0
) -> BackToBack:
    """Find the longest burst, as often as wanted.

    Args:
        throughput_pps: the no-drop rate; a device that forwards the highest rate has no longest burst.
        longest_s: no longer burst is tried.
    """
    if throughput_pps >= 0.99 * rate_pps:
        return BackToBack(rate_pps, reason="the device forwards the highest rate that the tester can offer")
    longest = int(rate_pps * longest_s)
    bursts = tuple([await _longest_burst(device, rate_pps, longest) for _ in range(repeats)])
    if max(bursts) >= longest:
        return BackToBack(rate_pps, bursts, reason=f"bursts of {longest_s:g} s and more pass without loss")
    mean = statistics.fmean(bursts)
    return BackToBack(
        rate_pps, bursts, implied_buffer_s(mean, rate_pps), corrected_buffer_s(mean, rate_pps, throughput_pps)
    )


async def _longest_burst(device: Device, rate_pps: float, longest: int) -> int:
    """Bisect the number of frames, to the frame."""
    low, high = 0, longest + 1
    while high - low > 1:
        middle = (low + high) // 2
        trial = await device.measure(rate_pps, middle / rate_pps)
        if trial.lost == 0:
            low = middle
        else:
            high = middle
    return low
