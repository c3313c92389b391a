"""What a fleet adds to every trial: the same plan through `virtgauge run` and through `virtgauge fleet run`.

Examples:
  python benchmarks/fleet_overhead.py
  python benchmarks/fleet_overhead.py --pairs 5 --repetitions 50

One host, one worker, simulated guests whose trials cost next to nothing: what remains is what the two ways of
executing a plan do around a trial.  Measured by the runs' ledgers, from the first event to the last, so that starting
the commands and writing the report are not in it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark import BenchmarkError, Outcome, main, progress, spread
from run_time import seconds

from virtgauge.ledger.store import Ledger

_TIMERS = ("rdtsc", "rdtscp", "clock_gettime", "clock_gettime_syscall", "gettimeofday")
_FLEET = '[fleet]\nworkers = "here"\nhosts = [{name = "here"}]\n'
_ENDS = ("completed", "ended incomplete")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=5, help="of runs, the one after the other")
    parser.add_argument("--repetitions", type=int, default=40, help="of each run; a repetition is two sessions")


def measure(arguments: argparse.Namespace) -> Outcome:
    pairs, repetitions = (1, 4) if arguments.quick else (arguments.pairs, arguments.repetitions)
    rows, values = [], {}
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        for cells in (1, len(_TIMERS)):
            alone, fleet = [], []
            for pair in range(pairs):
                progress(f"{cells} trials a session, pair {pair + 1} of {pairs}")
                where = Path(scratch) / f"{cells}-{pair}"
                alone.append(_per_trial_s(where, cells, repetitions, ["run"], ""))
                fleet.append(_per_trial_s(where, cells, repetitions, ["fleet", "run"], _FLEET))
            added = [there - here for there, here in zip(fleet, alone, strict=True)]
            milliseconds = [spread(one, scale=1e3, unit="ms") for one in (alone, fleet, added)]
            per_session = spread([one * cells for one in added], scale=1e3, unit="ms")
            rows.append([f"{cells}", *milliseconds, per_session])
            values[str(cells)] = {"run_s": alone, "fleet_s": fleet}
    return Outcome(
        columns=(
            "trials a session",
            "virtgauge run, a trial",
            "virtgauge fleet run, a trial",
            "added, a trial",
            "added, a session",
        ),
        rows=rows,
        meaning=f"A fleet adds {_added(rows)} to a trial.",
        notes=[
            f"{2 * repetitions} sessions of simulated guests a run; median and range of {pairs} pairs of runs. No "
            "peer: the figure is a difference of the tool to itself.",
            "Scheduler, worker and coordinator share the machine here; on a real fleet a session's answer also crosses "
            "the network, once and after its last trial.",
        ],
        values=values,
    )


def _added(rows: list[list[str]]) -> str:
    one, five = (row[3].split(" (")[0] for row in rows)
    return f"{one} ms (one trial a session) or {five} ms (five)"


def _per_trial_s(where: Path, cells: int, repetitions: int, words: list[str], fleet: str) -> float:
    """Seconds of a run by its own events, over its trials."""
    folder = where / words[0]
    folder.mkdir(parents=True)
    timers = ", ".join(f'"{name}"' for name in _TIMERS[:cells])
    (folder / "plan.toml").write_text(
        f'reference = "a"\nseed = 1\naa = false\nrepetitions = {repetitions}\n'
        '[[platform]]\nname = "a"\nkind = "simulated"\n[[platform]]\nname = "b"\nkind = "simulated"\n'
        f'[[suite.timing]]\ntimers = [{timers}]\nsleeps = []\nloads = ["idle"]\nreads = 1000\n{fleet}'
    )
    command = [sys.executable, "-m", "virtgauge.cli", *words, str(folder / "plan.toml")]
    own = os.environ | {"VIRTGAUGE_STATE": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [*command, "--out", str(folder / "run"), "--quiet"], env=own, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"virtgauge {' '.join(words)} failed: {done.stderr.strip()}")
    with Ledger.open(folder / "run") as ledger:
        events, trials = ledger.events(), ledger.trials()
    began = next(seconds(event.at) for event in events if event.kind == "started")
    ended = next(seconds(event.at) for event in events if event.kind in _ENDS)
    return (ended - began) / len(trials)


if __name__ == "__main__":
    main(measure, __doc__, options)
