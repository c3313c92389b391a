"""What a virtual machine boots from: a kernel without its compressed shell, and a first root file system.

A bzImage unpacks itself in the guest, which takes an emulated processor three of the four seconds until
its first user process.  QEMU starts an uncompressed ELF kernel by the PVH protocol as well, and unpacking it once on
the host is enough.

References: Documentation/arch/x86/boot.rst (setup_sects, payload_offset, payload_length; protocol ≥ 2.08),
and QEMU's hw/i386/x86.c, which looks for the note XEN_ELFNOTE_PHYS32_ENTRY.
"""

from __future__ import annotations

import bz2
import dataclasses
import hashlib
import lzma
import os
import re
import struct
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from virtgauge.agent import AgentBinary
from virtgauge.folders import cache_root, forget_unused, is_kept, write_whole
from virtgauge.image.contents import root_archive
from virtgauge.platforms.base import GuestSpec, LaunchError, stage
from virtgauge.provision.kernel import ModuleError, module_closure, module_name

_NIC_MODULES = {"virtio": "virtio_net", "e1000": "e1000", "xen": "xen_netfront"}  # By model
_DISK_MODULES = ("virtio_blk", "crc32c_generic", "ext4")
"""Of a data disk.  ext4 asks for crc32c at run time only, so that no file names it as a dependency."""
LONGEST_COMMAND_LINE = 2047  # Of x86's kernel, in bytes; what is beyond it is lost without a word (COMMAND_LINE_SIZE)
_KEPT = 8  # Every build of the agent makes another one
_ALIGNED = 4  # Where the kernel looks for the beginning of an archive that is not compressed
_SETUP_SECTORS = 0x1F1
_MAGIC = 0x202
_VERSION = 0x206
_PAYLOAD = 0x248
_PVH_NOTE = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")
"""How the note begins: the lengths of its name and of its value, its type XEN_ELFNOTE_PHYS32_ENTRY, its name."""
# The same order of magnitude as any kernel, so that a damaged image cannot fill memory.
_LARGEST = 512 * 1024 * 1024
_LAYERED = ("usr", "etc", "opt")  # Programs may want to write there


def build_initramfs(agent: AgentBinary, modules: Iterable[Path], cache: Path, under: Path | None = None) -> Path:
    """An initramfs in the cache, made when it is not there yet.

    It is not compressed: unpacking costs an emulated guest more than reading a megabyte more.  It is appended to the
    one that it goes ``under``, compressed or not: the kernel unpacks one archive after another, each with zeros before
    it, and what comes later replaces files of the same path
    (Documentation/driver-api/early-userspace/buffer-format.rst).
    Raises OSError: a file cannot be read, or the cache not be written.
    """
    first = b"" if under is None else under.read_bytes()
    archive = first + b"\0" * (-len(first) % _ALIGNED) + root_archive(agent, modules, {})
    target = cache / f"{hashlib.sha256(archive).hexdigest()[:32]}.cpio"
    if not is_kept(target):
        write_whole(target, archive)
        forget_unused(cache, "*.cpio", _KEPT)
    return target


def initramfs_with(
    agent: AgentBinary, folder: Path | None, names: Sequence[str], under: Path | None = None
) -> tuple[Path, list[str]]:
    """An initramfs with modules and what they depend on, and all their names in the order in which they are loaded.

    A kernel without a folder of modules has built in what it needs.  A user's own initramfs comes ``under`` the agent.
    Raises LaunchError: there is no such module in the kernel's folder of them, or the cache cannot be written.
    """
    with stage("initramfs", OSError, ModuleError):
        modules = [] if folder is None else module_closure(folder, names)
        archive = build_initramfs(agent, modules, cache_root() / "initramfs", under)
        return archive, [module_name(path) for path in modules]


def device_modules(spec: GuestSpec, nic_model: str = "virtio", root: Sequence[RootPart] = ()) -> tuple[str, ...]:
    """The guest's drivers of its interfaces, of its data disks, and of the folders that its root consists of."""
    return (
        *((_NIC_MODULES[nic_model],) if spec.nics else ()),
        *(_DISK_MODULES if spec.disks else ()),
        *(("9pnet_virtio", "9p", "overlay") if root else ()),
    )


def require_short(command_line: str, longest: int = LONGEST_COMMAND_LINE) -> None:
    """Refuse a command line of which a kernel would lose the end without a word.  Raises LaunchError."""
    if (length := len(command_line)) > longest:
        raise LaunchError("start", f"the kernel would cut its command line of {length} bytes: share fewer folders")


def xen_command_line(modules: Sequence[str], words: Sequence[str] = ()) -> str:
    """For a kernel in a domain of Xen, and its agent on the console.  By IPv6 it would send frames of its own."""
    own = ("console=hvc0", "quiet", "panic=-1", "ipv6.disable=1")
    return " ".join((*own, *agent_words("serial:/dev/hvc0", modules), *words))


def direct_kernel(image: Path, cache: Path) -> Path:
    """The ELF kernel inside a bzImage, from the cache; the image itself where there is none that QEMU can start.
    Raises OSError: the image cannot be read or the cache not be written.
    """
    content = image.read_bytes()
    target = cache / f"{hashlib.sha256(content).hexdigest()[:32]}.elf"
    if target.is_file():
        return target
    kernel = extract(content)
    if kernel is None or not has_pvh_entry(kernel):
        return image
    write_whole(target, kernel)
    return target


def extract(image: bytes) -> bytes | None:
    """The payload of a bzImage, unpacked; None when it is none, or is packed in a way that Python cannot unpack."""
    if len(image) < _PAYLOAD + 8 or image[_MAGIC : _MAGIC + 4] != b"HdrS":
        return None
    if struct.unpack_from("<H", image, _VERSION)[0] < 0x208:
        return None
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = (image[_SETUP_SECTORS] + 1) * 512 + offset
    payload = image[start : start + length]
    unpack = next((unpack for magic, unpack in _UNPACKERS.items() if payload.startswith(magic)), None)
    if unpack is None or len(payload) < length:
        return None
    try:
        kernel = unpack(payload)
    except (lzma.LZMAError, OSError, EOFError, zlib.error, ValueError):
        return None
    # every packing ends with the unpacked size: gzip by itself, the others by the kernel's makefile
    return kernel if len(kernel) == struct.unpack("<I", payload[-4:])[0] else None


def has_pvh_entry(kernel: bytes) -> bool:
    """Whether an ELF kernel has the note by which QEMU finds its PVH entry point."""
    return kernel.startswith(b"\x7fELF\x02") and _PVH_NOTE.search(kernel) is not None


def _unpack_zstd(payload: bytes) -> bytes:
    from pyarrow import BufferReader, CompressedInputStream  # slow to import, and needed for few distributions

    size = struct.unpack("<I", payload[-4:])[0]
    with CompressedInputStream(BufferReader(payload[:-4]), "zstd") as stream:
        return bytes(stream.read(min(size, _LARGEST)))


# after the stream of xz come four bytes with the unpacked size
_UNPACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\xfd7zXZ\0": lambda packed: lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed, _LARGEST),
    b"\x5d\0\0": lambda packed: lzma.LZMADecompressor(lzma.FORMAT_ALONE).decompress(packed, _LARGEST),
    b"BZh": lambda packed: bz2.BZ2Decompressor().decompress(packed, _LARGEST),
    b"\x1f\x8b": lambda packed: zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(packed, _LARGEST),
    b"\x28\xb5\x2f\xfd": _unpack_zstd,
}


@dataclasses.dataclass(frozen=True)
class RootPart:
    """Something of the host in the guest's root (docs/protocol.md, ``virtgauge.root``)."""

    # ``link``, or how a folder is exported: ``lower`` (below a private layer), ``read``, ``write``
    kind: Literal["link", "lower", "read", "write"]
    path: Path
    source: str  # where the link leads, or the folder on the host


def escaped(text: str | Path) -> str:
    """A text inside a setting of the agent, where blanks, commas and colons separate."""
    return urllib.parse.quote(os.fsencode(text), safe="/")


def agent_words(
    channel: str,
    modules: Sequence[str],
    root: Sequence[RootPart] = (),
    export: str = "",  # with a number behind it, the name of an exported folder of the root
    folders: Iterable[Path] = (),  # in which the data disks are to be mounted
    devices: Sequence[str] = (),  # that these are, where the guest cannot know them by their serial numbers
) -> list[str]:
    """What the agent is told on the command line of its kernel (docs/protocol.md)."""
    words = [f"virtgauge.channel={channel}"]
    if modules:
        words.append(f"virtgauge.modules={','.join(modules)}")
    if root:
        sources = [escaped(part.source) if part.kind == "link" else f"{export}{n}" for n, part in enumerate(root)]
        parts = (f"{part.kind}:{escaped(part.path)}:{source}" for part, source in zip(root, sources, strict=True))
        words.append(f"virtgauge.root={','.join(parts)}")
    places = [escaped(folder) for folder in folders]
    if devices:
        places = [f"{device}:{place}" for device, place in zip(devices, places, strict=False)]
    if places:
        words.append(f"virtgauge.disks={','.join(places)}")
    return words


def root_of(spec: GuestSpec) -> tuple[RootPart, ...]:
    """The guest's root: the host's system folders and its shares; empty where it was not asked for."""
    if not spec.host_root:
        return ()
    shares = (RootPart("write" if share.writable else "read", share.path, str(share.path)) for share in spec.shares)
    return (*system_parts(), *shares)


def system_parts(root: Path = Path("/")) -> list[RootPart]:
    """The system folders of the host, or below another root, with a private layer above those to write to."""
    found = []
    for name in ("usr", "etc", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        source, path = root / name, Path("/", name)
        if source.is_symlink():
            found.append(RootPart("link", path, os.readlink(source)))
        elif source.is_dir():
            found.append(RootPart("lower" if name in _LAYERED else "read", path, str(source)))
    return found
