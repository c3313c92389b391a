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
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AGENT = ROOT / "src" / "virtgauge" / "native" / "virtgauge-agent"
DYNAMIC = "-C target-feature=-crt-static -C relocation-model=pic"
"""Flags, in place of those of the workspace, for what is linked dynamically."""


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
    return build(["build", "--bin", destination.name], destination, check=_refuse_dynamic)


def build(
    arguments: list[str],
    destination: Path,
    *,
    name: str | None = None,
    workspace: Path = ROOT / "native",
    within: str = ".",
    flags: str | None = None,
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Have cargo build a file in release mode, and put it where the package looks for it; returns its path there.

    Args:
        arguments: cargo's.
        destination: the file.
        name: what cargo calls it, where that is another name than the destination's.
        workspace: where cargo is run.
        within: the part of the target folder that is used; what has other flags needs one of its own.
        flags: in place of those in native/.cargo/config.toml.
        check: refuses what was built.

    Raises:
        AgentBuildError: cargo is missing or failed, or what it built was refused.
    """
    if shutil.which("cargo") is None:
        raise AgentBuildError("cargo is not on PATH; install Rust with rustup, then try again")
    folder = target_folder() / within
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder / f".{destination.name}.lock"):  # another clone must not replace it between build and copy
        command = [arguments[0], "--release", "--locked", *arguments[1:]]
        reporting = [*command, "--message-format", "json-render-diagnostics"]
        done = run_cargo(reporting, workspace, within, flags, stdout=subprocess.PIPE)
        if done.returncode != 0:
            place = workspace.relative_to(ROOT)
            raise AgentBuildError(f"`cargo {' '.join(command)}` in {place}/ ended with status {done.returncode}")
        messages = map(json.loads, done.stdout.splitlines())
        files = (Path(name) for message in messages for name in message.get("filenames", ()))
        built = next((file for file in files if file.name == (name or destination.name)), None)
        if built is None:
            raise AgentBuildError(f"cargo built no file named {name or destination.name}")
        if check is not None:
            check(built)
        _place(built, destination)
    return destination


def run_cargo(
    arguments: list[str], workspace: Path, within: str, flags: str | None, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run cargo as :func:`build` does, to its end."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(target_folder() / within)}
    if flags is not None:
        environment["RUSTFLAGS"] = flags
    return subprocess.run(["cargo", *arguments], cwd=workspace, env=environment, stdout=stdout, text=True)


def _place(built: Path, destination: Path) -> None:
    """Copy a file that was built, unless it is there already."""
    if not destination.is_file() or destination.read_bytes() != built.read_bytes():
        destination.parent.mkdir(exist_ok=True)
        partial = destination.with_suffix(f".{os.getpid()}.partial")
        shutil.copy2(built, partial)
        partial.replace(destination)  # a running program keeps its old file


def _refuse_dynamic(built: Path) -> None:
    if not is_static(built):
        raise AgentBuildError(
            f"{built} is linked dynamically and would not start in a guest; "
            "unset RUSTFLAGS so that native/.cargo/config.toml applies"
        )


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
