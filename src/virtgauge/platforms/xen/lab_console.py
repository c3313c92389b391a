"""The consoles of a nested lab's guests on this side: a socket of QEMU for each, connected while a guest has it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path

from virtgauge.platforms.xen.dom0 import XenError
from virtgauge.platforms.xen.lab_machine import CONSOLE_PORT, CONSOLES, console_socket


class LabConsoles:
    """The sockets by number.

    Each use is a connection of its own, so that nothing of one guest is left for the next.
    """

    def __init__(self, folder: Path) -> None:
        # A socket's path may be a hundred bytes long, and a folder's may be longer.
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._free = list(range(CONSOLES))

    async def open(self, removal: contextlib.ExitStack) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a free one.

        Args:
            removal: gets what closes it.

        Returns:
            the name of its port in dom0, and the streams.

        Raises:
            XenError: none is free, or QEMU is gone.
        """
        with self._lock:
            if not self._free:
                raise XenError(f"the {CONSOLES} consoles of the nested Xen lab are all in use; end a guest first")
            number = self._free.pop(0)
        try:
            path = f"/proc/self/fd/{self._folder}/{console_socket(number)}"
            reader, writer = await asyncio.open_unix_connection(path)
        except BaseException as error:
            self._give_back(number)
            if isinstance(error, OSError):
                raise XenError(f"the nested Xen lab has no console {number}: {error}") from error
            raise
        removal.callback(self._give_back, number)
        removal.callback(writer.close)
        return f"{CONSOLE_PORT}.{number}", reader, writer

    def close(self) -> None:
        """Forget the folder."""
        os.close(self._folder)

    def _give_back(self, number: int) -> None:
        with self._lock:
            self._free.append(number)
