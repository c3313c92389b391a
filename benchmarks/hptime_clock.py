"""Cost and error of hptime's clocks beside other crates and the standard library, on one pinned processor in one run.

Examples:
  python benchmarks/hptime_clock.py
  python benchmarks/hptime_clock.py --seconds 300
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benchmark import Outcome, figure, main, spread
from hptime_bench import in_order, measured, peers

_RAW = "CLOCK_MONOTONIC_RAW"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=31, help="rounds of half a million readings a clock")
    parser.add_argument("--seconds", type=int, default=60, help="how long the clocks run for their error")


def measure(arguments: argparse.Namespace) -> Outcome:
    rounds, seconds = (3, 2) if arguments.quick else (arguments.rounds, arguments.seconds)
    costs = [record for record in measured("cost", rounds) if record["kind"] == "cost"]
    errors = [record for record in measured("error", seconds) if record["kind"] == "error"]
    by_name = {name: [r["ns"] for r in costs if r["name"] == name] for (name,) in in_order(costs, "name")}
    bare = statistics.median(by_name["rdtsc"])
    names = list(by_name) + [name for (name,) in in_order(errors, "name") if name not in by_name]
    return Outcome(
        columns=("clock", "one reading, ns", "beside rdtsc", f"error on {_RAW}, ppm", "error on CLOCK_MONOTONIC, ppm"),
        rows=[
            [
                name,
                spread(by_name[name]) if name in by_name else "",
                figure(statistics.median(by_name[name]) / bare) if name in by_name else "",
                _ppm(errors, name, _RAW),
                _ppm(errors, name, "CLOCK_MONOTONIC"),
            ]
            for name in names
        ],
        meaning=f"What a reading costs back to back, and how far each clock has departed after {seconds} s.",
        peers=peers("quanta", "minstant", "fastant"),
        notes=[
            f"Cost: {rounds} rounds of 500,000 readings after one to warm up, all clocks by turns.",
            "Error: each clock is caught in the tightest of 2000 pairs of the kernel's readings, first and last; "
            "± is half the two pairs' width. Every clock is read ten times a second in between.",
            "A processor begins one rdtsc after the other, and what a reading needs beside it fits in between: that is "
            "the floor at which hptime, quanta, minstant and fastant tie. minstant and fastant take 9 instructions and "
            "return ticks, which have yet to be converted; `now_ns` takes 26 and returns disciplined nanoseconds.",
            "Refused: a clock whose counter may not be used hands the kernel's on; `clock_gettime` is what that costs.",
            "`now_ordered_ns` never goes back between threads either, by a fence; `std::time::Instant` has one.",
        ],
        values={"cost": by_name, "error": errors},
    )


def _ppm(errors: list[dict[str, Any]], name: str, against: str) -> str:
    for record in errors:
        if (record["name"], record["against"]) == (name, against):
            half_width = record["uncertainty_ns"] / record["seconds"] / 1e3
            return f"{record['ppm']:+.4f} ± {half_width:.4f}"
    return ""


if __name__ == "__main__":
    main(measure, __doc__, options)
