"""``virtgauge measures``: what can be required, compared and exported."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from virtgauge.console.terminal import output
from virtgauge.errors import UsageError, nearest


def mount(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: virtgauge measures storage")(measures)


def measures(
    suite: Annotated[str | None, typer.Argument(help="One suite's only.", show_default=False)] = None,
) -> None:
    """List the measures of the suites: what a requirement can bound, with units and which way is better."""
    from virtgauge.measures.catalogue import MEASURES

    if suite is not None and suite not in MEASURES:
        raise UsageError(f"there is no suite {suite!r}{nearest(suite, MEASURES)}", f"use one of {', '.join(MEASURES)}")
    table = Table(box=None, header_style="bold")
    for heading in ("suite", "measure", "units", "better", "meaning"):
        table.add_column(heading, overflow="fold")
    for name in MEASURES if suite is None else [suite]:
        for measure in MEASURES[name].values():
            units = " ".join(unit for unit in measure.quantity.factors if unit)
            table.add_row(name, measure.name, units, measure.better.value, measure.meaning)
    output().print(table)
