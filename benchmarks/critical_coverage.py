"""How often the interval of a soak's critical rate holds the truth, on simulated devices.

Examples:
  python benchmarks/critical_coverage.py --runs 20 --write   each device and soak 20 times, into docs/forwarding.md
  python benchmarks/critical_coverage.py --runs 3            fewer, printed only

A device of a million frames a second is searched by bisection in trials of 10 s, and then soaked for 30 minutes at a
share of what was found.  Its truth is the load that loses one frame of 10⁷ on average over the device's states.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import multiprocessing
import sys
from pathlib import Path

import numpy as np
from scipy import optimize, special

from virtgauge.analysis.critical_rate import LossCount, critical_rate
from virtgauge.analysis.estimate import Estimate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "forwarding.md"
BEGIN, END = "<!-- critical_coverage.py -->\n", "<!-- end -->\n"
SEED, RATIO, CAPACITY = 23, 1e-7, 1e6
LOADS = (0.94, 0.97, 1.0)  # Of the soak, of what the search found


@dataclasses.dataclass(frozen=True)
class Device:
    """Its capacity is normal about a million frames a second."""

    name: str
    fast: float = 0.0  # standard deviation of the capacity from moment to moment, of which a trial has the mean
    slow: float = 0.0  # from trial to trial
    drift: float = 0.0  # the capacity at the soak's end, less that at its beginning
    background: float = 0.0  # ratio lost at any load
    burst: int = 1  # frames lost at a time

    def lost_a_second(self, load: float, capacity: float, spread: float) -> float:
        return beyond(load - capacity, spread) + self.background * load

    def lost(self, load: float, seconds: float, at: float, rng: np.random.Generator) -> int:
        """In a trial, which lies at this part of the soak."""
        capacity = CAPACITY * (1 + self.drift * (at - 0.5) + self.slow * rng.normal())
        mean = self.lost_a_second(load, capacity, self.fast * CAPACITY) * seconds
        return self.burst * int(rng.poisson(mean / self.burst))

    def truth(self) -> float:
        spread = CAPACITY * float(np.hypot(self.fast, self.slow))
        capacities = CAPACITY * (1 + self.drift * ((np.arange(180) + 0.5) / 180 - 0.5)) if self.drift else [CAPACITY]

        def above(load: float) -> float:
            lost = float(np.mean([self.lost_a_second(load, one, spread) for one in capacities]))
            return lost - RATIO * load

        return float(optimize.brentq(above, 1e5, 1.5e6))


def beyond(by: float, spread: float) -> float:
    """Mean of what is beyond a normal capacity, whose mean the load passes by so much."""
    if spread == 0:
        return max(by, 0.0)
    z = by / spread
    return spread * float(z * special.ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


DEVICES = (
    Device("frames lost singly", fast=0.01),
    Device("twenty at a time", fast=0.01, burst=20),
    Device("capacity ± 0.05 %", slow=0.0005),
    Device("capacity ± 0.1 %", slow=0.001),
    Device("capacity ± 0.2 %", slow=0.002),
    Device("capacity ± 0.3 %", slow=0.003),
    Device("capacity ± 0.5 %", slow=0.005),
    Device("capacity ± 1 %", slow=0.01),
    Device("3·10⁻⁸ lost at any load, sharp knee", background=3e-8, fast=1e-5),
    Device("drifts by 0.5 % in the soak, ± 0.05 %", slow=0.0005, drift=0.005),
)


def trials_of(device: Device, share: float, rng: np.random.Generator) -> list[LossCount]:
    """A bisection between nothing and 1.5 times the capacity to 0.2 %, and 180 trials of a soak."""
    found: list[LossCount] = []

    def offer(load: float, at: float = 0.5) -> int:
        lost = device.lost(load, 10.0, at, rng)
        found.append(LossCount(load, 10.0, round(load * 10), lost))
        return lost

    low, high = 0.0, 1.5 * CAPACITY
    offer(high)
    while high - low > 0.002 * CAPACITY:
        middle = (low + high) / 2
        low, high = (low, middle) if offer(middle) else (middle, high)
    for number in range(180):
        offer(max(low, 1e5) * share, (number + 0.5) / 180)
    return found


Ends = tuple[float, float]


def interval(device: Device, share: float, run: int) -> Ends | None:
    """Of one search and soak; none where it is refused."""
    rng = np.random.default_rng([SEED, DEVICES.index(device), round(100 * share), run])
    said = critical_rate(trials_of(device, share, rng), RATIO, 0.95)
    return (said.low or 0.0, np.inf if said.high is None else said.high) if isinstance(said, Estimate) else None


def cell(device: Device, found: list[Ends | None]) -> str:
    """How many hold the truth of how many were given, and how wide they are."""
    given = [one for one in found if one]
    if not given:
        return f"{len(found)} refused"
    truth = device.truth()
    held = sum(low <= truth <= high for low, high in given)
    width = float(np.median([high - low for low, high in given])) / CAPACITY
    refused = f", {len(found) - len(given)} refused" if len(given) < len(found) else ""
    return f"{held} of {len(given)}{refused}; {100 * width:.2g} %"


def table(found: dict[tuple[Device, float], list[Ends | None]]) -> str:
    """For docs/forwarding.md."""
    heads = " | ".join(f"soak at {100 * share:.0f} %" for share in LOADS)
    lines = [f"| device | critical rate, of the capacity | {heads} |", "|---|--:|" + "--:|" * len(LOADS)]
    for device in DEVICES:
        cells = " | ".join(cell(device, found[device, share]) for share in LOADS)
        lines.append(f"| {device.name} | {100 * device.truth() / CAPACITY:.2f} % | {cells} |")
    given = [(device, ends) for (device, _), of_cell in found.items() for ends in of_cell if ends]
    held = sum(low <= device.truth() <= high for device, (low, high) in given)
    lines += ["", f"Of all {len(given)} intervals {held} held the truth."]
    return "\n".join(lines) + "\n"


def write(text: str) -> None:
    """Into its place on the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.split(END, 1)[1], encoding="utf-8")


def main() -> int:
    """Simulate, print the table, and put it into its page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each device and soak")
    parser.add_argument("--write", action="store_true", help="put the table into docs/forwarding.md")
    arguments = parser.parse_args()
    runs = range(arguments.runs)
    cells = list(itertools.product(DEVICES, LOADS))
    with multiprocessing.Pool(2) as pool:
        ends = pool.starmap(interval, [(*one, run) for one in cells for run in runs], chunksize=1)
    text = table({one: ends[at * len(runs) : (at + 1) * len(runs)] for at, one in enumerate(cells)})
    print(text)
    if arguments.write:
        write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
