"""Whether a program can be reached by a preloaded library, found out before it is run.

The ELF fields are those of the System V ABI; Go marks its programs with a section ``.go.buildinfo`` or a note.
"""

from __future__ import annotations

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
# Machine; where the segments and the sections are; size and count of each; and which section has their names.
_HEADER = struct.Struct("<18xH12xQQ6xHHHHH")
_SEGMENT = struct.Struct("<I4xQ16xQ")  # Its kind, and where in the file it is, with its length there
_SECTION = struct.Struct("<I20xQ")  # Where its name begins among the names, and where in the file it is

_DEEPEST_SCRIPT = 4  # as in the kernel (BINPRM_MAX_RECURSION is one more)
_CAPABILITIES = "security.capability"


def find_target(program: str) -> tuple[Path, list[str]]:
    """Find a program as a shell would, and look whether the shim can reach it; its path, and what is not reached.
    Raises UsageError: there is no such program, or the file cannot be executed; UnavailableError: it can be executed,
    but a preloaded library would not be loaded or not be called.
    """
    path = _located(program)
    return path, _examined(path, 0)


def _located(program: str) -> Path:
    if "/" in program:
        path = Path(program)
        if not path.exists():
            raise UsageError(f"{program}: there is no such file", "check the path of the program")
    else:
        found = shutil.which(program)
        if found is None:
            raise UsageError(f"{program}: no such program in PATH", "check the name, or give its path")
        path = Path(found)
    if path.is_dir():
        raise UsageError(f"{path}: is a folder, not a program", "give the path of a program in it")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{path}: is not executable", f"chmod +x {path}")
    return path


def _examined(path: Path, depth: int) -> list[str]:
    if secured := _privilege(path):
        raise UnavailableError(
            f"{path}: {secured}, so the loader ignores LD_PRELOAD for it, and the shim would serve nothing",
            "run a copy of the program without the privilege: cp drops it",
        )
    try:
        with path.open("rb") as file:
            head = file.read(256)
            words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split(None, 1)
            if head.startswith(b"#!") and words:
                return _script(path, words, depth)
            if head.startswith(b"\x7fELF"):
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
                    return _elf(path, image)
    except PermissionError:
        return [f"{path} cannot be read, so it is not known whether the shim reaches it"]
    except (struct.error, IndexError):  # it was cut off
        pass
    raise UsageError(
        f"{path}: is neither an ELF executable nor a script that names its interpreter", f"try `sh {path}`"
    )


def _script(path: Path, words: list[str], depth: int) -> list[str]:
    """What the interpreter of a script is, which stands in its first line with at most one argument."""
    if depth >= _DEEPEST_SCRIPT:
        raise UsageError(f"{path}: its interpreter is a script whose interpreter is a script, too often")
    interpreter = Path(words[0])
    if not interpreter.exists():
        raise UsageError(f"{path}: its interpreter {interpreter} does not exist", "correct the script's first line")
    warnings = _examined(interpreter, depth + 1)
    arguments = "".join(words[1:]).removeprefix("-S").split()
    if interpreter.name == "env" and arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        warnings += _examined(_located(arguments[0]), depth + 1)
    return warnings


def _elf(path: Path, image: mmap.mmap) -> list[str]:
    if image[4] != _CLASS_64:
        raise UnavailableError(f"{path}: is a 32-bit program, and the shim has 64 bits", "use a 64-bit build of it")
    machine, segments, sections, *sizes = _HEADER.unpack_from(image)
    segment_size, segment_count, section_size, section_count, names = sizes
    if image[5] != _LITTLE or machine != _MACHINES.get(platform.machine()):
        raise UnavailableError(f"{path}: is for another processor than this machine's")
    told = [_SEGMENT.unpack_from(image, segments + number * segment_size) for number in range(segment_count)]
    loaders = [image[offset : offset + length] for kind, offset, length in told if kind == _PT_INTERP]
    go = _is_go(image, sections, section_size, section_count, names)
    if not loaders:
        language = " (it is written in Go)" if go else ""
        raise UnavailableError(
            f"{path}: is linked statically{language}, so no loader reads LD_PRELOAD for it",
            "use a dynamically linked build of it; Go's runtime would still read the clock by itself"
            if go
            else "use a dynamically linked build of it",
        )
    if b"ld-musl" in loaders[0]:
        raise UnavailableError(f"{path}: uses musl, and the shim needs glibc", "use a build of it for glibc")
    if go:
        return [
            f"{path} is written in Go, whose runtime reads the clock and sleeps by itself: only its C code is reached"
        ]
    return []


def _is_go(image: mmap.mmap, sections: int, size: int, count: int, names: int) -> bool:
    if not count:
        return False
    _, names_at = _SECTION.unpack_from(image, sections + names * size)
    begins = [names_at + _SECTION.unpack_from(image, sections + number * size)[0] for number in range(count)]
    return any(image[at : image.find(b"\0", at)] in (b".go.buildinfo", b".note.go.buildid") for at in begins)


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
