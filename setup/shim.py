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
    return build_shared(PACKAGE, SHIM)


def build_shared(package: str, destination: Path) -> Path:
    """The same for any package of the workspace whose library is preloaded."""
    if shutil.which("cargo") is None:
        raise AgentBuildError("cargo is not on PATH; install Rust with rustup, then try again")
    folder: Path = _agent["target_folder"]() / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    with _agent["_exclusive"](folder / f".{destination.name}.lock"):  # another clone must not replace it meanwhile
        _agent["place"](_cargo_build(folder, package, destination.name), destination)
    return destination


def _cargo_build(folder: Path, package: str, library: str) -> Path:
    command = ["cargo", "rustc", "--release", "--locked", "--package", package, "--lib", "--crate-type", "cdylib"]
    command += ["--message-format", "json-render-diagnostics"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(folder), "RUSTFLAGS": FLAGS}
    done = subprocess.run(command, cwd=ROOT / "native", env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise AgentBuildError(f"`{' '.join(command[:6])}` in native/ ended with status {done.returncode}")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        for name in message.get("filenames", ()):
            if Path(name).name == library:
                return Path(name)
    raise AgentBuildError(f"cargo built no {library}")


if __name__ == "__main__":
    try:
        print(f"{'shim':<10} {build_shim().relative_to(ROOT)}")
    except AgentBuildError as error:
        sys.exit(f"{'shim':<10} failed: {error}")
