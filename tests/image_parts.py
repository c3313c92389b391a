"""Small images for tests: everything real but kernel, agent and drivers, which are a few bytes."""

from __future__ import annotations

from pathlib import Path

from provision_machine import module

from virtgauge.agent import AgentBinary
from virtgauge.image.contents import DRIVERS, Contents, ImageChannel, SerialChannel, contents_of
from virtgauge.provision.boot_loader import BootLoader, find_boot_loader
from virtgauge.provision.kernel import GuestKernel


def boot_loader() -> BootLoader:
    """The machine's own."""
    found = find_boot_loader()
    assert found is not None, "`virtgauge provision image` fetches it"
    return found


def kernel(folder: Path) -> GuestKernel:
    """A kernel that is none, with every driver that an image wants."""
    for name in DRIVERS:
        path = folder / "modules" / "kernel" / f"{name}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(module())
    (folder / "vmlinuz").write_bytes(b"kernel" * 1000)
    return GuestKernel("6.1.0-99-amd64", folder / "vmlinuz", folder / "modules", "linux-image-6.1.0-99-amd64 6.1.199-1")


def agent(folder: Path, content: bytes = b"agent" * 1000) -> AgentBinary:
    """An agent that is none."""
    path = folder / "virtgauge-agent"
    path.write_bytes(content)
    return AgentBinary(path, "a" * 64)


def contents(folder: Path, channel: ImageChannel | None = None) -> Contents:
    """Of an image made of these."""
    return contents_of(kernel(folder), agent(folder), channel or SerialChannel(), boot_loader())
