"""libvirt's connection to a hypervisor, and a domain of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.host.domains import open_unattended, remove_domain
from virtgauge.host.process import in_daemon

INSTALL = (
    "pip install 'virtgauge[libvirt]' (it is compiled here: "
    "apt-get install --no-install-recommends gcc pkg-config libvirt-dev python3-dev first)"
)
CALL_S = 30.0  # A hypervisor that has not answered by then is taken for dead

_Result = TypeVar("_Result")


class LibvirtError(VirtgaugeError):
    """libvirt, or the hypervisor behind it, refuses or does not answer."""


@functools.cache
def library() -> Any:
    """The module ``libvirt``, told not to print its errors.  Raises UnavailableError: it is not installed."""
    try:
        module = importlib.import_module("libvirt")
    except ImportError as error:
        raise UnavailableError(f"the Python module of libvirt is not there: {error}", INSTALL) from error
    module.registerErrorHandler(lambda *_: None, None)
    return module


@contextlib.contextmanager
def _in_words(what: str, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        remedy = "check that the hypervisor's host is up"
        raise LibvirtError(f"{what}: no answer within {timeout_s:g} s", remedy) from None
    except LibvirtError:  # in words already
        raise
    except Exception as error:
        if isinstance(error, library().libvirtError):
            raise refusal(what, error) from error
        raise


async def called(what: str, work: Callable[[], _Result], timeout_s: float = CALL_S) -> _Result:
    """Do something with libvirt without holding the event loop up: ``what``, for the message of an error.
    Raises LibvirtError: libvirt refuses, or there is no answer in time.
    """
    with _in_words(what, timeout_s):
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(in_daemon(work, "libvirt"))


def waited(what: str, work: Callable[[], _Result], timeout_s: float = CALL_S) -> _Result:
    """Do something with libvirt as :func:`called` does, for a caller that has to wait."""
    with _in_words(what, timeout_s):
        return in_daemon(work, "libvirt").result(timeout_s)


def open_connection(uri: str) -> Any:
    """A connection for which nobody is asked for a password; to be called in a thread.
    Raises UnavailableError: libvirt's module is not there; libvirt.libvirtError: it cannot be opened.
    """
    return open_unattended(library(), uri)


def description_of(uri: str, name: str) -> bytes:
    """A domain's XML as libvirt has it: of one that runs, the living one.
    Raises UnavailableError: libvirt's module is not there; LibvirtError: no such domain, or libvirt does not answer.
    """

    def ask() -> str:
        with contextlib.closing(open_connection(uri)) as connection:
            return str(connection.lookupByName(name).XMLDesc(0))

    return waited(f"cannot read the domain {name} of {uri}", ask).encode()


def refusal(what: str, error: Any) -> LibvirtError:
    """A refusal of libvirt in our words, with what helps."""
    code = error.get_error_code()
    said = str(error.get_error_message() or error).strip()
    return LibvirtError(f"{what}: {said}", _remedy(code, said))


def _remedy(code: int | None, said: str) -> str | None:
    libvirt = library()
    if code in (libvirt.VIR_ERR_AUTH_FAILED, libvirt.VIR_ERR_AUTH_CANCELLED, libvirt.VIR_ERR_AUTH_UNAVAILABLE):
        return (
            "run as root or as a member of the group libvirt; for a remote host, put user and password into "
            "~/.config/libvirt/auth.conf (https://libvirt.org/auth.html)"
        )
    if "Failed to connect socket" in said or "Cannot recv data" in said:
        return "start the hypervisor's libvirt daemon: `sudo systemctl start libvirtd` (or virtqemud, virtxend …)"
    if "was built without" in said:
        return 'use a libvirt that was built with this driver, or kind = "attached", which needs none'
    if "is not active" in said or "unable to initialize" in said:
        return "install and start that hypervisor on the machine of the URI, then its libvirt daemon again"
    if code in (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_INVALID_ARG):
        return "see docs/platforms/libvirt.md for the URIs of each hypervisor"
    if code == libvirt.VIR_ERR_NO_DOMAIN:
        return "`virsh list --all` lists the domains; -c URI those of another connection"
    if code == libvirt.VIR_ERR_ACCESS_DENIED:
        return "run as a user to whom libvirt's access control gives this right"
    return None


class DomainHandle:
    """A domain that is made at most once, on a connection of its own; every call blocks.

    libvirt's drivers that can do so end it by themselves when that connection breaks: a controller that is killed
    takes its guests along.  The reclaim finds it by its URI and its name, too.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.uri, self.name = uri, name
        self._lock = threading.Lock()
        self.left = False  # whether libvirt did not remove it
        self._removed = False
        self._connection: Any = None
        self._domain: Any = None

    def start(self, xml: str, *, transient: bool, auto_destroy: bool, paused: bool) -> None:
        """Connect, and start it from its description.  Raises libvirt.libvirtError: libvirt refuses."""
        libvirt = library()
        flags = libvirt.VIR_DOMAIN_START_PAUSED if paused else 0
        flags |= libvirt.VIR_DOMAIN_START_AUTODESTROY if auto_destroy else 0
        with self._lock:
            if self._removed:  # a launch that was cancelled before it came to this
                return
            self._connection = open_connection(self.uri)
            if transient:
                self._domain = self._connection.createXML(xml, flags)
            else:
                self._domain = self._connection.defineXML(xml)
                self._domain.createWithFlags(flags)

    @property
    def libvirt_domain(self) -> Any:
        """The domain as libvirt has it; nobody keeps it, for it keeps the connection open.
        Raises libvirt.libvirtError: it was never there, or was removed.
        """
        if self._domain is None:
            raise library().libvirtError(f"the domain {self.name} is not there")
        return self._domain

    def end(self) -> str | None:
        """How it ended, in words; None while it runs."""
        libvirt = library()
        domain = self._domain
        if domain is None:
            return "the domain is not there"
        try:
            state, _ = domain.state()
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return "the domain ended"
            return f"libvirt does not tell of it any more ({error.get_error_message()})"
        ended = {libvirt.VIR_DOMAIN_SHUTOFF: "the domain shut off", libvirt.VIR_DOMAIN_CRASHED: "the domain crashed"}
        return ended.get(state)

    def leave_nothing(self) -> None:
        """Remove it, whatever libvirt says to that."""
        self.left = True
        with contextlib.suppress(LibvirtError):  # the reclaim of its scope tries again, and says what is left
            waited(f"cannot remove {self.name}", self.remove, 40.0)
            self.left = False

    def remove(self) -> None:
        """Leave nothing of it; waits for a start that is under way.  Idempotent.
        Raises libvirt.libvirtError: libvirt refuses; a connection that broke ends a domain that it can end by itself.
        """
        with self._lock:
            self._removed = True
            connection, self._connection = self._connection, None
            self._domain = None
            if connection is None:
                return
            try:
                remove_domain(connection, self.name)
            finally:
                with contextlib.suppress(library().libvirtError):
                    connection.close()
