"""What a guest needs to have a disk, and what it is asked about it."""

from __future__ import annotations

from pathlib import Path

from virtgauge.host.mounts import make_disk_image
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Disk, Guest

PLATFORMS = {
    "host": ("host", {}),
    "runc": ("oci", {"runtime": "runc"}),
    "runsc": ("oci", {"runtime": "runsc"}),
    "microvm": ("qemu", {"machine": "microvm", "accelerator": "tcg"}),
}


def disk(scope: Scope, mib: int, name: str = "data") -> Disk:
    """A new disk, whose folder in the guest is named so."""
    image = scope.scratch_folder(name) / "disk.img"
    make_disk_image(image, mib)
    return Disk(image=image, folder=scope.folder / name)


async def shell(guest: Guest, script: str, timeout_s: float = 120.0) -> tuple[int | None, str]:
    """Exit code and all output of a script in a guest."""
    reply = await guest.channel.request(
        "run",
        argv=["/bin/sh", "-c", script],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        timeout_ms=int(timeout_s * 1000),
        output_limit=65536,
        timeout_s=timeout_s + 20,
    )
    return reply.value["exit_code"], (reply.value["stdout"] + reply.value["stderr"]).decode(errors="replace")


def flushes_of_loop(image: Path) -> int:
    """How many flushes the loop device of an image has done; see the kernel's Documentation/block/stat.rst."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        if backing.read_text().strip() == str(image):
            return int((backing.parent.parent / "stat").read_text().split()[15])
    raise AssertionError(f"no loop device of {image}")
