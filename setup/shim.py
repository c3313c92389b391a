"""Builds the preloaded shim and puts it where the package looks for it.  Standard library only, as for the agent.

The workspace links statically, for the agent; a shared object needs flags, and so a target folder, of its own.
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
SHIM = ROOT / "src" / "virtgauge" / "native" / "libhptime_preload.so"
PACKAGE = "hptime-preload"
FLAGS = "-C target-feature=-crt-static -C relocation-model=pic"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))
AgentBuildError: type[Exception] = _agent["AgentBuildError"]


def build_shim() -> Path:
    """Build the shim in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed.
    """
    if shutil.which("cargo") is None:
        raise AgentBuildError("cargo is not on PATH; install Rust with rustup, then try again")
    folder: Path = _agent["target_folder"]() / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    with _agent["_exclusive"](folder / ".virtgauge-shim.lock"):  # another clone must not replace it before the copy
        built = _cargo_build(folder)
        if not SHIM.is_file() or SHIM.read_bytes() != built.read_bytes():
            SHIM.parent.mkdir(exist_ok=True)
            partial = SHIM.with_suffix(f".{os.getpid()}.partial")
            shutil.copy2(built, partial)
            partial.replace(SHIM)  # a running program keeps its old file
    return SHIM


def _cargo_build(folder: Path) -> Path:
    command = ["cargo", "rustc", "--release", "--locked", "--package", PACKAGE, "--lib", "--crate-type", "cdylib"]
    command += ["--message-format", "json-render-diagnostics"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(folder), "RUSTFLAGS": FLAGS}
    done = subprocess.run(command, cwd=ROOT / "native", env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise AgentBuildError(f"`{' '.join(command[:6])}` in native/ ended with status {done.returncode}")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        for name in message.get("filenames", ()):
            if Path(name).name == SHIM.name:
                return Path(name)
    raise AgentBuildError(f"cargo built no {SHIM.name}")


if __name__ == "__main__":
    try:
        print(f"{'shim':<10} {build_shim().relative_to(ROOT)}")
    except AgentBuildError as error:
        sys.exit(f"{'shim':<10} failed: {error}")
