"""What `virtgauge doctor` prints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.platforms.base import Availability


@dataclasses.dataclass(frozen=True)
class ReportedPlatform:
    """A platform of the plan and whether it can be used."""

    name: str
    label: str
    availability: Availability


def doctor_text(found: Sequence[ReportedPlatform], console: Console) -> None:
    """A table for people."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("platform", "usable", "why", "to fix it"):
        table.add_column(heading, overflow="fold")
    for entry in found:
        a = entry.availability
        verdict = (
            Text("no", "red") if not a.usable else Text("emulated", "yellow") if a.emulated else Text("yes", "green")
        )
        table.add_row(Text(f"{entry.name} ({entry.label})"), verdict, Text(a.reason), Text(a.fix or ""))
    console.print(table)


def doctor_json(found: Sequence[ReportedPlatform]) -> str:
    """The same for scripts."""
    return json.dumps(
        [{"name": e.name, "label": e.label} | dataclasses.asdict(e.availability) for e in found], indent=2
    )
