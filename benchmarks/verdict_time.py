"""Time and memory of ``virtgauge verdict`` over 100,000 trials, started as a user would.

It is asked of the synthetic timing run of report_scale.py, whose plan is given requirements.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmark import FOLDER, BenchmarkError, Outcome, main, progress, spread

_AIM_S = 1
_PLAN = """name = "quick"
repetitions = 6
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
"""
_REQUIREMENTS = ("timer_cost.p50", "sleep_lateness.p99", "timer_cost.p99", "sleep_lateness.p50")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--requirements", type=int, default=2, choices=range(1, len(_REQUIREMENTS) + 1))
    parser.add_argument("--repeats", type=int, default=5)


def measure(arguments: argparse.Namespace) -> Outcome:
    trials, repeats = (1_000, 1) if arguments.quick else (arguments.trials, arguments.repeats)
    times, peaks_mib = [], []
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        folder = Path(scratch) / "run"
        progress(f"writing a run of {trials:,} trials")
        # By a process of its own: what this one was before it began a verdict would count as the verdict's memory.
        command = [sys.executable, str(FOLDER / "report_scale.py"), "--trials", str(trials), "--keep", str(folder)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        made = _require(folder, arguments.requirements)
        for repeat in range(repeats + 1):
            began = time.perf_counter()
            command = [sys.executable, "-m", "virtgauge.cli", "verdict", str(folder), "--json"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            if (code := os.waitstatus_to_exitcode(status)) not in (0, 4, 5):
                raise BenchmarkError(f"virtgauge verdict ended with {code}")
            if repeat:  # the first warms caches up
                times.append(time.perf_counter() - began)
                peaks_mib.append(usage.ru_maxrss / 1024)
                progress(f"{repeat}/{repeats}: {times[-1]:.2f} s, {peaks_mib[-1]:.0f} MiB")
    return Outcome(
        columns=("trials", "requirements", "time, s", "aim", "peak memory, MiB"),
        rows=[[f"{made:,}", str(arguments.requirements), spread(times), f"< {_AIM_S}", spread(peaks_mib)]],
        meaning="`virtgauge verdict` from its start to its end, over a finished run.",
        notes=[
            "The synthetic run of the reports above, each verdict in a fresh process. No peer: the aim stands beside."
        ],
        values={"verdict_s": times, "peak_mib": peaks_mib},
    )


def _require(folder: Path, number: int) -> int:
    """Have a run require something of its platforms; how many trials it has."""
    plan = _PLAN + "".join(
        f'[[require]]\nsuite = "timing"\nmeasure = "{measure}"\nat_most = 100\nunit = "µs"\n'
        for measure in _REQUIREMENTS[:number]
    )
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database, database:
        (text,) = database.execute("SELECT value FROM manifest").fetchone()
        database.execute("UPDATE manifest SET value = ?", (json.dumps(json.loads(text) | {"plan_text": plan}),))
        (trials,) = database.execute("SELECT count(*) FROM trials").fetchone()
    return int(trials)


if __name__ == "__main__":
    main(measure, __doc__, options)
