"""One domain: started, looked at and removed, whatever happens in between.  Every call here blocks."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from virtgauge.host.libvirt_domains import remove_domain
from virtgauge.platforms.libvirt.connection import library, open_connection


class DomainHandle:
    """A domain that is made at most once, on a connection of its own.

    libvirt's drivers that can do so end it by themselves when that connection breaks: a controller that is killed
    takes its guests along.

    Attributes:
        uri, name: by which the reclaim finds it, too.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.uri = uri
        self.name = name
        self._lock = threading.Lock()
        self._removed = False
        self._connection: Any = None
        self._domain: Any = None

    def open(self) -> Any:
        """Connect; returns libvirt's connection.

        Raises:
            libvirt.libvirtError: libvirt refuses.
        """
        with self._lock:
            if self._connection is None:
                self._connection = open_connection(self.uri)
            return self._connection

    def start(self, xml: str, *, transient: bool, auto_destroy: bool, paused: bool) -> None:
        """Start it from its description.

        Raises:
            libvirt.libvirtError: libvirt refuses.
        """
        libvirt = library()
        flags = libvirt.VIR_DOMAIN_START_PAUSED if paused else 0
        flags |= libvirt.VIR_DOMAIN_START_AUTODESTROY if auto_destroy else 0
        with self._lock:
            if self._removed:  # a launch that was cancelled before it came to this
                return
            if transient:
                self._domain = self._connection.createXML(xml, flags)
            else:
                self._domain = self._connection.defineXML(xml)
                self._domain.createWithFlags(flags)

    def resume(self) -> None:
        """Let its processors run.

        Raises:
            libvirt.libvirtError: libvirt refuses.
        """
        self.libvirt_domain.resume()

    @property
    def libvirt_domain(self) -> Any:
        """The domain as libvirt has it; nobody keeps it, for it keeps the connection open.

        Raises:
            libvirt.libvirtError: it was never there, or was removed.
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

    def kill(self) -> None:
        """Cut its power.

        Raises:
            libvirt.libvirtError: libvirt refuses.
        """
        self.libvirt_domain.destroy()

    def remove(self) -> None:
        """Leave nothing of it; waits for a start that is under way.  Idempotent.

        Raises:
            libvirt.libvirtError: libvirt refuses; a connection that broke ends a domain that it can end by itself.
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
