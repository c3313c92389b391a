"""How well each CPU and memory kernel of the isolation suite repeats itself on one processor.

Examples:
  python benchmarks/kernels_repeatability.py
  python benchmarks/kernels_repeatability.py --runs 30 --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import statistics

from benchmark import Outcome, figure, main, progress, spread
from kernel_runs import CORE, KERNELS, host_guest, rate

from virtgauge.host.scope import Scope


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="of each kernel")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run, after half a second to warm up")


def measure(arguments: argparse.Namespace) -> Outcome:
    runs, seconds = (3, 0.5) if arguments.quick else (arguments.runs, arguments.seconds)
    with Scope() as scope:
        rates = asyncio.run(_rates(scope, runs, seconds))
    rows = []
    for name, found in rates.items():
        mean = statistics.mean(found)
        variation = statistics.stdev(found) / mean
        worst = (max(found) - min(found)) / mean
        rows.append([name, spread(found), f"{variation:.2%}", f"{worst:.2%}", "yes" if variation <= 0.01 else "no"])
        progress(f"{name}: {figure(variation * 100)} %")
    return Outcome(
        columns=("kernel", "units a second", "coefficient of variation", "range", "≤ 1 %"),
        rows=rows,
        meaning=f"How far {runs} runs of the same kernel differ from each other.",
        notes=[
            f"{seconds:g} s each after a warm-up of half a second, the kernels in turn, one thread on CPU {CORE}, "
            "one agent for all. The aim is 1 % on an idle processor: other programs on the machine show here.",
        ],
        values={"rates": rates},
    )


async def _rates(scope: Scope, runs: int, seconds: float) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in KERNELS}
    guest = await host_guest(scope, "kernels")
    try:
        for run in range(runs):
            for name, kernel in KERNELS.items():
                found[name].append(await rate(guest, kernel, seconds, run))
    finally:
        await guest.close()
    return found


if __name__ == "__main__":
    main(measure, __doc__, options)
