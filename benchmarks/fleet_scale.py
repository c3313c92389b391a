"""What a fleet of many hosts costs whoever coordinates it, through losses, returns and clocks that differ.

Examples:
  python benchmarks/fleet_scale.py                                  200 hosts
  python benchmarks/fleet_scale.py --hosts 50 --batch-s 5

Coordinator (`virtgauge fleet run`) and scheduler (`virtgauge fleet scheduler`) are real, each a process of its own.
The workers are real workers of dask, many to a process, which only wait where a host would measure, and answer with
the trials of a simulated run under the asked key.  Every host has a clock of its own, up to an hour off.  Workers go
away in the middle of a batch and come back, and one process of them is killed with kill -9.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress
from memory_flat import peak_kib

from virtgauge.errors import VirtgaugeError
from virtgauge.fleet.cluster import TlsFiles
from virtgauge.fleet.messages import PackedTrial
from virtgauge.host.process import cpu_clock_ns
from virtgauge.ledger.records import GuestRecord
from virtgauge.ledger.store import Ledger

_PROCESSES = 4  # That the workers share
_CLOCK_OFF_S = 3600.0
_AWAY_S = 3.0  # At most, of a worker that was lost
_PLAN = """
reference = "a"
seed = 1
aa = false
repetitions = {repetitions}
[[platform]]
name = "a"
kind = "simulated"
[[platform]]
name = "b"
kind = "simulated"
[[suite.timing]]
timers = ["rdtsc", "clock_gettime"]
sleeps = ["nanosleep"]
loads = ["idle"]
reads = 100000
reservoir = 1000
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=3, help="of each host; a repetition is two batches")
    parser.add_argument("--batch-s", type=float, default=30.0, help="how long a batch takes, on average")
    parser.add_argument("--life-s", type=float, default=600.0, help="after how long a worker is lost, on average")


def measure(arguments: argparse.Namespace) -> Outcome:
    if arguments.quick:
        arguments.hosts, arguments.repetitions, arguments.batch_s, arguments.life_s = 12, 2, 1.0, 4.0
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch, contextlib.ExitStack() as stack:
        fleet = _Fleet(Path(scratch), arguments, stack)
        seen = fleet.run()
        with Ledger.open(fleet.folder / "run") as ledger:
            found = _checked(ledger, arguments, fleet)
    wall_s = seen["wall_s"]
    rows = [
        [
            name,
            f"{seen[name]['cpu_s'] / wall_s:.1%}",
            f"{1e3 * seen[name]['cpu_s'] / found['batches']:.1f} ms",
            f"{seen[name]['peak_mib']:.0f} MiB",
        ]
        for name in ("coordinator", "scheduler")
    ]
    share = sum(seen[name]["cpu_s"] for name in ("coordinator", "scheduler")) / wall_s
    memory = sum(seen[name]["peak_mib"] for name in ("coordinator", "scheduler"))
    return Outcome(
        columns=("process", "share of a CPU", "CPU time a batch", "peak memory"),
        rows=rows,
        meaning=f"Both together took {share:.1%} of a CPU and {memory:.0f} MiB for {arguments.hosts} hosts.",
        notes=[
            f"{found['batches']} batches of {arguments.batch_s:g} s on average in {figure(wall_s)} s; "
            f"{found['losses']} losses of a worker, one kill -9 of a process with {arguments.hosts // _PROCESSES} "
            f"workers among them; clocks up to {_CLOCK_OFF_S / 60:.0f} minutes off. {found['trials']} trials, each "
            "once, in the order of its host's clock.",
            "From the first batch to the last; enrolment and report are not in it. No peer: nothing else coordinates "
            "such a run.",
        ],
        values={"seen": seen, "found": found},
    )


class _Fleet:
    """Its processes, and the folder in which they keep things."""

    def __init__(self, folder: Path, arguments: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.names = [f"host-{number}" for number in range(arguments.hosts)]
        chance = random.Random(1)
        self.offsets_s = {name: chance.uniform(-_CLOCK_OFF_S, _CLOCK_OFF_S) for name in self.names}
        (folder / "agent").write_text("an agent that is never executed")
        self._environment = os.environ | {
            "VIRTGAUGE_STATE": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "VIRTGAUGE_AGENT": str(folder / "agent"),
        }
        made = TlsFiles.temporary()
        self._files = {name: folder / f"{name}.pem" for name in ("ca", "certificate", "key")}
        for name, path in self._files.items():
            path.write_text(getattr(made, name))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"tls://127.0.0.1:{free.getsockname()[1]}"
        plan = _PLAN.format(repetitions=1)
        (folder / "one.toml").write_text(plan)
        self._finish(self._virtgauge("run", "one.toml", "--out", "one", "--quiet"))
        hosts = ", ".join(f'{{name = "{name}"}}' for name in self.names)
        ends = "\n".join(f'{name} = "{path}"' for name, path in self._files.items())
        (folder / "plan.toml").write_text(
            _PLAN.format(repetitions=arguments.repetitions)
            + f'[fleet]\nscheduler = "{self._address}"\n{ends}\nlosses = 20\nwait_s = 300\nhosts = [{hosts}]\n'
        )
        self._setup = {
            "scheduler": self._address,
            "files": {name: str(path) for name, path in self._files.items()},
            "offsets_s": self.offsets_s,
            "batch_s": arguments.batch_s,
            "life_s": arguments.life_s,
        }

    def run(self) -> dict[str, Any]:
        """CPU time and memory of the run by process, and how long it took."""
        ends = zip(("--ca", "--certificate", "--key"), self._files.values(), strict=True)
        where = ["--listen", "127.0.0.1", "--port", self._address.rpartition(":")[2]]
        scheduler = self._virtgauge("fleet", "scheduler", *where, *(str(word) for pair in ends for word in pair))
        workers = [self._workers(number) for number in range(_PROCESSES)]
        coordinator = self._virtgauge("fleet", "run", "plan.toml", "--out", "run", "--quiet")
        processes = {"coordinator": coordinator, "scheduler": scheduler}
        while not self._trials():
            if coordinator.poll() is not None:
                self._finish(coordinator)
            time.sleep(0.2)
        progress("every host is enrolled, and the first batch is there")
        before = {name: _cost(process)[0] for name, process in processes.items()}
        began = now = time.monotonic()
        killed = None
        last: dict[str, Any] = {}
        while coordinator.poll() is None and not self._over():
            with contextlib.suppress(OSError, StopIteration):  # it may just have ended
                costs = {name: _cost(process) for name, process in processes.items()}
                last = {name: {"cpu_s": s - before[name], "peak_mib": mib} for name, (s, mib) in costs.items()}
                now = time.monotonic()
            if killed is None and now - began > 2 * self._setup["batch_s"] / 3:
                killed = workers[0]
                killed.kill()
                progress("one process of workers was killed; it is started again")
                workers[0] = self._workers(0)
            time.sleep(0.2)
        self._finish(coordinator)
        if killed is None:
            raise BenchmarkError("the run was over before anything was killed; give it more repetitions")
        return {"wall_s": now - began, **last}

    def _trials(self) -> int:
        return self._asked("SELECT COUNT(*) FROM trials")

    def _over(self) -> int:
        return self._asked("SELECT COUNT(*) FROM events WHERE kind IN ('completed', 'ended incomplete')")

    def _asked(self, question: str) -> int:
        import sqlite3

        path = self.folder / "run" / "ledger.sqlite"
        if not path.exists():
            return 0
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            try:
                return int(db.execute(question).fetchone()[0])
            except sqlite3.OperationalError:  # its tables are being made
                return 0

    def _workers(self, number: int) -> subprocess.Popen[bytes]:
        process = self._start([sys.executable, __file__, "--serve-workers"], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._setup | {"names": self.names[number::_PROCESSES]}).encode())
        process.stdin.close()
        return process

    def _virtgauge(self, *words: str) -> subprocess.Popen[bytes]:
        return self._start([sys.executable, "-m", "virtgauge.cli", *words])

    def _start(self, argv: list[str], **more: Any) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self.folder / "log").open("ab"))
        process = subprocess.Popen(argv, cwd=self.folder, env=self._environment, stdout=log, stderr=log, **more)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        if code := process.wait():
            said = (self.folder / "log").read_text(errors="replace")
            with contextlib.suppress(VirtgaugeError), Ledger.open(self.folder / "run") as ledger:
                said += "\n".join(event.detail for event in ledger.events() if event.kind == "host-set-aside")
            raise BenchmarkError(f"{' '.join(map(str, process.args))[:200]} failed ({code}): {said[-2000:]}")  # type: ignore[arg-type]


def _cost(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """CPU time in seconds so far, and peak memory in MiB. Raises OSError: it has ended."""
    cpu_ns = cpu_clock_ns(process.pid)
    if cpu_ns is None:
        raise ProcessLookupError
    return cpu_ns / 1e9, peak_kib(process.pid) / 1024


def _checked(ledger: Ledger, arguments: argparse.Namespace, fleet: _Fleet) -> dict[str, Any]:
    """What the merged ledger holds. Raises BenchmarkError: something is missing, twice, or out of order."""
    trials, hosts = ledger.trials(), ledger.manifest().hosts
    with Ledger.open(fleet.folder / "one") as one:
        wanted = arguments.hosts * arguments.repetitions * len(one.trials())
    keys = Counter((trial.key, trial.attempt) for trial in trials)
    if len(trials) != wanted or len(keys) != wanted:
        raise BenchmarkError(f"{wanted} trials were to be measured; {len(trials)} are there, {len(keys)} of them once")
    began = datetime.datetime.fromisoformat(ledger.manifest().created_at)
    off = 0.0
    for host in hosts:
        own = [datetime.datetime.fromisoformat(trial.started_at) for trial in trials if host.owns(trial.block)]
        if own != sorted(own):
            raise BenchmarkError(f"trials of {host.name} are not in the order of its clock")
        off = max(off, abs((own[0] - began).total_seconds()))
    if off < _CLOCK_OFF_S / 2:
        raise BenchmarkError("the hosts' clocks do not differ")
    if {trial.elapsed_ns for trial in trials} != {_ELAPSED_NS}:
        raise BenchmarkError("a trial's duration is not what its host measured")
    kinds = Counter(event.kind for event in ledger.events())
    if kinds["host-set-aside"] or not kinds["worker-lost"]:
        raise BenchmarkError(f"workers were to be lost, and no host set aside: {dict(kinds)}")
    return {
        "trials": len(trials),
        "batches": arguments.hosts * arguments.repetitions * 2,
        "losses": kinds["worker-lost"],
        "clock_off_s": off,
    }


_ELAPSED_NS = 123_456_789


@dataclasses.dataclass
class _Hosts:
    """What the workers of one process answer."""

    setup: dict[str, Any]
    template: dict[tuple[str, str], PackedTrial]  # by arm and cell
    guests: dict[str, GuestRecord]  # by arm
    manifest: Any
    kept: dict[bytes, bytes] = dataclasses.field(default_factory=dict)  # as a worker keeps what it has measured

    async def answer(self, data: bytes) -> bytes:
        """Instead of a real worker's."""
        from distributed import get_worker

        from virtgauge import __version__
        from virtgauge.fleet import messages

        name = str(get_worker().name)
        machine = messages.MachineIdentity(name.encode().hex().zfill(32)[-32:], f"boot of {name}", None)
        signature = messages.Signature(name, machine, __version__, self.manifest.agent_sha256)
        kinds = (messages.Enlistment, messages.Assistance, messages.Assignment)
        request = messages.unpack(data, kinds, "the coordinator")
        if isinstance(request, messages.Enlistment):
            return messages.pack(messages.Enrolment(signature, self.manifest.fingerprint, self.manifest.arms, ()))
        if data not in self.kept:
            await asyncio.sleep(self.setup["batch_s"] * random.uniform(0.5, 1.5))
            self.kept[data] = messages.pack(self._measured(request, signature, name))
        return self.kept[data]

    def _measured(self, request: Any, signature: Any, host: str) -> Any:
        from virtgauge.fleet.messages import BatchAnswer

        off = datetime.timedelta(seconds=self.setup["offsets_s"][host])
        moments = (
            datetime.datetime.now(datetime.UTC) + off + datetime.timedelta(milliseconds=n) for n in itertools.count()
        )
        guest = dataclasses.replace(
            self.guests[request.arm], guest_id=1, block=request.block, launched_at=next(moments).isoformat()
        )
        trials = []
        for key in request.keys:
            packed = self.template[request.arm, key.split("/", 2)[2]]
            record = dataclasses.replace(
                packed.record,
                key=key,
                block=request.block,
                guest_id=1,
                started_at=next(moments).isoformat(),
                elapsed_ns=_ELAPSED_NS,
            )
            trials.append(dataclasses.replace(packed, record=record))
        return BatchAnswer(signature, tuple(trials), (guest,), (), ())


async def _serve(setup: dict[str, Any]) -> None:
    """Workers, each of which is lost now and again."""
    from virtgauge.fleet import work
    from virtgauge.fleet.cluster import configure

    configure()
    with Ledger.open(Path("one")) as ledger:
        trials = ledger.trials()
        template = {(t.arm, t.key.split("/", 2)[2]): PackedTrial.read(ledger, t) for t in trials}
        hosts = _Hosts(setup, template, {guest.arm: guest for guest in ledger.guests()}, ledger.manifest())
    work.answer = hosts.answer  # type: ignore[assignment]  # of this process; what is asked for goes by its name
    async with asyncio.TaskGroup() as group:
        for name in setup["names"]:
            group.create_task(_host(setup, name))


async def _host(setup: dict[str, Any], name: str) -> None:
    from virtgauge.fleet.workers import make_worker

    folder = Path(name)
    folder.mkdir(exist_ok=True)
    while True:
        worker = make_worker(setup["scheduler"], name, TlsFiles(**setup["files"]), "127.0.0.1", folder)
        with contextlib.suppress(OSError, RuntimeError):  # its name may still be taken
            await worker
            worker.http_server.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.finished(), random.expovariate(1 / setup["life_s"]))
        await worker.close()
        await asyncio.sleep(random.uniform(0.1, 1) * _AWAY_S)


if __name__ == "__main__":
    if "--serve-workers" in sys.argv:
        asyncio.run(_serve(json.load(sys.stdin)))
    else:
        main(measure, __doc__, options)
