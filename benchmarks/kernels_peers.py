"""The isolation suite's kernels beside Debian's sysbench, stress-ng, mbw and fio: the same trend under CPU limits.

Each pair runs in turn on one processor within the same limit. What they count is not the same work, so the rates have
no common unit: what has to agree is how they fall with the limit.

Examples:
  python benchmarks/kernels_peers.py
  python benchmarks/kernels_peers.py --seconds 10 --repeats 5
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress, ratios, said, spread
from kernel_runs import BLOCK, KERNELS, host_guest, output_within, rate

from virtgauge.host.mounts import make_disk_image
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Disk

_LIMITS = (0.25, 0.5, 1.0)
_FILE = 64 << 20
_MBW_MIB_PER_S = 3000
"""A guess at what mbw copies, which takes a number of times and no time."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A kernel of ours, and what stands beside it.

    Attributes:
        kernel: a name of :data:`KERNELS`.
        peer: name of the program and of its test.
        argv: its command, by seconds and limit.
        pattern: finds its rate in what it prints.
    """

    kernel: str
    peer: str
    argv: Callable[[int, float], Sequence[str]]
    pattern: str


def _stress(stressor: str, method: str) -> Callable[[int, float], Sequence[str]]:
    return lambda seconds, _: (
        *("stress-ng", f"--{stressor}", "1", f"--{stressor}-method", method),
        *("--timeout", f"{seconds}s", "--metrics-brief"),
    )


def _bogo(stressor: str) -> str:
    return rf"\] {stressor} +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)"  # operations by real time


def _sysbench_memory(operation: str) -> Callable[[int, float], Sequence[str]]:
    return lambda seconds, _: (
        *("sysbench", "memory", f"--memory-block-size={BLOCK >> 20}M", "--memory-total-size=100T"),
        *(f"--memory-oper={operation}", "--threads=1", f"--time={seconds}", "run"),
    )


def _mbw(seconds: int, limit: float) -> Sequence[str]:
    times = max(5, round(seconds * limit * _MBW_MIB_PER_S / (BLOCK >> 20)))
    return ("mbw", "-q", "-n", str(times), "-t0", str(BLOCK >> 20))


_PAIRS = (
    Pair(
        "integer",
        "sysbench cpu",
        lambda seconds, _: ("sysbench", "cpu", "--threads=1", f"--time={seconds}", "run"),
        r"events per second: +([\d.]+)",
    ),
    Pair("integer", "stress-ng cpu int64", _stress("cpu", "int64"), _bogo("cpu")),
    Pair("floating", "stress-ng cpu double", _stress("cpu", "double"), _bogo("cpu")),
    Pair("floating", "stress-ng matrix prod", _stress("matrix", "prod"), _bogo("matrix")),
    Pair("memory read", "sysbench memory read", _sysbench_memory("read"), r"\(([\d.]+) MiB/sec\)"),
    Pair("memory write", "sysbench memory write", _sysbench_memory("write"), r"\(([\d.]+) MiB/sec\)"),
    Pair("memory copy", "mbw memcpy", _mbw, r"AVG.*Copy: ([\d.]+) MiB/s"),
)

_DISK = (("sequential", "read"), ("random", "read"), ("sequential", "write"), ("random", "write"))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=3, help="runs of each pair at each limit")
    parser.add_argument("--seconds", type=int, default=3, help="of each run")


def measure(arguments: argparse.Namespace) -> Outcome:
    repeats, seconds = (1, 1) if arguments.quick else (arguments.repeats, arguments.seconds)
    present = [pair for pair in _PAIRS if shutil.which(pair.argv(1, 1.0)[0])]
    missing = sorted({"sysbench", "stress-ng", "mbw", "fio"} - {name for name in _VERSIONS if shutil.which(name)})
    if not present and "fio" in missing:
        raise BenchmarkError("there is no peer: apt install sysbench stress-ng mbw fio")
    rows, values = [], []
    with Scope() as scope:
        for pair in present:
            runs = asyncio.run(_limited(scope, pair, repeats, seconds))
            values.append({"kernel": pair.kernel, "peer": pair.peer, "runs": runs})
            rows.append(_row(pair, runs))
            progress(" ".join(rows[-1]))
        disks = asyncio.run(_disk(scope, repeats, seconds)) if "fio" not in missing else []
    for disk in disks:
        megabytes = [spread(disk[whose], scale=1e-6, unit="MB/s") for whose in ("ours", "peer")]
        rows.append([f"disk {disk['order']} {disk['operation']}", "fio", *megabytes, "", "", spread(disk["ratios"])])
    return Outcome(
        columns=("kernel", "peer", "ours at 100 %", "peer at 100 %", "ours at 25, 50 %", "peer at 25, 50 %", "ratio"),
        rows=rows,
        meaning="How our kernels and their peers' slow down within a CPU limit, and a disk's rate by both.",
        peers={name: said(name, "--version") or "present" for name in _VERSIONS if shutil.which(name)},
        notes=[
            f"Medians and ranges of {repeats} runs of {seconds} s, ours and the peer's in turn, on one processor "
            "within the same quota of CPU time. Units: dhrystones, whetstone cycles and bytes a second; the peers' "
            "own.",
            "At 25 and 50 %: the rate beside that at 100 % of one processor. The ratio is ours over the peer's, each "
            "beside its own rate at 100 %, at 25 and at 50 %: 1 is the same trend.",
            "Disk: no CPU limit, 4 KiB at random and 1 MiB in sequence past the page cache, in an ext4 image on a loop "
            "device.",
            *([f"Not measured: {', '.join(missing)} (apt install {' '.join(missing)})."] if missing else []),
        ],
        values={"pairs": values, "disk": disks},
    )


_VERSIONS = ("sysbench", "stress-ng", "mbw", "fio")


async def _limited(scope: Scope, pair: Pair, repeats: int, seconds: int) -> dict[str, dict[str, list[float]]]:
    runs: dict[str, dict[str, list[float]]] = {f"{limit:g}": {"ours": [], "peer": []} for limit in _LIMITS}
    for repeat in range(repeats):
        for limit in _LIMITS:
            guest = await host_guest(scope, "kernel", limit)
            try:
                runs[f"{limit:g}"]["ours"].append(await rate(guest, KERNELS[pair.kernel], seconds, repeat))
            finally:
                await guest.close()
            text = output_within(scope, "peer", pair.argv(seconds, limit), limit)
            found = re.search(pair.pattern, text)
            if found is None:
                raise BenchmarkError(f"{pair.peer} prints no rate: {text[-300:]}")
            runs[f"{limit:g}"]["peer"].append(float(found[1]))
    return runs


def _row(pair: Pair, runs: dict[str, dict[str, list[float]]]) -> list[str]:
    whole = {whose: statistics.median(runs["1"][whose]) for whose in ("ours", "peer")}
    beside = {
        whose: [statistics.median(runs[f"{limit:g}"][whose]) / whole[whose] for limit in _LIMITS[:-1]]
        for whose in whole
    }
    return [
        pair.kernel,
        pair.peer,
        *(spread(runs["1"][whose]) for whose in whole),
        *(", ".join(figure(share) for share in beside[whose]) for whose in whole),
        ", ".join(figure(ratio) for ratio in ratios(beside["ours"], beside["peer"])),
    ]


async def _disk(scope: Scope, repeats: int, seconds: int) -> list[dict[str, Any]]:
    disk = Disk(scope.scratch_folder("disk") / "disk.img", scope.folder / "data")
    make_disk_image(disk.image, 256)
    found = []
    guest = await host_guest(scope, "disk", None, disk)
    try:
        for order, operation in _DISK:
            block = 4096 if order == "random" else 1 << 20
            kernel = {"kernel": "disk", "order": order, "operation": operation, "folder": str(disk.folder)}
            kernel |= {"block_bytes": block, "file_bytes": _FILE}
            ours, peer = [], []
            for repeat in range(repeats):
                ours.append(await rate(guest, kernel, seconds, repeat))
                peer.append(_fio(scope, disk.folder, order, operation, block, seconds))
            found.append(
                {"order": order, "operation": operation, "ours": ours, "peer": peer, "ratios": ratios(ours, peer)}
            )
            progress(f"{order} {operation}: {figure(statistics.median(found[-1]['ratios']))} of fio's")
    finally:
        await guest.close()
    return found


def _fio(scope: Scope, folder: Path, order: str, operation: str, block: int, seconds: int) -> float:
    way = f"rand{operation}" if order == "random" else operation
    text = output_within(
        scope,
        "fio",
        (
            *("fio", "--name=peer", f"--filename={folder}/fio", f"--size={_FILE}", "--direct=1", f"--rw={way}"),
            *(f"--bs={block}", "--ioengine=psync", f"--runtime={seconds}", "--ramp_time=500ms", "--time_based"),
            "--output-format=json",
        ),
    )
    return float(json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"][0][operation]["bw_bytes"])


if __name__ == "__main__":
    main(measure, __doc__, options)
