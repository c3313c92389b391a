"""Whether a program can be reached by a preloaded library, found out before it is run.

The ELF fields are those of the System V ABI; Go marks its programs with a section ``.go.buildinfo`` or a note.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import platform
import shutil
import stat
import struct
from pathlib import Path

from virtgauge.errors import UnavailableError, UsageError

_PT_INTERP = 3
_CLASS_64, _LITTLE = 2, 1
_MACHINES = {"x86_64": 62, "aarch64": 183}


@dataclasses.dataclass(frozen=True)
class Elf:
    """An ELF executable."""

    bits: int  # 32 or 64
    native: bool  # it is for this machine's processor
    interpreter: str | None  # the loader that it asks for; None when it is static
    go: bool


@dataclasses.dataclass(frozen=True)
class Script:
    """A text that names its interpreter, with at most one argument."""

    interpreter: str
    argument: str | None


def read_executable(path: Path) -> Elf | Script | None:
    """Read the head of a file; None when it is neither ELF nor a script.  Raises OSError: it cannot be read."""
    with path.open("rb") as file:
        head = file.read(256)
        if head.startswith(b"#!"):
            return _read_script(head)
        if not head.startswith(b"\x7fELF") or len(head) < 52:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            try:
                return _read_elf(image)
            except (struct.error, IndexError):
                return None


def _read_script(head: bytes) -> Script | None:
    line = head[2:].split(b"\n", 1)[0].decode(errors="replace").strip()
    if not line:
        return None
    interpreter, *rest = line.split(None, 1)
    return Script(interpreter, rest[0] if rest else None)


def _read_elf(image: mmap.mmap) -> Elf:
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


_DEEPEST_SCRIPT = 4  # as in the kernel (BINPRM_MAX_RECURSION is one more)
_CAPABILITIES = "security.capability"


@dataclasses.dataclass(frozen=True)
class Target:
    """A program that can be run under the shim."""

    path: Path
    warnings: tuple[str, ...] = ()  # what of it the shim does not reach


def find_target(program: str, search: str | None = None) -> Target:
    """Find a program as a shell would, and look whether the shim can reach it.

    Args:
        program: a name to be searched for, or a path.
        search: the folders, separated by colons; ``$PATH`` by default.

    Raises:
        UsageError: there is no such program, or the file cannot be executed.
        UnavailableError: it can be executed, but a preloaded library would not be loaded or not be called.
    """
    path = _located(program, search)
    return Target(path, tuple(_examined(path, search, 0)))


def _located(program: str, search: str | None) -> Path:
    if "/" in program:
        path = Path(program)
        if not path.exists():
            raise UsageError(f"{program}: there is no such file", "check the path of the program")
    else:
        found = shutil.which(program, path=search)
        if found is None:
            raise UsageError(f"{program}: no such program in PATH", "check the name, or give its path")
        path = Path(found)
    if path.is_dir():
        raise UsageError(f"{path}: is a folder, not a program", "give the path of a program in it")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{path}: is not executable", f"chmod +x {path}")
    return path


def _examined(path: Path, search: str | None, depth: int) -> list[str]:
    if secured := _privilege(path):
        raise UnavailableError(
            f"{path}: {secured}, so the loader ignores LD_PRELOAD for it, and the shim would serve nothing",
            "run a copy of the program without the privilege: cp drops it",
        )
    try:
        kind = read_executable(path)
    except PermissionError:
        return [f"{path} cannot be read, so it is not known whether the shim reaches it"]
    if isinstance(kind, Script):
        return _script(path, kind, search, depth)
    if kind is None:
        raise UsageError(
            f"{path}: is neither an ELF executable nor a script that names its interpreter", f"try `sh {path}`"
        )
    return _elf(path, kind)


def _script(path: Path, script: Script, search: str | None, depth: int) -> list[str]:
    if depth >= _DEEPEST_SCRIPT:
        raise UsageError(f"{path}: its interpreter is a script whose interpreter is a script, too often")
    interpreter = Path(script.interpreter)
    if not interpreter.exists():
        raise UsageError(f"{path}: its interpreter {interpreter} does not exist", "correct the script's first line")
    warnings = _examined(interpreter, search, depth + 1)
    words = (script.argument or "").removeprefix("-S").split()
    if interpreter.name == "env" and words and "=" not in words[0] and not words[0].startswith("-"):
        warnings += _examined(_located(words[0], search), search, depth + 1)
    return warnings


def _elf(path: Path, elf: Elf) -> list[str]:
    if elf.bits == 32:
        raise UnavailableError(f"{path}: is a 32-bit program, and the shim has 64 bits", "use a 64-bit build of it")
    if not elf.native:
        raise UnavailableError(f"{path}: is for another processor than this machine's")
    if elf.interpreter is None:
        language = " (it is written in Go)" if elf.go else ""
        raise UnavailableError(
            f"{path}: is linked statically{language}, so no loader reads LD_PRELOAD for it",
            "use a dynamically linked build of it; Go's runtime would still read the clock by itself"
            if elf.go
            else "use a dynamically linked build of it",
        )
    if "ld-musl" in elf.interpreter:
        raise UnavailableError(f"{path}: uses musl, and the shim needs glibc", "use a build of it for glibc")
    if elf.go:
        return [
            f"{path} is written in Go, whose runtime reads the clock and sleeps by itself: only its C code is reached"
        ]
    return []


def _privilege(path: Path) -> str | None:
    """What makes the loader ignore the environment (AT_SECURE); None when nothing does."""
    status = path.stat()
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return "is set-user-ID"
    # Without group execution the bit means mandatory locking.
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != os.getgid():
        return "is set-group-ID"
    try:
        capable = _CAPABILITIES in os.listxattr(path)
    except OSError:  # a file system without attributes
        return None
    return "has file capabilities" if capable else None
