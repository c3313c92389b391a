"""Network namespaces: each a network stack of its own, whose traffic reaches nothing that is not linked to it.

A namespace belongs to a thread, and a controller's main thread must stay where it is; so everything that is done
inside is done in a thread that enters, works and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from pyroute2 import IPRoute, NetlinkError, netns

from virtgauge.host.lending import CLONE_NEWNET, HOME
from virtgauge.host.machine import AS_ROOT, NETWORK, lacking
from virtgauge.host.mounts import MS_BIND, MS_REC, MS_SHARED, unshare_mounts
from virtgauge.host.process import LIBC, checked, closed_after, in_thread
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError

FOLDER = Path("/run/netns")  # Where ``ip netns`` keeps them too, so that a person can look inside with it

_NAME_LIMIT = 64

# No frame that nobody sent for a measurement: no IPv6 (router solicitations, duplicate address detection), no
# redirects; and every frame is taken whatever its source address, as a tester's are no one's.
_IPV4_OFF = ("rp_filter", "send_redirects", "accept_redirects")
_SETTINGS = {f"ipv6/conf/{which}/disable_ipv6": "1" for which in ("all", "default")}
_SETTINGS |= {f"ipv4/conf/{which}/{name}": "0" for which in ("all", "default") for name in _IPV4_OFF}
# A bridge of the lab does not ask the firewall.
_SETTINGS |= {f"bridge/bridge-nf-call-{tables}": "0" for tables in ("iptables", "ip6tables", "arptables")}

_Result = TypeVar("_Result")


class Namespace:
    """A network namespace ``<tag>-<name>`` of a scope, with nothing in it but a loopback that is up.

    A context manager that removes it at its end; after a kill -9 its name tells the reclaim whose it was.
    """

    def __init__(self, scope: Scope, name: str, *, forwarding: bool = False) -> None:
        """Make the namespace; with ``forwarding`` its kernel routes IPv4 between its interfaces.
        Raises NetworkError: the name is taken or not possible, or this user may make none.
        """
        self.scope = scope
        self.name = f"{scope.tag}-{name}"  # as ``ip netns`` lists it
        self.path = FOLDER / self.name  # the file that keeps it alive
        if "/" in name or not name or len(self.name) > _NAME_LIMIT:
            raise NetworkError(f"a network namespace cannot be named {name!r}", "use a short name without slashes")
        try:
            _share_folder()
            self.path.touch(mode=0o444, exist_ok=False)
        except FileExistsError:
            raise NetworkError(f"the network namespace {self.name} exists", "name this one otherwise") from None
        except OSError as error:
            raise _refusal(error) from error
        try:
            in_thread(self._unshare)
            self.run(lambda: _settle(forwarding))
            self.netlink(lambda route: route.link("set", index=1, state="up"))
        except OSError as error:
            self.close()
            raise _refusal(error) from error
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[], _Result]) -> _Result:
        """Do something inside, in a thread of its own, and give back its result (or raise its error)."""

        def inside() -> _Result:
            with self.entrance() as enter:
                enter()
            return work()

        return in_thread(inside)

    def netlink(self, work: Callable[[IPRoute], _Result]) -> _Result:
        """Do something with a netlink socket of the namespace, and give back its result (or raise its error)."""

        def inside() -> _Result:
            with IPRoute() as route:
                return work(route)

        return self.run(inside)

    def run_with_devices(self, work: Callable[[], _Result]) -> _Result:
        """The same with a ``/sys`` that shows the devices inside, for this one thread."""

        def inside() -> _Result:
            unshare_mounts()
            checked(LIBC.mount(b"sysfs", b"/sys", b"sysfs", 0, None))
            return work()

        return self.run(inside)

    @contextlib.contextmanager
    def entrance(self) -> Iterator[Callable[[], None]]:
        """A function that enters the namespace; it may be called between fork and exec, and raises OSError.

        It only makes a system call on a descriptor opened beforehand, because a forked child of a threaded program
        must not allocate.
        """
        with self.descriptor() as descriptor:

            def enter() -> None:
                if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "cannot enter a network namespace")

            yield enter

    def descriptor(self) -> contextlib.AbstractContextManager[int]:
        """An open descriptor of the namespace, as netlink wants to name one."""
        return closed_after(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC))

    def interfaces(self) -> dict[str, int]:
        """Indices of the interfaces inside, by name."""
        return self.netlink(lambda route: {link.get("ifname"): link["index"] for link in route.get_links()})

    def close(self) -> None:
        """Remove the namespace; what is in it goes when its last process has ended.  Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            netns.remove(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unshare(self) -> None:
        checked(LIBC.unshare(CLONE_NEWNET))
        _keep_own(self.path)


def home_of(scope: Scope) -> Path:
    """A file that keeps the calling thread's namespace under a name of the scope's: it is found after a kill -9.
    Raises OSError: it cannot be made.
    """
    home = FOLDER / f"{scope.tag}{HOME}"
    if not home.exists():
        home.touch(mode=0o444)
        _keep_own(home)
    return home


def _keep_own(file: Path) -> None:
    own = f"/proc/self/task/{threading.get_native_id()}/ns/net"
    checked(LIBC.mount(own.encode(), bytes(file), b"none", MS_BIND, None))


@contextlib.contextmanager
def network_error(words: str, remedy: str | None = None) -> Iterator[None]:
    """Raise a NetworkError, which begins with these words, for what the kernel refuses during the block."""
    try:
        yield
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"{words}: {error}", remedy) from error


@contextlib.contextmanager
def folder_locked() -> Iterator[None]:
    """No other run of virtgauge makes namespaces, or what it tells apart by being alone, meanwhile."""
    with closed_after(os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _share_folder() -> None:
    """Make the folder of the namespaces as ``ip netns`` does: a mount that tells its changes to all others."""
    FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = bytes(FOLDER)
    with folder_locked():
        if LIBC.mount(b"", folder, b"none", MS_SHARED | MS_REC, None) != 0:
            if ctypes.get_errno() != errno.EINVAL:
                checked(-1)
            checked(LIBC.mount(folder, folder, b"none", MS_BIND | MS_REC, None))
            checked(LIBC.mount(b"", folder, b"none", MS_SHARED | MS_REC, None))


def _settle(forwarding: bool) -> None:
    settings = Path("/proc/sys/net")
    (settings / "ipv4/ip_forward").write_text(f"{forwarding:d}")  # first: it sets others to what routers do
    for name, value in _SETTINGS.items():
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6, or without a bridge's filter
            (settings / name).write_text(value)


def _refusal(error: OSError) -> NetworkError:
    lacks = lacking(*NETWORK)
    return NetworkError(f"no network namespace can be made: {error.strerror or error}{lacks}", AS_ROOT)
