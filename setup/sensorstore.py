"""Builds the load generator for databases and puts it where the package looks for it.

With arguments, runs cargo with them in its place (`setup/sensorstore.py test`).  Standard library only, as for the
agent.  The workspace around it links statically; this executable has to load DuckDB, and to let its flushes be counted
by what is preloaded, and needs flags, and so a target folder, of its own.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SENSORSTORE = ROOT / "src" / "virtgauge" / "native" / "sensorstore"
FLAGS = "-C target-feature=-crt-static -C relocation-model=pic"
"""In the environment, which replaces what native/.cargo/config.toml says; a file further in could only add to that."""

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))
AgentBuildError: type[Exception] = _agent["AgentBuildError"]


def build_sensorstore() -> Path:
    """Build it in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed.
    """
    if shutil.which("cargo") is None:
        raise AgentBuildError("cargo is not on PATH; install Rust with rustup, then try again")
    folder = target_folder()
    with _agent["_exclusive"](folder / ".virtgauge-sensorstore.lock"):  # another clone must not replace it meanwhile
        built = _cargo_build()
        if not SENSORSTORE.is_file() or SENSORSTORE.read_bytes() != built.read_bytes():
            SENSORSTORE.parent.mkdir(exist_ok=True)
            partial = SENSORSTORE.with_suffix(f".{os.getpid()}.partial")
            shutil.copy2(built, partial)
            partial.replace(SENSORSTORE)  # a running one keeps its old file
    return SENSORSTORE


def target_folder() -> Path:
    """Where cargo builds it; made if need be."""
    folder: Path = _agent["target_folder"]() / "store"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_cargo(arguments: list[str], stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run cargo in the workspace, with its flags and target folder."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(target_folder()), "RUSTFLAGS": FLAGS}
    place = ROOT / "native" / "sensorstore"
    return subprocess.run(["cargo", *arguments], cwd=place, env=environment, stdout=stdout, text=True)


def _cargo_build() -> Path:
    command = ["build", "--release", "--locked", "--bin", SENSORSTORE.name]
    done = run_cargo([*command, "--message-format", "json-render-diagnostics"], subprocess.PIPE)
    if done.returncode != 0:
        raise AgentBuildError(f"`cargo {' '.join(command)}` in native/sensorstore ended with status {done.returncode}")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == SENSORSTORE.name:
            return Path(message["executable"])
    raise AgentBuildError(f"cargo built no executable named {SENSORSTORE.name}")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(run_cargo(sys.argv[1:]).returncode)
    try:
        print(f"{'storage':<10} {build_sensorstore().relative_to(ROOT)}")
    except AgentBuildError as error:
        sys.exit(f"{'storage':<10} failed: {error}")
