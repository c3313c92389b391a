"""A real database server in a guest, its data on the guest's disk, used from outside over the guest's link."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pwd
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from platforms.conftest import kept_in_loops, require, running
from platforms.disk_checks import PLATFORMS, disk, shell
from sampled import sampled

from virtgauge.host.scope import Scope
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms import create
from virtgauge.platforms.base import Disk, Guest, GuestSpec, Platform
from virtgauge.platforms.local import HostPlatform
from virtgauge.platforms.qemu.platform import QemuGuest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
Spec = Callable[..., GuestSpec]

SERVER, CLIENT = "10.213.0.1", "10.213.0.2"
PATIENCE_S = 120.0
AS_POSTGRES = "setpriv --reuid=postgres --regid=postgres --clear-groups"


@pytest.fixture(autouse=True)
def private_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder that the server's own user can pass through, which pytest's folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="virtgauge-test-"))
    folder.chmod(0o711)
    monkeypatch.setenv("VIRTGAUGE_STATE", str(folder / "state"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def programs() -> Path:
    """PostgreSQL's own programs, whose folder is named after the version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    assert found, "apt install postgresql"
    pwd.getpwnam("postgres")
    return found[-1].parent


@pytest_asyncio.fixture(params=sampled(["runc"], ["host", "runsc", "microvm"]))
async def platform(request: pytest.FixtureRequest) -> Platform:
    kind, settings = PLATFORMS[request.param]
    platform = create(kind, settings)
    require(await platform.probe(), request.param)
    return platform


@dataclasses.dataclass
class Server:
    """PostgreSQL in a guest, and a peer at the other end of its link."""

    guest: Guest
    peer: Guest
    programs: Path
    folder: Path

    async def make(self) -> None:
        """Initialize the data folder, with small segments of the log: the disk is small."""
        folder = self.folder
        initdb = f"{self.programs}/initdb -D {folder}/db -U postgres -A trust --wal-segsize=1 -E UTF8 --locale=C"
        code, output = await shell(
            self.guest,
            f"install -d -m 700 -o postgres -g postgres {folder}/db && cd / && {AS_POSTGRES} {initdb} "
            f"&& echo 'host all all {CLIENT}/32 trust' >> {folder}/db/pg_hba.conf",
            PATIENCE_S,
        )
        assert code == 0, output

    async def start(self) -> int:
        """Start the server as a load, until it answers; the load's number."""
        settings = f"-c listen_addresses={SERVER} -c unix_socket_directories= -c shared_buffers=8MB"
        settings += " -c max_wal_size=4MB -c min_wal_size=2MB -c autovacuum=off"
        command = f"exec {AS_POSTGRES} {self.programs}/postgres -D {self.folder}/db {settings} > {self.folder}/log 2>&1"
        argv = ["/bin/sh", "-c", f"cd /; {command}"]
        started = await self.guest.channel.request(
            "load_start", name="program", params={"argv": argv}, timeout_s=PATIENCE_S
        )
        deadline = time.monotonic() + PATIENCE_S
        while (answer := await self.query("SELECT 1"))[0] != 0:
            assert time.monotonic() < deadline, (answer, await shell(self.guest, f"cat {self.folder}/log"))
            await asyncio.sleep(0.3)
        return int(started.value["load"])

    async def query(self, text: str) -> tuple[int | None, str]:
        """What psql says, at the other end of the link."""
        return await shell(self.peer, f'psql -h {SERVER} -U postgres -XAtq -c "{text}"', PATIENCE_S)


@contextlib.asynccontextmanager
async def server(platform: Platform, scope: Scope, spec: Spec, data: Disk, programs: Path) -> AsyncIterator[Server]:
    with Namespace(scope, "lab") as lab:
        nic = Nic(port="db", mac="52:54:00:db:00:01", addresses=(f"{SERVER}/24",))
        asked = spec(nics=(nic,), lab=lab, disks=(data,), host_root=True)
        async with running(platform, asked) as guest, running(HostPlatform(), spec(lab=lab)) as peer:
            interface = {"name": "db", "addresses": [f"{CLIENT}/24"]}
            await peer.channel.request("network", interfaces=[interface], forwarding=False, timeout_s=30)
            yield Server(guest, peer, programs, data.folder)


async def test_postgresql_serves_fills_its_disk_and_survives_what_it_flushed(
    platform: Platform, scope: Scope, spec: Spec, programs: Path
) -> None:
    """Set up, used, killed or crashed, and started again on the same disk by another guest."""
    data = disk(scope, 64, "data")
    async with server(platform, scope, spec, data, programs) as database:
        await database.make()
        await database.start()
        assert await database.query("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS x") == (0, "")
        code, output = await database.query(
            "CREATE UNLOGGED TABLE filler AS SELECT repeat(md5(x::text), 30) FROM generate_series(1, 100000) AS x"
        )
        assert code == 1
        assert "could not extend file" in output
        assert await database.query("SELECT count(*), sum(x) FROM kept") == (0, "1000|500500\n")
        assert await database.query("INSERT INTO kept VALUES (1001)") == (0, "")
        if isinstance(database.guest, QemuGuest):
            await database.guest.crash()
        else:
            await shell(database.guest, f"kill -9 $(head -1 {data.folder}/db/postmaster.pid)")
    assert not kept_in_loops(data.image)
    async with server(platform, scope, spec, data, programs) as database:
        load = await database.start()
        assert await database.query("SELECT count(*) FROM kept") == (0, "1001\n")
        stopped = (await database.guest.channel.request("load_stop", load=load, timeout_s=60)).value
        assert stopped["ended_early"] is False
    assert not kept_in_loops(data.image)
