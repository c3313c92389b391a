"""Guests of a libvirt elsewhere: their image's agent calls by an interface of its own, over a network of libvirt's."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import require, running
from platforms.libvirt_daemon import HYPERVISORS_USER, private_libvirtd
from pyroute2 import IPRoute

from virtgauge.errors import UnavailableError
from virtgauge.image.build import build, find_ingredients
from virtgauge.image.contents import DialChannel
from virtgauge.image.formats import Format
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms import create
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.base import Availability, GuestSpec
from virtgauge.platforms.libvirt.connection import library, open_connection
from virtgauge.provision.progress import silence

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.timeout(600)]
Spec = Callable[..., GuestSpec]

BRIDGE, HERE, THERE = "vgcall0", "10.213.7.1", "10.213.7.2"
NETWORK = f"<network><name>calls</name><forward mode='bridge'/><bridge name='{BRIDGE}'/></network>"
PLAN = """
name = "elsewhere"
repetitions = 1
attempts = 1
aa = false

[[platform]]
name = "host"
kind = "host"

[[platform]]
name = "guest"
kind = "libvirt"
uri = "{uri}"
image = "{image}"
accelerator = "tcg"
vcpus = 1
listen = "{listen}"
credentials = "{credentials}"
management = "{management}"

[validity]
foreign_load = 1.0
steal = 1.0
clock_ppm = 1_000_000.0

[suite.timing]
loads = ["idle"]
timers = ["rdtscp", "clock_gettime"]
reads = 20_000
sleeps = ["clock_nanosleep"]
slacks = ["default"]
targets_us = [1000]
sleep_samples = 50
max_seconds = 1.0
"""


@dataclasses.dataclass(frozen=True)
class Place:
    """A libvirt that is reached as one of another machine, its network, and an image for its guests.

    Attributes:
        remote, local: URIs of the same daemon.
        settings: of a platform, less its URI.
    """

    remote: str
    local: str
    settings: dict[str, Any]


def free_port(address: str) -> int:
    with socket.socket() as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def bridge() -> Iterator[None]:
    """A bridge of this machine, as the hypervisor's host has one, with an address for us."""
    with IPRoute() as route:
        route.link("add", ifname=BRIDGE, kind="bridge")
        try:
            index = route.link_lookup(ifname=BRIDGE)[0]
            route.addr("add", index=index, address=HERE, prefixlen=24)
            route.link("set", index=index, state="up")
            yield
        finally:
            route.link("del", ifname=BRIDGE)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    missing = [name for name in ("libvirtd", "unshare") if not shutil.which(name, path="/usr/sbin:/usr/bin:/bin")]
    try:
        library()
    except UnavailableError as error:
        missing.append(error.message)
    require(Availability(not missing, f"missing: {missing}", "virtgauge provision packages --for libvirt"), "libvirt")
    tcp = free_port("127.0.0.1")
    with bridge(), private_libvirtd(tcp) as daemon, tempfile.TemporaryDirectory(prefix="lvi") as name:
        folder = Path(name)
        local, remote = f"qemu+unix:///system?socket={daemon}", f"qemu+tcp://127.0.0.1:{tcp}/system"
        connection = open_connection(local)
        network = connection.networkCreateXML(NETWORK)
        try:
            listen = f"{HERE}:{free_port(HERE)}"
            credentials = Credentials.make()
            credentials.save(folder / "credentials.json")
            channel = DialChannel(listen, credentials.identity().encode(), f"{THERE}/24")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("VIRTGAUGE_STATE", str(folder / "state"))
                build(find_ingredients(channel, Format.QCOW2), Format.QCOW2, folder / "guest.qcow2", silence)
            for path in (folder, folder / "guest.qcow2"):  # the image is secret, and QEMU there is no root's
                os.chown(path, HYPERVISORS_USER, HYPERVISORS_USER)
            settings = {
                "image": str(folder / "guest.qcow2"),
                "accelerator": "tcg",
                "vcpus": 1,
                "listen": listen,
                "credentials": str(folder / "credentials.json"),
                "management": "network:calls",
            }
            yield Place(remote, local, settings)
        finally:
            network.destroy()
            connection.close()


@pytest.fixture
def private_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lvs") as folder:
        monkeypatch.setenv("VIRTGAUGE_STATE", f"{folder}/s")
        yield Path(folder, "s")


def domains(place: Place) -> list[str]:
    connection = open_connection(place.local)
    try:
        return [domain.name() for domain in connection.listAllDomains(0)]
    finally:
        connection.close()


def test_the_timing_suite_runs_where_only_a_call_leads_here(place: Place, private_state: Path, tmp_path: Path) -> None:
    plan, run = tmp_path / "plan.toml", tmp_path / "run"
    plan.write_text(PLAN.format(uri=place.remote, **place.settings))
    command = [sys.executable, "-c", "from virtgauge.cli import main; main()", "run", plan, "--out", run]
    done = subprocess.run(
        [*command, "--progress", "none"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Ledger.open(run) as ledger:
        _, guest = ledger.manifest().arms
        assert guest.usable, guest.reason
        trials = [trial for trial in ledger.trials() if trial.arm == "guest"]
        (launched,) = [guest for guest in ledger.guests() if guest.arm == "guest"]
    assert {trial.probe for trial in trials} == {"timer_cost", "sleep_lateness"}
    assert {trial.status for trial in trials} <= {TrialStatus.VALID, TrialStatus.INVALID}
    assert len(trials) == 3
    assert all(trial.result for trial in trials)
    assert guest.emulated
    assert "virtgauge.channel=dial:" in launched.facts["cmdline"]
    assert domains(place) == []


async def test_what_a_suite_asks_for_is_in_the_lab_beside_it(place: Place, private_state: Path, spec: Spec) -> None:
    platform = create("libvirt", place.settings | {"uri": place.local, "management": BRIDGE})
    asked = spec(ready_timeout_s=120.0)
    nic = Nic("gp0", "52:54:00:00:00:01", ("10.11.0.1/24",))
    with Namespace(asked.scope, "lab") as lab:
        async with running(platform, dataclasses.replace(asked, nics=(nic,), lab=lab)) as guest:
            answer = await guest.channel.request("read", paths=["/proc/net/fib_trie"], timeout_s=20)
            addresses = (answer.value["files"]["/proc/net/fib_trie"] or b"").decode()
            assert "10.11.0.1" in addresses
            assert THERE in addresses
            assert "gp0" in lab.interfaces()
            ports = os.listdir(f"/sys/class/net/{BRIDGE}/brif")
            assert len(ports) == 1
            assert ports != ["gp0"]
    assert os.listdir(f"/sys/class/net/{BRIDGE}/brif") == []
    assert domains(place) == []


async def test_a_guest_that_calls_elsewhere_says_nothing_of_the_accelerator(place: Place, private_state: Path) -> None:
    """The guest calls its image's port; we listen on another."""
    elsewhere = f"{HERE}:{free_port(HERE)}"
    platform = create("libvirt", place.settings | {"uri": place.remote, "listen": elsewhere, "wait_s": 1})
    found = await platform.probe()
    assert not found.usable
    assert (
        f"tcg: no guest was reached: dial-in: the guest runs, and its agent has not called {elsewhere}" in found.reason
    )
    assert domains(place) == []
