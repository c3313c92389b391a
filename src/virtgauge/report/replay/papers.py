"""The papers, by the suites that measure what they are about."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from virtgauge import reference
from virtgauge.reference import Source
from virtgauge.report.bandwidth import paper_claims as bandwidth
from virtgauge.report.forwarding import paper_claims as forwarding
from virtgauge.report.isolation import paper_claims as isolation
from virtgauge.report.storage import paper_claims as storage
from virtgauge.report.timing import paper_claims as timing
from virtgauge.report.verdicts import ExaminedClaim


@dataclasses.dataclass(frozen=True)
class PaperPart:
    """What one suite measures of a paper.

    Attributes:
        suite: its name.
        subject: in a few words.
        source: the paper.
        on_paper: every conclusion, on the paper's own figures.
    """

    suite: str
    subject: str
    source: Source
    on_paper: Callable[[], tuple[ExaminedClaim, ...]]

    @property
    def title(self) -> str:
        """``Kirova et al. 2019: clocks and sleeps``."""
        return f"{self.source.short}: {self.subject}"


PARTS = (
    PaperPart("timing", "clocks and sleeps", reference.TIMING, timing.on_paper),
    PaperPart("bandwidth", "available bandwidth", reference.TIMING, bandwidth.on_paper),
    PaperPart("forwarding", "packet forwarding", reference.FORWARDING, forwarding.on_paper),
    PaperPart("storage", "sensor-data storage", reference.STORAGE, storage.on_paper),
    PaperPart("isolation", "performance isolation", reference.ISOLATION, isolation.on_paper),
)
