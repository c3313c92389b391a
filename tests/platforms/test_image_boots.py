"""An image boots in machines with the devices of every hypervisor: agent on the serial line, card and disk driven."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platforms.image_machines import DEVICES, MAC, ImageMachines, free_ports, machine, require_firmware

from virtgauge.console.displays import ProgressStyle, create_display
from virtgauge.execution.run import start_run
from virtgauge.image.build import build, find_ingredients
from virtgauge.image.contents import DialChannel, SerialChannel
from virtgauge.image.formats import Format
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import parse_plan
from virtgauge.platforms import KINDS
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.attached.platform import AttachedPlatform
from virtgauge.platforms.base import Guest, GuestSpec, LaunchError
from virtgauge.provision.boot_loader import find_boot_loader
from virtgauge.provision.progress import silence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Spec = Callable[..., GuestSpec]

_READY_S = 180.0
_HOST_MAC = bytes.fromhex("525400000001")
_GUEST_ADDRESS, _HOST_ADDRESS = "10.9.0.1", "10.9.0.2"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Format], Path]:
    """Builds each format once."""
    folder = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTGAUGE_STATE", str(folder / "state"))

        def image(format: Format) -> Path:
            path = folder / f"image.{format}"
            if not path.exists():
                with pytest.MonkeyPatch.context() as own:
                    own.setenv("VIRTGAUGE_STATE", str(folder / "state"))
                    build(find_ingredients(SerialChannel(), format), format, path, silence)
            return path

        return image


async def files(guest: Guest, *paths: str) -> list[str]:
    answer = await guest.channel.request("read", paths=list(paths), timeout_s=20)
    return [(answer.value["files"][path] or b"").decode() for path in paths]


async def frames_both_ways(guest: Guest, port: int) -> None:
    """Whatever the guest sends comes out of the card, and what is sent to the card comes to the guest."""
    loop = asyncio.get_running_loop()
    wire = socket.socket(type=socket.SOCK_DGRAM)
    wire.setblocking(False)
    wire.bind(("127.0.0.1", port))
    try:
        configured = await guest.channel.request(
            "network", interfaces=[{"mac": MAC, "addresses": [f"{_GUEST_ADDRESS}/24"]}], forwarding=False, timeout_s=30
        )
        assert len(configured.value["interfaces"]) == 1
        load = await guest.channel.request(
            "load_start",
            name="cross_traffic",
            params={
                "destination": f"{_HOST_ADDRESS}:9",
                "rate_bps": 1e5,
                "packet_bytes": 500,
                "kind": "constant",
                "cpu": None,
                "fifo": None,
                "seed": 1,
            },
            timeout_s=30,
        )
        async with asyncio.timeout(60):
            while True:
                frame = await loop.sock_recv(wire, 2048)
                kind = frame[12:14]
                if kind == b"\x08\x06" and frame[38:42] == socket.inet_aton(_HOST_ADDRESS):
                    await loop.sock_sendto(wire, _answer(frame), ("127.0.0.1", port + 1))
                elif kind == b"\x08\x00":  # sent only once it knows our address, so the answer came in
                    assert frame[:6] == _HOST_MAC
                    assert frame[26:30] == socket.inet_aton(_GUEST_ADDRESS)
                    break
        await guest.channel.request("load_stop", load=load.value["load"], timeout_s=30)
    finally:
        wire.close()


def _answer(request: bytes) -> bytes:
    """The answer to an ARP request (RFC 826)."""
    asking, asked = request[22:32], request[38:42]
    body = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + _HOST_MAC + asked + asking
    return (request[6:12] + _HOST_MAC + b"\x08\x06" + body).ljust(60, b"\0")


async def check_boot(image: Path, name: str, spec: GuestSpec) -> None:
    devices, port = DEVICES[name], free_ports()
    async with machine(spec, image=image, devices=name, frames=port) as guest:
        facts = await guest.channel.facts()
        assert facts["init"] is True
        assert facts["agent_sha256"] == spec.agent.sha256
        assert "virtgauge.modules=auto" in facts["cmdline"]
        uevent, modules = await files(guest, "/sys/class/net/eth0/device/uevent", "/proc/modules")
        assert devices.driver in _driver(uevent, modules)
        if devices.disk is not None:
            async with asyncio.timeout(20):  # a controller looks for its disks in the background
                while devices.disk not in (await files(guest, "/proc/partitions"))[0].split():
                    await asyncio.sleep(0.1)
        await frames_both_ways(guest, port)


def _driver(uevent: str, modules: str) -> set[str]:
    """Which driver a card has: its own word, and for virtio's the module behind the bus."""
    named = {line.removeprefix("DRIVER=") for line in uevent.splitlines() if line.startswith("DRIVER=")}
    return named & {line.split()[0] for line in modules.splitlines()}


async def test_a_disk_boots_with_the_devices_of_esxi(images: Any, spec: Spec, private_state: Path) -> None:
    await check_boot(images(Format.RAW), "ESXi", spec(ready_timeout_s=_READY_S))


@pytest.mark.lab
@pytest.mark.parametrize("name", DEVICES)
async def test_it_boots_with_the_devices_of_every_hypervisor(
    images: Any, spec: Spec, private_state: Path, name: str
) -> None:
    require_firmware()
    format = Format.ISO if DEVICES[name].disk is None else Format.RAW
    await check_boot(images(format), name, spec(ready_timeout_s=_READY_S))


@pytest.mark.lab
async def test_secure_boot_starts_no_boot_loader_that_was_changed(
    images: Any, spec: Spec, private_state: Path, tmp_path: Path
) -> None:
    require_firmware()
    boot_loader = find_boot_loader()
    assert boot_loader is not None
    disk = bytearray(images(Format.RAW).read_bytes())
    disk[disk.index(b"Unifont", disk.index(boot_loader.efi_grub.read_bytes()[:4096]))] ^= 1  # the name of a font in it
    (tmp_path / "changed.raw").write_bytes(disk)
    with pytest.raises(LaunchError) as caught:
        async with machine(spec(ready_timeout_s=60.0), image=tmp_path / "changed.raw", devices="Secure Boot"):
            pass
    assert "Security Violation" in caught.value.log_tail


@pytest.mark.lab
@pytest.mark.parametrize("format", [Format.QCOW2, Format.VMDK, Format.VHD, Format.VHDX, Format.VDI])
async def test_it_boots_in_every_format(images: Any, spec: Spec, private_state: Path, format: Format) -> None:
    asked = spec(ready_timeout_s=_READY_S)
    driver = "vpc" if format is Format.VHD else format.value
    async with machine(asked, image=images(format), format=driver, devices="VirtualBox, PIIX") as guest:
        assert (await guest.channel.facts())["agent_sha256"] == asked.agent.sha256


@pytest.mark.lab
async def test_the_agent_of_an_image_calls_with_the_images_identity(
    spec: Spec, private_state: Path, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    there = f"10.0.2.2:{port}"  # this machine, as QEMU's own network has it
    credentials = Credentials.make()
    credentials.save(tmp_path / "credentials")
    channel = DialChannel(there, credentials.identity().encode(), "10.0.2.15/24")
    image = tmp_path / "image.raw"
    build(find_ingredients(channel, Format.RAW), Format.RAW, image, silence)
    assert image.stat().st_mode & 0o777 == 0o600
    settings = AttachedPlatform.Settings(
        via="dial-in",
        listen=f"127.0.0.1:{port}",
        advertise=there,
        credentials=tmp_path / "credentials",
        wait_s=90.0,
    )
    asked = spec(ready_timeout_s=60.0)
    platform = AttachedPlatform(settings)
    await platform.begin(asked.scope, asked.agent)
    machines = ImageMachines(ImageMachines.Settings(image=image, devices="ESXi"))
    with machines.calling(asked):
        guest = await platform.launch(asked)
        try:
            facts = await guest.channel.facts()
            assert facts["hypervisor"]["present"] is True
            assert "virtgauge.channel=dial:" in facts["cmdline"]
            told = platform.emulation(facts)
            assert told is not None
            assert told.certain
        finally:
            await guest.close()


PLAN = """
name = "image"
seed = 3
repetitions = 1
attempts = 2
reference = "host"
aa = false
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "image"
kind = "qemu"
image = "{image}"
devices = "ESXi"
[[suite.timing]]
loads = ["idle"]
timers = ["rdtscp", "clock_gettime"]
reads = 100_000
sleeps = ["usleep"]
slacks = ["default"]
sleep_samples = 100
[validity]
foreign_load = 1.0
steal = 1.0
clock_ppm = 1_000_000.0
"""


@pytest.mark.lab
def test_the_timing_suite_runs_through_an_image(
    images: Any, tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "qemu", "platforms.image_machines:ImageMachines")
    plan = parse_plan(PLAN.format(image=images(Format.RAW)), "plan")
    assert start_run(plan, "plan", tmp_path / "run", create_display(ProgressStyle.NONE))
    with Ledger.open(tmp_path / "run") as ledger:
        trials = [trial for trial in ledger.trials() if trial.status is TrialStatus.VALID]
        assert {(trial.arm, trial.probe, trial.factors["function"]) for trial in trials} == {
            (arm, probe, function)
            for arm in ("host", "image")
            for probe, function in (
                ("timer_cost", "rdtscp"),
                ("timer_cost", "clock_gettime"),
                ("sleep_lateness", "usleep"),
            )
        }
        guests = {guest.arm: guest.facts for guest in ledger.guests()}
        assert guests["image"]["init"] is True
        assert guests["image"]["hypervisor"]["present"] is True
        emulated = {arm.name: arm.emulated for arm in ledger.manifest().arms}
        assert emulated == {"host": False, "image": True}
