"""Whether an idle worker of a fleet disturbs a timing trial on its host.

Examples:
  python benchmarks/fleet_disturbance.py                 on a machine that does nothing else
  python benchmarks/fleet_disturbance.py --pairs 60

Every pair is the timing probe on the host once with an idle worker that is connected, and once without one, in random
order; a scheduler is there in both cases, for on a real fleet it is elsewhere.  Each ratio is formed within its pair.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import IO

from benchmark import BenchmarkError, Outcome, main, progress

from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.store import Ledger
from virtgauge.results.formatting import confidence, ratio, ratio_interval
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

_MEASURES = ("timer_cost.p50", "timer_cost.p99.9", "sleep_lateness.p50", "sleep_lateness.p99")
_SETTLE_S = 3.0
_SECONDS_OF_CPU = 10.0
_PLAN = """
reference = "host"
aa = false
repetitions = 1
attempts = 10
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
timers = ["clock_gettime"]
sleeps = ["clock_nanosleep"]
loads = ["idle"]
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--any-load", action="store_true", help="count trials beside other work too: to try it only")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the pairs")


def measure(arguments: argparse.Namespace) -> Outcome:
    pairs = 2 if arguments.quick else arguments.pairs
    order = random.Random(arguments.seed)
    figures: defaultdict[tuple[str, str, bool], dict[int, float]] = defaultdict(dict)
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch, _Cluster() as cluster:
        plan = Path(scratch) / "plan.toml"
        plan.write_text(_PLAN + ("[validity]\nforeign_load = 1\nsteal = 1\n" if arguments.any_load else ""))
        for pair in range(pairs):
            for connected in order.sample((True, False), 2):
                progress(f"pair {pair + 1} of {pairs}, {'with' if connected else 'without'} a worker")
                cluster.worker(connected)
                for place, value in _trial(plan, Path(scratch) / f"{pair}-{connected}").items():
                    figures[*place, connected][pair] = value
        cpu_ms_per_s = cluster.idle_cpu_ms_per_s()
    if not figures:
        raise BenchmarkError("not a single trial was valid: this machine is not idle; run it on one that is")
    places = list(dict.fromkeys((measure, cell) for measure, cell, _ in figures))
    found = {place: paired_ratio(figures[*place, True], figures[*place, False], 0.95) for place in places}
    return Outcome(
        columns=("figure", "with a worker / without", "interval", "confidence", "pairs"),
        rows=[_row(*place, estimate) for place, estimate in found.items()],
        meaning=_meaning(found.values()) + f" The idle worker used {cpu_ms_per_s:.2f} ms of CPU time a second.",
        notes=[
            "Median over pairs of the ratio within a pair, with its interval (expanded percentile bootstrap). No peer: "
            "the figure is a ratio of the tool to itself.",
            "Worker: `virtgauge fleet worker` with the process that watches over it, connected by TLS to a scheduler "
            "on this machine, one heartbeat in 30 s.",
        ],
        values={
            f"{measure} {cell} {'with' if connected else 'without'}": list(blocks.values())
            for (measure, cell, connected), blocks in figures.items()
        },
    )


def _row(measure: str, cell: str, estimate: Estimate) -> list[str]:
    return [
        f"{measure}, {cell}",
        ratio(estimate),
        ratio_interval(estimate),
        confidence(estimate.confidence),
        str(estimate.n),
    ]


def _meaning(estimates: object) -> str:
    found = [one for one in estimates if isinstance(one, Estimate) and one.has_interval]  # type: ignore[attr-defined]
    if not found:
        return "Too few pairs for an interval."
    moved = [one for one in found if one.excludes(1)]
    if moved:
        return f"{len(moved)} of {len(found)} intervals exclude 1: an idle worker is felt."
    widest = max(max(abs(one.low - 1), abs(one.high - 1)) for one in found)  # type: ignore[operator]
    return f"No disturbance was shown; the intervals leave room for {widest:.1%} at most."


def _trial(plan: Path, folder: Path) -> dict[tuple[str, str], float]:
    """The figures of one run of the probe, by measure and cell."""
    command = [sys.executable, "-m", "virtgauge.cli", "run", str(plan), "--out", str(folder), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (folder / "ledger.sqlite").exists():
        raise BenchmarkError(f"the probe could not be run: {done.stderr.strip()}")
    measures = [find_measure("timing", name) for name in _MEASURES]
    with Ledger.open(folder) as ledger:
        table = ResultTable(ledger)
        return {
            (measure.name, cell.levels[0][1]): value
            for measure in measures
            for cell in table.cells(measure.suite)
            for value in table.values(measure, cell, "host").values()
        }


class _Cluster:
    """A scheduler in a process of its own, with a worker on demand."""

    def __enter__(self) -> _Cluster:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve-worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._say("")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def worker(self, connected: bool) -> None:
        """Have one, or have none; returns when that is settled."""
        self._say("on" if connected else "off")

    def idle_cpu_ms_per_s(self) -> float:
        """What a connected worker uses while nobody asks it anything."""
        self.worker(True)
        return float(self._say("cpu"))

    def _say(self, word: str) -> str:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        if word:
            print(word, file=asked, flush=True)
        answer = answers.readline().strip()
        if not answer:
            raise BenchmarkError("no cluster could be had on this machine")
        return answer


async def _serve(words: IO[str]) -> None:
    """Scheduler here, worker as a process of its own when told so; an answer to every word."""
    import contextlib

    from virtgauge.execution.progress import ProgressDisplay
    from virtgauge.fleet.cluster import TlsFiles, own_cluster
    from virtgauge.fleet.workers import local_workers
    from virtgauge.plan.fleet import FleetSection

    fleet = FleetSection.model_validate({"hosts": [{"name": "here"}], "workers": "here"})
    files = TlsFiles.temporary()
    async with contextlib.AsyncExitStack() as stack:
        cluster, address = await stack.enter_async_context(own_cluster("127.0.0.1", files))
        worker = await stack.enter_async_context(contextlib.AsyncExitStack())
        connected = False
        print("ready", flush=True)
        while word := (await asyncio.to_thread(words.readline)).strip():
            answer = "done"
            if word == "cpu":
                before = _cpu_ns_of_children()
                await asyncio.sleep(_SECONDS_OF_CPU)
                answer = str((_cpu_ns_of_children() - before) / 1e6 / _SECONDS_OF_CPU)
            elif (word == "on") != connected:
                connected = word == "on"
                if connected:
                    await worker.enter_async_context(local_workers(fleet, address, files, ProgressDisplay()))
                    while not await cluster.present("here"):
                        await asyncio.sleep(0.2)
                else:
                    await worker.aclose()
                await asyncio.sleep(_SETTLE_S)
            print(answer, flush=True)


def _cpu_ns_of_children() -> int:
    """Of the worker and the process that watches over it."""
    from virtgauge.host.process import tree_pids

    # clock_getcpuclockid(3): the process clock of PID is ~PID << 3 | CPUCLOCK_SCHED (2)
    return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in tree_pids(os.getpid()) if pid != os.getpid())


if __name__ == "__main__":
    if "--serve-worker" in sys.argv:
        asyncio.run(_serve(sys.stdin))
    else:
        main(measure, __doc__, options)
