"""The first root file system of a virtual machine: the agent as ``/init``, and the kernel modules it must load.

Format: cpio "newc", see the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from virtgauge.agent.binary import AgentBinary
from virtgauge.provision.kernel import module_dependencies

_FOLDERS = ("dev", "proc", "sys", "run", "tmp", "root", "etc", "modules")
_KEPT = 8
_FORMAT_VERSION = b"1"  # part of the cache key: changes when what is written changes


class ModuleError(Exception):
    """A module, or one that it depends on, is not there."""


def module_closure(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of modules and of all that they depend on, in an order in which they can be loaded.

    What the kernel has built in (by its ``modules.builtin``) needs no file and is left out.

    Args:
        folder: holds uncompressed ``*.ko`` files anywhere below it.
        names: module names; dashes and underscores are the same.

    Raises:
        ModuleError: one of them is missing, or they depend on each other in a circle.
    """
    files = {canonical(path.stem): path for path in sorted(folder.rglob("*.ko"))}
    built_in = _built_in(folder)
    ordered: list[Path] = []

    def visit(name: str, wanted_by: tuple[str, ...]) -> None:
        if name in wanted_by:
            raise ModuleError(f"modules depend on each other: {' → '.join((*wanted_by, name))}")
        if name in built_in:
            return
        path = files.get(name)
        if path is None:
            needed = f" (needed by {wanted_by[-1]})" if wanted_by else ""
            raise ModuleError(f"the kernel has no module {name!r}{needed} below {folder}")
        if path in ordered:
            return
        for dependency in module_dependencies(path.read_bytes()):
            visit(canonical(dependency), (*wanted_by, name))
        ordered.append(path)

    for name in names:
        visit(canonical(name), ())
    return ordered


def canonical(name: str) -> str:
    """A module's name as the kernel reports it."""
    return name.replace("-", "_")


def _built_in(folder: Path) -> set[str]:
    try:
        lines = (folder / "modules.builtin").read_text().splitlines()
    except OSError:
        return set()
    return {canonical(Path(line).stem) for line in lines if line}


def build_initramfs(agent: AgentBinary, modules: Iterable[Path], cache: Path) -> Path:
    """An initramfs in the cache, made when it is not there yet.

    It is not compressed: unpacking costs an emulated guest more than reading a megabyte more.

    Args:
        agent: becomes ``/init``.
        modules: become ``/modules/<name>.ko``.
        cache: a folder that may be deleted at any time.

    Raises:
        OSError: a file cannot be read, or the cache not be written.
    """
    files = {f"modules/{canonical(path.stem)}.ko": path.read_bytes() for path in modules}
    digest = hashlib.sha256(_FORMAT_VERSION)
    init = agent.path.read_bytes()
    for name, content in (("init", init), *sorted(files.items())):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    target = cache / f"{digest.hexdigest()[:32]}.cpio"
    if not target.is_file():
        archive = _Archive()
        for folder in _FOLDERS:
            archive.add(folder, stat.S_IFDIR | 0o755)
        # the kernel gives init its standard streams from here, before anything is mounted
        archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        archive.add("init", stat.S_IFREG | 0o755, init)
        for name, content in sorted(files.items()):
            archive.add(name, stat.S_IFREG | 0o644, content)
        write_whole(target, archive.finish())
        _prune(cache)
    return target


def _prune(cache: Path) -> None:
    """Every build of the agent makes another archive; keep the latest few."""
    archives = sorted(cache.glob("*.cpio"), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in archives[_KEPT:]:
        stale.unlink(missing_ok=True)


def write_whole(target: Path, content: bytes) -> None:
    """Write a file of the cache so that it is there whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


class _Archive:
    """A newc archive in memory."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0

    def add(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self._inode += 1
        encoded = name.encode() + b"\0"
        # inode mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check;
        # no times: the same content is the same archive
        fields = (self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts += [_padded(header + encoded), _padded(content)]

    def finish(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
