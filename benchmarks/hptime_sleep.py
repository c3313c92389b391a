"""Lateness and CPU use of hptime's sleeps beside the paper's rule, spin_sleep and the system's, on one processor.

Examples:
  python benchmarks/hptime_sleep.py
  python benchmarks/hptime_sleep.py --seconds 60
"""

from __future__ import annotations

import argparse

from benchmark import Outcome, figure, main
from hptime_bench import measured, peers


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=4, help="time for each target and way to sleep")


def measure(arguments: argparse.Namespace) -> Outcome:
    seconds = 1 if arguments.quick else arguments.seconds
    records = measured("sleep", seconds)
    sleeps = [record for record in records if record["kind"] == "sleep"]
    paper = {r["target_ns"]: r["cpu_ns_a_sleep"] for r in sleeps if r["name"] == "hptime highpertimer"}
    guard = next(record["ns"] for record in records if record["kind"] == "guard")
    return Outcome(
        columns=(
            "sleep",
            "target, µs",
            "late p50, ns",
            "p99, ns",
            "p99.9, ns",
            "spin, µs",
            "CPU, µs",
            "CPU beside paper's",
        ),
        rows=[
            [
                record["name"],
                f"{record['target_ns'] // 1000}",
                *(f"{record[quantile]}" for quantile in ("p50_ns", "p99_ns", "p99.9_ns")),
                "" if record["spin_ns_a_sleep"] is None else figure(record["spin_ns_a_sleep"] / 1e3),
                figure(record["cpu_ns_a_sleep"] / 1e3),
                figure(record["cpu_ns_a_sleep"] / paper[record["target_ns"]]),
            ]
            for record in sleeps
        ],
        meaning="How late a sleep ends, and the CPU time that one sleep takes.",
        peers=peers("spin_sleep"),
        notes=[
            "Ten turns of each way to sleep at each target. Lateness is the caller's, call and return included; that "
            "of `until` is against a deadline, that of the others against the moment before the call.",
            "The clock is read every 10 ns, which is the best that a spin can do. What else makes a sleep late is code "
            "and stack that are cold after it: hptime spins the last 5 µs in the caller's own code.",
            "A target below the guard is spun for as a whole. The guard is the p99.9 of the kernel's own lateness, at "
            "most 500 µs: steal and other programs lengthen it.",
            "CPU time is the thread's by the kernel's accounts, spin the sleeper's own. The paper's rule is hptime's "
            "`highpertimer`, HZ = 250.",
            f"The adaptive sleep's guard was {guard / 1e3:.0f} µs at the end, after 1500 sleeps of 1 ms to learn from.",
        ],
        values={"sleep": sleeps},
    )


if __name__ == "__main__":
    main(measure, __doc__, options)
