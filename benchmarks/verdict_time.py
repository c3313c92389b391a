"""Time of ``virtgauge verdict`` over 100,000 trials.

Usage: python benchmarks/verdict_time.py [--trials 100000] [--requirements 2] [--repeat 5]

Writes the synthetic run of ``report_scale.py`` with requirements, and starts the command as a user would.  Printed are
wall time and peak memory of each start, and the medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from report_scale import make_run

_PLAN = """name = "quick"
repetitions = 6
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
"""
_REQUIREMENTS = ("timer_cost.p50", "sleep_lateness.p99", "timer_cost.p99", "sleep_lateness.p50")


def require(folder: Path, number: int) -> None:
    """Have a run require something of its platforms."""
    plan = _PLAN + "".join(
        f'[[require]]\nsuite = "timing"\nmeasure = "{measure}"\nat_most = 100\nunit = "µs"\n'
        for measure in _REQUIREMENTS[:number]
    )
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database, database:
        (text,) = database.execute("SELECT value FROM manifest").fetchone()
        database.execute("UPDATE manifest SET value = ?", (json.dumps(json.loads(text) | {"plan_text": plan}),))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--requirements", type=int, default=2, choices=range(1, len(_REQUIREMENTS) + 1))
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        print(f"trials       {make_run(folder, arguments.trials):7d}", flush=True)
        require(folder, arguments.requirements)
        times = []
        for _ in range(arguments.repeat):
            began = time.perf_counter()
            command = [sys.executable, "-m", "virtgauge.cli", "verdict", str(folder), "--json"]
            ended = subprocess.run(command, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - began)
            if ended.returncode not in (0, 4, 5):
                sys.exit(f"virtgauge verdict ended with {ended.returncode}")
            print(f"verdict      {times[-1]:7.2f} s", flush=True)
        peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"median       {statistics.median(times):7.2f} s   peak memory {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
