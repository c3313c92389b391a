"""The first root file system of a virtual machine: the agent as ``/init``, and the kernel modules it must load."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from virtgauge.agent.binary import AgentBinary
from virtgauge.image.cpio import Archive
from virtgauge.provision.modules import ModuleError as ModuleError
from virtgauge.provision.modules import canonical as canonical
from virtgauge.provision.modules import module_closure as module_closure

_FOLDERS = ("dev", "proc", "sys", "run", "tmp", "root", "etc", "modules")
_KEPT = 8
_FORMAT_VERSION = b"1"  # part of the cache key: changes when what is written changes


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
        archive = Archive()
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
