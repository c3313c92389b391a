"""Rare events of processes whose truth is known: how often bounds of their rate, and levels of their size, hold it.

:mod:`interval_coverage` makes a table of them.  What is watched lasts 8 hours; what comes within a second is one
cluster, whose size is that of its largest event.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.rare_events import LEAST_SHAPE, cluster_peaks, decide_rate, expected_number, return_level

HOUR_S = 3600.0
HOURS, LOOKS = 8.0, np.arange(0.25, 60, 0.25)  # Watched once; looked at again and again, in hours
CONFIDENCE = 0.95
RATIO = 10.0  # A return level is that of a time so many times as long
SIZED = 5  # It takes so long that there is one run of so many
THRESHOLD, _SCALE = 40.0, 6.0  # Of events' sizes, in µs
PER_HOUR, PEAKS_PER_HOUR, _BEYOND = 2.0, 15.0, 0.1  # Clusters; those of a return level; share of those beyond a limit
TAILS = {"light": 0.0, "heavy": 0.2, "sharply bounded": -1.0}
"""Shapes of sizes: exponential; of a power; uniform, as of interrupts of one length that a cycle meets anywhere."""

Moments = npt.NDArray[np.float64]
Process = Callable[[np.random.Generator, float, float], Moments]
"""Moments of events, in seconds, in so many hours, with so many clusters an hour on average."""
Check = tuple[float, bool, list[bool]]


def steady(random: np.random.Generator, hours: float, per_hour: float) -> Moments:
    return np.sort(random.uniform(0, hours * HOUR_S, random.poisson(per_hour * hours)))


def bursts(random: np.random.Generator, hours: float, per_hour: float) -> Moments:
    """Each of 1 to some 20 events, 100 ms apart on average."""
    starts = steady(random, hours, per_hour)
    each = [start + np.cumsum(random.exponential(0.1, random.geometric(0.2))) for start in starts]
    return np.sort(np.concatenate(each or [starts]))


def periodic(random: np.random.Generator, hours: float, per_hour: float) -> Moments:
    """As interrupts of a system's management (SMI) come, at a phase of their own."""
    period_s = HOUR_S / per_hour
    return np.arange(random.uniform(0, period_s), hours * HOUR_S, period_s)


def drifting(random: np.random.Generator, hours: float, per_hour: float) -> Moments:
    """Ever more often, from never to twice the mean rate."""
    return np.sort(hours * HOUR_S * np.sqrt(random.random(random.poisson(per_hour * hours))))


PROCESSES: dict[str, Process] = {"steady": steady, "bursts": bursts, "periodic SMIs": periodic, "drift": drifting}


@dataclasses.dataclass(frozen=True)
class Truth:
    """What is known of a process besides its clusters' mean rate."""

    power: float = 1.0  # Of the part of the time that is over; that is the share of the clusters to be expected in it
    last: float = 1.0  # How likely an event is the last of its cluster

    def events(self, clusters: float) -> float:
        """Of how many events one is larger than what a cluster in so many exceeds.

        A size that an event exceeds with a probability of G, a cluster's largest does with G/(p + (1 − p)·G), p being
        how likely an event is the last.
        """
        return (clusters - 1 + self.last) / self.last


TRUTHS = {"steady": Truth(), "bursts": Truth(last=0.2), "periodic SMIs": Truth(), "drift": Truth(power=2.0)}


def clusters(moments: Moments) -> Moments:
    """When each cluster was over."""
    return np.array(cluster_peaks((moment, moment) for moment in moments.tolist()))


def level_of(events: float, shape: float) -> float:
    """The size that one of so many events exceeds on average."""
    return THRESHOLD + _SCALE * (math.log(events) if shape == 0 else math.expm1(shape * math.log(events)) / shape)


def sizes_of(random: np.random.Generator, number: int, shape: float) -> list[float]:
    """Events' sizes above the threshold, with a generalized Pareto distribution."""
    logs = np.log(random.random(number))
    found: list[float] = (THRESHOLD + _SCALE * (-logs if shape == 0 else np.expm1(-shape * logs) / shape)).tolist()
    return found


def peaks(random: np.random.Generator, moments: Moments, shape: float) -> list[float]:
    """The size of each cluster."""
    return cluster_peaks(zip(moments.tolist(), sizes_of(random, moments.size, shape), strict=True))


def checks(name: str, runs: int, random: np.random.Generator) -> dict[str, Check]:
    """By what is estimated of a process: the confidence stated, that it is no false finding, each run's outcome."""
    process, truth = PROCESSES[name], TRUTHS[name]
    watched = [peaks(random, process(random, HOURS, PER_HOUR), 0.0) for _ in range(runs)]
    limit = level_of(truth.events(1 / _BEYOND), 0.0)
    rates = [_rate(len(one)) for one in watched]
    beyond = [_rate(sum(peak > limit for peak in one)) for one in watched]
    looked = [_at_every_look(process(random, float(LOOKS[-1]), PER_HOUR), truth) for _ in range(runs)]
    stated: dict[str, tuple[float, list[bool]]] = {
        "rate, interval": (2 * CONFIDENCE - 1, [low <= PER_HOUR <= high for low, high in rates]),
        "rate, lower bound": (CONFIDENCE, [low <= PER_HOUR for low, _ in rates]),
        "rate, upper bound": (CONFIDENCE, [high >= PER_HOUR for _, high in rates]),
        "rate beyond a limit, upper bound": (CONFIDENCE, [high >= _BEYOND * PER_HOUR for _, high in beyond]),
        "rate, lower bound, at all of 239 looks": (CONFIDENCE, [low for low, _ in looked]),
        "rate, upper bound, at all of 239 looks": (CONFIDENCE, [high for _, high in looked]),
    }
    found = {what: (confidence, False, outcomes) for what, (confidence, outcomes) in stated.items()}
    for words, shape in TAILS.items():
        held = [_level_held(process, truth, shape, random) for _ in range(max(runs // SIZED, 1))]
        what = f"level of 80 h from 8 h, {words} tail"
        if shape < LEAST_SHAPE:
            found[f"{what}: told, at most"] = 1 - CONFIDENCE, True, [one is not None for one in held]
        else:
            found[what] = CONFIDENCE, False, [one for one in held if one is not None]
    return found


def _rate(count: int) -> tuple[float, float]:
    """The bounds of a verdict, an hour; whichever limit it is of."""
    found = decide_rate((count, count), 1, HOURS * HOUR_S, PER_HOUR, HOUR_S, CONFIDENCE).estimate
    assert found.low is not None and found.high is not None
    return found.low, found.high


def _at_every_look(moments: Moments, truth: Truth) -> tuple[bool, bool]:
    """Whether each bound holds the number to be expected so far at every look."""
    expected = PER_HOUR * LOOKS[-1] * (LOOKS / LOOKS[-1]) ** truth.power
    counts = np.searchsorted(clusters(moments) / HOUR_S, LOOKS)
    low = high = True
    for count, number in zip(counts.tolist(), expected.tolist(), strict=True):
        least, most = expected_number(count, CONFIDENCE, any_time_valid=True)
        low, high = low and least <= number, high and number <= most
    return low, high


def _level_held(process: Process, truth: Truth, shape: float, random: np.random.Generator) -> bool | None:
    """Whether the interval of a return level holds it; None where none is told."""
    sizes = peaks(random, process(random, HOURS, PEAKS_PER_HOUR), shape)
    found = return_level(sizes, THRESHOLD, HOURS * HOUR_S, RATIO * HOURS * HOUR_S, "us", CONFIDENCE)
    if found.low is None or found.high is None:
        return None
    return found.low <= level_of(truth.events(PEAKS_PER_HOUR * HOURS * RATIO), shape) <= found.high
