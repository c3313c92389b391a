"""The user's cache: one lock per product, folders that appear whole or not at all, and hashes that tell rot.

Everything below :func:`cache_root` can be deleted at any time; the next set-up makes it again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from virtgauge.errors import VirtgaugeError
from virtgauge.folders import cache_root
from virtgauge.provision.progress import Outcome, Progress, State

MANIFEST_NAME = "manifest.json"
BROUGHT = Path(sys.prefix) / "share" / "virtgauge"  # of an image: what is there need not be in a cache
_PARTIAL = ".partial-"


Facts = Mapping[str, str]  # What a manifest says of a folder for people: ``version``, ``package`` …


class ProvisionError(VirtgaugeError):
    """A product could not be had: why, and what would help.  Its remedy fits on one line."""


@contextlib.contextmanager
def exclusive(product: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of one product of the cache, so that two set-ups do not make it twice.  Ends with the process.
    Raises ProvisionError: the cache cannot be written.
    """
    folder = cache_root()
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{product}.lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another set-up of the same thing")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def staged(final: Path, facts: dict[str, str]) -> Iterator[Path]:
    """A folder to build in, which becomes ``final`` when the block ends well and vanishes when it does not.

    The caller holds the product's lock, so a partial folder found here is a dead set-up's and is removed.  ``facts``
    may be filled in the block; they go into the manifest.
    Raises ProvisionError: no space, or the cache cannot be written.
    """
    parent = final.parent
    with _disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for leftover in parent.glob(f"{_PARTIAL}*"):
            shutil.rmtree(leftover)
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=parent))
        try:
            partial.chmod(0o755)
            yield partial
            paths = sorted(path for path in partial.rglob("*") if path.is_file())
            files = {str(path.relative_to(partial)): (path.stat().st_size, sha256_of(path)) for path in paths}
            manifest = json.dumps({"facts": facts, "files": files}, indent=1)
            (partial / MANIFEST_NAME).write_text(f"{manifest}\n")
            if final.exists():
                final.rename(parent / f"{_PARTIAL}replaced-{os.getpid()}")
            partial.rename(final)
        finally:
            for leftover in parent.glob(f"{_PARTIAL}*"):
                shutil.rmtree(leftover)


def whole_facts(folder: Path, *, thorough: bool) -> Facts | None:
    """What the manifest of a folder that was :func:`staged` says, where its files are as they were made; else None.

    A thorough look compares every file's SHA-256, else only that the files are there in their sizes.
    """
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_bytes())
        for relative, (size, digest) in manifest["files"].items():
            path = folder / relative
            if path.stat().st_size != size or (thorough and sha256_of(path) != digest):
                return None
        return dict(manifest["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def provided(
    step: str,
    title: str,
    product: str,
    progress: Progress,
    fetch: Callable[[Progress], Facts],
    named: Callable[[Facts], str],
    wanted: Callable[[Facts], bool] | None = None,
) -> Outcome:
    """Provide something that is kept in the cache: as it is there if every hash fits and it is wanted, else anew.

    ``fetch`` gets it into a folder of the product, and raises ProvisionError; ``named`` says what came, or is there.
    """
    try:
        with exclusive(product.replace("/", "-"), progress):
            progress(f"checking {title} in the cache")
            if (found := whole_folder(product, wanted, thorough=True)) is not None:
                return Outcome(step, State.OK, named(found[1]))
            return Outcome(step, State.MADE, named(fetch(progress)))
    except ProvisionError as error:
        return Outcome(step, State.SKIPPED, error.message, error.remedy)


def whole_folder(
    product: str, wanted: Callable[[Facts], bool] | None = None, *, thorough: bool = False
) -> tuple[Path, Facts] | None:
    """Of a product's folders, one for each version, the last made that is whole and wanted, and its facts; else None.

    Thorough as :func:`whole_facts` has it; what is damaged is removed then.  What an image brings is looked at last.
    """
    found: tuple[Path, Facts] | None = None
    folders = [path for path in (cache_root() / product).glob("[!.]*") if path.is_dir()]
    brought = [path for path in [BROUGHT / product / "current"] if path.is_dir() and not thorough]
    for folder in [*sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True), *brought]:
        facts = whole_facts(folder, thorough=thorough)
        if facts is not None:
            if found is None and (wanted is None or wanted(facts)):
                found = folder, facts
        elif thorough:
            shutil.rmtree(folder)
    return found


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space(folder) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise ProvisionError(f"{folder} cannot be written: {error.strerror}", _ELSEWHERE) from error
        raise


def no_space(folder: Path) -> ProvisionError:
    """The error for a full disk below ``folder``."""
    return ProvisionError(f"no space left on the disk of {folder}", _ELSEWHERE)


_ELSEWHERE = "make room there, or set XDG_CACHE_HOME to a folder elsewhere"
