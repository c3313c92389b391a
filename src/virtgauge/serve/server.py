"""The server: one process, one port, read-only."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from virtgauge.errors import UsageError
from virtgauge.serve.access import Access
from virtgauge.serve.handlers import Asset, IndexPage, ReportPage, RunPage, UnknownPage
from virtgauge.serve.showing import ASK_EVERY_S, Showing

_RUN = r"/run/([0-9a-f]{16})"


class Server:
    """Serves the runs in some folders.  Made and used within a running event loop.

    Args:
        folders: that hold runs, or are runs.
        access: who may look.
        ask_every_s: see :class:`Showing`.
    """

    def __init__(self, folders: Sequence[Path], access: Access, ask_every_s: float = ASK_EVERY_S) -> None:
        self._showing = Showing(folders, ask_every_s)
        shared = {"showing": self._showing, "access": access}
        application = Application(
            [
                (r"/", IndexPage, shared),
                (_RUN, RunPage, shared),
                (_RUN + "/report", ReportPage, shared),
                (r"/assets/(page\.css|page\.js)", Asset, shared),
            ],
            default_handler_class=UnknownPage,
            default_handler_args=shared,
            log_function=lambda handler: None,  # addresses may hold the token
        )
        self._http = HTTPServer(
            application, max_header_size=16 * 1024, max_body_size=1024, idle_connection_timeout=120, body_timeout=10
        )

    def listen(self, address: str, port: int) -> int:
        """Begin to answer; the port, which is a free one where 0 was asked for.

        Raises:
            UsageError: it cannot be had.
        """
        try:
            sockets = bind_sockets(port, address)
        except OSError as error:
            raise UsageError(
                f"cannot listen at {address} port {port}: {error.strerror or error}",
                "choose another --address or --port; without --port a free one is taken",
            ) from error
        self._http.add_sockets(sockets)
        self._showing.port = int(sockets[0].getsockname()[1])
        return self._showing.port

    async def close(self) -> None:
        """End at once: connections, and a report that is being made."""
        self._http.stop()
        self._showing.reports.stop()
        await self._http.close_all_connections()


def serve(folders: Sequence[Path], access: Access, address: str, port: int, tell: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        tell: called with the port when the server answers.

    Raises:
        UsageError: address or port cannot be had.
    """
    asyncio.run(_serve(folders, access, address, port, tell))


async def _serve(folders: Sequence[Path], access: Access, address: str, port: int, tell: Callable[[int], None]) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = Server(folders, access)
    tell(server.listen(address, port))
    try:
        await ended.wait()
    finally:
        await server.close()
