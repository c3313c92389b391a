"""Machines of QEMU with the devices of other hypervisors, which boot an image and have its agent on a serial line."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

from platforms.conftest import descriptors, traces
from pydantic import BaseModel, ConfigDict

from virtgauge.agent.serial import serial_streams
from virtgauge.host.process import child_setup, end_process, wait_for_exit
from virtgauge.platforms.attempt import ProcessAttempt, SocketPair
from virtgauge.platforms.base import Availability, Guest, GuestSpec, Platform
from virtgauge.platforms.local import LocalGuest, guest_place

FIRMWARE = Path("/usr/share/OVMF")
MAC = "52:54:00:12:34:56"


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a hypervisor gives its guests.

    Attributes:
        machine: QEMU's type.
        boots_from: the device that holds the image.
        card: its network card.
        driver: of the card, as the guest's kernel calls it.
        disk: what the guest calls the disk; None where it has none.
        uefi: the firmware is UEFI, else a BIOS.
        secure: it starts nothing unsigned.
    """

    machine: str
    boots_from: tuple[str, ...]
    card: str
    driver: str
    disk: str | None
    uefi: bool = False
    secure: bool = False


_IDE = ("-device", "ide-hd,drive=image")
_AHCI = ("-device", "ich9-ahci,id=ahci", "-device", "ide-hd,drive=image,bus=ahci.0")
_PVSCSI = ("-device", "pvscsi,id=scsi", "-device", "scsi-hd,drive=image,bus=scsi.0")
_NOTHING = "if=none,id=second,format=raw,file.driver=null-co,file.size=64M"
_SECOND = ("-drive", _NOTHING, "-device", "pvscsi,id=scsi", "-device", "scsi-hd,drive=second,bus=scsi.0")
_CD = ("-device", "ide-cd,drive=image")

DEVICES = {
    "ESXi": Devices("pc", _PVSCSI, "vmxnet3", "vmxnet3", "sda"),
    # QEMU's firmware for UEFI, as Debian builds it, cannot read from PVSCSI: there is a second disk on it.
    "ESXi, UEFI": Devices("q35", (*_IDE, *_SECOND), "vmxnet3", "vmxnet3", "sdb", uefi=True),
    "VirtualBox, PIIX": Devices("pc", _IDE, "e1000", "e1000", "sda"),
    "VirtualBox, AHCI": Devices("pc", _AHCI, "e1000", "e1000", "sda"),
    "VirtualBox, PCnet": Devices("pc", _AHCI, "pcnet", "pcnet32", "sda"),
    "VirtualBox, UEFI": Devices("q35", _IDE, "e1000", "e1000", "sda", uefi=True),
    "Hyper-V, generation 1": Devices("pc", _IDE, "tulip", "tulip", "sda"),
    "KVM": Devices("pc", ("-device", "virtio-blk-pci,drive=image"), "virtio-net-pci", "virtio_net", "vda"),
    "KVM, SCSI, UEFI": Devices(
        "q35",
        ("-device", "virtio-scsi-pci,id=scsi", "-device", "scsi-hd,drive=image,bus=scsi.0"),
        "virtio-net-pci",
        "virtio_net",
        "sda",
        uefi=True,
    ),
    "Proxmox, e1000e": Devices("q35", _IDE, "e1000e", "e1000e", "sda"),
    "CD": Devices("pc", _CD, "e1000", "e1000", None),
    "CD, UEFI": Devices("q35", _CD, "e1000e", "e1000e", None, uefi=True),
    "Secure Boot": Devices("q35", _IDE, "e1000", "e1000", "sda", uefi=True, secure=True),
}


class ImageMachines(Platform):
    """A platform of these machines, for whatever takes one."""

    kind: ClassVar[str] = "qemu"
    is_virtual: bool = True
    emulated: bool = True

    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        image: Path
        format: str = "raw"
        devices: str = "ESXi"
        frames: int | None = None
        """UDP port of this machine's loopback to which the card's frames go, and its successor from which they come."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def label(self) -> str:
        return f"QEMU with the devices of {self.settings.devices} (tcg, emulated)"

    async def probe(self) -> Availability:
        usable = shutil.which("qemu-system-x86_64") is not None and FIRMWARE.is_dir()
        return Availability(usable, "QEMU and OVMF" if usable else "QEMU or OVMF is missing")

    async def launch(self, spec: GuestSpec) -> Guest:
        with contextlib.ExitStack() as removal:
            folder, cgroup = guest_place(spec, removal)
            attempt = ProcessAttempt(spec, "QEMU", folder / "qemu.log", folder / "serial.log")
            pair = SocketPair()
            removal.callback(pair.close)
            with cgroup.entrance() as join:
                process = attempt.start(
                    self._arguments(folder, f"socket,fd={pair.theirs.fileno()}", self._wire()),
                    removal,
                    log=folder / "qemu.log",
                    steps=(join,),
                    descriptors=(pair.theirs.fileno(),),
                )
            pair.theirs.close()
            heard = removal.enter_context((folder / "serial.log").open("wb", buffering=0))
            channel = await attempt.open_channel(*serial_streams(*await pair.streams(), heard.write))

            async def end() -> None:
                await wait_for_exit(process, 5.0)

            return LocalGuest(
                channel=channel,
                ready_ns=attempt.ready_ns(),
                label=self.label,
                cgroup=cgroup,
                pid=process.pid,
                removal=removal.pop_all(),
                before_removal=end,
            )

    def _arguments(self, folder: Path, line: str, wire: str) -> list[str]:
        asked = self.settings
        devices = DEVICES[asked.devices]
        media = ",media=cdrom" if devices.disk is None else ",snapshot=on"
        return [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", devices.machine + (",smm=on" if devices.secure else "")),
            *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "512M"),
            *("-vga", "std", "-chardev", f"{line},id=line", "-serial", "chardev:line"),
            *(self._firmware(folder, devices.secure) if devices.uefi else ()),
            *("-drive", f"if=none,id=image,format={asked.format},file={asked.image}{media}"),
            *devices.boots_from,
            *("-netdev", f"{wire},id=wire"),
            *("-device", f"{devices.card},netdev=wire,mac={MAC},romfile="),
        ]

    def _wire(self) -> str:
        if (port := self.settings.frames) is None:
            return "hubport,hubid=0"
        return f"socket,udp=127.0.0.1:{port},localaddr=127.0.0.1:{port + 1}"

    @contextlib.contextmanager
    def calling(self, spec: GuestSpec) -> Iterator[None]:
        """A machine whose agent calls this one; without a gateway it reaches nobody else."""
        folder = spec.scope.guest_folder(f"{spec.name}-machine")
        cgroup = spec.scope.cgroup(f"{spec.name}-machine")
        try:
            with cgroup.entrance() as join, (folder / "qemu.log").open("wb") as log:
                process = subprocess.Popen(
                    self._arguments(folder, f"file,path={folder / 'serial.log'}", "user"),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=spec.scope.environment(),
                    preexec_fn=child_setup(join),
                    start_new_session=True,
                )
            try:
                yield
            finally:
                end_process(process)
        finally:
            cgroup.kill_all()
            cgroup.remove()
            shutil.rmtree(folder)

    def _firmware(self, folder: Path, secure: bool) -> list[str]:
        kind = "OVMF_CODE_4M.secboot.fd" if secure else "OVMF_CODE_4M.fd"
        settings = folder / "settings.fd"
        shutil.copy(FIRMWARE / ("OVMF_VARS_4M.ms.fd" if secure else "OVMF_VARS_4M.fd"), settings)
        guarded = ("-global", "driver=cfi.pflash01,property=secure,value=on") if secure else ()
        return [
            *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE / kind}"),
            *("-drive", f"if=pflash,format=raw,unit=1,file={settings}"),
            *guarded,
        ]


@contextlib.asynccontextmanager
async def machine(spec: GuestSpec, **settings: Any) -> AsyncIterator[Guest]:
    """A machine that has booted an image, and is gone at the end."""
    before = descriptors()
    guest = await ImageMachines(ImageMachines.Settings(**settings)).launch(spec)
    try:
        yield guest
    finally:
        await guest.close()
    assert not (spec.scope.folder / spec.name).exists()
    assert traces(f"{spec.scope.tag}/{spec.name}") == []
    assert descriptors() <= before + 2  # a transport closes its own in a later turn of the loop


def free_ports() -> int:
    """The first of two UDP ports of the loopback, one after the other, that are free."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as first, socket.socket(type=socket.SOCK_DGRAM) as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 1))
                return port


def require_firmware() -> None:
    """Fail where the firmware is missing, unless the machine's owner said that it may be."""
    allowed = os.environ.get("VIRTGAUGE_ALLOW_MISSING", "").split(",")
    assert FIRMWARE.is_dir() or "ovmf" in allowed, "apt install ovmf; VIRTGAUGE_ALLOW_MISSING=ovmf allows it"
