"""The controller's own CPU time while isolation trials run, with its outside CPU watch and without it.

Examples:
  python benchmarks/isolation_controller.py
  python benchmarks/isolation_controller.py --platforms host runc --repeats 5
  python benchmarks/isolation_controller.py --preset-run runs/isolation-quick-…   the preset's time from a finished run

Each run is a whole one (`start_run`: plan, guests, trials, ledger) in a fresh controller that shows its live bar.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, main, progress, spread
from overhead_share import anatomy

from virtgauge.ledger.store import Ledger

_AIM = 0.005
_NEVER_S = 1e6
_PRESET = "isolation-quick"
_PLATFORMS = {
    "host": 'kind = "host"',
    "runc": 'kind = "oci"\nruntime = "runc"',
    "gvisor": 'kind = "oci"\nruntime = "runsc"',
    "qemu-microvm": 'kind = "qemu"\nmachine = "microvm"',
}
_PLAN = """
name = "isolation-controller"
reference = "{reference}"
repetitions = 1
attempts = 1
aa = false
{platforms}
[[suite.isolation]]
benchmarks = ["integer"]
loads = ["none", "integer"]
policies = ["none", "limit+reservation"]
warmup_s = {warmup_s}
seconds = {seconds}
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platforms", nargs="+", choices=list(_PLATFORMS), default=list(_PLATFORMS))
    parser.add_argument("--seconds", type=float, default=5.0, help="measured of each trial")
    parser.add_argument("--repeats", type=int, default=3, help="of the run, with the watch and without it by turns")
    parser.add_argument("--preset-run", type=Path, metavar="RUN", help=f"a finished run of {_PRESET}; else one is made")
    parser.add_argument("--one", choices=["watched", "unwatched"], help=argparse.SUPPRESS)


def measure(arguments: argparse.Namespace) -> Outcome:
    if arguments.one:
        print(json.dumps(one_run(arguments.platforms, arguments.seconds, watch=arguments.one == "watched")))
        sys.exit(0)
    platforms, seconds, repeats = arguments.platforms, arguments.seconds, arguments.repeats
    if arguments.quick:
        platforms, seconds, repeats = platforms[:1], 0.5, 1
    if os.geteuid() != 0:
        raise BenchmarkError("policies and containers need root: run this as root (sudo)")
    found: dict[str, list[dict[str, Any]]] = {"watched": [], "unwatched": []}
    for repeat in range(1, repeats + 1):
        for way, trials in found.items():
            trials += _in_fresh_process(way, platforms, seconds)
            progress(f"{repeat}/{repeats} {way}: {_percent([trial['window_share'] for trial in trials])}")
    measured = [name for name in platforms if any(trial["arm"] == name for trial in found["watched"])]
    preset = _preset_time(arguments.preset_run, quick=arguments.quick)
    worst = max(found["watched"], key=lambda trial: trial["window_share"])
    return Outcome(
        columns=(
            "platform",
            "outside CPU watch",
            "% of one CPU, guests at work",
            "≤ 0.5 %",
            "% of one CPU, whole trial",
        ),
        rows=[_row(name, way, found[way]) for name in measured for way in found],
        meaning=f"While guests were at work, the controller took at most {worst['window_share']:.2%} of one CPU "
        f"({worst['arm']}). {preset}",
        notes=[
            f"Median and range of {repeats} runs of each by turns, with {len(found['watched'])} trials in all with "
            f"the watch and {len(found['unwatched'])} without: integer work for {seconds:g} s beside none and beside "
            "integer work, without a policy and with a limit and reservation of one half.",
            "Guests at work: from the first reading of their accounts to the last, with the load's start and stop. The "
            "whole trial has both policies besides. CPU time of the controller's own process, all its threads.",
            "Without the watch, the accounts are read twice a trial, which tells the whole but no slices of it.",
            *(f"{name} is missing: it cannot be used here" for name in platforms if name not in measured),
        ],
        values=found,
    )


def one_run(platforms: list[str], seconds: float, *, watch: bool) -> list[dict[str, Any]]:
    """Run the plan in this process; of each trial its arm, and the controller's share of a CPU.

    Raises:
        BenchmarkError: a trial came to nothing.
    """
    from rich.console import Console

    from virtgauge.console.displays import BarDisplay
    from virtgauge.execution.run import start_run
    from virtgauge.plan.load import parse_plan
    from virtgauge.suites.isolation import outside, suite

    if not watch:
        outside._EVERY_S = _NEVER_S
    watched, windows = suite.watched, []

    @contextlib.asynccontextmanager
    async def timed(*guests: Any) -> AsyncIterator[Any]:
        began_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        async with watched(*guests) as records:
            yield records
        windows.append((time.process_time_ns() - cpu_ns) / (time.monotonic_ns() - began_ns))

    suite.watched = timed
    sections = "".join(f'[[platform]]\nname = "{name}"\n{_PLATFORMS[name]}\n' for name in platforms)
    text = _PLAN.format(reference=platforms[0], platforms=sections, seconds=seconds, warmup_s=min(1.0, seconds))
    source = "the plan of isolation_controller.py"
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch, open(os.devnull, "w") as nowhere:
        display = BarDisplay(Console(file=nowhere, force_terminal=True, width=120))
        start_run(parse_plan(text, source), source, folder := Path(scratch) / "run", display)
        with Ledger.open(folder) as ledger:
            trials = ledger.trials()
    if len(windows) != len(trials):
        errors = {one.error for one in trials if one.error} or {"no trial was made"}
        raise BenchmarkError(f"trials came to nothing: {'; '.join(sorted(errors))}")
    return [
        {
            "arm": one.arm,
            "status": one.status.value,
            "load": one.factors["load"],
            "policy": one.factors["policy"],
            "window_share": window,
            "trial_share": one.accounting["controller_cpu_ns"] / one.elapsed_ns,
        }
        for one, window in zip(trials, windows, strict=True)
    ]


def _in_fresh_process(way: str, platforms: list[str], seconds: float) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--one", way, "--seconds", str(seconds), "--platforms", *platforms]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"a run failed: {done.stderr.strip()}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _preset_time(finished: Path | None, *, quick: bool) -> str:
    """How long the preset takes, by its ledger, in words."""
    if finished is not None:
        return _time_of(finished)
    words = ["run", _PRESET, *(["--platform", "host", "--repetitions", "1"] if quick else []), "--seed", "1"]
    progress(f"virtgauge {' '.join(words)}")
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        folder = Path(scratch) / "run"
        command = [sys.executable, "-m", "virtgauge.cli", *words, "--out", str(folder), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (folder / "ledger.sqlite").is_file():
            raise BenchmarkError(f"the preset did not begin: {done.stderr.strip()}")
        return _time_of(folder)


def _time_of(folder: Path) -> str:
    found = anatomy(folder)
    with Ledger.open(folder) as ledger:
        arms = {trial.arm for trial in ledger.trials()}
        blocks = {trial.block for trial in ledger.trials()}
    minutes, seconds = divmod(round(found.total_s), 60)
    return (
        f"The preset {_PRESET} took {minutes} min {seconds:02d} s from its first event to its last, "
        f"{len(blocks)}× on {', '.join(sorted(arms))}: {found.tally}."
    )


def _row(name: str, way: str, trials: list[dict[str, Any]]) -> list[str]:
    own = [trial for trial in trials if trial["arm"] == name]
    window = [trial["window_share"] for trial in own]
    return [
        name,
        {"watched": "every 100 ms", "unwatched": "none"}[way],
        _percent(window),
        "yes" if max(window) <= _AIM else "no",
        _percent([trial["trial_share"] for trial in own]),
    ]


def _percent(shares: list[float]) -> str:
    return spread(shares, scale=100)


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
