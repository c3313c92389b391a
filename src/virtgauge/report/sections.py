"""What a suite adds to a report: the interface between what every run has and what only one suite knows.

The report reads the ledger, and lists arms, trials, guests and environment itself.  Of what was measured it knows
nothing: each suite's own report makes sentences, figures, tables and text of its trials.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import markupsafe
from rich.console import Console

from virtgauge.analysis.estimate import Estimate
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.headline import Headline
from virtgauge.results.table import ResultTable

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame


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


class SuiteReport(abc.ABC):
    """One suite's part of a report.

    Attributes:
        suite: its name.
        title: what the page calls it.
        arms: those with trials, in the order in which all that it says shows them.
        findings: everything that it says.
        aa_ratios: of the figures that decide, A/A arm to reference: one for each cell where both were measured.
    """

    suite: ClassVar[str]
    title: ClassVar[str]
    arms: tuple[ArmRecord, ...]
    findings: SuiteFindings
    aa_ratios: tuple[Estimate, ...]

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """One sentence for each arm of the plan but the A/A arm, the reference first."""
        return self.findings.headlines

    @property
    def claims(self) -> tuple[ClaimCheck, ...]:
        """Every conclusion of the suite's paper, and what this run says of it; empty where it has no paper."""
        return ()

    @property
    @abc.abstractmethod
    def estimates(self) -> Iterable[Estimate]:
        """The figures that decide, whose confidence a reader must know."""

    @abc.abstractmethod
    def cell_name(self, probe: str, factors: Mapping[str, str]) -> str:
        """What a cell is called in the list of trials: ``Timer cost: rdtsc · idle``."""

    @abc.abstractmethod
    def page(self, frame: PageFrame) -> SuitePage:
        """Its parts of the page."""

    @abc.abstractmethod
    def print(self, console: Console) -> None:
        """Its figures in the terminal, below the headlines."""


class SuiteFindings(Protocol):
    """What a suite says, as a dataclass for the JSON form; durations in nanoseconds."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """One sentence for each arm of the plan but the A/A arm, the reference first."""
