"""How a fleet is connected: strangers get nothing, an existing cluster is joined, and workers are started by ssh."""

import asyncio
import shutil
import socket
import ssl
import sys

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
from virtgauge.host.process import all_pids, environment_of
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
            with socket.create_connection((host, int(port)), timeout=3) as connection:
                old.wrap_socket(connection).close()

        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(shake_hands)


def test_a_worker_refuses_to_work_without_tls():
    refused = CliRunner().invoke(app, ["worker", "--scheduler", "tcp://127.0.0.1:1", "--name", "north"])
    assert isinstance(refused.exception, UsageError)
    assert "speaks TLS only" in str(refused.exception)


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
        async with existing_cluster(fleet) as cluster:
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

        strangers = FleetSection.model_validate(section | written(tmp_path / "theirs", TlsFiles.temporary()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clusters, "CONNECT_S", 2.0)
            with pytest.raises(UnavailableError, match="cannot be reached"):
                async with existing_cluster(strangers):
                    pass
        missing = FleetSection.model_validate(
            section | {"ca": "none.pem", "certificate": "none.pem", "key": "none.pem"}
        )
        with pytest.raises(UsageError, match="cannot be used"):
            async with existing_cluster(missing):
                pass


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
