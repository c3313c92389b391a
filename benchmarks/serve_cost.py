"""What an open page of `virtgauge serve` costs: CPU time of the server, and time of the commits of a run beside it.

A writer stands for the run: it adds one trial a second to a ledger that has many already.  A plain client stands for
the browser and asks as the page's script does, every two seconds; what a browser does with the answer is its own cost.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark import FOLDER, BenchmarkError, Outcome, figure, main, progress, spread

_TICKS = os.sysconf("SC_CLK_TCK")
_ASK_EVERY_S = 2.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=10_000, help="in the ledger when the pages are opened")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each condition")


def measure(arguments: argparse.Namespace) -> Outcome:
    trials, seconds = (360, 6.0) if arguments.quick else (arguments.trials, arguments.seconds)
    from report_scale import make_run

    rows, values = [], {}
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        folder = Path(scratch) / "runs" / "now"
        progress(f"writing a run of {trials} trials")
        made = make_run(folder, trials)
        with _under_way(folder), _server(folder.parent) as (process, place):
            paths = re.findall(r'href="(/run/[0-9a-f]{16})"', _asked(place, "/")[0])
            progress("opening the page, until it has taken in all trials")
            spent, took = _catching_up(process, place, paths[0])
            for name, pages in (
                ("nobody looks", []),
                ("one page", paths),
                ("the list and five pages", ["/", *paths * 5]),
            ):
                progress(f"{name}, {seconds:g} s")
                share, commits = _beside(folder, process, place, pages, seconds)
                values[name] = {"cpu_share": share, "commits_ms": commits}
                rows.append([name, f"{figure(100 * share)} %", spread(commits, unit="ms")])
        progress(f"no server, {seconds:g} s")
        commits = _writes(folder, seconds)
        rows.insert(0, ["no server", "–", spread(commits, unit="ms")])
        values |= {"no server": {"commits_ms": commits}, "catching_up_cpu_s": spent, "catching_up_s": took}
    return Outcome(
        columns=("beside the run", "server, of one processor", "a commit of the run"),
        rows=rows,
        meaning=f"One trial a second is added to a run of {made} trials, and looked at every two seconds.",
        notes=[
            f"Before that the page took in the trials that there were, little by little: {figure(spent)} s of CPU time "
            f"over {took:.0f} s, {figure(100 * spent / took)} % of one processor.",
            "The server has the lowest priority (nice 19). Commits wait for the disk (full sync): medians with ranges. "
            "The browser's own work is not in the figures.",
        ],
        values=values,
    )


def _catching_up(process: int, place: str, path: str) -> tuple[float, float]:
    """CPU time of the server and wall time until the page of a run shows all of its trials."""
    before, began = _cpu_s(process), time.monotonic()
    while 'id="behind"' in _asked(place, path)[0]:
        time.sleep(_ASK_EVERY_S)
    return _cpu_s(process) - before, time.monotonic() - began


def _beside(folder: Path, process: int, place: str, pages: list[str], seconds: float) -> tuple[float, list[float]]:
    """The server's CPU time as a share of one processor, and the commits' times in ms, while pages are open."""
    ended = threading.Event()
    readers = [threading.Thread(target=_read, args=(place, path, ended)) for path in pages]
    for reader in readers:
        reader.start()
    time.sleep(1.0)  # the first looks are over
    before, began = _cpu_s(process), time.monotonic()
    commits = _writes(folder, seconds)
    share = (_cpu_s(process) - before) / (time.monotonic() - began)
    ended.set()
    for reader in readers:
        reader.join()
    return share, commits


def _writes(folder: Path, seconds: float) -> list[float]:
    import numpy as np
    from synthetic import TIMERS_NS, arm_record, timer_histogram, trial

    from virtgauge.ledger.store import Ledger

    arm, rng = arm_record("host", "host", "Host", "reference"), np.random.default_rng(int(seconds))
    taken = []
    with Ledger.open(folder) as ledger:
        block = 1 + max(one.block for one in ledger.trials())
        for number in range(int(seconds)):
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
            record = trial(arm, "timer_cost", {"function": "rdtsc", "load": "idle"}, block + number, started_at=now)
            histogram = timer_histogram(rng, TIMERS_NS["rdtsc"])
            began = time.perf_counter()
            ledger.add_trial(record, {"timer_cost": histogram})
            taken.append(1000 * (time.perf_counter() - began))
            time.sleep(max(0.0, 1.0 - (time.perf_counter() - began)))
    return taken


def _read(place: str, path: str, ended: threading.Event) -> None:
    etag = ""
    while not ended.is_set():
        _, etag = _asked(place, path, etag)
        ended.wait(_ASK_EVERY_S)


def _asked(place: str, path: str, etag: str = "") -> tuple[str, str]:
    connection = http.client.HTTPConnection(place, timeout=120)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"If-None-Match": etag} if etag else {})
        answer = connection.getresponse()
        if answer.status not in (200, 304):
            raise BenchmarkError(f"the server answers {answer.status} to {path}")
        return answer.read().decode(), answer.headers["Etag"] or etag


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[int, str]]:
    """`virtgauge serve` on loopback: its process, and host and port."""
    command = [sys.executable, "-m", "virtgauge.cli", "serve", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=FOLDER)
    try:
        assert process.stdout is not None
        place = process.stdout.readline().strip().removeprefix("http://").strip("/")
        if not place:
            raise BenchmarkError("the server did not start")
        yield process.pid, place
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@contextlib.contextmanager
def _under_way(folder: Path) -> Iterator[None]:
    """The run as under way, as its lock says; and its end taken back."""
    from virtgauge.ledger.store import Ledger

    with Ledger.open(folder) as ledger:
        ledger.add_event("resumed", "")
    descriptor = os.open(folder / "controller.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _cpu_s(process: int) -> float:
    fields: list[Any] = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    main(measure, __doc__, options)
