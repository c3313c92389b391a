"""`make run` from nothing: in a new Debian 12 root file system with Python, make, git, and the machine's cargo and Go.

A root file system is made by mmdebstrap with the machine's own package sources, and becomes the root of a new mount
namespace: nothing that this machine has installed or cached is seen there but the toolchains, the package
clients' configuration and the network.  Every line that the command prints is stamped on arrival.  It runs as root,
has the machine to itself, and takes a quarter of an hour: `python benchmarks/run.py --only bare-root`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmark import BenchmarkError, Outcome, main

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "python3,make,git,ca-certificates"
CONFIGURATION = ("/etc/apt", "/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/usr/share/keyrings")
"""Of the package clients, copied: where their registries are, and whose signatures are trusted."""
NOT_TOLD = ("XDG_", "VIRTGAUGE_", "CARGO_TARGET", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS")

INSIDE = """
set -e
root=$1; shift
mount --bind "$root" "$root"
for place in proc sys dev run; do mkdir -p "$root/$place"; done
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
for place in "$@"; do
    if [ -d "$place" ]; then mkdir -p "$root$place"; else mkdir -p "$root$(dirname "$place")"; : >"$root$place"; fi
    mount --rbind -o ro "$place" "$root$place"
done
mkdir -p "$root/.old"
cd "$root"
pivot_root . .old
umount -l /.old
cd /root/virtgauge
exec make run 2>&1
"""


def bare_root(folder: Path) -> Path:
    """A new root file system with this commit of the project in it."""
    root = folder / "root"
    sources = sorted(Path("/etc/apt/sources.list.d").glob("*.sources")) or [Path("/etc/apt/sources.list")]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
    subprocess.run([*command, *map(str, sources)], check=True)
    for place in map(Path, CONFIGURATION):
        inside = root / place.relative_to("/")
        if place.is_dir():
            shutil.rmtree(inside, ignore_errors=True)
            shutil.copytree(place, inside, symlinks=True)
        elif place.exists():
            inside.unlink(missing_ok=True)
            shutil.copy(place, inside)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root / "root" / "virtgauge")], check=True)
    return root


def toolchains() -> list[Path]:
    """The folders of Rust and Go, which a user brings along."""
    sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    goroot = subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
    return [Path(sysroot), Path(goroot)]


def environment(root: Path, tools: list[Path]) -> tuple[dict[str, str], list[Path]]:
    """Variables for the inside, and the files that they name (certificates, say)."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(NOT_TOLD)}
    programs = ":".join(str(tool / "bin") for tool in tools)
    told |= {"PATH": f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{programs}", "HOME": "/root"}
    values = {Path(value) for value in told.values() if value.startswith("/") and ":" not in value}
    return told, sorted(path for path in values if path.is_file() and not (root / path.relative_to("/")).exists())


def timed_lines(root: Path) -> tuple[list[tuple[float, str]], int]:
    """The command's lines, each with the seconds since its start, and its exit code."""
    tools = toolchains()
    told, files = environment(root, tools)
    # Not in a PID namespace: that would hide the kernel's threads, which is no bare machine.
    command = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh", str(root)]
    command += [str(path) for path in (*tools, *files)]
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
            end_all_within(root)
    return lines, process.returncode


def end_all_within(root: Path) -> None:
    """Kill what still runs from the new root (a service that a package has started, say)."""
    place = root.stat()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = (entry / "root").stat()
            if (inside.st_dev, inside.st_ino) == (place.st_dev, place.st_ino):
                os.kill(int(entry.name), signal.SIGKILL)


def measure(options: argparse.Namespace) -> Outcome:
    """Set-up, first figures and comparison, from nothing to the prompt."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise BenchmarkError("it needs root and mmdebstrap (apt-get install mmdebstrap)")
    with tempfile.TemporaryDirectory(prefix="bare-root-", dir=ROOT.parent) as folder:
        lines, code = timed_lines(bare_root(Path(folder)))
        checkout = Path(folder) / "root" / "root" / "virtgauge"
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
