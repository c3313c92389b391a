"""Whether a program can be reached by a preloaded library, found out before it is run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
from pathlib import Path

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.shim.executable import Elf, Script, read_executable

_DEEPEST_SCRIPT = 4  # as in the kernel (BINPRM_MAX_RECURSION is one more)
_CAPABILITIES = "security.capability"


@dataclasses.dataclass(frozen=True)
class Target:
    """A program that can be run under the shim.

    Attributes:
        path: the file that is executed.
        warnings: what of it the shim does not reach.
    """

    path: Path
    warnings: tuple[str, ...] = ()


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
