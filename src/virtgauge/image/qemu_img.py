"""qemu-img: writes the formats of other hypervisors from a raw disk, and looks at what is said to be one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.provision.cache import no_space

_BOUND_S = 300.0


def find_qemu_img() -> Path:
    """The program.

    Raises:
        UnavailableError: it is not installed.
    """
    found = shutil.which("qemu-img")
    if found is None:
        raise UnavailableError(
            "qemu-img is not installed, and writes every format but raw and iso",
            "sudo apt-get install --no-install-recommends qemu-utils",
        )
    return Path(found)


def convert(source: Path, target: Path, driver: str, *options: str) -> None:
    """Write a raw disk in another format.

    Args:
        source: the raw disk.
        target: the file; made.  Some formats hold its name.
        driver: QEMU's name of the format.
        options: of that driver (``subformat=dynamic``); ``-c`` compresses.

    Raises:
        VirtgaugeError: it failed, or the disk was full.
    """
    words = ["-c"] if "-c" in options else []
    if settings := [option for option in options if option != "-c"]:
        words += ["-o", ",".join(settings)]
    # One writer: several would lay the parts down in the order in which they happen to be ready.
    _run(target.parent, "convert", "-m", "1", "-f", "raw", "-O", driver, *words, str(source), target.name)


def information(image: Path, driver: str | None = None) -> dict[str, Any]:
    """What qemu-img tells of an image; its format by its content unless a driver is named.

    Raises:
        VirtgaugeError: it cannot be read.
    """
    named = ["-f", driver] if driver else []
    found: dict[str, Any] = json.loads(_run(image.parent, "info", "--output=json", *named, image.name))
    return found


def check(image: Path, driver: str) -> None:
    """Have an image's own structure checked.

    Raises:
        VirtgaugeError: it is damaged.
    """
    if driver not in ("raw", "vpc"):  # these have nothing to check
        _run(image.parent, "check", "-q", "-f", driver, image.name)


def to_raw(image: Path, driver: str, target: Path) -> None:
    """Write an image's disk as it is for a guest.

    Raises:
        VirtgaugeError: it cannot be read, or the disk was full.
    """
    _run(target.parent, "convert", "-f", driver, "-O", "raw", str(image.absolute()), target.name)


def _run(folder: Path, *arguments: str) -> str:
    argv: Sequence[str] = [str(find_qemu_img()), *arguments]
    try:
        done = subprocess.run(
            argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_BOUND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise VirtgaugeError(f"qemu-img {arguments[0]} did not end within {_BOUND_S:g} s", "try again") from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip().splitlines()
    if any("No space left" in line for line in said):
        raise no_space(folder)
    raise VirtgaugeError(f"qemu-img {arguments[0]}: {said[-1] if said else f'status {done.returncode}'}")
