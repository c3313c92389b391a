"""A Debian root file system with next to nothing in it, and commands that have it as their root.

It is made by mmdebstrap with the machine's own package sources.  A command inside has a mount namespace of its own:
nothing that the machine has installed or cached is seen there but what is shared by name, the package clients'
configuration and the network.  With :func:`booted`, systemd is its first process, without a network.  Both need root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger

CONFIGURATION = ("/etc/apt", "/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/usr/share/keyrings")
"""Of the package clients, copied: where their registries are, and whose signatures are trusted."""
NOT_TOLD = ("XDG_", "VIRTGAUGE_", "CARGO_TARGET", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS")
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_ENTER = """
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
"""
INSIDE = f"""
set -e
root=$1 shared=$2; shift 2
mount --bind "$root" "$root"
for place in proc sys dev run; do mkdir -p "$root/$place"; done
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
for place in $shared; do
    if [ -d "$place" ]; then mkdir -p "$root$place"; else mkdir -p "$root$(dirname "$place")"; : >"$root$place"; fi
    mount --rbind -o ro "$place" "$root$place"
done
{_ENTER}
cd /root
exec "$@"
"""
# As systemd asks of containers: /proc/sys and /sys read-only, mounts shared, control groups of version 2.
BOOT = f"""
set -e
root=$1
echo $$ >"$2/cgroup.procs"
exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child sh -c '
set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
{_ENTER}
mount --make-rshared /
exec env -i container=bare PATH={PROGRAMS} /lib/systemd/systemd --unit=multi-user.target
' sh "$root"
"""


_CAPTURED: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
_CAPTURED |= {"text": True}


def make_root(folder: Path, packages: Sequence[str], release: str = "bookworm") -> Path:
    """A new root file system with some packages, what they depend on, and what every Debian has."""
    root = folder / "root"
    sources = sorted(Path("/etc/apt/sources.list.d").glob("*.sources")) or [Path("/etc/apt/sources.list")]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}", release, root]
    subprocess.run([*command, *sources], check=True)
    for place in map(Path, CONFIGURATION):
        inside = root / place.relative_to("/")
        if place.is_dir():
            shutil.rmtree(inside, ignore_errors=True)
            shutil.copytree(place, inside, symlinks=True)
        elif place.exists():
            inside.unlink(missing_ok=True)
            shutil.copy(place, inside)
    return root


def environment(root: Path, tools: Sequence[Path] = ()) -> tuple[dict[str, str], list[Path]]:
    """Variables for the inside, and the files that they name (certificates, say)."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(NOT_TOLD)}
    told |= {"PATH": ":".join([PROGRAMS, *(str(tool / "bin") for tool in tools)]), "HOME": "/root"}
    values = {Path(value) for value in told.values() if value.startswith("/") and ":" not in value}
    return told, sorted(path for path in values if path.is_file() and not (root / path.relative_to("/")).exists())


def entering(root: Path, shared: Sequence[Path] = ()) -> list[str]:
    """The beginning of a command that has the root, and what is shared with it read-only.

    Not in a PID namespace: that would hide the kernel's threads, which is no bare machine.
    """
    places = " ".join(map(str, shared))
    return ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh", str(root), places]


def told(root: Path, *command: str, **more: str) -> str:
    """What a command inside prints; AssertionError with all of it where it fails."""
    variables, files = environment(root)
    try:
        done = subprocess.run([*entering(root, files), *command], env=variables | more, **_CAPTURED)
    finally:
        end_all_within(root)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
    return str(done.stdout)


def end_all_within(root: Path) -> None:
    """Kill what still runs from the new root (a service that a package has started, say)."""
    place = root.stat()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = (entry / "root").stat()
            if (inside.st_dev, inside.st_ino) == (place.st_dev, place.st_ino):
                os.kill(int(entry.name), signal.SIGKILL)


@contextlib.contextmanager
def booted(root: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Systemd, from within the root, with namespaces and a control group of its own; runs commands beside it."""
    hierarchy = subprocess.check_output(["findmnt", "-nft", "cgroup2", "-o", "TARGET"], text=True).split()[0]
    group = Path(hierarchy) / f"bare-root-{os.getpid()}"
    group.mkdir()
    log = root / "var" / "log" / "boot"
    with log.open("w") as told:
        command = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", BOOT, "sh", str(root), str(group)]
        outside = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told)
    try:

        def run(*command: str) -> subprocess.CompletedProcess[str]:
            first = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().strip()
            enter = ["nsenter", "-t", first, "-a", "env", "-i", f"PATH={PROGRAMS}", "HOME=/root", "LC_ALL=C.UTF-8"]
            return subprocess.run([*enter, *command], timeout=120, **_CAPTURED)

        until = time.monotonic() + 60
        while run("test", "-S", "/run/systemd/private").returncode:
            assert outside.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield run
    finally:
        outside.kill()
        outside.wait()
        (group / "cgroup.kill").write_text("1")
        removal = ["find", str(group), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]
        while subprocess.run(removal, stderr=subprocess.DEVNULL).returncode:  # until the last process has ended
            time.sleep(0.1)


TINY = """
name = "tiny"
reference = "host"
aa = false
repetitions = 1
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "told"
kind = "simulated"
[[suite.timing]]
timers = ["clock_gettime"]
sleeps = ["clock_nanosleep"]
targets_us = [100]
loads = ["idle"]
reads = 1000
sleep_samples = 50
[validity]
foreign_load = 1.0
steal = 1.0
"""
STORAGE = """
[[suite.storage]]
databases = ["sqlite"]
durability = ["flushed"]
operations = ["single-write"]
seconds = 0.2
warmup_s = 0.0
calibration_s = 0.0
preload = 1000
sensors = 2
"""


def measured(folder: Path) -> set[tuple[str, str]]:
    """Suite and arm of the valid trials of a run."""
    with Ledger.open(folder) as ledger:
        return {(trial.suite, trial.arm) for trial in ledger.trials() if trial.status is TrialStatus.VALID}
