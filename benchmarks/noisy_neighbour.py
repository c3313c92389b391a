"""A small plan beside an artificial neighbour: trials lost when each is judged once, and with patience.

The neighbour is a process for every CPU, outside of the run's cgroups, which burn CPU time in bursts: all during the
same ones, or each in bursts of its own, so that more moments are disturbed and each less.  Their moments are drawn
with a seed.  Every trial has one attempt, so that the share lost is that of the first attempts.  A full run takes
some six minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress

from virtgauge.analysis.estimate import median_estimate
from virtgauge.errors import VirtgaugeError
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import start_run
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.model import Plan, ValidityLimits

TOGETHER, APART = "all CPUs at once", "each CPU apart"
NOISY = ((0.15, TOGETHER), (0.05, APART), (0.15, APART))
BURST_S = 0.04
_CONFIDENCE = 0.95
_PATIENCE_S = ValidityLimits().patience_s


def burn(taken: float, seed: int, began: float) -> None:
    """Be the neighbour on one CPU: the same seed burns at the same moments."""
    drawn, at = random.Random(seed), began
    while True:
        at += drawn.expovariate(1 / (BURST_S * (1 / taken - 1)))
        if (wait := at - time.monotonic()) > 0:
            time.sleep(wait)
        at += BURST_S
        while time.monotonic() < at:
            pass


@contextlib.contextmanager
def neighbour(taken: float, kind: str, seed: int) -> Iterator[None]:
    """Others use so much of the machine for the time of the block."""
    if not taken:
        yield
        return
    seeds = [f"{seed}" if kind == TOGETHER else f"{seed}{cpu:03d}" for cpu in sorted(os.sched_getaffinity(0))]
    command, began = [sys.executable, __file__, "--burn", f"{taken}"], f"{time.monotonic()}"
    burning = [subprocess.Popen([*command, one, began]) for one in seeds]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def plan(patience_s: float, repetitions: int) -> Plan:
    """Host and container; clocks, sleeps and SQLite."""
    timing = {
        "timers": ["rdtscp", "clock_gettime"],
        "sleeps": ["usleep"],
        "slacks": ["default"],
        "targets_us": [100],
        "max_seconds": 2.0,
    }
    storage = {
        "databases": ["sqlite"],
        "operations": ["single-write", "multi-read"],
        "seconds": 0.1,
        "warmup_s": 0.02,
        "calibration_s": 0.03,
        "disk_probe_s": 0.03,
        "preload": 1000,
        "sensors": 2,
        "disk_mib": 256,
    }
    platforms = [{"name": "host", "kind": "host"}]
    if os.geteuid() == 0:
        platforms.append({"name": "runc", "kind": "oci", "runtime": "runc"})
    return Plan.model_validate(
        {
            "name": "noisy-neighbour",
            "repetitions": repetitions,
            "attempts": 1,
            "seed": 1,
            "aa": False,
            "platform": platforms,
            "suite": {
                "timing": [
                    timing | {"loads": ["idle"], "sleep_samples": 6000},
                    timing | {"loads": ["cpu"], "sleep_samples": 120},
                ],
                "storage": storage,
            },
            "validity": {"patience_s": patience_s},
        }
    )


class Run:
    """What one run came to."""

    def __init__(self, folder: Path) -> None:
        with Ledger.open(folder) as ledger:
            self._trials = [trial for trial in ledger.trials() if trial.status is not TrialStatus.UNSUPPORTED]
            sleeps = {one.trial_id: one.key for one in self._valid("sleep_lateness") if one.factors["load"] == "idle"}
            found = {sleeps[trial_id]: one for trial_id, one in ledger.histograms(sleeps, "sleep_lateness")}
        self.quantiles_us = {q: {key: one.quantile(q) / 1e6 for key, one in found.items()} for q in (0.5, 0.99)}
        writes = [trial for trial in self._valid() if trial.factors.get("operation") == "single-write"]
        self.writes_per_s = {trial.key: float(trial.result["operations_per_s"]) for trial in writes}
        left_out = [one for trial in self._trials for one in trial.accounting.get("left_out", ())]
        self.left_out_s = sum(one["elapsed_ns"] for one in left_out) / 1e9

    def _valid(self, probe: str | None = None) -> Sequence[TrialRecord]:
        return [one for one in self._trials if one.status is TrialStatus.VALID and probe in (None, one.probe)]

    @property
    def lost(self) -> str:
        """``3 of 60 (5 %)``."""
        lost = len(self._trials) - len(self._valid())
        return f"{lost} of {len(self._trials)} ({lost / len(self._trials):.0%})"

    @property
    def figures(self) -> list[dict[str, float]]:
        """Of the valid trials, by arm, cell and block: median and p99 of sleeps, writes per second."""
        return [self.quantiles_us[0.5], self.quantiles_us[0.99], self.writes_per_s]

    def row(self, neighbour: str, judged: str, quiet: Run, took_s: float) -> list[str]:
        """Of the table."""
        told = [_beside(*values, told=self is not quiet) for values in zip(self.figures, quiet.figures, strict=True)]
        return [neighbour, judged, self.lost, *told, figure(self.left_out_s), figure(took_s)]


def _beside(values: Mapping[str, float], quiet: Mapping[str, float], *, told: bool) -> str:
    """The median, and its ratio to the quiet run's with an interval, over what both have measured."""
    if not values:
        return "–"
    text = figure(statistics.median(values.values()))
    logs = [math.log(value / quiet[key]) for key, value in values.items() if key in quiet]
    if not told or not logs:
        return text
    ratio = median_estimate(logs, "log", _CONFIDENCE).mapped(math.exp, "ratio")
    if ratio.low is None or ratio.high is None:
        return f"{text} (×?)"
    short = "" if ratio.confidence is None or ratio.confidence >= _CONFIDENCE else f" at {ratio.confidence:.0%}"
    return f"{text} (×{figure(ratio.low)}–{figure(ratio.high)}{short})"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repetitions", type=int, default=2, help="of every cell (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the neighbour's bursts (default %(default)s)")


def measure(arguments: argparse.Namespace) -> Outcome:
    repetitions = 1 if arguments.quick else arguments.repetitions
    noisy = ((0.15, APART),) if arguments.quick else NOISY
    rows: list[list[str]] = []
    values: dict[str, Any] = {}
    quiet = None
    for taken, kind, patience_s in [(0.0, "", _PATIENCE_S), *((*one, s) for one in noisy for s in (0.0, _PATIENCE_S))]:
        name = f"{taken:.0%}, {kind}" if taken else "none"
        judged = f"again for {patience_s:g} s" if patience_s else "once"
        progress(f"neighbour {name}; judged {judged}")
        with tempfile.TemporaryDirectory() as folder, neighbour(taken, kind, arguments.seed):
            began = time.monotonic()
            try:
                start_run(plan(patience_s, repetitions), "benchmark", Path(folder, "run"), ProgressDisplay())
            except VirtgaugeError as error:
                raise BenchmarkError(str(error)) from error
            took_s = time.monotonic() - began
            run = Run(Path(folder, "run"))
        quiet = quiet or run
        rows.append(run.row(name, judged, quiet, took_s))
        sleeps = {f"p{q * 100:g}": list(late_us.values()) for q, late_us in run.quantiles_us.items()}
        values[f"{name}; {judged}"] = {"sleep_us": sleeps, "writes_per_s": list(run.writes_per_s.values())}
    return Outcome(
        columns=[
            *("neighbour", "judged", "trials lost", "usleep p50 (µs late)", "usleep p99", "SQLite writes/s"),
            *("left out (s)", "run (s)"),
        ],
        rows=rows,
        meaning=(
            "Share of trials lost beside a neighbour that burns CPU time in bursts, when each trial is judged once as "
            "a whole, and when what the neighbour spoils is left out and measured again; medians of the valid trials "
            f"(and the {_CONFIDENCE:.0%} interval of their ratio to those without a neighbour)."
        ),
        notes=[
            f"bursts of {BURST_S * 1e3:g} ms at random moments, on all CPUs at once or on each apart; "
            f"one attempt a trial; {repetitions} repetitions of host and, as root, runc",
            "intervals: of the median ratio over trials of the same platform, cell and repetition in both runs; "
            "where these are few, the confidence that they can have",
            "the guest competes with the neighbour, which therefore gets less than it is told to take",
        ],
        values=values,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--burn"]:
        burn(float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    main(measure, __doc__ or "", options)
