"""What each address answers: the rules of access first, the same headers on everything, and GET and HEAD only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import urlencode

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler

from virtgauge.errors import VirtgaugeError
from virtgauge.serve import pages
from virtgauge.serve.access import Access, came_from_elsewhere
from virtgauge.serve.formatting import plain
from virtgauge.serve.overview import State
from virtgauge.serve.reports import has_stored_report, stored_report
from virtgauge.serve.showing import Showing

_CHUNK = 256 * 1024


class Page(RequestHandler):
    """Base of all.

    Args of ``initialize``:
        showing: the runs.
        access: the rules.
    """

    policy: ClassVar[str] = pages.POLICY

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
        """Host, token, origin, method, in this order: who may not look learns nothing else.

        Raises:
            HTTPError: refused.
        """
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
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """A refusal is no news; a defect is one line, for texts of a run might steer the terminal."""
        if not isinstance(value, HTTPError | StreamClosedError):
            print(f"virtgauge serve: {plain(self.request.path)}: {plain(repr(value))}", file=sys.stderr)

    async def show_message(self, status: int, title: str, text: str, remedy: str = "") -> None:
        """A page that says why something cannot be shown."""
        self.set_status(status)
        await self.finish(pages.message_page(title, text, remedy))

    async def show_gone(self) -> None:
        """There is no such run, or no longer."""
        await self.show_message(404, "No such run", "It is not in the folders that are served, or no longer.")


class UnknownPage(Page):
    """Every address that is none."""

    async def get(self) -> None:
        await self.show_message(404, "Nothing here", "This address names nothing.")

    head = get


class IndexPage(Page):
    """All runs."""

    async def get(self) -> None:
        overviews = await self.showing.overviews()
        await self.finish(pages.index_page(overviews, self.showing.folder_names, self.showing.ask_every_s))

    head = get


class RunPage(Page):
    """One run, as it happens."""

    async def get(self, run_id: str) -> None:
        live = await self.showing.live(run_id)
        if live is None:
            await self.show_gone()
            return
        ended = live.overview.state not in (State.RUNNING, State.UNREADABLE)
        reportable = ended and (has_stored_report(live.overview.run) or not await self.showing.measuring())
        await self.finish(pages.run_page(live, self.showing.ask_every_s, reportable=reportable))

    head = get


class ReportPage(Page):
    """A run's report: the file where it is up to date, else one made for this."""

    policy = pages.REPORT_POLICY

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
            await self.show_message(500, "No report", plain(error.message), plain(error.remedy or ""))

    async def show_message(self, status: int, title: str, text: str, remedy: str = "") -> None:
        self.set_header("Content-Security-Policy", pages.POLICY)
        await super().show_message(status, title, text, remedy)

    head = get


class Asset(Page):
    """The style and the script."""

    async def get(self, name: str) -> None:
        self.set_header("Content-Type", "text/css" if name.endswith(".css") else "text/javascript")
        await self.finish(pages.asset(name))

    head = get
