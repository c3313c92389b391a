"""What `virtgauge doctor` prints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.platforms.base import Availability, Platform
from virtgauge.suites.storage.databases.base import Database, Found, Missing, Profile


@dataclasses.dataclass(frozen=True)
class ReportedPlatform:
    """A platform of the plan and whether it can be used."""

    name: str
    platform: Platform
    availability: Availability


@dataclasses.dataclass(frozen=True)
class ReportedDatabase:
    """A database and where it is, or why it is not."""

    database: Database
    place: Found | Missing


def doctor_text(found: Sequence[ReportedPlatform], databases: Sequence[ReportedDatabase], console: Console) -> None:
    """Tables for people."""
    table = _table("platform", "usable", "why", "to fix it")
    for entry in found:
        a = entry.availability
        table.add_row(
            Text(f"{entry.name} ({entry.platform.label})"), _verdict(entry), Text(a.reason), Text(a.fix or "")
        )
    console.print(table)
    table = _table("database", "usable", "why", "levels of durability", "to fix it")
    for database in databases:
        place = database.place
        if isinstance(place, Found):
            levels = ", ".join(name for name, profile in _levels(database.database).items() if profile is not None)
            label = database.database.label(place)
            table.add_row(Text(label), Text("yes", "green"), Text(place.source), Text(levels), Text(""))
        else:
            no = Text("no", "red")
            table.add_row(Text(database.database.title), no, Text(place.reason), Text(""), Text(place.fix or ""))
    console.print()
    console.print(table)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _verdict(entry: ReportedPlatform) -> Text:
    if not entry.availability.usable:
        return Text("no", "red")
    return Text("emulated", "yellow") if entry.platform.emulated else Text("yes", "green")


def _levels(database: Database) -> Mapping[str, str | None]:
    """The name of each level's settings; None where there is no such level."""
    return {
        durability.value: level.name if isinstance(level, Profile) else None
        for durability, level in database.levels().items()
    }


def doctor_json(found: Sequence[ReportedPlatform], databases: Sequence[ReportedDatabase]) -> str:
    """The same for scripts."""
    platforms = [
        {"name": e.name, "label": e.platform.label, "emulated": e.platform.emulated}
        | dataclasses.asdict(e.availability)
        for e in found
    ]
    return json.dumps({"platforms": platforms, "databases": [_as_dict(entry) for entry in databases]}, indent=2)


def _as_dict(entry: ReportedDatabase) -> dict[str, object]:
    place = entry.place
    usable = isinstance(place, Found)
    return {
        "name": entry.database.name,
        "label": entry.database.label(place) if isinstance(place, Found) else entry.database.title,
        "usable": usable,
        "reason": place.source if isinstance(place, Found) else place.reason,
        "fix": None if isinstance(place, Found) else place.fix,
        "levels": _levels(entry.database) if usable else {},
    }
