"""What is said beyond one run, of two or of many: a page like a report's, and the same in the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text as Line

from virtgauge import __version__
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.page import Page
from virtgauge.report.terminal import print_blocks
from virtgauge.results.formatting import printable
from virtgauge.specs.blocks import Block, Section


@dataclasses.dataclass(frozen=True)
class Document:
    """Something that is told in blocks."""

    title: str
    of: str  # what it is of, in a line
    caveats: tuple[str, ...]
    summary: tuple[Block, ...]  # what a first look is about
    sections: tuple[Section, ...]
    reading: Mapping[str, str]  # terms and their explanations
    arms: tuple[ArmRecord, ...]  # that rows and charts name
    confidence: float  # of its intervals, nominal

    def html(self) -> str:
        """As one HTML file that needs no network."""
        page = Page(self.arms, self.confidence)
        return page.whole(
            "document.html",
            document=self,
            summary=page.blocks("summary", self.summary, self.arms),
            sections=[(one, page.section(one.anchor, "", one, self.arms)) for one in self.sections],
            version=__version__,
        )

    def print(self, console: Console) -> None:
        """In the terminal; texts of a run are printed as they are, control characters taken out."""
        print_blocks(self.summary, (), {}, console)
        for caveat in self.caveats:
            console.print(Line(f"! {printable(caveat)}", style="yellow"))
        print_blocks((), self.sections, {arm.name: arm for arm in self.arms}, console)
