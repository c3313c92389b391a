"""What a guest needs to have a disk, and what it is asked about it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from platforms.conftest import running

from virtgauge.host.mounts import make_disk_image
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Disk, Guest, GuestSpec, Platform

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


def partitions(extents: Sequence[tuple[int, int]]) -> bytes:
    """The beginning of a disk with these partitions (GPT), each from its first to its last sector."""
    table = bytearray(512 * 34)
    table[512:520] = b"EFI PART"
    struct.pack_into("<QII", table, 512 + 72, 2, 128, 128)
    for number, (first, last) in enumerate(extents):
        at = 1024 + 128 * number
        table[at : at + 16] = b"\1" * 16
        struct.pack_into("<QQ", table, at + 32, first, last)
    return bytes(table)


def root_image(folder: Path, program: Path, format: str) -> Path:
    """An image with a small system and a program in it: a file system alone, or as clouds have it, a packed qcow2."""
    tree, root, image = folder / "tree", folder / "root.raw", folder / f"image.{format}"
    for name in ("usr/bin", "etc", "var"):
        (tree / name).mkdir(parents=True)
    (tree / "bin").symlink_to("usr/bin")
    (tree / "etc/debian_version").write_text("12.0 of a test\n")
    shutil.copy2(program, tree / "usr/bin/own-program")
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, root, "64M"], check=True)
    if format == "raw":
        return root.rename(image)
    disk = folder / "disk.raw"
    with disk.open("wb") as file:
        file.write(partitions([(2048, 4095), (4096, 4096 + (64 << 11) - 1)]))
        file.seek(4096 * 512)
        file.write(root.read_bytes())
    subprocess.run(["qemu-img", "convert", "-q", "-c", "-f", "raw", "-O", "qcow2", disk, image], check=True)
    return image


async def check_an_image_is_the_root(platform: Platform, spec: GuestSpec, image: Path) -> None:
    """The agent answers from inside the image, what a guest writes there is gone with it, and nothing stays mounted."""
    before = hashlib.sha256(image.read_bytes()).digest()
    async with running(platform, spec) as guest:
        request = guest.channel.request
        argv = ["/bin/own-program", "--version"]
        said = await request("run", argv=argv, env={}, timeout_ms=60_000, output_limit=4096, timeout_s=80)
        assert said.value["stdout"].startswith(b"virtgauge-agent ")
        assert str(spec.scope.folder) in Path("/proc/self/mountinfo").read_text()
    assert str(spec.scope.folder) not in Path("/proc/self/mountinfo").read_text()
    assert hashlib.sha256(image.read_bytes()).digest() == before


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
        with contextlib.suppress(OSError):  # another's, gone in between
            if backing.read_text().strip() == str(image):
                return int((backing.parent.parent / "stat").read_text().split()[15])
    raise AssertionError(f"no loop device of {image}")
