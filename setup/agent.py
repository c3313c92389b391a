"""Builds the agent and puts it where the package looks for it.  Standard library only: the build hook runs it too.

The target folder is in the user's cache, so that a second clone compiles only what is its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AGENT = ROOT / "src" / "virtgauge" / "native" / "virtgauge-agent"


class AgentBuildError(Exception):
    """The agent could not be built; the message says why and what to do."""


def target_folder() -> Path:
    """Cargo's target folder: ``$CARGO_TARGET_DIR``, else one in the user's cache."""
    chosen = os.environ.get("CARGO_TARGET_DIR")
    if chosen:
        return Path(chosen)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else Path.home() / ".cache") / "virtgauge" / "target"


def build_agent() -> Path:
    """Build the agent in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed, or the executable is not a static one.
    """
    return build_static(AGENT)


def build_static(destination: Path) -> Path:
    """The same for any executable of the workspace that is static, so that it starts in every guest."""
    if shutil.which("cargo") is None:
        raise AgentBuildError("cargo is not on PATH; install Rust with rustup, then try again")
    folder = target_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder / f".{destination.name}.lock"):  # another clone must not replace it between build and copy
        built = _cargo_build(folder, destination.name)
        if not is_static(built):
            raise AgentBuildError(
                f"{built} is linked dynamically and would not start in a guest; "
                "unset RUSTFLAGS so that native/.cargo/config.toml applies"
            )
        place(built, destination)
    return destination


def place(built: Path, destination: Path) -> None:
    """Copy a file that was built, unless it is there already."""
    if not destination.is_file() or destination.read_bytes() != built.read_bytes():
        destination.parent.mkdir(exist_ok=True)
        partial = destination.with_suffix(f".{os.getpid()}.partial")
        shutil.copy2(built, partial)
        partial.replace(destination)  # a running program keeps its old file


def _cargo_build(folder: Path, name: str) -> Path:
    command = ["cargo", "build", "--release", "--locked", "--bin", name]
    command += ["--message-format", "json-render-diagnostics"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(folder)}
    done = subprocess.run(command, cwd=ROOT / "native", env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise AgentBuildError(f"`{' '.join(command[:5])}` in native/ ended with status {done.returncode}")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return Path(message["executable"])
    raise AgentBuildError(f"cargo built no executable named {name}")


def is_static(executable: Path) -> bool:
    """Whether a 64-bit little-endian ELF file asks for no program interpreter (PT_INTERP), and so no shared library."""
    pt_interp = 3
    image = executable.read_bytes()
    if image[:6] != b"\x7fELF\x02\x01":
        raise AgentBuildError(f"{executable} is not a 64-bit little-endian ELF executable")
    (offset,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    return all(struct.unpack_from("<I", image, offset + i * size)[0] != pt_interp for i in range(count))


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(f"{'agent':<10} {build_agent().relative_to(ROOT)}")
    except AgentBuildError as error:
        sys.exit(f"{'agent':<10} failed: {error}")
