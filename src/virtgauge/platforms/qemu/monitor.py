"""QEMU's monitor (QMP) of a guest: connected while the guest boots, and watched for the guest's being stopped.

QEMU keeps running when it cannot go on with its guest: after an error inside KVM, or of a disk's image.  The guest then
stands still, and whoever waited for it would wait until some bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
from collections.abc import Callable
from typing import Any

from qemu.qmp import QMPClient, QMPError

from virtgauge.host.process import wait_for_exit
from virtgauge.platforms.attempt import SocketPair

_EXIT_S = 1.0
_ERRORS = (QMPError, OSError, EOFError, TimeoutError)
_STOPPED = {
    "internal-error": "for an internal error of its accelerator",
    "io-error": "for an error of a disk's image",
    "guest-panicked": "for a panic of the guest's kernel",
}
"""By QEMU's run states (``qapi/run-state.json``); those of a guest that ends as it should are none of them."""

# The client reports every broken connection, and a machine that powers off breaks its own.
logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())


class Monitor:
    """The monitor behind a socket that a QEMU has inherited, from that QEMU's start on."""

    def __init__(self, pair: SocketPair, stopped: Callable[[str], None]) -> None:
        """Begin to connect, and to watch: ``stopped`` is told, in words, that QEMU has stopped the guest."""
        self._client, self._stopped = QMPClient("virtgauge"), stopped
        self._connecting = asyncio.create_task(self._connect(pair))
        self._watching = asyncio.create_task(self._watch())

    async def connected(self, within_s: float) -> QMPClient:
        """The client, for commands.  Raises QMPError, OSError, EOFError, TimeoutError: the monitor does not answer."""
        await asyncio.wait_for(asyncio.shield(self._connecting), within_s)
        return self._client

    async def _connect(self, pair: SocketPair) -> None:
        await self._client.connect(pair.ours.dup())  # which is the client's to close, whenever the pair is

    async def _watch(self) -> None:
        with contextlib.suppress(*_ERRORS):
            try:
                await self._connecting
                with self._client.listener("STOP") as stops:
                    while True:
                        answer: Any = await self._client.execute("query-status")
                        if why := _STOPPED.get(str(answer["status"])):
                            self._stopped(f"QEMU has stopped the guest {why}")
                        await stops.get()
            finally:
                await self._client.disconnect()

    def abandon(self) -> None:
        """Give the connection up, without waiting for that."""
        self._connecting.cancel()
        self._watching.cancel()

    async def close(self) -> None:
        """Give the connection up, and wait a moment for its end."""
        self.abandon()
        await asyncio.wait([self._connecting, self._watching], timeout=_EXIT_S)

    async def power_off(self, process: subprocess.Popen[bytes], within_s: float) -> None:
        """Wait for the machine that its agent powers off; else tell QEMU to end.  What then remains is killed."""
        if await wait_for_exit(process, within_s) is None:
            with contextlib.suppress(*_ERRORS):
                async with asyncio.timeout(_EXIT_S):
                    await self._client.execute("quit")
            await wait_for_exit(process, _EXIT_S)
        await self.close()
