"""Real database servers on this machine, started as a testbed starts them, used by the load generator."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from waiting import wait_until

import virtgauge
from virtgauge.host.process import ProcessIdentity
from virtgauge.suites.storage.client import find_sensorstore
from virtgauge.suites.storage.databases import account
from virtgauge.suites.storage.databases.base import Database, Durability, Found, Instance, Profile

DATA = {"seed": 7, "sensors": 4, "step_ms": 1000}
PATIENCE = 4.0
"""The machine of a test may be busy with others."""
_NOTES_HEADER = 24  # Bytes of what was acknowledged (native/sensorstore/src/acknowledged.rs) before the first note
_NUMBERS = itertools.count()
_LAUNCHER = Path(virtgauge.__file__).parent / "native" / "virtgauge-flushes"


def stream(operation: str, values: int = 1, preload: int = 0) -> dict[str, Any]:
    """One client that does one thing after another."""
    return {
        "operation": operation,
        "values": values,
        "clients": 1,
        "pipeline": 1,
        "preload": preload,
        "loop": {"kind": "closed"},
    }


def answer_of(command: str, specification: Mapping[str, Any]) -> dict[str, Any]:
    """What sensorstore answers, also where that is an error."""
    argv = [find_sensorstore(), command, json.dumps(specification)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def until_ended(processes: list[int]) -> None:
    """Wait until none of them runs; one that nobody has asked how it ended does not."""
    wait_until(f"the end of {processes}", lambda: not any(map(ProcessIdentity.of, processes)), within=20)


class RunningServer:
    """One server with one profile, its flushes counted."""

    def __init__(self, product: Database, found: Found, profile: Profile, root: Path) -> None:
        self.product, self.profile = product, profile
        # An address of its own and below the ports of outgoing connections: Cassandra takes the next port too, which a
        # connection of another test may have got since one was found free.
        pid = os.getpid()
        address, port = f"127.{81 + (pid >> 16) % 128}.{pid >> 8 & 255}.{pid & 255}", 5400 + 2 * next(_NUMBERS)
        whom = account() if os.geteuid() == 0 else None
        (root / "data").mkdir()
        self.layout = Instance(
            found=found,
            profile=profile,
            config=root / "config",
            data=root / "data" / product.name,
            address=address,
            port=port,
            password="5ec4e7",
            account=whom,
        )
        self.server = product.server(self.layout)
        self.server.write(whom)
        self._at_rest = product.at_rest(self.layout)
        self.store = product.store(self.layout)
        self.log, self.counters, self.acknowledged = root / "log", root / "flushes", root / "acknowledged"
        self._environment = os.environ | self.server.env
        self._process: subprocess.Popen[bytes] | None = None

    def set_up(self) -> None:
        for argv in self.server.setup:
            subprocess.run(argv, env=self._environment, check=True, capture_output=True, timeout=120)

    def start(self) -> dict[str, Any]:
        """Start it; what it says of itself once it serves."""
        counting: list[str | Path] = [_LAUNCHER, "--counters", self.counters, "--profile", "as-is", "--"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*counting, *self.server.argv], env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE * self.server.ready_timeout_s
        while True:
            about = answer_of("about", {"store": self.store})
            if "error" not in about:
                return about
            assert self._process.poll() is None, f"it ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{about}: {self.log.read_text()[-2000:]}"
            time.sleep(0.1)

    def prepare(self, preload: int = 0, data: Mapping[str, Any] = DATA) -> None:
        specification = {"store": self.store, "index": True, "drop": True, "data": data, "preload": preload}
        answer = answer_of("prepare", specification)
        assert "error" not in answer, answer

    def held_at_rest(self) -> dict[str, Any]:
        """What its files hold after it was brought to rest, as a testbed does it."""
        assert answer_of("rest", {"store": self.store}) == {}
        if self._at_rest:
            subprocess.run(self._at_rest, check=True, capture_output=True, timeout=120)
        patterns = {"data": self.product.data_files, "log": self.product.log_files}
        return answer_of("files", {"folder": str(self.layout.data)} | patterns)

    def measure(
        self,
        what: dict[str, Any],
        duration_ms: int = 500,
        data: Mapping[str, Any] = DATA,
        acknowledged: Path | None = None,
    ) -> tuple[dict[str, Any], int]:
        """Do it for a while: the result, and how many flushes there were."""
        before = answer_of("flushes", {"path": str(self.counters)})
        specification = {"store": self.store, "data": data, "streams": [what], "warmup_ms": 0}
        notes = None if acknowledged is None else str(acknowledged)
        limits = {"duration_ms": duration_ms, "acknowledged": notes, "until_failure": False}
        limits |= {"least_operations": 1, "longer_ms": 60_000}  # where the machine pauses for as long as that
        (result,) = answer_of("measure", specification | limits)["streams"]
        after = answer_of("flushes", {"path": str(self.counters)})
        return result, after["total"] - before["total"]

    def kill_while_writing(self) -> dict[str, Any]:
        """Kill it during writes, and start it again: what the audit finds."""
        specification = {"store": self.store, "data": DATA, "streams": [stream("write")], "warmup_ms": 0}
        limits = {"duration_ms": 60_000, "acknowledged": str(self.acknowledged), "until_failure": True}
        argv = [str(find_sensorstore()), "measure", json.dumps(specification | limits)]
        self.acknowledged.unlink(missing_ok=True)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as writer:
            notes = self.acknowledged
            wait_until("a first acknowledgement", lambda: notes.exists() and notes.stat().st_size > _NOTES_HEADER)
            time.sleep(0.7)
            self._kill()
            writer.wait(timeout=60)
        self.start()
        audited = {key: specification[key] for key in ("store", "data", "streams")}
        return answer_of("audit", audited | {"acknowledged": str(self.acknowledged)})

    def stop(self) -> None:
        """End it in order."""
        assert self._process is not None
        # PostgreSQL waits for its sessions at a SIGTERM of its first process alone.
        self._process.send_signal(signal.SIGINT if self.product.name == "postgresql" else signal.SIGTERM)
        self._process.wait(timeout=60)

    def processes(self) -> list[int]:
        """All of its processes."""
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def _kill(self) -> None:
        processes = self.processes()
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(timeout=20)
        until_ended(processes)

    def end(self) -> None:
        """Whatever became of it; in order if it can, as what is killed may leave shared memory in the kernel."""
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self._kill()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@contextlib.contextmanager
def running(product: Database, durability: Durability) -> Iterator[RunningServer]:
    """A server that serves, in a folder that its own user reaches; nothing of it is left."""
    found, profile = product.find(), product.levels()[durability]
    assert isinstance(found, Found), found
    assert isinstance(profile, Profile), profile
    root = Path(tempfile.mkdtemp(prefix="virtgauge-test-", dir="/var/tmp"))  # on a disk
    root.chmod(0o711)
    try:
        server = RunningServer(product, found, profile, root)
        server.set_up()
        try:
            server.start()
            yield server
        finally:
            server.end()
    finally:
        shutil.rmtree(root)
