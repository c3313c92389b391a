"""Control groups: account for, find and kill all processes of a guest, whatever they forked.

Three layouts of the cgroup file systems exist and all are met in practice: one mount per v1 controller,
the single v2 tree, and both side by side ("hybrid").  Accounting needs v1's ``cpuacct``
(``cpuacct.usage``, nanoseconds) or any v2 group (``cpu.stat``'s ``usage_usec``); neither needs the *cpu*
controller, which is joined only for a limit that was asked for: group scheduling would change what is measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from virtgauge.host.mounts import mounts
from virtgauge.host.process import (
    KTHREADD,
    closed_after,
    cpu_clock_ns,
    is_kernel_thread,
    kernel_threads_visible,
    text_of,
)

QUOTA_PERIOD_US = 100_000  # In which a quota of CPU time is used up and given anew
LEAST_QUOTA_US = 1_000  # the kernel's
_POLL_S = 0.002
_PLAIN_OPTIONS = ("rw", "ro", "xattr", "noprefix", "clone_children")
_ATTRIBUTE = "user."  # of files, which every user may read who may read the file
_ACCOUNT_BYTES = 4096  # More than either version's account has


@dataclasses.dataclass(frozen=True)
class Hierarchies:
    """The places at which the cgroup file systems of this machine are mounted."""

    v1: dict[str, Path]  # mount point by controller name (``cpuacct``, ``freezer``, …)
    v2: Path | None  # mount point of the unified tree, with or without controllers; None where there is none
    # mount points of v1 hierarchies without a controller (``name=systemd``), where runtimes make groups too
    named: tuple[Path, ...] = ()

    @classmethod
    def detect(cls, mountinfo: Path = Path("/proc/self/mountinfo")) -> Hierarchies:
        """Read them from a mountinfo file; both parts are empty where nothing is mounted."""
        v1: dict[str, Path] = {}
        v2: Path | None = None
        named: list[Path] = []
        for mount in mounts(mountinfo):
            if mount.fstype == "cgroup2":
                v2 = v2 or mount.point
            elif mount.fstype == "cgroup":
                for option in mount.super_options:
                    if option.startswith("name="):
                        named.append(mount.point)
                    elif "=" not in option and option not in _PLAIN_OPTIONS:
                        v1.setdefault(option, mount.point)
        return cls(v1=v1, v2=v2, named=tuple(named))

    def all_roots(self) -> list[Path]:
        """Every mount point in which a group may have been made, each once."""
        return list(dict.fromkeys([*self.v1.values(), *self.named, *([self.v2] if self.v2 else [])]))


class Cgroup:
    """One control group of a guest, made when it is first entered."""

    def __init__(self, name: str, hierarchies: Hierarchies | None = None, *, cpu_limit: float | None = None) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"a cgroup's name must be relative to the root: {name!r}")
        self.name = name  # path below the mount points, ``virtgauge/<tag>/<guest>``
        self.reason: str | None = None  # why accounting by cgroup is impossible here; None while it is possible
        self.cpu_limit = cpu_limit  # that it is made with, in whole CPUs; None leaves the *cpu* controller alone
        self.hierarchies = Hierarchies.detect() if hierarchies is None else hierarchies
        self._account: int | None = None

    @property
    def method(self) -> str:
        """How :meth:`cpu_ns` knows, for the record."""
        return "cgroup cpuacct" if "cpuacct" in self.hierarchies.v1 else "cgroup cpu.stat"

    def create(self) -> bool:
        """Make the group; False, with :attr:`reason` set, where this user or machine cannot."""
        joined = self._joined()
        if not joined:
            self.reason = "no cgroup file system with CPU accounting is mounted"
            return False
        failure = ""
        try:
            for folder in joined:
                failure = f"cannot make the cgroup {folder}"
                _make_group(folder)
                # Pressure accounting costs time at every context switch; the group is there only to count.
                with contextlib.suppress(OSError):
                    write_existing(folder / "cgroup.pressure", "0")
            if self.cpu_limit is not None:
                failure = f"the CPU time of {self.name} cannot be limited"
                if (limited := self.folder("cpu")) is None:
                    raise OSError(errno.ENOENT, "no cgroup file system is mounted")
                self.hand_down("cpu")
                for knob, value in self.quota(self.cpu_limit).items():
                    write_existing(limited / knob, value)
        except OSError as error:
            self.reason = f"{failure}: {error.strerror}"
            self.remove()
            return False
        self.reason = None
        return True

    def mark_parent(self, words: Mapping[str, str]) -> None:
        """Say by its parent, which stands for all of a scope, whose it is; nothing where this user makes no groups."""
        for folder in self._joined():
            with contextlib.suppress(OSError):  # or a kernel that keeps no such attributes
                _make_group(folder.parent)
                for name, text in words.items():
                    os.setxattr(folder.parent, _ATTRIBUTE + name, text.encode())

    def adopt(self, thread: int) -> None:
        """Move a kernel thread, or a process, into the group, whoever made it: what it does is then the group's.
        Raises OSError: the group is not there, or the kernel keeps the thread where it is.
        """
        roots = [self.hierarchies.v1[name] for name in ("cpu", "cpuacct") if name in self.hierarchies.v1]
        folders = [root / self.name for root in dict.fromkeys([*roots, *filter(None, [self.hierarchies.v2])])]
        present = [folder for folder in folders if folder.is_dir()]
        if not present:
            raise OSError(errno.ENOENT, "the group is not there")
        for folder in present:
            write_existing(folder / "cgroup.procs", str(thread))

    def release_kernel_threads(self) -> None:
        """Give kernel threads back to the root: nobody can end them, and a group that holds one cannot be removed."""
        for root in self.hierarchies.all_roots():
            for thread in members(root / self.name):
                if is_kernel_thread(thread):
                    with contextlib.suppress(OSError):  # it ended meanwhile
                        write_existing(root / "cgroup.procs", str(thread))

    @contextlib.contextmanager
    def entrance(self) -> Iterator[Callable[[], None]]:
        """Create the group and give a function that joins it, to be called between fork and exec.

        Everything the child does is then counted from its first instruction.  The function only writes to
        descriptors opened beforehand, because a forked child of a threaded program must not allocate.
        Where groups cannot be made it does nothing, and :attr:`reason` says why.
        """
        descriptors: list[int] = []
        try:
            if self.create():
                for folder in self._joined():
                    descriptors.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))

            def join() -> None:
                for descriptor in descriptors:
                    os.write(descriptor, b"0")

            yield join
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def folder(self, controller: str) -> Path | None:
        """Its folder where a controller is, whether it was made or not; None where nothing is mounted for it."""
        root = self.hierarchies.v1.get(controller, self.hierarchies.v2)
        return None if root is None else root / self.name

    def hand_down(self, controller: str) -> None:
        """Have v2's groups above it hand down a controller, level by level.  Raises OSError: they cannot."""
        root = self.hierarchies.v2
        if controller not in self.hierarchies.v1 and root is not None:
            for parent in reversed((root / self.name).relative_to(root).parents):
                write_existing(root / parent / "cgroup.subtree_control", f"+{controller}")

    def quota(self, cpus: float) -> dict[str, str]:
        """What limits it to so many whole CPUs: values by the knob, to be set in this order."""
        quota = str(max(LEAST_QUOTA_US, round(cpus * QUOTA_PERIOD_US)))
        if "cpu" in self.hierarchies.v1:
            return {"cpu.cfs_period_us": str(QUOTA_PERIOD_US), "cpu.cfs_quota_us": quota}
        return {"cpu.max": f"{quota} {QUOTA_PERIOD_US}"}

    def cpu_ns(self) -> int | None:
        """CPU time of everything that ran in the group, in ns; None where there is no such group."""
        if self._account is not None:
            try:
                return _read_account(self._account)
            except OSError:  # somebody else removed it
                return None
        joined = self._joined()
        return _usage_ns(joined[0]) if joined else None

    def keep_account_open(self) -> None:
        """Have :meth:`cpu_ns` read an open file until :meth:`remove`: to open it costs most of a reading."""
        with contextlib.suppress(OSError, IndexError):  # there is no such group
            self._account = _open_account(self._joined()[0])

    def applied_cpu_limit(self) -> float | None:
        """The group's quota as the kernel holds it, in whole CPUs, whoever set it; None where there is none."""
        folder = self.folder("cpu")
        if folder is None:
            return None
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if "cpu" in self.hierarchies.v1 else ("cpu.max",)
        told = " ".join(text_of(folder / file) or "" for file in files).split()
        return int(told[0]) / int(told[1]) if len(told) == 2 and told[0] not in ("max", "-1") else None

    def pids(self) -> list[int]:
        """Pids in the group and the groups below it, over all hierarchies; of processes, not of kernel threads."""
        found = {pid for folder in self._all() for pid in members(folder)}
        return sorted(pid for pid in found if not is_kernel_thread(pid))

    def kill_all(self, timeout_s: float = 5.0) -> bool:
        """Kill every process in the group; True once none is left (zombies excluded), False at the time-out."""
        deadline = time.monotonic() + timeout_s
        while remaining := [pid for pid in self.pids() if pid != os.getpid()]:
            if time.monotonic() > deadline:
                return False
            self._kill_once(remaining)
            time.sleep(_POLL_S)
        return True

    def remove(self) -> bool:
        """Remove the group, those below it, and parents that it leaves empty; True when nothing remains.

        Idempotent.  A group that still holds processes stays: call :meth:`kill_all` first.
        """
        gone = True
        if self._account is not None:
            os.close(self._account)
            self._account = None
        self.release_kernel_threads()
        for root in self.hierarchies.all_roots():
            folder = root / self.name
            gone = _remove_tree(folder) and gone
            parent = folder.parent
            while parent != root and parent.is_relative_to(root):
                try:
                    parent.rmdir()
                except OSError:
                    break  # another guest or run lives there, or it is gone
                parent = parent.parent
        return gone

    def _joined(self) -> list[Path]:
        """The folders this class makes and joins: first the one that counts, and on v1 one that can freeze."""
        v1 = self.hierarchies.v1
        limited = [folder] if self.cpu_limit is not None and (folder := self.folder("cpu")) else []
        if "cpuacct" in v1:
            roots = [v1["cpuacct"]] + ([v1["freezer"]] if "freezer" in v1 else [])
            return list(dict.fromkeys([*(root / self.name for root in roots), *limited]))
        return [self.hierarchies.v2 / self.name] if self.hierarchies.v2 else []

    def present(self) -> bool:
        return bool(self._all())

    def _all(self) -> list[Path]:
        return [folder for root in self.hierarchies.all_roots() if (folder := root / self.name).is_dir()]

    def _kill_once(self, pids: list[int]) -> None:
        folders = self._all()
        for folder in folders:
            with contextlib.suppress(OSError):  # before Linux 5.14, or a v1 group: the loop below kills
                write_existing(folder / "cgroup.kill", "1")
        # A frozen v1 group cannot fork while it is being killed; the signals act when it thaws.
        for folder in folders:
            with contextlib.suppress(OSError):
                write_existing(folder / "freezer.state", "FROZEN")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for folder in folders:
            # Below it, too: of a controller that was killed as it closed a guest that one's group may be frozen.
            for path, _, _ in os.walk(folder):
                with contextlib.suppress(OSError):
                    write_existing(Path(path, "freezer.state"), "THAWED")


def root_cpu_ns(hierarchies: Hierarchies) -> int | None:
    """CPU time used by all tasks of the machine since boot, in ns; None where it is not counted exactly.

    v1's root group counts to the nanosecond; for v2's there is :func:`group_times_ns`.  Inside a container the "root"
    may be the container's own group: such a one is recognized (it lacks ``release_agent``) and refused.
    """
    v1 = hierarchies.v1.get("cpuacct")
    return _usage_ns(v1) if v1 is not None and (v1 / "release_agent").exists() else None


def group_times_ns(hierarchies: Hierarchies) -> dict[str, int] | None:
    """CPU time of the first groups of the v2 tree, and of each process in none of them, in ns; together the machine's.

    v2's root group is no use: it repeats the ticks of /proc/stat, and many kernels add steal to them. Returns by name
    or pid; None where the tree is a container's, or not all processes can be seen, or the machine's processes are not
    in groups (the first process is in none): those that end would be missed.
    """
    root = hierarchies.v2
    if root is None or (root / "cgroup.events").exists() or not kernel_threads_visible():
        return None
    try:
        found = times_below_ns(root)
    except OSError:
        return None
    return found if str(KTHREADD) in found and "1" not in found else None


def times_below_ns(root: Path) -> dict[str, int]:
    """CPU time of a v2 group's groups by name, and of the processes in the group itself by pid, in ns.
    Raises OSError: it is gone.
    """
    with os.scandir(root) as entries:
        groups = {entry.name: _usage_ns(Path(entry.path)) for entry in entries if entry.is_dir()}
    pids = (root / "cgroup.procs").read_text().split()
    each = groups | {pid: cpu_clock_ns(int(pid)) for pid in pids}
    return {name: used for name, used in each.items() if used is not None}


def members(folder: Path) -> set[int]:
    """Pids in a group's folder and below."""
    found: set[int] = set()
    for path, _, files in os.walk(folder):
        if "cgroup.procs" in files:
            # gone between listing and reading, or a threaded group: nothing to list there
            with contextlib.suppress(OSError):
                found.update(int(line) for line in Path(path, "cgroup.procs").read_text().split())
    found.discard(0)  # a process of another pid namespace
    return found


def _usage_ns(folder: Path) -> int | None:
    with contextlib.suppress(OSError), closed_after(_open_account(folder)) as account:
        return _read_account(account)
    return None


def _open_account(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return os.open(folder / "cpuacct.usage", os.O_RDONLY | os.O_CLOEXEC)
    return os.open(folder / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)  # a v2 group


def _read_account(account: int) -> int | None:
    """Nanoseconds of v1's account, which is one number, or of v2's, which is a line of several; None without any."""
    text = os.pread(account, _ACCOUNT_BYTES, 0)
    if text[:1].isdigit():
        return int(text)
    for line in text.splitlines():
        key, _, value = line.partition(b" ")
        if key == b"usage_usec":
            return int(value) * 1000
    return None


def _make_group(folder: Path) -> None:
    """Make a folder and its parents, against another run that removes the common parent at the same time."""
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return
    raise OSError(errno.EAGAIN, "its parent keeps disappearing")


def marked_with(folder: Path, name: str) -> str | None:
    """What :meth:`Cgroup.mark_parent` has said under a name; None where it says nothing."""
    try:
        return os.getxattr(folder, _ATTRIBUTE + name).decode()
    except (OSError, ValueError):
        return None


def write_existing(path: Path, text: str) -> None:
    """Tell the kernel by a file: on its file systems none can be made, and in a plain folder none must be."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _remove_tree(folder: Path) -> bool:
    """Remove a group and those below it, deepest first; a group whose last process just died is briefly busy."""
    deadline = time.monotonic() + 1.0
    while folder.is_dir():
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        if not folder.is_dir():
            break
        if time.monotonic() > deadline or members(folder):
            return False
        time.sleep(_POLL_S)
    return True
