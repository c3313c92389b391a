"""What a suite draws its parts of the page with: templates, and figures whose data the page holds once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import markupsafe

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import arm_colours, arm_dashes
from virtgauge.report.charts import Figure, PanelData
from virtgauge.report.model import ArmSummary, Report
from virtgauge.results import formatting


class PageFrame:
    """One page in the making.

    Args:
        report: that it shows.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._confidence = report.run.confidence
        self.arms: tuple[ArmRecord, ...] = tuple(arm.record for arm in report.arms)
        """Of the manifest, those that were skipped among them."""
        self.specs: list[dict[str, Any]] = []
        self.panels: dict[str, PanelData] = {}

    def summary_of(self, arm: str) -> ArmSummary:
        """What is known of an arm over the whole run."""
        return self._report.arm(arm)

    def render(self, template: str, **values: Any) -> markupsafe.Markup:
        """A template below ``templates/`` as markup, with the page's filters and macros at hand."""
        dashes = arm_dashes(self.arms)
        shared = {
            "words": formatting,
            "confidence": self._confidence,
            "colours": arm_colours(self.arms),
            "dashed": {name for name, dash in dashes.items() if dash[1]},
            "arm_of": {arm.name: arm for arm in self.arms},
        }
        return markupsafe.Markup(_environment().get_template(template).render(**shared, **values))

    def draw(
        self, figures: Sequence[Figure], data: Mapping[str, PanelData], arms: Sequence[ArmRecord]
    ) -> markupsafe.Markup:
        """Figures as markup, drawn by the page's script.

        Args:
            figures: of one suite.
            data: of every panel, by a name that no other suite uses.
            arms: in the legend.
        """
        first = len(self.specs)
        self.specs += [figure.spec for figure in figures]
        self.panels |= data
        return self.render("figures.html", figures=figures, first=first, arms=arms)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": formatting.duration,
        "duration_interval": formatting.duration_interval,
        "ratio": formatting.ratio,
        "ratio_interval": formatting.ratio_interval,
        "unresolved": formatting.unresolved,
        "confidence": formatting.confidence,
        "share": formatting.share,
    }
    return environment
