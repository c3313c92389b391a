"""Rare events of processes whose truth is known: how often bounds of their rate, and levels of their size, hold it.

:mod:`interval_coverage` makes a table of them.  Watched are so many hours; what comes within a second is one cluster,
and the truth is the number of clusters to be expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.rare_events import FEWEST_PEAKS, cluster_peaks, expected_number, return_level

HOUR_S = 3600.0
HOURS, LOOKS = 8.0, np.arange(0.25, 60, 0.25)  # Watched once; looked at again and again
LEVEL = 0.95
RATIO = 10.0  # A return level is that of a time so many times as long
SIZED = 10  # It takes so long that there is one run of so many
_RARE, _OFTEN, _PEAKS = 0.2, 2.0, 6.0  # Clusters an hour
_THRESHOLD, _SCALE = 40.0, 6.0  # Of their sizes, in µs

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
    return np.concatenate(each or [starts])


def periodic(random: np.random.Generator, hours: float, per_hour: float) -> Moments:
    """As interrupts of a system's management come, at a phase of their own."""
    period_s = HOUR_S / per_hour
    return np.arange(random.uniform(0, period_s), hours * HOUR_S, period_s)


def drifting(random: np.random.Generator, hours: float, per_hour: float) -> Moments:
    """Ever more often, from never to twice the mean rate."""
    return np.sort(hours * HOUR_S * np.sqrt(random.random(random.poisson(per_hour * hours))))


PROCESSES: dict[str, Process] = {
    "steady": steady,
    "in bursts": bursts,
    "periodic": periodic,
    "ever more often": drifting,
}


def clusters(moments: Moments) -> Moments:
    """When each cluster was over."""
    return np.array(cluster_peaks((moment, moment) for moment in moments.tolist()))


def checks(name: str, runs: int, random: np.random.Generator) -> dict[str, Check]:
    """By what is estimated of a process: the confidence stated, that it is no false finding, each run's outcome."""
    process = PROCESSES[name]
    found: dict[str, Check] = {}
    for words, per_hour in (("some", _OFTEN), ("few", _RARE)):
        counts = [clusters(process(random, HOURS, per_hour)).size for _ in range(runs)]
        ends = [expected_number(count, LEVEL) for count in counts]
        truth = per_hour * HOURS
        found[f"rate of {words} clusters, lower end"] = LEVEL, False, [low <= truth for low, _ in ends]
        found[f"rate of {words} clusters, upper end"] = LEVEL, False, [truth <= high for _, high in ends]
    looked = [_at_any_time(process(random, float(LOOKS[-1]), _OFTEN), name) for _ in range(runs)]
    found["lower end, looked at every 15 minutes"] = LEVEL, False, [low for low, _ in looked]
    found["upper end, looked at every 15 minutes"] = LEVEL, False, [high for _, high in looked]
    for words, shape in (("light", 0.0), ("heavy", 0.2)):
        outcomes = [_level_holds(process, shape, random) for _ in range(max(runs // SIZED, 1))]
        found[f"level of 80 h from 8 h, {words} tail"] = LEVEL, False, [one for one in outcomes if one is not None]
    return found


def _at_any_time(moments: Moments, name: str) -> tuple[bool, bool]:
    """Whether each end holds the number to be expected so far at every look."""
    hours = LOOKS**2 / LOOKS[-1] if name == "ever more often" else LOOKS
    low = high = True
    counts = np.searchsorted(clusters(moments) / HOUR_S, LOOKS).tolist()
    for count, expected in zip(counts, (_OFTEN * hours).tolist(), strict=True):
        least, most = expected_number(count, LEVEL, any_time_valid=True)
        low, high = low and least <= expected, high and expected <= most
    return low, high


def level_of(number: float, shape: float) -> float:
    """What one of so many peaks exceeds on average."""
    grown = math.log(number) if shape == 0 else math.expm1(shape * math.log(number)) / shape
    return _THRESHOLD + _SCALE * grown


def sizes_of(random: np.random.Generator, number: int, shape: float) -> list[float]:
    """Peaks above the threshold, with a generalized Pareto distribution."""
    uniform = random.random(number)
    grown = -np.log(uniform) if shape == 0 else np.expm1(-shape * np.log(uniform)) / shape
    return (_THRESHOLD + _SCALE * grown).tolist()  # type: ignore[no-any-return]


def _level_holds(process: Process, shape: float, random: np.random.Generator) -> bool | None:
    """Whether the interval of a return level holds it; None where so few peaks tell none."""
    number = clusters(process(random, HOURS, _PEAKS)).size
    if number < FEWEST_PEAKS:
        return None
    found = return_level(sizes_of(random, number, shape), _THRESHOLD, RATIO, "us", LEVEL)
    assert found.low is not None and found.high is not None
    return found.low <= level_of(_PEAKS * HOURS * RATIO, shape) <= found.high
