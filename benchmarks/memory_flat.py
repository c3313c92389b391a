"""Peak memory of a timing run by its number of samples: it must not grow with them.

Each run is a whole one (`start_run`: plan, guest, probe, ledger) in a fresh controller on the host.  When its trial is
in the ledger and the agent still lives, the kernel is asked for the peak of both (VmHWM, proc_pid_status(5)).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress, ratios, spread

_SAMPLE_BYTES = 8
_SAMPLES = (10**6, 10**7, 10**8)

_PLAN = """
name = "memory"
repetitions = 1
attempts = 1
aa = false

[[platform]]
name = "host"
kind = "host"

[[suite.timing]]
loads = ["idle"]
timers = ["rdtsc"]
sleeps = []
reads = {samples}
max_seconds = 3600
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="of each number of samples, by turns")
    parser.add_argument("--one", type=int, metavar="SAMPLES", help=argparse.SUPPRESS)


def measure(arguments: argparse.Namespace) -> Outcome:
    if arguments.one:
        print(json.dumps(one_run(arguments.one)))
        sys.exit(0)
    repeats = 1 if arguments.quick else arguments.repeats
    found: dict[int, list[dict[str, Any]]] = {samples: [] for samples in _SAMPLES}
    for repeat in range(1, repeats + 1):
        for samples in _SAMPLES:
            found[samples].append(_in_fresh_process(samples))
            last = found[samples][-1]
            progress(
                f"{repeat}/{repeats} {samples:.0e} samples: agent {last['agent_kib']} KiB, "
                f"controller {last['controller_kib'] / 1024:.1f} MiB"
            )
    few, many = found[_SAMPLES[0]], found[_SAMPLES[-1]]
    agent, controller = (
        spread(ratios([run[field] for run in many], [run[field] for run in few]))
        for field in ("agent_kib", "controller_kib")
    )
    return Outcome(
        columns=("samples", "agent, KiB", "controller, MiB", "trial, s", "all samples kept would be, MiB"),
        rows=[_row(samples, found[samples]) for samples in _SAMPLES],
        meaning=f"With a hundred times the samples the peak is {agent} times as high in the agent, and "
        f"{controller} times in the controller, turn by turn.",
        peers={"keeping all samples": f"(reckoned, not measured): {_SAMPLE_BYTES} bytes a sample"},
        notes=[
            f"{repeats} runs of each number of samples, by turns; probe timer_cost of rdtsc on the host, a fresh "
            "controller a run.",
        ],
        values={str(samples): runs for samples, runs in found.items()},
    )


def one_run(samples: int) -> dict[str, Any]:
    """Run one trial of so many samples in this process; the peaks in KiB, the trial's length in s."""
    from virtgauge.execution.progress import ProgressDisplay, ProgressEvent, TrialEnded
    from virtgauge.execution.run import start_run
    from virtgauge.ledger.store import Ledger
    from virtgauge.plan.load import parse_plan

    found: dict[str, Any] = {}

    class Watch(ProgressDisplay):
        """Looks at both processes when the trial is in the ledger and the guest not yet closed."""

        def show(self, event: ProgressEvent) -> None:
            if isinstance(event, TrialEnded):
                found["controller_kib"] = peak_kib(os.getpid())
                found["agent_kib"] = sum(peak_kib(pid) for pid in children(os.getpid()))

    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        plan = parse_plan(_PLAN.format(samples=samples), "the plan of memory_flat.py")
        start_run(plan, "the plan of memory_flat.py", folder := Path(scratch) / "run", Watch())
        with Ledger.open(folder) as ledger:
            (trial,) = ledger.trials()
    if trial.result.get("n") != samples:
        raise BenchmarkError(f"the trial brought {trial.result.get('n')} samples, not {samples}: {trial.error}")
    return found | {"trial_s": trial.elapsed_ns / 1e9, "status": trial.status.value}


def peak_kib(pid: int) -> int:
    """The largest resident set that a process has had.

    Raises:
        OSError, StopIteration: it is gone.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def children(pid: int) -> list[int]:
    """The children that a process's threads have started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


def _in_fresh_process(samples: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(samples)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"the run of {samples} samples failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _row(samples: int, runs: list[dict[str, Any]]) -> list[str]:
    return [
        f"10^{len(str(samples)) - 1}",
        spread([run["agent_kib"] for run in runs]),
        spread([run["controller_kib"] / 1024 for run in runs]),
        spread([run["trial_s"] for run in runs]),
        figure(samples * _SAMPLE_BYTES / 2**20),
    ]


if __name__ == "__main__":
    main(measure, __doc__, options)
