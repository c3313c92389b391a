"""The server: one process, one port, read-only; and what each address of it answers.

The rules of access come first, the same headers are on everything, and there is GET and HEAD only.  Pages are made by
Jinja2 with autoescaping, whatever a run says as plain text; they have the report's style and one small script.

What pages show is kept for as long as somebody looks: one look a second, however many pages ask.  Ledgers are read in a
thread, one at a time, so that the server answers meanwhile; without a request nothing is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream, StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from virtgauge.errors import UsageError, VirtgaugeError
from virtgauge.results.formatting import interval_text
from virtgauge.serve.access import Access, came_from_elsewhere
from virtgauge.serve.live import LiveRun, RunWatch, ended, measured
from virtgauge.serve.overview import Overview, Overviews, State
from virtgauge.serve.reports import ReportBuilder, stored_report
from virtgauge.serve.runs import FoundRun, Value, find_runs, plain, utc_time

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Of the server's own pages: their script and style, and requests to the server itself."""

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of a report, beside the one that it brings: a file that somebody else made is no page of this server, has no part in
what this server knows, and connects to nothing."""

_TONES = dict.fromkeys((State.INCOMPLETE, State.INTERRUPTED, State.UNFINISHED), "warn") | {
    State.RUNNING: "running",
    State.COMPLETE: "good",
    State.UNREADABLE: "bad",
}
_LISTED = 300  # Runs on the page of all runs: the newest
_RUN = r"/run/([0-9a-f]{16})"
_CHUNK = 256 * 1024
_MOST_CONNECTIONS = 128
_IDLE_S = 120.0
_ANSWER_S = 300.0  # That a client may take an answer in
ASK_EVERY_S = 2.0  # A page, while a run is under way; no ledger is read more than twice as often, however many ask
_WATCHED = 8  # Runs whose figures are kept; of others they are read anew


class Door(HTTPServer):
    """Whoever comes is let in, and takes the place of the one who has been there longest when there are too many."""

    _open: tuple[IOStream, ...] = ()
    _limits: ClassVar[dict[object, asyncio.TimerHandle]] = {}  # Of connections, on the answer that each takes

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self._open = (*(one for one in self._open if not one.closed()), stream)
        if len(self._open) > _MOST_CONNECTIONS:
            self._open[0].close()
        super().handle_stream(stream, address)

    @classmethod
    def limit_answer(cls, request: HTTPServerRequest) -> None:
        """The answer to this request is taken in time, or the connection is closed."""
        stream = getattr(request.connection, "stream", None)
        if isinstance(stream, IOStream):
            cls._lift_limit(request.server_connection)  # the answer before it was taken
            loop = asyncio.get_running_loop()
            cls._limits[request.server_connection] = loop.call_later(_ANSWER_S, _end_if_writing, stream)

    def on_close(self, server_conn: object) -> None:
        self._lift_limit(server_conn)
        super().on_close(server_conn)

    @classmethod
    def _lift_limit(cls, connection: object) -> None:
        if limit := cls._limits.pop(connection, None):
            limit.cancel()


def _end_if_writing(stream: IOStream) -> None:
    if not stream.closed() and stream.writing():
        stream.close()


class Look(Generic[Value]):
    """Something that takes time to read, read at most so often."""

    def __init__(self, read: Callable[[], Value], reading: asyncio.Lock, every_s: float) -> None:
        self._read, self._reading, self._every_s = read, reading, every_s
        self._found: tuple[float, Value] | None = None

    async def now(self) -> Value:
        """The last value if it is fresh, or something else is being read; else a new one."""
        if self._found is not None and (self._is_fresh() or self._reading.locked()):
            return self._found[1]
        async with self._reading:
            if self._found is None or not self._is_fresh():
                value = await asyncio.to_thread(self._read)
                self._found = time.monotonic(), value
            return self._found[1]

    def _is_fresh(self) -> bool:
        return self._found is not None and time.monotonic() - self._found[0] < self._every_s


class Showing:
    """The runs in some folders, which hold runs or are runs."""

    def __init__(self, folders: Sequence[Path], ask_every_s: float = ASK_EVERY_S) -> None:
        self.folders, self.ask_every_s = tuple(folders), ask_every_s
        self.port = 0  # that the server listens at
        self.reports = ReportBuilder()
        self._overviews = Overviews()
        self._reading = asyncio.Lock()
        self._list: Look[dict[str, Overview]] = Look(
            lambda: self._overviews.of_all(find_runs(self.folders)), self._reading, ask_every_s / 2
        )
        self._watches: OrderedDict[str, Look[LiveRun]] = OrderedDict()

    async def overviews(self) -> list[Overview]:
        return list((await self._list.now()).values())

    async def measuring(self) -> bool:
        return any(one.is_under_way for one in await self.overviews())

    async def find(self, run_id: str) -> FoundRun | None:
        overview = (await self._list.now()).get(run_id)
        return overview.run if overview is not None and overview.run.stamp() else None

    async def live(self, run_id: str) -> LiveRun | None:
        """What the page of a run shows; None when there is none, or no longer."""
        run = await self.find(run_id)
        if run is None:
            self._watches.pop(run_id, None)
            return None
        if run_id not in self._watches:
            self._watches[run_id] = Look(RunWatch(run, self._overviews).look, self._reading, self.ask_every_s / 2)
            while len(self._watches) > _WATCHED:
                self._watches.popitem(last=False)
        self._watches.move_to_end(run_id)
        return await self._watches[run_id].now()


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else plain(value),
    )
    made.globals.update(tones=_TONES, State=State, utc_time=utc_time, ended=ended, measured=measured)
    made.globals.update(interval_text=interval_text)
    return made


class Page(RequestHandler):
    """Base of all."""

    policy: ClassVar[str] = POLICY
    get: Callable[..., Awaitable[None]]

    async def head(self, *place: str) -> None:
        await self.get(*place)

    def initialize(self, showing: Showing, access: Access) -> None:
        self.showing, self.access = showing, access

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Security-Policy", self.policy)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    def prepare(self) -> None:
        """Host, token, origin, method, in this order: who may not look learns nothing else."""
        Door.limit_answer(self.request)
        if not self.access.knows_host(self.request.headers.get("Host")):
            raise HTTPError(403, reason="Unknown Host")
        if self.access.token is not None:
            given = self.request.query_arguments.get("token", [])
            if any(self.access.accepts_token(one) for one in given):
                self._admit()
                return
            if not self.access.accepts_session(self.get_cookie(self._cookie_name())):
                raise HTTPError(401)
        if came_from_elsewhere(self.request.headers):
            raise HTTPError(403, reason="Asked For By Another Site")
        if self.request.method not in ("GET", "HEAD"):
            raise HTTPError(405)

    def _admit(self) -> None:
        """The token was right: a cookie for it, and the same address without it."""
        self.set_cookie(self._cookie_name(), self.access.session, httponly=True, samesite="Strict", path="/")
        others = [(name, value) for name, values in self.request.query_arguments.items() for value in values]
        query = urlencode([pair for pair in others if pair[0] != "token"])
        # Of two slashes at the beginning a browser would make another machine's address.
        path = "/" + self.request.path.lstrip("/\\")
        self.redirect(path + (f"?{query}" if query else ""), status=303)

    def _cookie_name(self) -> str:
        # Cookies know no ports: two servers on one machine keep theirs apart by name.
        return f"virtgauge-{self.showing.port}"

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        if status_code == 405:
            self.set_header("Allow", "GET, HEAD")
        hint = {401: "\nOpen the address with ?token=… that the server printed.\n"}.get(status_code, "\n")
        self.finish(f"{status_code} {self._reason}{hint}")

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """A refusal is no news; a defect is one line, for texts of a run might steer the terminal."""
        if not isinstance(value, HTTPError | StreamClosedError):
            print(f"virtgauge serve: {plain(self.request.path)}: {plain(repr(value))}", file=sys.stderr)

    async def show(self, template: str, *, running: bool | None = None, **values: Any) -> None:
        """A page; with ``running`` it asks for itself again, seldom of what has ended."""
        every_ms = None if running is None else round(1000 * self.showing.ask_every_s * (1 if running else 2.5))
        await self.finish(_environment().get_template(template).render(every_ms=every_ms, **values))

    async def show_message(self, status: int, title: str, text: str, remedy: str = "") -> None:
        self.set_status(status)
        self.set_header("Content-Security-Policy", POLICY)  # a page of the server's own in place of a report, too
        await self.show("message.html", title=title, text=text, remedy=remedy)

    async def show_gone(self) -> None:
        await self.show_message(404, "No such run", "It is not in the folders that are served, or no longer.")


class UnknownPage(Page):
    """Every address that is none."""

    async def get(self) -> None:
        await self.show_message(404, "Nothing here", "This address names nothing.")


class IndexPage(Page):
    """All runs."""

    async def get(self) -> None:
        def rank(one: Overview) -> tuple[bool, str, str]:
            made = "" if one.manifest is None else str(one.manifest.created_at)
            return one.state is State.RUNNING, made, one.run.folder.name

        # The newest first, those under way before all others.
        runs = sorted(await self.showing.overviews(), key=rank, reverse=True)
        await self.show(
            "index.html",
            running=any(one.state is State.RUNNING for one in runs),
            runs=runs[:_LISTED],
            further=max(0, len(runs) - _LISTED),
            folders=self.showing.folders,
        )


class RunPage(Page):
    """One run, as it happens."""

    async def get(self, run_id: str) -> None:
        live = await self.showing.live(run_id)
        if live is None:
            await self.show_gone()
            return
        one = live.overview
        with stored_report(one.run) or contextlib.nullcontext() as stored:
            at_no_cost = stored is not None
        readable = not one.is_under_way and one.state is not State.UNREADABLE
        reportable = readable and (at_no_cost or not await self.showing.measuring())
        await self.show("run.html", running=one.state is State.RUNNING, live=live, one=one, reportable=reportable)


class ReportPage(Page):
    """A run's report: the file where it is up to date, else one made for this."""

    policy = REPORT_POLICY

    async def get(self, run_id: str) -> None:
        run = await self.showing.find(run_id)
        if run is None:
            await self.show_gone()
            return
        stored = stored_report(run)
        if stored is not None:
            with stored:
                while chunk := stored.read(_CHUNK):
                    self.write(chunk)
                    await self.flush()
            return
        page = self.showing.reports.kept(run)
        if page is None and await self.showing.measuring():
            await self.show_message(
                *(409, "Not now", "A run is under way on this machine, and making a report would disturb it."),
                "Come back when it has ended.",
            )
            return
        try:
            await self.finish(page or await self.showing.reports.build(run))
        except VirtgaugeError as error:
            await self.show_message(500, "No report", error.message, error.remedy or "")


class Asset(Page):
    """The style and the script."""

    async def get(self, name: str) -> None:
        self.set_header("Content-Type", "text/css" if name.endswith(".css") else "text/javascript")
        own = resources.files(__package__).joinpath("templates", name).read_bytes()
        if name == "page.css":
            # By the files' place: to import the package of the reports would take a second and load what draws them.
            own = resources.files("virtgauge").joinpath("report", "templates", name).read_bytes() + own
        await self.finish(own)


class Server:
    """Serves the runs in some folders.  Made and used within a running event loop."""

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
        self._http = Door(
            application, max_header_size=16 * 1024, max_body_size=1024, idle_connection_timeout=_IDLE_S, body_timeout=10
        )

    def listen(self, address: str, port: int) -> int:
        """Begin to answer; the port, which is a free one where 0 was asked for. Raises UsageError: it cannot be had."""
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
    """Serve until SIGINT or SIGTERM; ``tell`` is given the port. Raises UsageError: address or port cannot be had."""

    async def until_ended() -> None:
        over = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        server = Server(folders, access)
        tell(server.listen(address, port))
        try:
            await over.wait()
        finally:
            await server.close()

    asyncio.run(until_ended())
