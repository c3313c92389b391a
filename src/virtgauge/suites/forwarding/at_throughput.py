"""What is measured at the throughput: latency at parts of it, the longest burst without loss (RFC 9004), and a soak."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from virtgauge.analysis.critical_rate import REPEATED, LossCount, critical_rate, dispersion, loss_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.packets import corrected_buffer_s, implied_buffer_s, weighted_latency
from virtgauge.ledger.records import Histogram, merged
from virtgauge.suites.forwarding.searches import LossPoint
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Offer, TrialResult

_LONGEST_BURST_S = 2.0  # No longer burst is tried
_CRITICAL_RATIO = 1e-7  # PLRsearch's target
_CONFIDENCE = 0.95  # Of both intervals of a soak; that of a figure over repetitions is the plan's
_LONGEST_TRIAL_S = 10.0  # Of a soak: by so many its losses' dispersion is told

Progress = Callable[[float], None]
Burst = Callable[[int, float], Awaitable[TrialResult]]
"""Sends so many frames at a rate."""


@dataclasses.dataclass(frozen=True)
class LatencyAtLoad:
    """Trials at one load: the latency of every guest, and of all as equation 7 weights them."""

    load_percent: float  # of the throughput
    trials: tuple[TrialResult, ...]

    def guest_histograms(self) -> list[Histogram | None]:
        """A histogram of each guest, over the repeats; None where no frame came back."""
        by_guest = zip(*(trial.flows for trial in self.trials), strict=True)
        return [merged([flow.latency for flow in flows if flow.latency is not None]) for flows in by_guest]

    def record(self, shares: Sequence[float]) -> dict[str, Any]:
        """Scalars for the ledger.

        ``total_ns`` is L_tot of equation 7: for any vector, the mean latencies of the guests weighted with their
        shares.  ``without_latency`` are guests that should have carried traffic and of whose frames none came back:
        the weights of the others are then brought to a sum of 1.
        """
        means = [None if histogram is None else histogram.mean / 1000 for histogram in self.guest_histograms()]
        carried = [(mean, share) for mean, share in zip(means, shares, strict=True) if mean is not None and share > 0]
        missing = [guest for guest, share in enumerate(shares) if share > 0 and means[guest] is None]
        sent, lost = sum(t.sent for t in self.trials), sum(t.lost for t in self.trials)
        return {
            "load_percent": self.load_percent,
            "rate_pps": self.trials[0].rate_pps,
            "total_ns": weighted_latency([m for m, _ in carried], [s for _, s in carried]) if carried else None,
            "guest_mean_ns": means,
            "without_latency": missing,
            "sent": sent,
            "lost": lost,
            "loss_ratio": lost / sent if sent else 0.0,
            "worst_loss_ratio": max(trial.worst_loss_ratio for trial in self.trials),
            "late": sum(trial.late for trial in self.trials),
            "stretched": sum(trial.stretched for trial in self.trials),
        }

    def histograms(self) -> dict[str, Histogram]:
        """All guests together, and at the throughput itself each guest."""
        each = self.guest_histograms()
        name = f"latency@{self.load_percent:g}%"
        together = merged([histogram for histogram in each if histogram is not None])
        found = {} if together is None else {name: together}
        if self.load_percent == 100:
            found |= {f"{name}/guest{i}": histogram for i, histogram in enumerate(each) if histogram is not None}
        return found


async def latency_at_loads(
    offer: Offer, settings: ForwardingSettings, throughput_pps: float, highest_pps: float, on_progress: Progress
) -> list[LatencyAtLoad]:
    """One after the other, from the lowest load to the highest; loads beyond the highest rate are left out."""
    percents, repeats = sorted({*settings.latency_loads, *settings.load_curve}), settings.latency_repeats
    possible = [percent for percent in percents if throughput_pps * percent / 100 <= highest_pps * 1.0001]
    found = []
    for index, percent in enumerate(possible):
        rate = throughput_pps * percent / 100
        trials = []
        for repeat in range(repeats):
            on_progress((index + repeat / repeats) / len(possible))
            trials.append(await offer(rate, settings.latency_s))
        found.append(LatencyAtLoad(percent, tuple(trials)))
    return found


@dataclasses.dataclass(frozen=True)
class BackToBack:
    """Back-to-back frames (RFC 9004): the longest burst at the highest rate of which no frame is lost."""

    rate_pps: float  # at which frames followed each other, which is what the tester did and not what it was asked for
    bursts: tuple[int, ...] = ()  # the longest without loss, of each repetition; frames
    # implied_buffer_s, corrected_buffer_s: of the mean burst, and less what is forwarded meanwhile
    implied_buffer_s: float | None = None
    corrected_buffer_s: float | None = None
    reason: str = ""  # why there is no figure


async def back_to_back(burst: Burst, rate_pps: float, throughput_pps: float, *, repeats: int) -> BackToBack:
    """Find the longest burst, as often as wanted, at the tester's or the medium's highest rate.

    A device that forwards that rate, by its throughput without loss, has no longest burst.  Where all that a burst lost
    may have been lost by the tester's own receiving end, it is not told: it would be the tester's buffer.
    """
    if throughput_pps >= 0.99 * rate_pps:
        return BackToBack(rate_pps, reason="the device forwards the highest rate that the tester can offer")
    longest = int(rate_pps * _LONGEST_BURST_S)
    found = []
    for _ in range(repeats):
        one = await _longest_burst(burst, rate_pps, longest)
        if isinstance(one, str):
            return BackToBack(rate_pps, reason=one)
        found.append(one)
    bursts = tuple(frames for frames, _ in found)
    rate_pps = statistics.fmean(pps for _, pps in found)
    if throughput_pps >= rate_pps:
        return BackToBack(rate_pps, bursts, reason="the tester's bursts are slower than what the device forwards")
    if max(bursts) >= longest:
        return BackToBack(rate_pps, bursts, reason=f"bursts of {_LONGEST_BURST_S:g} s and more pass without loss")
    mean = statistics.fmean(bursts)
    return BackToBack(
        rate_pps, bursts, implied_buffer_s(mean, rate_pps), corrected_buffer_s(mean, rate_pps, throughput_pps)
    )


async def _longest_burst(burst: Burst, rate_pps: float, longest: int) -> tuple[int, float] | str:
    """Bisect the number of frames, to the frame; with the rate of the longest that passed. Or why that is not told."""
    low, high, pps = 0, longest + 1, rate_pps
    while high - low > 1:
        middle = (low + high) // 2
        trial = await burst(middle, rate_pps)
        if trial.lost == 0:
            low, pps = middle, trial.offered_pps if middle > 1 else rate_pps  # one frame has none
        elif trial.lost <= trial.overrun:
            return f"of a burst of {middle} frames the tester itself lost {trial.overrun}, for want of room on receipt"
        else:
            high = middle
    return low, pps


async def soak(offer: Offer, rate_pps: float, seconds: float, on_progress: Progress) -> tuple[TrialResult, ...]:
    """Trials at one load that last so long together."""
    number = max(math.ceil(seconds / _LONGEST_TRIAL_S), REPEATED)
    trials = []
    for done in range(number):
        on_progress(done / number)
        trials.append(await offer(rate_pps, seconds / number))
    return tuple(trials)


def soak_record(trials: Sequence[TrialResult], searched: Sequence[LossPoint]) -> dict[str, Any]:
    """Figures for the ledger, of all flows together; the critical rate is told by the search's trials too.

    A trial that was stretched never offered its load, and counts for nothing.
    """
    counts = [LossCount(t.rate_pps, t.duration_s, t.sent, t.lost) for t in trials if not t.stretched]
    of_search = [
        LossCount(point.rate_pps, point.duration_s, sent, round(point.loss_ratio * sent))
        for point in searched
        if not point.stretched and (sent := round(point.rate_pps * point.duration_s))
    ]
    record: dict[str, Any] = {
        "rate_pps": trials[0].rate_pps,
        "seconds": sum(one.duration_s for one in counts),
        "sent": sum(one.sent for one in counts),
        "lost": sum(one.lost for one in counts),
        "lossy_trials": sum(one.lost > 0 for one in counts),
        "trials": len(counts),
        "stretched": len(trials) - len(counts),
        "confidence": _CONFIDENCE,
        "critical_ratio": _CRITICAL_RATIO,
    }
    if not record["sent"]:
        return record | {"reason": "every trial of the soak was stretched: its load was never offered"}
    critical = critical_rate([*of_search, *counts], _CRITICAL_RATIO, _CONFIDENCE)
    return record | {
        "dispersion": dispersion(counts),
        "loss_ratio": dataclasses.asdict(loss_ratio(counts, _CONFIDENCE)),
        "critical_pps": dataclasses.asdict(critical) if isinstance(critical, Estimate) else None,
        "reason": critical if isinstance(critical, str) else "",
    }
