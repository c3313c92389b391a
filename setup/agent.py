"""Builds the agent and puts it where the package looks for it.  Standard library only: the build hook runs it too.

The target folder is in the user's cache, so that a second clone compiles only what is its own.  A stamp beside each
file says what it was built from: where that has not changed, cargo is not called, and need not be there.

    setup/agent.py           build the agent
    setup/agent.py prune     remove the target folder, unless CARGO_TARGET_DIR has put it elsewhere
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "native" / "Cargo.toml"
AGENT = ROOT / "src" / "virtgauge" / "native" / "virtgauge-agent"
DYNAMIC = "--cfg=remapped -C target-feature=-crt-static -C relocation-model=pic"
"""Flags, in place of those of the workspace, for what is linked dynamically."""
LOG_LINES = 20
"""So many of a log's last lines are shown where a build failed."""
_JOB_KIB = 1024 * 1024
"""Memory that one compiler may need."""


class AgentBuildError(RuntimeError):
    """The agent could not be built; the message says why and what to do."""


def target_folder() -> Path:
    """Cargo's target folder: ``$CARGO_TARGET_DIR``, else one in the user's cache."""
    chosen = os.environ.get("CARGO_TARGET_DIR")
    return Path(chosen) if chosen else cache_folder() / "target"


def cache_folder() -> Path:
    """Where the set-up keeps what it fetched and built, and its logs."""
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else Path.home() / ".cache") / "virtgauge"


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

    Nothing is done where the file is there and was built from the same sources by the same compiler and flags.

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
    inputs = _inputs(arguments, workspace, flags)
    if is_current(destination, inputs):
        return destination
    refuse_old_cargo(workspace)
    folder = target_folder() / within
    # Another clone must neither remove the folder meanwhile, nor replace the file between build and copy.
    with _locked(target_lock(), fcntl.LOCK_SH), _locked(folder / ".build.lock", fcntl.LOCK_EX):
        _refresh(workspace, folder)
        command = [arguments[0], "--release", "--locked", *arguments[1:]]
        reporting = [*command, "--message-format", "json-render-diagnostics"]
        log = cache_folder() / "logs" / f"build-{destination.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            done = run_cargo(reporting, workspace, within, flags, stdout=subprocess.PIPE, stderr=output)
        if done.returncode != 0:
            raise AgentBuildError(
                f"`cargo {' '.join(command)}` in {workspace.relative_to(ROOT)}/ ended with status {done.returncode}; "
                f"the end of {log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            )
        messages = map(json.loads, done.stdout.splitlines())
        files = (Path(name) for message in messages for name in message.get("filenames", ()))
        built = next((file for file in files if file.name == (name or destination.name)), None)
        if built is None:
            raise AgentBuildError(f"cargo built no file named {name or destination.name}")
        if check is not None:
            check(built)
        _place(built, destination)
        mark_current(destination, inputs)
    return destination


def _refresh(workspace: Path, folder: Path) -> None:
    """Let cargo see that sources are others than those of the last build in a target folder.

    It asks their times, and takes packages of two clones for the same: what the one has compiled later than the other's
    files were written would be that one's.
    """
    digest, built = _digest_of_sources(workspace), folder / ".sources"
    if not built.is_file() or built.read_text() != digest:
        for path in sources(workspace):
            os.utime(path)
        built.write_text(digest)


def refuse_old_cargo(workspace: Path) -> None:
    """See that the sources can be compiled here.

    Raises:
        AgentBuildError: cargo is missing, or older than the ``rust-version`` of the workspace.
    """
    remedy = "install Rust with rustup (https://rustup.rs), then try again"
    if shutil.which("cargo") is None:
        raise AgentBuildError(f"cargo is not on PATH; {remedy}")
    found = re.search(r"^rustc (\d+)\.(\d+)", _compiler(workspace))
    least = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["workspace"]["package"]["rust-version"]
    if found and (int(found[1]), int(found[2])) < tuple(map(int, least.split("."))):
        raise AgentBuildError(f"Rust is version {found[1]}.{found[2]}, and the sources need {least} or later; {remedy}")


def run_cargo(
    arguments: list[str],
    workspace: Path,
    within: str,
    flags: str | None,
    stdout: int | None = None,
    stderr: IO[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run cargo as :func:`build` does, to its end."""
    environment = {"CARGO_BUILD_JOBS": str(jobs()), **os.environ, "CARGO_TARGET_DIR": str(target_folder() / within)}
    if flags is not None:
        environment["RUSTFLAGS"] = flags
    return subprocess.run(
        ["cargo", *arguments], cwd=workspace, env=environment, stdout=stdout, stderr=stderr, text=True
    )


def jobs() -> int:
    """How many compilers run at once: one for each processor, as far as the free memory allows."""
    with Path("/proc/meminfo").open() as lines:
        free_kib = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), _JOB_KIB)
    return max(1, min(len(os.sched_getaffinity(0)), free_kib // _JOB_KIB))


def prune() -> bool:
    """Remove the target folder and the bytecode in the cache; whether that was done.  What others use stays."""
    folder = cache_folder() / "target"
    if target_folder() != folder or not folder.is_dir():
        return False
    try:
        with _locked(target_lock(), fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder)
            shutil.rmtree(cache_folder() / "bytecode", ignore_errors=True)
    except BlockingIOError:
        return False
    return True


def _inputs(arguments: Sequence[str], workspace: Path, flags: str | None) -> str:
    """A digest of all that a build depends on: sources, manifests, lock, compiler, flags."""
    environment = sorted(item for item in os.environ.items() if "RUSTFLAGS" in item[0] or "CARGO_PROFILE" in item[0])
    depends_on = arguments, flags, environment, _compiler(workspace), _digest_of_sources(workspace)
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()


def _digest_of_sources(workspace: Path) -> str:
    """Of their names and contents."""
    listed = (f"{path.relative_to(workspace)} {_digest(path)}\n" for path in sources(workspace))
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def sources(workspace: Path) -> list[Path]:
    """The files of a cargo workspace that its programs are built from; not those of tests."""
    found = []
    for folder, folders, files in os.walk(workspace):
        folders[:] = set(folders) - {"target", "tests", "examples", "benches"}
        found += [Path(folder, name) for name in files if not name.endswith(".md")]
    return sorted(found)


def _compiler(workspace: Path) -> str:
    try:
        return subprocess.run(["rustc", "-vV"], cwd=workspace, capture_output=True, text=True).stdout
    except OSError:
        return ""


def is_current(destination: Path, inputs: str) -> bool:
    """Whether a file is there as it was built, from the same."""
    try:
        return _stamp(destination).read_text() == f"{inputs} {_digest(destination)}\n"
    except OSError:
        return False


def mark_current(destination: Path, inputs: str) -> None:
    """Write down what a file was built from."""
    _stamp(destination).write_text(f"{inputs} {_digest(destination)}\n")


def _stamp(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.stamp")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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


def target_lock() -> Path:
    """Beside the target folder: held shared by whoever builds, alone by whoever removes the folder."""
    return target_folder().with_name(f".{target_folder().name}.lock")


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, how)
        yield


def step(name: str, work: Callable[[], Sequence[Path]]) -> None:
    """Do one step of the set-up, with one line that says what came of it, and how long it took; exit where it fails."""
    started = time.monotonic()
    try:
        made = work()
    except RuntimeError as error:  # by its base, because every script loads an AgentBuildError of its own
        sys.exit(f"{name:<10} failed: {error}")
    print(f"{name:<10} {', '.join(path.name for path in made)} ({time.monotonic() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["prune"]:
        print(f"{'prune':<10} {'removed' if prune() else 'kept'} {target_folder()}")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        step("agent", lambda: [build_agent()])
