"""The probe's `cycle` and `stall` beside cyclictest, oslat and rtla timerlat: by turns, with the same settings.

Examples:
  python benchmarks/realtime_agreement.py                                on the host: some ten minutes
  python benchmarks/realtime_agreement.py --guest runc --guest qemu      in these guests, too: as long for each
  python benchmarks/realtime_agreement.py --guest qemu-rt                in Debian's real-time kernel, where rtla runs
  python benchmarks/realtime_agreement.py --turns 30 --seconds 60        for maxima: two and a half hours

Needs root, and rt-tests and rtla on this machine (apt install rt-tests rtla): guests have its folders.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import math
import os
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, main, progress, said, spread

from virtgauge.agent import find_agent
from virtgauge.agent.messages import AgentError
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.shift import signed_rank_p
from virtgauge.errors import VirtgaugeError
from virtgauge.exchange.imports.record import read_repetitions
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import NS_PER_UNIT, Histogram
from virtgauge.platforms import create
from virtgauge.platforms.base import Guest, GuestSpec, LaunchError
from virtgauge.results.formatting import ratio_with_interval
from virtgauge.suites.answers import decode_histogram
from virtgauge.suites.timing import TimingSuite

_WITHIN = 0.1  # p50 and p99 agree where the interval of their ratio leaves 1 by no more
_LEVEL = 0.05  # Maxima differ where the paired test's p is below
_QUANTILES = {"p50": 0.5, "p99": 0.99}
_GUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{"runc": ("oci", {"runtime": "runc"}), "qemu": ("qemu", {})},
    "qemu-rt": ("qemu", {"kernel": "rt"}),  # whose kernel has timerlat, which rtla needs
}

Found = defaultdict[str, defaultdict[str, dict[int, float]]]
"""Nanoseconds by program, or kind of ours; p50, p99 or max; and turn."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all of them are told."""

    cpu: int
    period_us: int
    priority: int
    seconds: int


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program, as `virtgauge import` calls it, and which kind of ours it stands beside."""

    tool: str
    ours: str
    command: Callable[[Setting], str]
    step_ns: float = 0  # of bins that are told by their upper edges: ours are put into the same


_PEERS = (
    Peer(
        "cyclictest",
        "cycle",
        lambda of: (
            "cyclictest --json=- -q -m --default-system --nsecs --histogram=1000000 --histfile=/dev/null --threads=1 "
            f"--affinity={of.cpu} --interval={of.period_us} --priority={of.priority} --duration={of.seconds}"
        ),
    ),
    Peer("oslat", "stall", lambda of: f"oslat --json=- -b 1024 -c {of.cpu} -f {of.priority} -D {of.seconds}", 1000),
    Peer(
        "rtla",
        "cycle",
        lambda of: (
            f"rtla timerlat hist -n -b 20 -E 500000 -c {of.cpu} -p {of.period_us} -P f:{of.priority} -d {of.seconds}s"
        ),
    ),
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--guest", action="append", default=[], choices=list(_GUESTS), help="there, too; repeatable")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=int, default=10, help="of each run (default %(default)s)")
    parser.add_argument("--period-us", type=int, default=1000, help="of cycles (default %(default)s)")
    parser.add_argument("--priority", type=int, default=80, help="of all threads (default %(default)s)")


def measure(arguments: argparse.Namespace) -> Outcome:
    if os.geteuid() != 0:
        raise BenchmarkError("real-time priorities need root: run this as root (sudo)")
    turns, seconds = (2, 2) if arguments.quick else (arguments.turns, arguments.seconds)
    setting = Setting(max(os.sched_getaffinity(0)), arguments.period_us, arguments.priority, seconds)
    rows, values, missing, agreed, differing = [], {}, list[str](), list[bool](), list[bool]()
    for place in ("host", *arguments.guest):
        try:
            label, found = asyncio.run(_measured(place, setting, turns, missing))
        except (BenchmarkError, LaunchError, AgentError, VirtgaugeError, TimeoutError) as error:
            missing.append(f"{place}: {str(error).splitlines()[0]}")
            continue
        values[place] = {name: dict(each) for name, each in found.items()}
        for peer in (one for one in _PEERS if one.tool in found):
            row, within, p = _compared(found, peer)
            rows.append([label, peer.ours, peer.tool, *row])
            agreed += within
            differing.append(p < _LEVEL)
    if not rows:
        raise BenchmarkError(f"{'; '.join(missing)} (apt install rt-tests rtla)")
    packages = ("dpkg-query", "--show", "--showformat=${Version}")
    return Outcome(
        columns=("where", "ours", "beside", "p50, µs", "ratio", "p99, µs", "ratio", "maximum, µs", "ratio", "p"),
        rows=rows,
        meaning=(
            f"Ours over theirs: {sum(agreed)} of {len(agreed)} intervals of p50 and p99 lie within {_WITHIN:.0%} of 1; "
            f"{sum(differing)} of {len(differing)} pairs of maxima differ (p < {_LEVEL}, each by itself)."
        ),
        peers={package: said(*packages, package) or "of no package" for package in ("rt-tests", "rtla")},
        notes=[
            f"{turns} turns of every program in random order, each alone for {seconds} s: one thread on one CPU, "
            f"SCHED_FIFO {setting.priority}, cycles of {setting.period_us} µs. Figures are ours, median and range over "
            "the turns; ratios are formed within a turn, and have the 95 % interval of their median, or with few turns "
            "the widest that they can give. p: Wilcoxon's signed-rank test of the logarithms of the maxima's ratios.",
            "cyclictest: bins of 1 ns, idle states as they are (--default-system); it counts its first cycle, ours "
            "does not. oslat: bins of 1 µs, into which ours are put as well; of quantiles in the first bin it cannot "
            "be told whether they agree, and they are not counted. rtla: bins of 20 ns by their lower edges; "
            "its thread in user space, or where it has none, the kernel's, which does not return to a program.",
            *missing,
        ],
        values=values,
    )


async def _measured(place: str, setting: Setting, turns: int, missing: list[str]) -> tuple[str, Found]:
    """What the place is called, and what was measured there; who does not run there is added to the missing."""
    platform = create(*_GUESTS.get(place, ("host", {})))
    availability = await platform.probe()
    if not availability.usable:
        raise BenchmarkError(availability.reason)
    found: Found = defaultdict(lambda: defaultdict(dict))
    order, steps = random.Random(1), dict[str, Peer | None]()
    with Scope() as scope, tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as folder:
        rights = ("CAP_SYS_NICE", "CAP_IPC_LOCK")
        spec = GuestSpec(name="guest", scope=scope, agent=find_agent(), host_root=True, capabilities=rights)
        guest = await platform.launch(spec)
        try:
            if platform.is_virtual:
                setting = dataclasses.replace(setting, cpu=(await guest.channel.facts())["cpu"]["count"] - 1)
            for peer in _PEERS:
                try:  # which also warms it up
                    await _theirs(guest, peer, dataclasses.replace(setting, seconds=1), Path(folder, peer.tool))
                    steps |= {peer.tool: peer, peer.ours: None}
                except (BenchmarkError, AgentError, VirtgaugeError) as error:
                    missing.append(f"{place}: {peer.tool} does not run: {str(error).splitlines()[0]}")
            for turn in range(turns):
                for name in order.sample(list(steps), len(steps)):
                    one, path = steps[name], Path(folder, name)
                    figures = await (_theirs(guest, one, setting, path) if one else _ours(guest, name, setting))
                    progress(f"{guest.label}, turn {turn + 1} of {turns}: {name}, worst {figures['max'] / 1000:.1f} µs")
                    for what, value in figures.items():
                        found[name][what][turn] = value
        finally:
            await guest.close()
    return guest.label, found


async def _ours(guest: Guest, kind: str, setting: Setting) -> dict[str, float]:
    cycles = {
        **{"kinds": [kind], "classes": ["fifo"], "cpus": [setting.cpu], "periods_us": [setting.period_us]},
        **{"priority": setting.priority, "seconds": setting.seconds, "worst": 0},
    }
    (cell,) = TimingSuite.create({"timers": [], "sleeps": [], "loads": ["idle"], "cycles": cycles}).cells()
    params, limit_s = dict(cell.params), 2 * setting.seconds + 60
    reply = await guest.channel.request("probe", name=cell.probe, params=params, load=None, timeout_s=limit_s)
    return _figures(decode_histogram(reply.value["distribution"]), cut=False)


async def _theirs(guest: Guest, peer: Peer, setting: Setting, path: Path) -> dict[str, float]:
    """Raises BenchmarkError: it failed; AgentError: it is not there; VirtgaugeError: its output cannot be read."""
    program, *words = peer.command(setting).split()
    argv, limit_s = [shutil.which(program) or program, *words], 2 * setting.seconds + 60
    asked: dict[str, Any] = {"argv": argv, "env": {}, "timeout_ms": 1000 * limit_s, "output_limit": 2_000_000}
    ended = (await guest.channel.request("run", **asked, timeout_s=limit_s + 20)).value
    if ended["exit_code"] != 0 or ended["truncated"]:
        told = (ended["stderr"] or ended["stdout"])[-300:].decode(errors="replace")
        raise BenchmarkError(f"it ended with {ended['exit_code']}: {' '.join(told.split())}")
    path.write_bytes(ended["stdout"])
    # The last is that of its one thread, and of rtla's contexts the one nearest to a program.
    trial = read_repetitions(peer.tool, [path])[0].trials[-1]
    if "latency" not in trial.histograms:
        raise BenchmarkError("all latencies lie beyond its histogram's end")
    figures = _figures(trial.histograms["latency"], cut=bool(trial.flags))
    if peer.step_ns and trial.histograms["latency"].minimum == 0:
        figures["max"] += peer.step_ns  # oslat from 2.7 on rounds its extremes down, earlier ones up as we do
    return figures


def _figures(histogram: Histogram, *, cut: bool) -> dict[str, float]:
    """Nanoseconds; of a histogram that was cut, no quantile that lies beyond its end."""
    scale = NS_PER_UNIT[histogram.unit]
    quantiles = {name: histogram.quantile(share) for name, share in _QUANTILES.items()}
    told = {name: value for name, value in quantiles.items() if not cut or value < histogram.maximum}
    return {name: scale * value for name, value in (told | {"max": histogram.maximum}).items()}


def _compared(found: Found, peer: Peer) -> tuple[list[str], list[bool], float]:
    """A row's figures, whether p50 and p99 agree where bins can tell it, and the p of the maxima."""
    row, within, ours, theirs = list[str](), list[bool](), dict[int, float](), dict[int, float]()
    for name in (*_QUANTILES, "max"):
        theirs, step = found[peer.tool][name], peer.step_ns
        ours = {turn: step * (one // step + 1) if step else one for turn, one in found[peer.ours][name].items()}
        estimate = paired_ratio(ours, theirs, 0.95)
        row += [spread([*ours.values()], scale=1e-3), ratio_with_interval(estimate)]
        # What all lies in the first bin is equal whatever it was.
        if name in _QUANTILES and estimate.has_interval and max(*ours.values(), *theirs.values()) > step:
            within.append((estimate.low or 0) >= 1 - _WITHIN and (estimate.high or math.inf) <= 1 + _WITHIN)
    p = signed_rank_p([math.log(ours[turn] / one) for turn, one in theirs.items()])  # of the last, the maxima
    return [*row, f"{p:.3f}"], within, p


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
