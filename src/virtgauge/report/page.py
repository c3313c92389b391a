"""The report as one HTML file that needs no network: markup, style, figures, data and scripts in a single document.

Names and texts of a run are untrusted.  Markup is made by Jinja2 with autoescaping; data travels as JSON with every
``<`` written as an escape, and reaches the page only through ``textContent``; the document's Content-Security-Policy
allows the two scripts that it brings, by their hashes, and no connection whatsoever.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from importlib import resources
from typing import Any

import markupsafe

from virtgauge.report import tables
from virtgauge.report.answers import answers, identical_arms
from virtgauge.report.decisions.formatting import margin_text, more_text
from virtgauge.report.decisions.page import requirements_section
from virtgauge.report.hosts.page import hosts_section
from virtgauge.report.library import drawing_library
from virtgauge.report.model import Report
from virtgauge.report.page_frame import PageFrame
from virtgauge.report.replay.page import replay_section, with_claims


def render_html(report: Report) -> str:
    """The whole report as one HTML document."""
    frame = PageFrame(report)
    suites = [(suite, suite.page(frame)) for suite in report.suites]
    if report.replay is None:
        suites = [(suite, with_claims(suite, page, frame)) for suite, page in suites]
    library, boot = drawing_library(), asset("page.js")
    return frame.render(
        "report.html",
        report=report,
        identical=identical_arms(report),
        answers=answers(report),
        margin=margin_text,
        more_text=more_text,
        suites=suites,
        requirements=requirements_section(report.decisions, frame),
        hosts=hosts_section(report.hosts, frame),
        replay=replay_section(report.replay, frame),
        invalid=tables.invalid_trials(report),
        trial_sums=list(report.trials.sums()) if len(report.trials) > tables.MOST_TRIALS else [],
        environment_rows=tables.flattened(report.run.fingerprint),
        arm_facts=[(arm.record.label, tables.flattened(arm.facts)) for arm in report.arms if arm.facts],
        note_of=tables.note_of,
        # Not of the run: our own assets, and JSON that cannot leave its element.
        style=markupsafe.Markup(asset("page.css")),
        library=markupsafe.Markup(library),
        boot=markupsafe.Markup(boot),
        data=markupsafe.Markup(embeddable(_page_data(report, frame))),
        policy=content_policy(library, boot),
    )


def embeddable(value: Any) -> str:
    """JSON that can stand inside a ``<script>`` element whatever it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    for character, escape in escapes.items():
        text = text.replace(character, escape)
    return text


def _page_data(report: Report, frame: PageFrame) -> dict[str, Any]:
    """What the page's script draws from, once: figures and trials, for there may be thousands."""
    return {
        "labels": {arm.name: arm.label for arm in frame.arms},
        "panels": {name: {"kind": panel.kind, "rows": panel.rows} for name, panel in frame.panels.items()},
        "specs": frame.specs,
        "trials": tables.trial_columns(report) if len(report.trials) <= tables.MOST_TRIALS else None,
    }


@functools.cache
def asset(name: str) -> str:
    """A file below ``templates/``: the page's style or script."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def content_policy(*scripts: str) -> str:
    """The Content-Security-Policy of a page that brings these scripts: no other, and no connection."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
