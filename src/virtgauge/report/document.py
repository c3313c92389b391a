"""What is said beyond one run: a page like a report's, and the same in the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text as Line

from virtgauge import __version__
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.page import Page
from virtgauge.report.terminal import print_blocks
from virtgauge.results import formatting
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

    def html(self) -> str:
        """The document as one HTML file that needs no network."""
        page = Page(self.arms)
        return page.whole(
            "document.html",
            title=f"{self.title} · virtgauge",
            maker=f"virtgauge {__version__}",
            menu=[("", [page.section(one, self.arms) for one in self.sections])],
            document=self,
            caveats=self.caveats,
            summary=page.blocks("summary", self.summary, self.arms),
        )

    def print(self, console: Console) -> None:
        """In the terminal; texts of a run are printed as they are, control characters taken out."""
        print_blocks(self.summary, (), {}, console)
        for caveat in self.caveats:
            console.print(Line(f"! {formatting.printable(caveat)}", style="yellow"))
        print_blocks((), self.sections, {arm.name: arm for arm in self.arms}, console)
