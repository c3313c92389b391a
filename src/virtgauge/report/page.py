"""The report as one HTML file that needs no network: markup, style, figures, data and scripts in a single document.

Names and texts of a run are untrusted.  Markup is made by Jinja2 with autoescaping; data travels as JSON with every
``<`` written as an escape, and reaches the page only through ``textContent``; the document's Content-Security-Policy
allows the two scripts that it brings, by their hashes, and no connection whatsoever.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

import virtgauge
from virtgauge.claims.papers import SOURCES, printed_beside_table
from virtgauge.claims.verdicts import counted
from virtgauge.errors import UnavailableError, printable
from virtgauge.folders import private_cache
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import replay, requirements, trials
from virtgauge.report.answers import answers, identical_arms
from virtgauge.report.compose import SuiteReport
from virtgauge.report.model import Report
from virtgauge.results import formatting
from virtgauge.specs.blocks import Block, Chart, Column, Row, Section, Table, Text, table_of
from virtgauge.specs.headline import Tone

LIBRARY = Path(virtgauge.__file__).parent / "native" / "vega-embed.js"
"""Vega, Vega-Lite and vega-embed in one script; made by ``setup/page.py`` when the package or a checkout is built."""

_COLUMNS = {"ccdf": "curves", "strips": "raw"}

_REFERENCE_COLOUR = "#7b8494"
_COLOURS = (
    *("#2f7ff0", "#ee7d22", "#12a594", "#c44fb8", "#b89400"),
    *("#8a63f0", "#e5484d", "#56a336", "#0ea5d0", "#a1745a"),
)
Part = tuple[str, str, Markup]  # A section of a page: its anchor, what it is called in the menu, and its markup


def render_html(report: Report) -> str:
    """The whole report as one HTML document."""
    page, summaries = Page([arm.record for arm in report.arms]), []
    first, last = list[Part](), list[Part]()
    menu = [("", first)]
    if report.decisions.requirements:
        shown = requirements.shown(report.decisions, page.arms)
        first.append(("requirements", "Requirements", page.render("requirements.html", **shown)))
    if report.replay:
        html = page.render("replay.html", replay=report.replay, in_words=replay.in_words)
        first.append(("papers", "Claims of the papers", html))
    for suite in report.suites:
        name, arms = suite.suite, suite.context.arms
        texts = ((one, one.text + " (reference)" * (one.tone is Tone.REFERENCE)) for one in suite.headlines)
        told = (Row((), one.arm, (text,), one.tone.value) for one, text in texts)
        sentences = table_of("Each platform in one sentence", (), (Column("Answer", text=True),), told, folded=True)
        summaries.append((suite, page.blocks(f"{name}-summary", [*suite.summary, *sentences], arms)))
        parts = [page.section(one, arms, suite) for one in suite.sections]
        if suite.claims and not report.replay:  # which has the conclusions of all papers together
            of = {"claims": suite.claims, "source": SOURCES[name][0], "printed": printed_beside_table(name)}
            html = page.render("suite_claims.html", suite=name, **of)
            parts.append((f"{name}-claims", "The paper", html))
        menu.append((suite.title, parts))
    if report.hosts:
        beside = [arm for arm in page.arms if arm.usable and arm.role != "reference"]
        last.append(page.section(report.hosts.section, beside))
    if report.settings.blocks:
        last.append(page.section(report.settings, ()))
    listed = trials.trial_columns(report) if len(report.trials) <= trials.MOST_TRIALS else None
    for anchor, blocks in (("trials", trials.trial_blocks(report)), ("environment", trials.environment_blocks(report))):
        html = page.render(f"{anchor}.html", report=report, tables=page.blocks(anchor, [*blocks], ()), listed=listed)
        last.append((anchor, anchor.capitalize(), html))
    return page.whole(
        "report.html",
        listed,
        title=f"{report.run.plan_name} · virtgauge report",
        maker=f"virtgauge {report.run.tool_version} · run {report.run.run_id}",
        menu=[*menu, ("", last)],
        caveats=report.caveats,
        report=report,
        identical=identical_arms(report),
        answers=answers(report),
        suites=summaries,
    )


class Page:
    """One page in the making: its markup, and figures whose data it holds once, of arms with a colour and line each."""

    def __init__(self, arms: Sequence[ArmRecord]) -> None:
        self.arms = tuple(arms)
        self._specs: list[dict[str, Any]] = []
        self._panels: dict[str, dict[str, Any]] = {}

    def render(self, template: str, **values: Any) -> Markup:
        """A template below ``templates/``, with the page's filters and macros at hand."""
        shared = {
            "formatting": formatting,
            "said": requirements,
            "counted": counted,
            "colours": arm_colours(self.arms),
            "dashed": {name for name, dash in arm_dashes(self.arms).items() if dash[1]},
            "arm_of": {arm.name: arm for arm in self.arms},
            "labels": {arm.name: arm.label for arm in self.arms},
        }
        return Markup(_environment().get_template(template).render(**shared, **values))

    def blocks(self, name: str, blocks: Sequence[Block], arms: Sequence[ArmRecord]) -> Markup:
        """Blocks, and the data of their charts under a name that nothing else uses; ``arms`` are in the legends."""
        from virtgauge.report.drawing import specification  # it takes the arms' colours from here

        drawn = {}
        for place, block in enumerate(blocks):
            if isinstance(block, Chart):
                names = [f"{name}-{place}-{number}" for number in range(len(block.panels))]
                shown = {row.get("arm") for panel in block.panels for row in panel.rows}
                legend = [arm for arm in arms if arm.name in shown] or arms
                drawn[place] = names, len(self._specs), legend
                self._specs.append(specification(block, self.arms))
                # The page's script makes rows of columns.
                kind = "rows" if "kind" in block.panels[0].rows[0] else _COLUMNS.get(block.kind, "rows")
                for one, panel in zip(names, block.panels, strict=True):
                    self._panels[one] = {"kind": kind, "rows": panel.rows}
        return self.render("blocks.html", blocks=blocks, drawn=drawn)

    def section(self, one: Section, arms: Sequence[ArmRecord], suite: SuiteReport | None = None) -> Part:
        """A section; in a suite's, title and anchor begin with the suite."""
        name = f"{suite.suite}-{one.anchor}" if suite else one.anchor
        body = self.blocks(name, one.blocks, arms)
        title = escape(f"{suite.title}: {one.title[:1].lower()}{one.title[1:]}" if suite else one.title)
        html = Markup("<h2>{}</h2>{}").format(title, body)
        if one.folded:
            count = Markup(' <span class="count">({})</span>').format(_counted(one.blocks))
            html = Markup("<details><summary><h2>{}</h2>{}</summary>{}</details>").format(title, count, body)
        return name, one.title, html

    def whole(self, template: str, listed: Mapping[str, Any] | None = None, **values: Any) -> str:
        """The document of a template that is, or extends, ``document.html``, with style, scripts and their data, once.

        The values of each are ``title``, ``maker`` (in the footer), ``caveats``, and ``menu``: the sections, in groups
        that have a title or are not told apart. ``listed`` are trials by columns, of which the page makes a list.
        """
        library, boot, labels = drawing_library(), asset("page.js"), {arm.name: arm.label for arm in self.arms}
        data = {"labels": labels, "panels": self._panels, "specs": self._specs, "trials": listed}
        return self.render(
            template,
            **values,
            # Not of a run: our own assets, and JSON that cannot leave its element.
            style=Markup(asset("page.css")),
            library=Markup(library),
            boot=Markup(boot),
            data=Markup(
                printable(htmlsafe_json_dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
            ),
            policy=content_policy(library, boot),
        )


def _counted(blocks: Iterable[Block]) -> str:
    """How much a fold holds: ``18 charts, 36 rows``."""
    charts = sum(len(one.panels) for one in blocks if isinstance(one, Chart))
    rows = sum(len(one.rows) for one in blocks if isinstance(one, Table))
    texts = sum(len(one.paragraphs) for one in blocks if isinstance(one, Text)) if not charts and not rows else 0
    parts = ((charts, "chart"), (rows, "row"), (texts, "note"))
    return ", ".join(formatting.count(*one) for one in parts if one[0])


def arm_colours(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """A colour for every arm: neutral for reference and A/A, else by order in the plan."""
    tests = [arm.name for arm in arms if arm.role == "test"]
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(tests)}
    return {arm.name: colours.get(arm.name, _REFERENCE_COLOUR) for arm in arms}


def arm_dashes(arms: Sequence[ArmRecord]) -> dict[str, list[int]]:
    """Solid lines for measured arms, dashed for emulated ones, dotted for the A/A arm."""
    return {arm.name: [7, 3] if arm.emulated else [2, 2] if arm.role == "aa" else [1, 0] for arm in arms}


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Compiled templates; what cannot be read or written is compiled again, and what is damaged, too."""

    _maker = f"{jinja2.__version__} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"

    def get_source_checksum(self, source: str) -> str:
        """Of what the code follows from: a template, Jinja2, and how this file sets it up."""
        return super().get_source_checksum(f"{self._maker} {source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(Exception):  # of unmarshalling may come any
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def compiled_templates() -> jinja2.BytecodeCache | None:
    """Where templates' code is kept, for compiling them takes as long as drawing a page; None where it cannot be."""
    folder = private_cache("templates")
    return _Compiled(str(folder)) if folder else None


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        bytecode_cache=compiled_templates(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value, lines=True) if type(value) is str else value,
    )


@functools.cache
def drawing_library() -> str:
    """The script that draws, safe within a ``<script>`` element. Raises UnavailableError: it was not built."""
    try:
        return LIBRARY.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UnavailableError(
            f"the drawing library of the pages is missing: {LIBRARY}",
            "`virtgauge provision page` in a source tree; else install the package again",
        ) from None


@functools.cache
def asset(name: str) -> str:
    """A file below ``templates/``: the page's style or script."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def content_policy(*scripts: str) -> str:
    """The Content-Security-Policy of a page that brings these scripts: no other, and no connection."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
