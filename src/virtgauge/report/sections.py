"""What a suite's part of a report is made from, and what it puts on the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import markupsafe

from virtgauge.ledger.records import ArmRecord
from virtgauge.results.table import ResultTable


@dataclasses.dataclass(frozen=True)
class SuiteRecords:
    """What a suite's report is made from.

    Attributes:
        arms: of the manifest, those that were skipped among them.
        facts: by arm, as the agent of its first guest saw them; empty where no guest came up.
        table: of the run's figures.
    """

    arms: tuple[ArmRecord, ...]
    facts: Mapping[str, Mapping[str, Any]]
    table: ResultTable


CLAIMS = "claims"
"""Anchor of the section about a suite's paper."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        anchor: unique within the suite.
        title: short, for the page's navigation.
        html: the part, without its ``<section>``.
    """

    anchor: str
    title: str
    html: markupsafe.Markup


@dataclasses.dataclass(frozen=True)
class SuitePage:
    """What a suite puts on the page.

    Attributes:
        summary: below the headlines: what a first look is about.
        sections: in order.
        reading: terms and their explanations, for the page's last section.
    """

    summary: markupsafe.Markup
    sections: tuple[Section, ...]
    reading: Mapping[str, str] = dataclasses.field(default_factory=dict)
