"""Two guests behind a real libvirtd that virtgauge does not control: they call, and somebody else sets their policy."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import require
from platforms.libvirt_daemon import HYPERVISORS_USER, private_libvirtd
from platforms.test_attached_runs import section

from virtgauge.console.displays import ProgressStyle, create_display
from virtgauge.errors import UnavailableError
from virtgauge.execution.run import start_run
from virtgauge.image.build import build, find_ingredients
from virtgauge.image.contents import DialChannel
from virtgauge.image.formats import Format
from virtgauge.ledger.records import TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import parse_plan
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.base import Availability
from virtgauge.platforms.libvirt.connection import library, open_connection
from virtgauge.provision.progress import silence

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.alone, pytest.mark.timeout(600)]

DOMAIN = """
<domain type="qemu">
  <name>{name}</name>
  <memory unit="MiB">512</memory>
  <vcpu placement="static" cpuset="{cpu}">1</vcpu>
  <os><type arch="x86_64" machine="pc">hvm</type><boot dev="hd"/></os>
  <features><acpi/></features>
  <cpu mode="maximum"/>
  <devices>
    <disk type="file" device="disk">
      <driver name="qemu" type="qcow2"/><source file="{image}"/><target dev="vda" bus="virtio"/>
    </disk>
    <interface type="user"><model type="virtio"/></interface>
  </devices>
</domain>
"""
PLAN = """
name = "elsewhere"
repetitions = 1
attempts = 1
reference = "pair"
aa = false
[validity]
patience_s = 0
steal = 1.0
[[platform]]
name = "pair"
kind = "attached"
{tested}
[platform.peer]
{loading}
[[suite.isolation]]
policy_set_by_hand = true
benchmarks = ["integer"]
loads = ["integer"]
policies = ["limit"]
shares = [30]
warmup_s = 0.2
seconds = 1.0
"""
PERIOD_US = 100_000


@pytest.fixture
def private_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lvs") as folder:
        monkeypatch.setenv("VIRTGAUGE_STATE", f"{folder}/s")
        yield Path(folder, "s")


@contextlib.contextmanager
def machine(connection: Any, folder: Path, name: str) -> Iterator[tuple[Any, dict[str, object]]]:
    """A domain that calls this machine, and the section of a plan that lets it in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    there = f"10.0.2.2:{port}"  # this machine, as QEMU's own network has it
    credentials, image = Credentials.make(), folder / f"{name}.qcow2"
    credentials.save(folder / name)
    channel = DialChannel(there, credentials.identity().encode(), "10.0.2.15/24")
    build(find_ingredients(channel, Format.QCOW2), Format.QCOW2, image, silence)
    os.chown(image, HYPERVISORS_USER, HYPERVISORS_USER)
    domain = connection.createXML(DOMAIN.format(name=name, image=image, cpu=max(os.sched_getaffinity(0))))
    listening = {"listen": f"127.0.0.1:{port}", "advertise": there, "credentials": str(folder / name), "wait_s": 180}
    try:
        yield domain, {"via": "dial-in"} | listening
    finally:
        domain.destroy()


@pytest.fixture
def machines(private_state: Path) -> Iterator[tuple[Any, str]]:
    """The tested domain, and a plan for it beside the loading one, both on one processor."""
    missing = [name for name in ("libvirtd", "unshare") if not shutil.which(name, path="/usr/sbin:/usr/bin:/bin")]
    try:
        library()
    except UnavailableError as error:
        missing.append(error.message)
    require(Availability(not missing, f"missing: {missing}", "virtgauge provision packages --for libvirt"), "libvirt")
    with private_libvirtd() as daemon, tempfile.TemporaryDirectory(prefix="lvi") as name:
        folder = Path(name)
        os.chown(folder, HYPERVISORS_USER, HYPERVISORS_USER)
        connection = open_connection(f"qemu+unix:///system?socket={daemon}")
        try:
            with machine(connection, folder, "one") as one, machine(connection, folder, "two") as two:
                yield one[0], PLAN.format(tested=section(one[1]), loading=section(two[1]))
        finally:
            connection.close()


def measured(plan: str, folder: Path) -> TrialRecord:
    start_run(parse_plan(plan, "plan"), "plan", folder, create_display(ProgressStyle.NONE))
    with Ledger.open(folder) as ledger:
        (trial,) = ledger.trials()
        assert ledger.manifest().arms[0].emulated
    return trial


def test_what_an_administrator_sets_at_the_hypervisor_is_seen_from_inside(
    machines: tuple[Any, str], tmp_path: Path
) -> None:
    """Before it holds the guest back, the trial counts for nothing; afterwards, that is no reason."""
    domain, plan = machines
    forgotten = measured(plan, tmp_path / "forgotten")
    assert "policy-not-in-force" in {flag.name for flag in forgotten.flags}, forgotten.error
    domain.setSchedulerParametersFlags({"vcpu_period": PERIOD_US, "vcpu_quota": round(0.3 * PERIOD_US)}, 0)
    for number in range(3):  # a pause of this machine holds a guest back, too
        limited = measured(plan, tmp_path / f"limited{number}")
        if "policy-not-in-force" not in {flag.name for flag in limited.flags}:
            break
    assert limited.error is None
    assert limited.result["policy_applied"]["tested"]["in_force"].keys() == {"alone", "beside a busy neighbour"}
    assert "policy-not-in-force" not in {flag.name for flag in limited.flags}, limited.flags
