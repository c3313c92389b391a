"""The pages as markup: Jinja2 with autoescaping, the report's style, one small script, and no texts in either."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources

import jinja2

from virtgauge.serve.live import LiveRun
from virtgauge.serve.overview import Overview, State

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

TONES = {
    State.RUNNING: "running",
    State.COMPLETE: "good",
    State.INCOMPLETE: "warn",
    State.INTERRUPTED: "warn",
    State.UNFINISHED: "warn",
    State.UNREADABLE: "bad",
}
LISTED = 300
"""Runs on the page of all runs: the newest."""


def index_page(overviews: Sequence[Overview], folders: Sequence[str], every_s: float) -> str:
    """All runs, the newest first, those under way before all others.

    Args:
        overviews: of the runs.
        folders: where they were looked for.
        every_s: how often the page asks for itself while a run is under way.
    """
    ordered = sorted(overviews, key=lambda one: (one.state is State.RUNNING, one.order, one.name), reverse=True)
    running = any(one.state is State.RUNNING for one in ordered)
    return _render(
        "index.html",
        runs=ordered[:LISTED],
        further=max(0, len(ordered) - LISTED),
        folders=folders,
        every_ms=_every_ms(every_s, running=running),
    )


def run_page(live: LiveRun, every_s: float, *, reportable: bool) -> str:
    """One run.

    Args:
        live: what is known of it.
        every_s: how often the page asks for itself while the run is under way.
        reportable: whether its report may be asked for now.
    """
    running = live.overview.state is State.RUNNING
    return _render(
        "run.html",
        live=live,
        one=live.overview,
        reportable=reportable,
        every_ms=_every_ms(every_s, running=running),
    )


def message_page(title: str, text: str, remedy: str = "") -> str:
    """Something that cannot be shown, and what to do."""
    return _render("message.html", title=title, text=text, remedy=remedy, every_ms=None)


@functools.cache
def asset(name: str) -> bytes:
    """The script, or the style: that of the reports, and what is added to it."""
    own = resources.files(__package__).joinpath("templates", name).read_bytes()
    if name != "page.css":
        return own
    # By the files' place: to import the package of the reports would take a second and load what draws them.
    shared = resources.files("virtgauge").joinpath("report", "templates", "page.css").read_bytes()
    return shared + own


def _every_ms(every_s: float, *, running: bool) -> int:
    """Of what has ended news is rare."""
    return round(1000 * every_s * (1 if running else 2.5))


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(tones=TONES, State=State, **values)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
