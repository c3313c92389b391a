"""`make run` from nothing: in a new Debian 12 root file system with Python, make, git, and the machine's cargo and Go.

A root file system is made by mmdebstrap with the machine's own package sources, and becomes the root of a new mount
namespace: nothing that this machine has installed or cached is seen there but the toolchains, the package
clients' configuration and the network.  Every line that the command prints is stamped on arrival.  It runs as root,
has the machine to itself, and takes a quarter of an hour: `python benchmarks/run.py --only bare-root`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from benchmark import BenchmarkError, Outcome, main

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("python3", "make", "git", "ca-certificates")


def bare_roots() -> ModuleType:
    """How they are made and entered, as the tests do."""
    sys.path.insert(0, str(ROOT / "tests"))
    import bare_roots

    return bare_roots


def toolchains() -> list[Path]:
    """The folders of Rust and Go, which a user brings along."""
    sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    goroot = subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
    return [Path(sysroot), Path(goroot)]


def timed_lines(root: Path) -> tuple[list[tuple[float, str]], int]:
    """The command's lines, each with the seconds since its start, and its exit code."""
    tools, roots = toolchains(), bare_roots()
    told, files = roots.environment(root, tools)
    command = [*roots.entering(root, [*tools, *files]), "sh", "-c", "cd virtgauge && exec make run 2>&1"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=told) as process:
        assert process.stdout is not None
        lines: list[tuple[float, str]] = []
        try:
            for line in process.stdout:
                lines.append((time.monotonic() - began, line.rstrip()))
                print(f"{lines[-1][0]:7.1f}  {lines[-1][1]}", file=sys.stderr)
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
            roots.end_all_within(root)
    return lines, process.returncode


def measure(options: argparse.Namespace) -> Outcome:
    """Set-up, first figures and comparison, from nothing to the prompt."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise BenchmarkError("it needs root and mmdebstrap (apt-get install mmdebstrap)")
    with tempfile.TemporaryDirectory(prefix="bare-root-", dir=ROOT.parent) as folder:
        root = bare_roots().make_root(Path(folder), PACKAGES)
        checkout = root / "root" / "virtgauge"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        lines, code = timed_lines(root)
        sizes = {name: size_mib(checkout / name) for name in (".venv", "src/virtgauge/native")}
        if options.keep is not None and code in (0, 1):
            shutil.copytree(checkout / "runs", options.keep, dirs_exist_ok=True)
    if code not in (0, 1) or not lines:
        raise BenchmarkError(f"`make run` ended with {code}: {lines[-1][1] if lines else 'it printed nothing'}")
    step = re.compile(r"^(\S+) +((?:made|skipped|ok): .*?) *(?:\[(\d+) s\])?$")
    rows = []
    for at, line in lines:
        if found := step.match(line):
            rows.append([f"{found[1]} {found[2]}", f"{found[3]} s" if found[3] else "", f"{at:.0f} s"])
        elif line.startswith("first figures:") or line.endswith("trials to do"):
            rows.append([line, "", f"{at:.0f} s"])
    rows.append([f"the end, exit code {code}", "", f"{lines[-1][0]:.0f} s"])
    rows += [[f"{name} then has {size:.0f} MiB on disk", "", ""] for name, size in sizes.items()]
    return Outcome(
        ("step", "its own time", "since `make run`"),
        rows,
        "From a Debian 12 root file system with nothing but Python, make, git, Rust and Go.",
        notes=["Downloads come from the machine's own package sources, which may be nearer than a user's."],
        values={"lines": lines, "sizes_mib": sizes},
    )


def size_mib(folder: Path) -> float:
    """What the files of a folder take on disk."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 2**20


def options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the run's folder here")


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
