"""What kind of program a file is, as far as a preloaded library is concerned.

The ELF fields are those of the System V ABI; Go marks its programs with a section ``.go.buildinfo`` or a note.
"""

from __future__ import annotations

import dataclasses
import mmap
import platform
import struct
from pathlib import Path

_PT_INTERP = 3
_CLASS_64, _LITTLE = 2, 1
_MACHINES = {"x86_64": 62, "aarch64": 183}


@dataclasses.dataclass(frozen=True)
class Elf:
    """An ELF executable.

    Attributes:
        bits: 32 or 64.
        native: it is for this machine's processor.
        interpreter: the loader that it asks for; None when it is static.
        go: made by the Go compiler.
    """

    bits: int
    native: bool
    interpreter: str | None
    go: bool


@dataclasses.dataclass(frozen=True)
class Script:
    """A text that names its interpreter, with at most one argument."""

    interpreter: str
    argument: str | None


def read_executable(path: Path) -> Elf | Script | None:
    """Read the head of a file; None when it is neither ELF nor a script.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(256)
        if head.startswith(b"#!"):
            return _script(head)
        if not head.startswith(b"\x7fELF") or len(head) < 52:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            try:
                return _elf(image)
            except (struct.error, IndexError):
                return None


def _script(head: bytes) -> Script | None:
    line = head[2:].split(b"\n", 1)[0].decode(errors="replace").strip()
    if not line:
        return None
    interpreter, *rest = line.split(None, 1)
    return Script(interpreter, rest[0] if rest else None)


def _elf(image: mmap.mmap) -> Elf:
    bits = 64 if image[4] == _CLASS_64 else 32
    if bits == 32 or image[5] != _LITTLE:
        return Elf(bits, native=False, interpreter=None, go=False)
    (machine,) = struct.unpack_from("<H", image, 18)
    segments, sections = struct.unpack_from("<QQ", image, 32)
    segment_size, segment_count, section_size, section_count, names = struct.unpack_from("<5H", image, 54)
    interpreter = None
    for number in range(segment_count):
        at = segments + number * segment_size
        if struct.unpack_from("<I", image, at)[0] == _PT_INTERP:
            (offset,) = struct.unpack_from("<Q", image, at + 8)
            (size,) = struct.unpack_from("<Q", image, at + 32)
            interpreter = image[offset : offset + size].rstrip(b"\0").decode(errors="replace")
    go = False
    if section_count:
        (table,) = struct.unpack_from("<Q", image, sections + names * section_size + 24)
        for number in range(section_count):
            (name,) = struct.unpack_from("<I", image, sections + number * section_size)
            begin = table + name
            text = image[begin : image.find(b"\0", begin)]
            go = go or text in (b".go.buildinfo", b".note.go.buildid")
    return Elf(bits, _MACHINES.get(platform.machine()) == machine, interpreter, go)
