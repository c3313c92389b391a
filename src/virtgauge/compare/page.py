"""A comparison as one HTML file that needs no network, as the report of a run is one.

Names of runs, arms and cells, and all that is recorded of hosts, are untrusted: markup comes from Jinja2 with
autoescaping, data from JSON that cannot leave its element, and the page's policy allows its own two scripts only.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import jinja2
import markupsafe

from virtgauge import __version__
from virtgauge.compare import formatting
from virtgauge.compare.charts import FINDING_COLOURS, ComparisonFigures, change_figures, series_figures
from virtgauge.compare.model import CALLED, Comparison, SeriesComparison
from virtgauge.report.page import asset, content_policy, drawing_library, embeddable

_CLASSES = {"worse": "worse", "better": "better", "changed": "changed", "equivalent": "same", "not shown": "plain"}


def render_html(found: Comparison | SeriesComparison) -> str:
    """The whole comparison as one HTML document."""
    series = isinstance(found, SeriesComparison)
    drawn = series_figures(found) if isinstance(found, SeriesComparison) else change_figures(found)
    library, boot = drawing_library(), _own_asset("compare.js")
    template = _environment().get_template("series.html" if series else "comparison.html")
    return template.render(
        found=found,
        figures=drawn.figures,
        finding_colours={
            finding: colour for finding, colour in FINDING_COLOURS.items() if not series or finding in CALLED
        },
        classes=_CLASSES,
        formatting=formatting,
        version=__version__,
        # Not of the runs: our own assets, and JSON that cannot leave its element.
        style=markupsafe.Markup(asset("page.css") + _own_asset("compare.css")),
        library=markupsafe.Markup(library),
        boot=markupsafe.Markup(boot),
        data=markupsafe.Markup(embeddable(_page_data(drawn))),
        policy=content_policy(library, boot),
    )


def _page_data(drawn: ComparisonFigures) -> dict[str, Any]:
    return {
        "specs": [figure.spec for figure in drawn.figures],
        "panels": {name: panel.rows for name, panel in drawn.data.items()},
    }


@functools.cache
def _own_asset(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
