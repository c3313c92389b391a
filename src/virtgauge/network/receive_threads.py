"""Kernel threads that take a guest's frames from its links and route them, where a guest shares the host's kernel.

Otherwise the kernel routes in the context of whoever sends: the tester, or the switch.  The sender would be held up
where the guest is too slow, no frame would ever be lost, and no limit of the guest's CPU time could apply to its work.
With threaded NAPI (Linux 5.12 and later) each interface has a thread of its own, which can be put where the guest is.
A virtual Ethernet interface has NAPI only while it is to join received frames (GRO), and uses it only where the other
end's segmentation is off, as it is on the links of a lab; frames that are routed on are not joined.

From Linux 6.18 a kernel thread in a cgroup is charged to it, but its quota no longer stops it: whoever sets a limit has
to look whether it holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from virtgauge.host.process import all_pids
from virtgauge.network.namespace import FOLDER, Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.network.offloads import Offload, switch


def receive_in_threads(namespace: Namespace, interfaces: Iterable[str]) -> list[int]:
    """Have the frames that come to these interfaces of a namespace taken by threads.

    Returns:
        pids of the threads, which end with the interfaces.

    Raises:
        NetworkError: this kernel has no such threads for them.
    """
    names = list(interfaces)

    def switch_on() -> None:
        for name in names:
            switch(name, Offload.GENERIC_RECEIVE, True)
            (Path("/sys/class/net") / name / "threaded").write_text("1")

    with _alone():
        before = set(all_pids())
        try:
            namespace.run_with_devices(switch_on)
        except OSError as error:
            raise NetworkError(
                f"the kernel has no threads of their own for the interfaces of {namespace.name}: {error.strerror}",
                "Linux 5.12 or later has them (threaded NAPI)",
            ) from error
        # A thread is known by its name alone, napi/<interface>-<number>, which tells nothing of the namespace.
        threads = [pid for pid in set(all_pids()) - before if _serves(pid, names)]
    if len(threads) < len(names):
        raise NetworkError(f"{len(threads)} threads serve the {len(names)} interfaces of {namespace.name}")
    return sorted(threads)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other run of virtgauge makes such threads meanwhile."""
    folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _serves(pid: int, interfaces: Iterable[str]) -> bool:
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:  # it ended meanwhile
        return False
    return name.startswith(tuple(f"napi/{interface}-" for interface in interfaces))
