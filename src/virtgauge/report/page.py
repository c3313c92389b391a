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

import jinja2
import markupsafe
import vl_convert

from virtgauge.report import factor_tables, tables, words
from virtgauge.report.causes import summary
from virtgauge.report.figures import (
    arm_colours,
    arm_dashes,
    distribution_figures,
    median_data,
    median_figures,
    published_medians,
    strips,
)
from virtgauge.report.model import Report


def render_html(report: Report) -> str:
    """The whole report as one HTML document."""
    records = [arm.record for arm in report.arms]
    figures = [*distribution_figures(report), *median_figures(report)]
    data = embeddable(_page_data(report, [figure.spec for figure in figures]))
    library, boot = _library(), _asset("page.js")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": words.duration,
        "duration_interval": words.duration_interval,
        "ratio": words.ratio,
        "ratio_interval": words.ratio_interval,
        "confidence": words.confidence,
        "share": words.share,
    }
    return environment.get_template("report.html").render(
        report=report,
        words=words,
        glance=tables.glance(report),
        detail=tables.detail(report),
        published=tables.published(report),
        factors=factor_tables.factor_sections(report),
        claim_groups=factor_tables.claim_groups(report),
        claim_counts=factor_tables.claim_counts(report),
        spoilt=tables.spoilt_trials(report),
        environment_rows=tables.flattened(report.run.fingerprint),
        arm_facts=[(arm.record.label, tables.flattened(arm.facts)) for arm in report.arms if arm.facts],
        figures=figures,
        colours=arm_colours(records),
        dashed={name for name, dash in arm_dashes(records).items() if dash[1]},
        summary=summary,
        verdict_class=tables.verdict_class,
        note_of=tables.note_of,
        aside=tables.aside,
        # Not of the run: our own assets, and JSON that cannot leave its element.
        style=markupsafe.Markup(_asset("page.css")),
        library=markupsafe.Markup(library),
        boot=markupsafe.Markup(boot),
        data=markupsafe.Markup(data),
        policy=_policy(library, boot),
    )


def embeddable(value: Any) -> str:
    """JSON that can stand inside a ``<script>`` element whatever it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    for character, escape in escapes.items():
        text = text.replace(character, escape)
    return text


def _page_data(report: Report, specs: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page's script draws from, once: curves and trials in columns, for there may be thousands."""
    return {
        "labels": {arm.record.name: arm.record.label for arm in report.arms},
        "curves": {
            f"ccdf-{index}": [
                {
                    "arm": curve.arm,
                    "x": curve.values_ns,
                    "y": curve.shares,
                    "mean": curve.mean_ns,
                    "published": published_medians(report, index).get(curve.arm),
                }
                for curve in cell.curves
            ]
            for index, cell in enumerate(report.cells)
            if cell.curves
        },
        "raw": _raw_values(report),
        "medians": median_data(report),
        "specs": specs,
        "trials": tables.trial_columns(report),
    }


def _raw_values(report: Report) -> dict[str, list[dict[str, Any]]]:
    """The values of every scatter, and which strip of its panel they go to."""
    data: dict[str, list[dict[str, Any]]] = {}
    for index, cell in enumerate(report.cells):
        together = [other for other, one in enumerate(report.cells) if (one.probe, one.load) == (cell.probe, cell.load)]
        order, published = strips(report, together), published_medians(report, index)
        for scatter in cell.scatters:
            data.setdefault(f"raw-{index}", []).append(
                {
                    "arm": scatter.arm,
                    "strip": order.index(scatter.arm),
                    "y": scatter.values_ns,
                    "median": scatter.median_ns,
                    "published": published.get(scatter.arm),
                }
            )
    return data


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed as vl-convert brings them."""
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@functools.cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
