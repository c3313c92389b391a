"""What an image carries: the agent, a kernel with its drivers, and what it dials.

They are in archives that the kernel unpacks into its first root file system: cpio "newc", see
the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from virtgauge.agent import AgentBinary
from virtgauge.errors import UnavailableError, UsageError
from virtgauge.provision.boot_loader import BootLoader
from virtgauge.provision.kernel import GuestKernel, ModuleError, module_closure, module_content, module_name

SERIAL_DEVICE = "/dev/ttyS0"  # The first serial port (COM1), where every hypervisor can put one
DEFAULT_PATIENCE_S = 3600  # Longer than the other platforms of a plan take for their part of a block


@dataclasses.dataclass(frozen=True)
class SerialChannel:
    """The agent speaks on a serial line, which the hypervisor connects with a socket or a pipe.
    Raises UsageError: that is no serial line.
    """

    device: str = SERIAL_DEVICE
    secret: ClassVar[bool] = False  # Whether an image with it is for its owner only

    def __post_init__(self) -> None:
        if not re.fullmatch(r"/dev/(ttyS\d{1,2}|hvc\d|ttyAMA\d)", self.device):
            raise UsageError(f"{self.device!r} is no serial line of a guest", "such as /dev/ttyS0, or /dev/hvc0 on Xen")

    def words(self) -> tuple[str, ...]:
        """Words for the kernel's command line."""
        return (f"virtgauge.channel=serial:{self.device}",)

    def files(self) -> Mapping[str, bytes]:
        """Files for the first root file system, by path without a leading slash."""
        return {}

    def describe(self) -> dict[str, str]:
        """What the record says of the channel; no secret is in it."""
        return {"kind": "serial", "device": self.device}


@dataclasses.dataclass(frozen=True)
class DialChannel:
    """The agent calls the controller over TLS, with the identity that ``virtgauge attach prepare`` made.
    Raises UsageError: one of them is not what it should be, or the identity has expired.
    """

    controller: str  # IPv4 address and port
    # the file's content; whoever has it can be this guest until it expires
    identity: bytes = dataclasses.field(repr=False)
    address: str  # of the guest, with the length of its network's prefix
    gateway: str | None = None  # where the controller is on another network
    nic: str | None = None  # hardware address of the interface; the first one without it
    patience_s: int = DEFAULT_PATIENCE_S  # the machine powers off when nobody has answered for so long after a guest

    secret: ClassVar[bool] = True

    def __post_init__(self) -> None:
        host, _, port = self.controller.rpartition(":")
        if not _is(ipaddress.IPv4Address, host) or not re.fullmatch(r"[1-9]\d{0,4}", port) or int(port) > 65535:
            raise UsageError(f"--dial: {self.controller!r} is no IPv4 address with a port", "such as 192.0.2.1:7443")
        if "/" not in self.address or not _is(ipaddress.IPv4Interface, self.address):
            raise UsageError(f"--address: {self.address!r} is no IPv4 address with a prefix", "such as 192.0.2.10/24")
        if self.gateway is not None and not _is(ipaddress.IPv4Address, self.gateway):
            raise UsageError(f"--gateway: {self.gateway!r} is no IPv4 address", "such as 192.0.2.254")
        if self.nic is not None and not re.fullmatch(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}", self.nic):
            raise UsageError(f"--nic: {self.nic!r} is no hardware address", "such as 52:54:00:00:00:01")
        if not 10 <= self.patience_s <= 31 * 86_400:
            raise UsageError(f"--patience: {self.patience_s} s is not from 10 s to a month", "such as 3600")
        found = re.match(rb"virtgauge identity 1\nexpires (\d{1,12})\n", self.identity)
        remedy = "`virtgauge attach prepare` makes one: identity.pem"
        if not found:
            raise UsageError("--identity: the file is no identity", remedy)
        if int(found[1]) <= time.time():
            raise UsageError("--identity: it has expired", remedy)

    def words(self) -> tuple[str, ...]:
        optional = (("gateway", self.gateway), ("nic", self.nic))
        return (
            f"virtgauge.channel=dial:{self.controller}",
            f"virtgauge.address={self.address}",
            f"virtgauge.patience={self.patience_s}",
            *(f"virtgauge.{name}={value}" for name, value in optional if value is not None),
        )

    def files(self) -> Mapping[str, bytes]:
        return {"identity.pem": self.identity}

    def describe(self) -> dict[str, str]:
        return {
            "kind": "dial-in",
            "controller": self.controller,
            "address": self.address,
            "identity_sha256": hashlib.sha256(self.identity).hexdigest(),
        }


def _is(kind: Callable[[str], object], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


ImageChannel = SerialChannel | DialChannel  # A way to the agent


_CONSOLE = (5, 1)  # The device's numbers

DRIVERS = (
    *("virtio_pci", "virtio_mmio", "virtio_net", "virtio_blk", "virtio_scsi", "virtio_console"),
    *("9p", "9pnet_virtio"),  # folders of the host, as the platform `qemu` gives them
    *("e1000", "e1000e"),  # Intel network cards, emulated by all
    *("vmxnet3", "vmw_pvscsi", "mptspi", "mptsas"),  # VMware ESXi
    *("hv_vmbus", "hv_netvsc", "hv_storvsc", "tulip"),  # Hyper-V; tulip: generation 1's "legacy" adapter
    *("xen_netfront", "xen_blkfront"),
    "pcnet32",  # VirtualBox
    *("ahci", "ata_piix", "sd_mod", "nvme"),  # disks
    *("ext4", "crc32c_generic"),  # file systems
)
"""Names of modules; what these depend on comes with them."""


def root_archive(agent: AgentBinary, modules: Iterable[Path], files: Mapping[str, bytes]) -> bytes:
    """A first root file system: the agent as ``/init``, the kernel's modules in ``/modules``, and private files."""
    folders = ("dev", "proc", "sys", "run", "tmp", "root", "etc", "modules")
    in_order = sorted(modules, key=module_name)
    entries = (
        *((folder, stat.S_IFDIR | 0o755, b"") for folder in folders),
        ("dev/console", stat.S_IFCHR | 0o600, b""),  # of init's standard streams, before anything is mounted
        ("init", stat.S_IFREG | 0o755, agent.path.read_bytes()),
        *((f"modules/{module_name(path)}.ko", stat.S_IFREG | 0o644, module_content(path)) for path in in_order),
        *((name, stat.S_IFREG | 0o600, content) for name, content in sorted(files.items())),
    )
    return archive(entries)


def archive(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """A newc archive: of each entry its path (after its folder's), its mode as of ``stat``, and its content."""
    every = (*entries, ("TRAILER!!!", 0, b""))
    return b"".join(_archived(inode, *entry) for inode, entry in enumerate(every, start=1))


def _archived(inode: int, name: str, mode: int, content: bytes) -> bytes:
    """An entry, whose path has no leading slash.  It has no times: the same entries are the same bytes."""
    encoded, device = name.encode() + b"\0", _CONSOLE if stat.S_ISCHR(mode) else (0, 0)
    # inode mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


FOLDER = "virtgauge"  # Of the kernel and all that goes with it, in every image
RECORD = "image.json"  # The record's name in that folder
NAME = "virtgauge"  # What formats that have a place for a name call the image

_FORMAT_VERSION = 1
_LEVEL = 12  # zstd's; at 19 an image is 2 % smaller, and takes five times as long to build


@dataclasses.dataclass(frozen=True)
class Contents:
    """What every format of one image holds."""

    kernel: bytes
    initramfs: bytes
    command_line: str  # the kernel's and the agent's
    record: Mapping[str, Any]  # what it was made of; JSON-able, the same for the same inputs
    digest: str  # SHA-256 (hex) of all of it, and so of the image's identity

    def identifier(self, purpose: str) -> uuid.UUID:
        """A UUID for one of the places where a format wants a random one: the same for the same contents."""
        drawn = hashlib.sha256(f"{self.digest} {purpose}".encode()).digest()
        return uuid.UUID(bytes=drawn[:16], version=4)

    def number(self, purpose: str) -> int:
        """A number of 32 bits for such a place: the same for the same contents."""
        return int.from_bytes(hashlib.sha256(f"{self.digest} {purpose}".encode()).digest()[:4], "little")

    def record_text(self) -> bytes:
        return (json.dumps(self.record, indent=1, sort_keys=True) + "\n").encode()


def contents_of(kernel: GuestKernel, agent: AgentBinary, channel: ImageChannel, boot_loader: BootLoader) -> Contents:
    """Put an image's contents together.
    Raises UnavailableError: the kernel in the cache lacks a driver; OSError: a file cannot be read.
    """
    try:
        modules = module_closure(kernel.modules, DRIVERS)
    except ModuleError as error:
        raise UnavailableError(
            f"{error}: it was fetched by an older virtgauge", "run `virtgauge provision kernel`"
        ) from error
    image = kernel.image.read_bytes()
    from pyarrow import Codec  # slow to import

    initramfs = Codec("zstd", _LEVEL).compress(root_archive(agent, modules, channel.files()), asbytes=True)
    record = {
        "format": _FORMAT_VERSION,
        "agent_sha256": agent.sha256,
        "kernel": kernel.package,
        "kernel_release": kernel.release,
        "modules": sorted(map(module_name, modules)),
        "boot_loader": list(boot_loader.packages),
        "channel": channel.describe(),
        "command_line": " ".join((*_WORDS, *channel.words())),
    }
    digest = digest_of(record, image, initramfs)
    return Contents(image, initramfs, str(record["command_line"]), record | {"digest": digest}, digest)


def digest_of(record: Mapping[str, Any], kernel: bytes, initramfs: bytes) -> str:
    """What tells images apart: the SHA-256 (hex) of a record, less its own digest, and of kernel and initramfs."""
    told = {key: value for key, value in record.items() if key != "digest"}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for part in (kernel, initramfs):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


# The screen is the kernel's console: the serial line may be the channel.  A guest that panics stands still long enough
# to be read.  IPv6 would send frames of its own through the interfaces that are measured.
_WORDS = ("console=tty0", "quiet", "panic=30", "ipv6.disable=1", "virtgauge.modules=auto")
