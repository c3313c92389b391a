"""Two hosts for tests: network namespaces of this machine, joined by a link, with a cluster and a worker in each."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from virtgauge.fleet.cluster import TlsFiles
from virtgauge.host.scope import Scope
from virtgauge.network.namespace import Namespace

NORTH, SOUTH = "10.99.7.1", "10.99.7.2"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclasses.dataclass
class TwoHosts:
    """The hosts ``north`` and ``south``, each a namespace, and where their processes keep things.

    Attributes:
        cables: interfaces of the one that are cabled to those of the other of the same names.
    """

    folder: Path
    north: Namespace
    south: Namespace
    files: TlsFiles
    cables = ("cable0", "cable1")

    @property
    def ends(self) -> list[str]:
        """The words of a command that prove who it is."""
        return ["--ca", self.files.ca, "--certificate", self.files.certificate, "--key", self.files.key]

    def start(self, host: Namespace, *words: str, output: Path | None = None) -> subprocess.Popen[str]:
        """A process of that host."""
        state, cache = self.folder / host.name / "state", self.folder / host.name / "cache"
        state.mkdir(parents=True, exist_ok=True)
        set_ = ["env", f"VIRTGAUGE_STATE={state}", f"XDG_CACHE_HOME={cache}"]
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context(host.entrance())
            to = subprocess.PIPE if output is None else stack.enter_context(output.open("a"))
            return subprocess.Popen([*set_, *words], stdout=to, stderr=to, text=True, preexec_fn=enter)

    def worker(self, name: str, scheduler: str) -> subprocess.Popen[str]:
        """The worker of a host, and the process that watches over it."""
        words = [sys.executable, "-m", "virtgauge.cli", "fleet", "worker", "--scheduler", scheduler, "--name", name]
        host = self.north if name == "north" else self.south
        return self.start(host, *words, *self.ends, output=self.folder / f"{name}.log")


@contextlib.contextmanager
def two_hosts(folder: Path, *, mtu: int = 1600) -> Iterator[TwoHosts]:
    """Joined by a link whose packets have that size at most, and by two cables."""
    temporary = TlsFiles.temporary()
    paths = [folder / name for name in ("ca.pem", "certificate.pem", "key.pem")]
    for path, text in zip(paths, (temporary.ca, temporary.certificate, temporary.key), strict=True):
        path.write_text(text)
    with Scope() as scope, Namespace(scope, "north") as north, Namespace(scope, "south") as south:
        for name in ("lan", *TwoHosts.cables):
            ends = ["mtu", str(mtu), "type", "veth", "peer", "name", name, "mtu", str(mtu), "netns", south.name]
            ip("-n", north.name, "link", "add", "name", name, *ends)
        for host, address in ((north, NORTH), (south, SOUTH)):
            ip("-n", host.name, "addr", "add", f"{address}/24", "dev", "lan")
            ip("-n", host.name, "link", "set", "lan", "up")
        yield TwoHosts(folder, north, south, TlsFiles(*map(str, paths)))


@contextlib.contextmanager
def scheduler(hosts: TwoHosts) -> Iterator[str]:
    """A cluster on the host ``north``: its address."""
    words = ["fleet", "scheduler", "--listen", NORTH, "--port", "0", *hosts.ends]
    process = hosts.start(hosts.north, sys.executable, "-m", "virtgauge.cli", *words)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().removeprefix("scheduler at ")
    finally:
        ended(process)


@contextlib.contextmanager
def both_workers(hosts: TwoHosts, address: str) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """By host."""
    workers = {name: hosts.worker(name, address) for name in ("north", "south")}
    try:
        yield workers
    finally:
        for worker in workers.values():
            ended(worker)


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(30)
    finally:
        process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
