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
        table.add_row(Text(f"{entry.name} ({entry.label})"), _verdict(a), Text(a.reason), Text(a.fix or ""))
    console.print(table)


def _verdict(availability: Availability) -> Text:
    if not availability.usable:
        return Text("no", "red")
    return Text("emulated", "yellow") if availability.emulated else Text("yes", "green")


def doctor_json(found: Sequence[ReportedPlatform]) -> str:
    """The same for scripts."""
    return json.dumps(
        [{"name": e.name, "label": e.label} | dataclasses.asdict(e.availability) for e in found], indent=2
    )
