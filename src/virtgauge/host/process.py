"""Processes of this machine: started, waited for, killed, and where they may run."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import fcntl
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from virtgauge.host.tag import CGROUP_PARENT


def cpu_list(text: str) -> frozenset[int]:
    """The numbers of CPUs as the kernel lists them (``0-2,4``), or not any.  Raises ValueError: it is no such list."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return frozenset(cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1))


def assignable_cpus() -> frozenset[int]:
    """The CPUs that a thread of ours may be given.

    These can be more than those that it runs on by itself: ``isolcpus`` keeps init, and so all that it starts, off the
    isolated ones (sched_init_smp, kernel/sched/core.c).  Only a cpuset forbids.
    """
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(_MOST_CPUS))
        return frozenset(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, own)


def isolated_cpus(root: Path = Path("/")) -> frozenset[int]:
    """CPUs that the host's scheduler leaves alone: of its command line, and of isolated partitions of cpuset."""
    found: frozenset[int] = frozenset()
    for file in ("sys/devices/system/cpu/isolated", "sys/fs/cgroup/cpuset.cpus.isolated"):
        with contextlib.suppress(ValueError):
            found |= cpu_list(text_of(root / file) or "")
    return found


def text_of(path: Path) -> str | None:
    """What a file says, without the blanks around it; None where it says nothing, or cannot be read."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


# Processes: named so that a recycled pid cannot be mistaken for an old one, started so that they cannot outlive us.

_MOST_CPUS = 8192  # Of any Linux (NR_CPUS_RANGE_END of x86)
_PR_SET_PDEATHSIG = 1
_PF_KTHREAD = 0x00200000  # include/linux/sched.h
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h, PROC_PID_INIT_INO
KTHREADD = 2  # The parent of all threads of the kernel, in its own PID namespace
# Loaded before any fork: a child of a threaded process must not load libraries.
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int, *about: object) -> None:
    """Raise the error that a call of the C library has left where its result is not 0: an OSError about a path."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *about)


@contextlib.contextmanager
def closed_after(descriptor: int) -> Iterator[int]:
    """A descriptor, which is closed when the block ends."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def memory_file(text: str) -> Iterator[str]:
    """The path, for this process, of a file in memory, with a secret that a library takes from files alone."""
    with open(os.memfd_create("virtgauge"), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def ran(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str = "",  # on its standard input
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, whatever its exit code, and what it printed.
    Raises OSError: it cannot be started.  Raises subprocess.TimeoutExpired: it does not end in time.
    """
    return subprocess.run(
        argv,
        input=text,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=env,
        cwd=cwd,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def output_of(argv: Sequence[str | Path], *, timeout_s: float = 60.0) -> str | None:
    """What a program prints on standard output; None when it is missing, fails or does not end in time."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        environment = os.environ | {"LC_ALL": "C.UTF-8"}
        # a child that is left and holds standard error alone keeps nobody waiting
        done = ran(argv, timeout_s=timeout_s, env=environment, stderr=subprocess.DEVNULL)
        return done.stdout if done.returncode == 0 else None
    return None


_Result = TypeVar("_Result")


def in_daemon(work: Callable[[], _Result], name: str) -> concurrent.futures.Future[_Result]:
    """Work in a thread of that name, which nothing waits for at the program's end: it may be held up for ever."""
    future = concurrent.futures.Future[_Result]()
    future.set_running_or_notify_cancel()  # whoever waits no longer does not end it

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again where the caller is
            future.set_exception(error)

    threading.Thread(target=body, name=name, daemon=True).start()
    return future


def in_thread(work: Callable[[], _Result]) -> _Result:
    """Call a function in a thread that ends with it, and wait.

    What a thread does to its own namespaces ends with it.  Netlink's library also needs a thread without an event loop,
    which a controller's main thread has.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian installs runc there, and an ordinary user's PATH does not name it."""


def find_program(name: str) -> Path | None:
    """A program on PATH, or in the system's own folders."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS)
    return Path(found) if found else None


def _pid_namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "unknown"


@dataclasses.dataclass(frozen=True)
class ProcessIdentity:
    """A process by pid, start time (clock ticks since boot), boot, and the namespace in which its pid counts."""

    pid: int
    start_ticks: int
    boot_id: str
    # of pids; a container's processes have other pids there than here
    namespace: str = dataclasses.field(default_factory=_pid_namespace)

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a live process; None when there is none of that pid (a zombie is none)."""
        fields = stat_fields(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return None
        return cls(pid=pid, start_ticks=int(fields[19]), boot_id=boot_id())

    @classmethod
    def current(cls) -> ProcessIdentity:
        identity = cls.of(os.getpid())
        assert identity is not None
        return identity

    def alive(self) -> bool:
        """Whether this very process still runs, as far as its pid counts here."""
        return self == ProcessIdentity.of(self.pid)

    def gone(self) -> bool:
        """Whether this very process is known to have ended: one whose pid does not count here may live."""
        return self.boot_id != boot_id() or (self.namespace == _pid_namespace() and not self.alive())

    def kill(self) -> bool:
        """SIGKILL this very process. Returns True when a signal was sent; False when the process is gone or belongs to
        someone else.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError), self.opened() as descriptor:
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        return False

    @contextlib.contextmanager
    def opened(self) -> Iterator[int | None]:
        """A pidfd of this very process, whose pid cannot change hands meanwhile; None where it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            yield None
            return
        with closed_after(descriptor):
            yield descriptor if self.alive() else None

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ProcessIdentity:
        """The inverse of :func:`dataclasses.asdict`.  Raises KeyError, TypeError, ValueError: the map is not one."""
        known = {"namespace": str(value["namespace"])} if "namespace" in value else {}  # 0.1 did not note it
        return cls(pid=int(value["pid"]), start_ticks=int(value["start_ticks"]), boot_id=str(value["boot_id"]), **known)

    def as_text(self) -> str:
        """``pid:start_ticks:boot_id:namespace``, for an environment variable."""
        return f"{self.pid}:{self.start_ticks}:{self.boot_id}:{self.namespace}"

    @classmethod
    def from_text(cls, text: str) -> ProcessIdentity:
        """The inverse of :meth:`as_text`.  Raises ValueError: the text is not one."""
        pid, start_ticks, boot, *namespace = text.split(":", 3)
        return cls(int(pid), int(start_ticks), boot, *namespace)


def is_locked(descriptor: int) -> bool | None:
    """Whether somebody holds an open file's lock for himself; None where that cannot be seen.

    Where nobody does, the file is locked shared from then on, until it is closed.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def boot_id() -> str:
    """The kernel's random identity of this boot."""
    return text_of(Path("/proc/sys/kernel/random/boot_id")) or "unknown"


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; None when the process is gone."""
    text = text_of(Path(f"/proc/{pid}/stat"))
    return None if text is None else text[text.rindex(")") + 2 :].split()


def cpu_ticks(pid: int) -> int | None:
    """CPU time of a process itself, user and system, in clock ticks; None when it is gone."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[11]) + int(fields[12])  # proc_pid_stat(5)


def process_name(pid: int) -> str | None:
    """The name that its kernel shows of it; None when it is gone."""
    return text_of(Path(f"/proc/{pid}/comm"))


def is_kernel_thread(pid: int) -> bool:
    """Whether a process is a thread of the kernel, which has no program and cannot be killed; False when it is gone."""
    fields = stat_fields(pid)
    return fields is not None and bool(int(fields[6]) & _PF_KTHREAD)


class KernelThreads:
    """CPU time of the kernel's own threads: what a disk is worked for by (its loop device, its journal, its queues).

    A thread in a guest's control group is charged to the guest (vhost's before Linux 6.4, those that route for it).
    """

    def __init__(self) -> None:
        self.visible = kernel_threads_visible()  # Whether their CPU time can be read at all
        self._seen = _kernel_threads_ns()
        self._total_ns = 0

    def cpu_ns(self) -> int:
        """What they have used since the first look at them; what one that has ended used after the last is lost."""
        now = _kernel_threads_ns()
        for pid, used in now.items():
            more = used - self._seen.get(pid, 0)
            if more > 0 and f"/{CGROUP_PARENT}/" not in (text_of(Path(f"/proc/{pid}/cgroup")) or ""):
                self._total_ns += more
        self._seen = now
        return self._total_ns


def kernel_threads_visible() -> bool:
    """Whether the CPU time of the kernel's threads can be read: in a container's PID namespace they are hidden."""
    return is_kernel_thread(KTHREADD) and cpu_clock_ns(KTHREADD) is not None


def _kernel_threads_ns() -> dict[int, int]:
    threads = filter(is_kernel_thread, all_pids())
    return {pid: used for pid in threads if (used := cpu_clock_ns(pid)) is not None}


def cpu_clock_ns(pid: int) -> int | None:
    """CPU time of a process with all its threads, ended ones too, exact to the nanosecond; None when it is gone."""
    try:
        # clock_getcpuclockid(3): the process clock of PID is ~PID << 3 | CPUCLOCK_SCHED (2)
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return None


def all_pids() -> Iterator[int]:
    """Pids of all processes visible here."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it is gone or not ours to read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def user_of(pid: int) -> int | None:
    """Who started a process (its real uid); None when it is gone."""
    status = text_of(Path(f"/proc/{pid}/status"))
    return None if status is None else int(status.partition("\nUid:")[2].split()[0])


def tree_pids(root: int) -> list[int]:
    """A process and its descendants, as far as their parents still live."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        fields = stat_fields(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, ()))
    return found


def numbered_as_traced() -> bool:
    """Whether processes have the numbers here that the kernel's traces give them, which are of the first namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino == _FIRST_PID_NAMESPACE


def threads_of(pid: int) -> list[int]:
    """The threads of a process, the oldest first.  Raises OSError: it is gone."""
    return sorted(int(thread) for thread in os.listdir(f"/proc/{pid}/task"))


def tree_cpu_ns(root: int) -> int | None:
    """CPU time of a process, its live descendants, and the dead children they waited for, in ns.

    The fallback where cgroups cannot be used.  Live processes are read by their CPU clocks, exact to the nanosecond;
    waited-for children only in clock ticks; a descendant whose parent died is missed. Returns None when the process is
    gone.
    """
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    total, seen = 0, False
    for pid in tree_pids(root):
        used = cpu_clock_ns(pid)
        if used is None:
            continue
        total += used
        fields = stat_fields(pid)
        if fields is not None:
            total += (int(fields[13]) + int(fields[14])) * tick_ns
        seen = seen or pid == root
    return total if seen else None


def die_with_parent(parent_pid: int) -> None:
    """In a child, before exec: be killed when the controller dies (PR_SET_PDEATHSIG).

    The signal follows the *thread* that forked, so guests are started from the controller's main thread.  If who forked
    died before this, the child ends at once.
    """
    LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(127)


def child_setup(*steps: Callable[[], None], cpus: Iterable[int] | None = None) -> Callable[[], None]:
    """What a child does between fork and exec: die with the controller, take the steps, keep to its CPUs."""
    parent = os.getpid()

    def setup() -> None:
        die_with_parent(parent)
        for step in steps:
            step()
        if cpus is not None:
            os.sched_setaffinity(0, cpus)

    return setup


async def wait_for_exit(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Wait for a child without a thread and without asyncio's child watcher, which would reap it for us. Returns its
    return code; None when it still runs after ``timeout_s``.
    """
    if process.poll() is None:
        # By its pidfd alone: of a program with threads the first may be a zombie while others still write.
        with closed_after(os.pidfd_open(process.pid)) as descriptor:
            await _readable(descriptor, timeout_s)
    return process.poll()


async def wait_for_end(identity: ProcessIdentity, timeout_s: float) -> bool:
    """Wait for a process that need not be a child; False when it still runs after ``timeout_s``."""
    with identity.opened() as descriptor:
        if descriptor is None:
            return True
        await _readable(descriptor, timeout_s)
    return not identity.alive()


async def _readable(descriptor: int, timeout_s: float) -> None:
    """Wait so long that a descriptor is readable, as a pidfd is when all of its process has ended."""
    import asyncio  # here, for every command imports this module

    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(readable.wait(), timeout_s)
    finally:
        loop.remove_reader(descriptor)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a child and reap it, blocking for at most five seconds."""
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)


def wait_until_gone(identities: list[ProcessIdentity], timeout_s: float) -> list[ProcessIdentity]:
    """Block until the processes (not necessarily children) have ended; those that have not in time are returned."""
    deadline = time.monotonic() + timeout_s
    for identity in identities:
        with identity.opened() as descriptor:
            if descriptor is not None:
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    return [identity for identity in identities if identity.alive()]
