"""How much the speed of a processor differs from one moment to the next, by the length of what is averaged.

    python benchmarks/processor_noise.py              two minutes on the last processor
    python benchmarks/processor_noise.py --seconds 10

The Allan deviation of a loop's turns a second: the root of half the mean square of the difference between neighbouring
averages, as a share of the mean (D. W. Allan 1966, "Statistics of Atomic Frequency Standards", Proceedings of the IEEE
54(2): 221-230).  Where it falls with the square root of the length, longer trials help; where it stays, only further
repetitions do.  The ratio of two neighbouring figures has √2 times as much.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

LENGTHS_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
_TURNS = 2_000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    seconds = parser.parse_args().seconds
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    ends, begin = [], time.perf_counter()
    while not ends or ends[-1] < seconds:
        for _ in range(_TURNS):
            pass
        ends.append(time.perf_counter() - begin)
    print("length, s   Allan deviation")
    for length in LENGTHS_S:
        if 4 * length <= seconds:
            speeds = np.diff(np.searchsorted(ends, np.arange(0, seconds, length)))
            print(f"{length:9g}   {np.sqrt(np.mean(np.diff(speeds) ** 2) / 2) / speeds.mean():.1%}")


if __name__ == "__main__":
    main()
