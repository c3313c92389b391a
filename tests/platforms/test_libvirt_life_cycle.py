"""The life of a domain, on libvirt's test driver: real calls, and a process of this machine as the guest."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import require, running

from virtgauge.agent import find_agent
from virtgauge.errors import UnavailableError
from virtgauge.host.domains import DomainRecord, destroy_domains
from virtgauge.host.policy import Policy
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.base import Availability, GuestSpec, LaunchError
from virtgauge.platforms.libvirt.connection import DomainHandle, LibvirtError, called, library, open_connection, waited
from virtgauge.platforms.libvirt.platform import LibvirtPlatform, LibvirtSettings
from virtgauge.platforms.libvirt.settings import DRIVERS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
Spec = Callable[..., GuestSpec]
URI = "test:///default"
XML = "<domain type='test'><name>{}</name><memory>8192</memory><os><type>hvm</type></os></domain>"


@pytest.fixture(autouse=True)
def hypervisor() -> Iterator[Any]:
    """A connection that keeps the test driver's state: it is forgotten with the last one."""
    try:
        library()
    except UnavailableError as error:
        require(Availability(False, error.message, error.remedy), "libvirt")
    connection = open_connection(URI)
    yield connection
    connection.close()


@pytest.fixture
def private_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lvs") as folder:
        monkeypatch.setenv("VIRTGAUGE_STATE", f"{folder}/s")
        yield Path(folder, "s")


@pytest.fixture(params=[True, False], ids=["transient", "defined"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LibvirtPlatform:
    """One whose domains are started at once, as Xen's, or defined first, as VirtualBox's, ESXi's and Hyper-V's."""
    monkeypatch.setitem(DRIVERS, "test", dataclasses.replace(DRIVERS["test"], transient=request.param))
    return LibvirtPlatform(LibvirtSettings(uri=URI, image="/images/guest.raw"))


def names(hypervisor: Any) -> list[str]:
    return sorted(domain.name() for domain in hypervisor.listAllDomains(0))


@contextlib.asynccontextmanager
async def stand_in(spec: GuestSpec) -> AsyncIterator[None]:
    """The agent, in the place of a guest: it connects as soon as somebody listens."""
    socket = spec.scope.folder / spec.name / "agent.sock"
    processes: list[subprocess.Popen[bytes]] = []

    async def connect() -> None:
        while not socket.exists():
            await asyncio.sleep(0.01)
        processes.append(subprocess.Popen([spec.agent.path, "--channel", socket], stdin=subprocess.DEVNULL))

    task = asyncio.create_task(connect())
    try:
        yield
    finally:
        task.cancel()
        for process in processes:
            process.kill()
            process.wait()


async def test_a_guest_lives_and_leaves_nothing(platform: LibvirtPlatform, hypervisor: Any, spec: Spec) -> None:
    before, asked = names(hypervisor), spec()
    assert (await platform.probe()).usable
    async with stand_in(asked), running(platform, asked) as guest:
        name = f"{asked.scope.tag}-{asked.name}"
        assert names(hypervisor) == sorted([*before, name])
        assert asked.scope.tag in hypervisor.lookupByName(name).XMLDesc(0).partition("<description>")[2]
        assert (await guest.channel.facts())["agent_sha256"] == asked.agent.sha256
        applied = await guest.apply(Policy(cpu_limit=0.5, cores=(0,)))
        assert applied.in_force == {}
        assert [part.split(":")[0] for part in applied.no_effect] == ["cpu_limit", "cores"]
        await guest.crash()
        assert hypervisor.lookupByName(name).isActive() == 0 if name in names(hypervisor) else True
    assert names(hypervisor) == before


async def test_a_guest_that_never_connects_is_a_launch_error(
    platform: LibvirtPlatform, hypervisor: Any, spec: Spec
) -> None:
    before = names(hypervisor)
    with pytest.raises(LaunchError, match="nothing came over its channel in time"):
        await platform.launch(spec(ready_timeout_s=0.5))
    assert names(hypervisor) == before


async def test_a_guest_whose_agent_never_calls_is_a_launch_error_that_says_what_to_look_at(
    hypervisor: Any, spec: Spec, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    Credentials.make().save(tmp_path / "credentials")
    settings = {"listen": listen, "credentials": tmp_path / "credentials", "management": "network:default", "wait_s": 2}
    platform = LibvirtPlatform(LibvirtSettings(uri=URI, image="/images/guest.raw", **settings))
    before = names(hypervisor)
    launch = asyncio.create_task(platform.launch(spec(ready_timeout_s=0.5)))
    writer = None
    while writer is None:
        with contextlib.suppress(ConnectionRefusedError):
            _, writer = await asyncio.open_connection(*listen.split(":"))
        await asyncio.sleep(0.01)
    (defined,) = set(names(hypervisor)) - set(before)
    assert "<source network='default'/>" in hypervisor.lookupByName(defined).XMLDesc(0)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    with pytest.raises(LaunchError) as caught:
        await launch
    writer.close()
    assert caught.value.stage == "dial-in"
    for words in (f"has not called {listen} within 2 s", "1 did not speak TLS", f"--dial {listen}", "wait_s"):
        assert words in str(caught.value)
    assert names(hypervisor) == before


async def test_a_cancelled_launch_leaves_no_domain(platform: LibvirtPlatform, hypervisor: Any, spec: Spec) -> None:
    before = names(hypervisor)
    for after_s in (0.0, 0.01, 0.2):
        launch = asyncio.create_task(platform.launch(spec()))
        await asyncio.sleep(after_s)
        launch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launch
        assert names(hypervisor) == before


def test_a_start_after_the_removal_does_nothing(hypervisor: Any) -> None:
    before, handle = names(hypervisor), DomainHandle(URI, "vg012345-late")
    handle.remove()
    handle.start(XML.format(handle.name), transient=True, auto_destroy=False, paused=False)
    assert names(hypervisor) == before
    assert handle.end() == "the domain is not there"


def test_the_reclaim_destroys_what_a_record_names_and_nothing_else(hypervisor: Any, tmp_path: Path) -> None:
    before = names(hypervisor)
    for name in ("running", "defined", "other"):
        hypervisor.defineXML(XML.format(f"vg012345-{name}"))
    hypervisor.lookupByName("vg012345-running").create()
    for name in ("running", "defined", "never"):
        (tmp_path / name).mkdir()
        DomainRecord(URI, f"vg012345-{name}").write(tmp_path / name)
    assert destroy_domains(tmp_path) == [
        "destroyed the domain vg012345-defined",
        "destroyed the domain vg012345-running",
    ]
    assert names(hypervisor) == sorted([*before, "vg012345-other"])
    assert destroy_domains(tmp_path) == []
    hypervisor.lookupByName("vg012345-other").undefine()


async def test_disks_folders_and_unnamed_networks_are_refused_before_anything_starts(
    platform: LibvirtPlatform, hypervisor: Any, spec: Spec, scope: Scope
) -> None:
    from virtgauge.network import Nic
    from virtgauge.network.namespace import Namespace

    before = names(hypervisor)
    with pytest.raises(LaunchError, match="nothing of this machine's programs"):
        await platform.launch(spec(host_root=True))
    with Namespace(scope, "lab") as lab, pytest.raises(LaunchError, match=r"networks = \[\].*for each"):
        await platform.launch(spec(nics=(Nic("gp0", "52:54:00:00:00:01"),), lab=lab))
    assert names(hypervisor) == before


@pytest.mark.parametrize(
    ("uri", "reason", "fix"),
    [
        ("qemu+unix:///system?socket=/nowhere/libvirt-sock", "Failed to connect socket", "systemctl start libvirtd"),
        ("esx://root@hypervisor.invalid/", "cannot open esx://root@hypervisor.invalid/", None),
    ],
)
async def test_a_libvirt_that_refuses_is_told_with_a_remedy(
    uri: str, reason: str, fix: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    found = await LibvirtPlatform(LibvirtSettings(uri=uri, image="x.vmdk" if "esx" in uri else None)).probe()
    assert not found.usable
    assert reason in found.reason
    assert fix is None or fix in (found.fix or "")
    assert "libvirt:" not in capfd.readouterr().err, "libvirt's own printing is silenced"


@pytest.mark.parametrize("uri", ["test:///default", "qemu+ssh://root@other.invalid/system"])
async def test_a_driver_without_its_image_says_how_to_make_one(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = LibvirtPlatform(LibvirtSettings(uri=uri))
    monkeypatch.setattr(platform, "_look", lambda: {"libvirt": "9.0.0"})
    found = await platform.probe()
    assert not found.usable
    assert "image is not set" in found.reason
    assert "virtgauge image" in (found.fix or "")


async def test_without_the_module_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    library.cache_clear()
    try:
        found = await LibvirtPlatform().probe()
        assert not found.usable
        assert "pip install 'virtgauge[libvirt]'" in (found.fix or "")
        with Scope() as scope, pytest.raises(LaunchError, match="the Python module of libvirt is not there"):
            await LibvirtPlatform().launch(GuestSpec(name="g", scope=scope, agent=find_agent()))
    finally:
        monkeypatch.undo()
        library.cache_clear()


async def test_a_hypervisor_that_does_not_answer_is_given_up() -> None:
    import threading

    forever = threading.Event()
    with pytest.raises(LibvirtError, match=r"the question: no answer within 0\.05 s"):
        await called("the question", forever.wait, 0.05)
    with pytest.raises(LibvirtError, match="no answer within"):
        waited("the question", forever.wait, 0.05)
    forever.set()
