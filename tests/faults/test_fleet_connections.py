"""How a fleet is connected: strangers get nothing, an existing cluster is joined, and workers are started by ssh."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fleet_runs import fleet_plan
from platforms.ssh_server import ssh_server
from suites.simulated_runs import Recorder
from typer.testing import CliRunner

from virtgauge.console.fleet import app
from virtgauge.errors import UnavailableError, UsageError
from virtgauge.fleet import cluster as clusters
from virtgauge.fleet.cluster import TlsFiles, WorkerLostError, existing_cluster, own_cluster
from virtgauge.fleet.messages import Enlistment, Enrolment, MachineIdentity, pack, unpack
from virtgauge.fleet.run import start_fleet
from virtgauge.fleet.workers import make_worker
from virtgauge.host.process import all_pids, cpu_clock_ns, environment_of, tree_pids
from virtgauge.ledger.files import is_regular
from virtgauge.ledger.store import Ledger
from virtgauge.plan.fleet import FleetSection

pytestmark = pytest.mark.slow


async def test_a_stranger_without_the_certificate_gets_nothing():
    from distributed import Client

    async with own_cluster("127.0.0.1", TlsFiles.temporary()) as (_, address):
        host, _, port = address.removeprefix("tls://").rpartition(":")
        assert await asyncio.to_thread(_answered, host, int(port), tls=False) == b""
        assert await asyncio.to_thread(_answered, host, int(port), tls=True) == b""
        stranger = TlsFiles.temporary().security()
        with pytest.raises(OSError, match=r"(?i)certificate|timed out|ssl"):
            await Client(address, security=stranger, asynchronous=True, set_as_default=False, timeout=2)


def _answered(host, port, *, tls):
    """What the scheduler says to somebody who does not prove himself."""
    with socket.create_connection((host, port), timeout=1) as connection:
        try:
            if tls:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = context.wrap_socket(connection)
            connection.sendall(b"\0" * 64)
            return connection.recv(4096)
        except (TimeoutError, ConnectionError, ssl.SSLError):
            return b""


async def test_only_tls_is_spoken_and_only_its_newest_version():
    files = TlsFiles.temporary()
    assert files.security().require_encryption
    async with own_cluster("127.0.0.1", files) as (cluster, address):
        assert address.startswith("tls://127.0.0.1:")
        assert isinstance(cluster, clusters.Cluster)
        assert not await cluster.present("north")
        host, _, port = address.removeprefix("tls://").rpartition(":")
        old = ssl.create_default_context()
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2

        def shake_hands():
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                old.wrap_socket(connection).close()

        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(shake_hands)


def test_a_worker_refuses_to_work_without_tls():
    refused = CliRunner().invoke(app, ["worker", "--scheduler", "tcp://127.0.0.1:1", "--name", "north"])
    assert isinstance(refused.exception, UsageError)
    assert "speaks TLS only" in str(refused.exception)


OPENED = """
import os, sys
_log = os.open(os.environ["OPENED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def _noted(event, about):
    if event == "open" and isinstance(about[0], str) and (about[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        os.write(_log, f"{about[0]}\\n".encode())

sys.addaudithook(_noted)
"""
FLEET = """
import asyncio, sys
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.fleet.cluster import TlsFiles, own_cluster
from virtgauge.fleet.workers import local_workers
from virtgauge.plan.fleet import FleetSection

async def serve():
    fleet, files = FleetSection.model_validate({"hosts": [{"name": "here"}], "workers": "here"}), TlsFiles.temporary()
    async with own_cluster("127.0.0.1", files) as (cluster, address):
        async with local_workers(fleet, address, files, ProgressDisplay()):
            while not await cluster.present("here"):
                await asyncio.sleep(0.2)
            print(files.key.splitlines()[1], flush=True)
            await asyncio.to_thread(sys.stdin.read)

asyncio.run(serve())
"""


@pytest.fixture
def idle_fleet(tmp_path, private_state, monkeypatch):
    """A scheduler, a worker that has nothing to do, a line of the key, and what their processes open for writing."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(OPENED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "hook"), *filter(None, sys.path)]))
    monkeypatch.setenv("OPENED", str(tmp_path / "opened"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with subprocess.Popen([sys.executable, "-c", FLEET], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()
            assert process.wait(60) == 0


def test_the_certificates_of_started_workers_are_in_no_file_and_no_argument(idle_fleet, tmp_path):
    process, line = idle_fleet
    assert len(line) == 64
    everybody = tree_pids(process.pid)
    assert len(everybody) == 3  # the worker with the process that watches over it
    for pid in everybody:
        for about in ("cmdline", "environ"):
            assert line not in Path(f"/proc/{pid}/{about}").read_bytes()
    opened = {Path(path) for path in (tmp_path / "opened").read_text().splitlines()}
    assert opened
    assert [path for path in opened if path.suffix in (".pem", ".crt", ".key")] == []
    there = [path for path in {*opened, *tmp_path.rglob("*")} if is_regular(path)]
    assert [path for path in there if line in path.read_bytes()] == []


def test_an_idle_worker_wakes_every_few_seconds_and_takes_next_to_no_processor_time(idle_fleet):
    process, _ = idle_fleet
    worker = [pid for pid in tree_pids(process.pid) if pid != process.pid]
    time.sleep(3)
    for _ in range(3):  # it may still be starting, and a pause while it is awake counts as its own time
        cpu_ns, woken = sum(map(cpu_clock_ns, worker)), sum(map(woken_up, worker))
        time.sleep(20)
        took_ns, wakes = sum(map(cpu_clock_ns, worker)) - cpu_ns, sum(map(woken_up, worker)) - woken
        if took_ns < 50e6 and wakes < 40:  # dask's defaults: fifty wakes a second
            break
    assert took_ns < 50e6
    assert wakes < 40


def woken_up(pid):
    """How often the threads of a process have waited for something."""
    told = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(one.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for one in told)


def written(folder, files):
    """Certificates as a plan names them."""
    folder.mkdir()
    named = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
    for name, text in named.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in named}


async def test_an_existing_cluster_is_joined_and_its_workers_are_told_apart(tmp_path, private_state, any_agent):
    files = TlsFiles.temporary()
    async with own_cluster("127.0.0.1", files) as (_, address):
        section = {"scheduler": address, "hosts": [{"name": "north"}]}
        fleet = FleetSection.model_validate(section | written(tmp_path / "ours", files))
        async with existing_cluster(fleet, print) as cluster:
            async with make_worker(address, "north", files, "127.0.0.1", tmp_path) as worker:
                assert await cluster.present("north")
                assert not await cluster.present("south")
                asked = pack(Enlistment(fleet_plan("north").to_toml()))
                answer = unpack(await cluster.call("north", asked), [Enrolment], "the worker")
                assert answer.signature.worker == "north"
                assert answer.signature.machine == MachineIdentity.read()
                assert [arm.name for arm in answer.arms] == ["a", "b"]
                assert worker.state.total_resources == {"host": 1}
                assert worker.state.nthreads == 1
            with pytest.raises(WorkerLostError, match="'north' is not connected"):
                await cluster.call("north", asked)

        theirs = {"wait_s": 2} | written(tmp_path / "theirs", TlsFiles.temporary())
        strangers = FleetSection.model_validate(section | theirs)
        with pytest.raises(UnavailableError, match="cannot be reached"):
            async with existing_cluster(strangers, print):
                pass
        missing = FleetSection.model_validate(
            section | {"ca": "none.pem", "certificate": "none.pem", "key": "none.pem"}
        )
        with pytest.raises(UsageError, match="cannot be used"):
            async with existing_cluster(missing, print):
                pass


async def test_a_scheduler_that_comes_late_is_waited_for_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "_REACH_S", 0.2)
    monkeypatch.setattr(clusters, "_CONNECT_S", 0.1)
    files = TlsFiles.temporary()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    section = {"scheduler": f"tls://127.0.0.1:{port}", "hosts": [{"name": "north"}], "wait_s": 60}
    fleet = FleetSection.model_validate(section | written(tmp_path / "ours", files))
    said = asyncio.Queue()

    async def late():
        words = await said.get()
        serving = asyncio.create_task(clusters.serve_scheduler("127.0.0.1", port, files, lambda _: None))
        return words, serving

    coming = asyncio.create_task(late())
    async with existing_cluster(fleet, said.put_nowait) as cluster:
        assert not await cluster.present("north")
    words, serving = await coming
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert "trying for 60 s" in words


def test_a_worker_is_started_by_ssh_and_ends_with_the_run(
    tmp_path, tmp_path_factory, private_state, any_agent, monkeypatch, root
):
    there = tmp_path / "there"
    command = [
        "env",
        f"VIRTGAUGE_STATE={there}",
        f"VIRTGAUGE_AGENT={any_agent}",
        f"XDG_CACHE_HOME={tmp_path / 'cache'}",
        sys.executable,
        "-m",
        "virtgauge.cli",
    ]
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as server:
        login = tmp_path / ".ssh"
        login.mkdir()
        shutil.copy(server.identity, login / "id_ed25519")
        shutil.copy(server.known_hosts, login / "known_hosts")
        monkeypatch.setenv("HOME", str(tmp_path))
        address = f"{server.user}@{server.address}:{server.port}"
        fleet = {
            "workers": None,
            "one_machine": False,
            "listen": "127.0.0.1",
            "wait_s": 60,
            "command": command,
            "hosts": [{"name": "north", "address": address, "machine_id": MachineIdentity.read().machine_id}],
        }
        recorder = Recorder()
        assert start_fleet(fleet_plan("north", fleet=fleet), "test", tmp_path / "run", recorder)
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.trials()) == 8
    assert [pid for pid in all_pids() if environment_of(pid).get("VIRTGAUGE_STATE") == str(there)] == []

    nobody = {**fleet, "hosts": [{"name": "north", "address": f"127.0.0.1:{server.port}"}]}
    with pytest.raises(UnavailableError, match=r"host 'north': .*cannot be reached"):
        start_fleet(fleet_plan("north", fleet=nobody), "test", tmp_path / "other", recorder)
