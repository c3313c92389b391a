"""A probe loop through the shim against without it: nanoseconds of each call, on one core, in turns."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmark import FOLDER, BenchmarkError, Outcome, main, progress, spread

from virtgauge.shim import find_library, present_glibc

_KINDS = {
    "monotonic": "clock_gettime(CLOCK_MONOTONIC)",
    "realtime": "clock_gettime(CLOCK_REALTIME)",
    "gettimeofday": "gettimeofday",
    "time": "time",
    "syscall": "syscall(SYS_clock_gettime)",
    "other": "clock_gettime of a clock that is passed through",
    "sleep": "nanosleep of 50 µs",
}
_SLEEPS = 1_000


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=2_000_000, help="in a loop")
    parser.add_argument("--repeats", type=int, default=7, help="of each loop, with and without in turns")
    parser.add_argument("--cpu", type=int, help="the core; by default the last one allowed")


def measure(arguments: argparse.Namespace) -> Outcome:
    library = find_library()
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchmarkError("there is no C compiler for the probe loop")
    calls, repeats = (200_000, 2) if arguments.quick else (arguments.calls, arguments.repeats)
    cpu = max(os.sched_getaffinity(0)) if arguments.cpu is None else arguments.cpu
    found: dict[str, dict[str, list[float]]] = {kind: {"without": [], "with": []} for kind in _KINDS}
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        probe = Path(scratch) / "probe_loop"
        subprocess.run([compiler, "-O2", "-o", probe, FOLDER / "probe_loop.c"], check=True)
        for repeat in range(1, repeats + 1):
            for kind, values in found.items():
                count = min(calls, _SLEEPS) if kind == "sleep" else calls
                arms = {"without": {}, "with": {"LD_PRELOAD": str(library)}}
                for arm, environment in arms.items() if repeat % 2 else reversed(arms.items()):
                    values[arm].append(_loop(probe, kind, count, cpu, environment))
            progress(f"{repeat}/{repeats}")
    return Outcome(
        columns=("call", "without, ns", "through the shim, ns", "throughput"),
        rows=[
            [_KINDS[kind], spread(values["without"]), spread(values["with"]), f"× {_gain(values):.2f}"]
            for kind, values in found.items()
        ],
        meaning="How long one call takes in a loop, without the shim and through it.",
        peers={"the C library": _c_library()},
        notes=[
            f"{calls} calls in a loop ({_SLEEPS} sleeps), {repeats} times each, in turns on core {cpu}; the loop is "
            "timed by a system call of its own. The shim counts every call, and reads the counter after a fence, as "
            "the C library does: neither goes back between threads.",
            "time() and other clocks are passed through and counted as such: whole seconds are read from memory.",
        ],
        values=found,
    )


def _loop(probe: Path, kind: str, count: int, cpu: int, environment: dict[str, str]) -> float:
    done = subprocess.run(
        ["taskset", "--cpu-list", str(cpu), probe, kind, str(count)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _c_library() -> str:
    version = present_glibc()
    return "of this machine" if version is None else f"glibc {version[0]}.{version[1]}"


def _gain(values: dict[str, list[float]]) -> float:
    return statistics.median(values["without"]) / statistics.median(values["with"])


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
