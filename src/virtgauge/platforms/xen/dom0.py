"""The privileged domain of a Xen host: where ``xl`` runs, where guests' consoles and interfaces come out."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic

_CHATTER = "got a tsc mode string"
"""What `xl` begins with on its standard error wherever a domain's configuration names a tsc_mode."""
COMMAND_S = 60.0
"""Bound on a command of the toolstack that waits for no guest."""


class XenError(Exception):
    """The toolstack refused or failed: the command, and what it said."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """A program's exit code (None where it was killed) and what it printed."""

    exit_code: int | None
    stdout: str
    stderr: str

    def checked(self, argv: Sequence[str]) -> str:
        """Its standard output.

        Raises:
            XenError: it failed.
        """
        if self.exit_code == 0:
            return self.stdout
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        said = [line for line in lines if line and _CHATTER not in line]
        ending = "was killed" if self.exit_code is None else f"ended with status {self.exit_code}"
        # libxl tells the cause first, and then what failed because of it
        raise XenError(f"`{' '.join(argv[:3])}` {ending}" + (f": {'; '.join(said[:3])}" if said else ""))


class Dom0(abc.ABC):
    """A Xen host's privileged domain.

    Attributes:
        where: in words, for labels.
        emulated: the whole host is emulated, so that its timings mean nothing.
        patience: how many times longer than on a real machine things may take.
        vif_script: in dom0, joins a domain's interface to its bridge; None leaves that to Xen's own.
    """

    where: str
    emulated: bool
    patience: float
    vif_script: str | None = None

    @abc.abstractmethod
    async def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        """Run a program there to its end.

        Raises:
            XenError: it cannot be started, or did not end in time.
        """

    @abc.abstractmethod
    def run_now(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        """The same for a caller that cannot wait in an event loop (accounting, removal).

        Raises:
            XenError: it cannot be started, or did not end in time.
        """

    @abc.abstractmethod
    async def store(self, name: str, text: str) -> str:
        """Write a small file there; its path.

        Raises:
            XenError: it cannot be written.
        """

    @abc.abstractmethod
    def path_of(self, path: Path) -> Path:
        """Where a file of this host's cache is found there."""

    @abc.abstractmethod
    async def open_console(
        self, number: int, removal: contextlib.ExitStack
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The console of a domain, passing every byte; it ends with the domain.

        Args:
            number: of the domain.
            removal: gets what closes it.

        Raises:
            XenError: the domain has none.
        """

    @abc.abstractmethod
    def uplink(self, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> str:
        """An interface of dom0, up, whose other end is in the lab under the name of the port.

        Args:
            lab: the namespace on this host.
            nic: names the port.
            removal: gets what takes it back.

        Raises:
            NetworkError: it cannot be had.
        """

    @abc.abstractmethod
    def bridge_name(self, uplink: str) -> str:
        """A name for the bridge of an uplink that nobody else uses."""

    async def check(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> str:
        """Run a program there and give back what it printed.

        Raises:
            XenError: it failed.
        """
        return (await self.run(argv, timeout_s)).checked(argv)

    def check_now(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> str:
        """The same for a caller that cannot wait in an event loop.

        Raises:
            XenError: it failed.
        """
        return self.run_now(argv, timeout_s).checked(argv)
