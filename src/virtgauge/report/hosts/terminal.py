"""The hosts of a fleet in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.report.hosts.formatting import sentence, test_text
from virtgauge.report.hosts.model import HostFindings
from virtgauge.results.formatting import NONE, printable, ratio

_MOST_ROWS = 12


def print_hosts(findings: HostFindings | None, labels: Mapping[str, str], console: Console) -> None:
    """Print what hosts differ in; nothing of the run of one host.

    Args:
        findings: the run's.
        labels: of platforms, by name.
        console: to print on; texts of a run are never read as markup.
    """
    if findings is None:
        return
    console.print(Text(sentence(findings), style="bold"))
    if not findings.differing:
        return
    names = [host.name for host in findings.hosts]
    table = Table(box=None, header_style="bold")
    for heading in ("measure", "cell", "platform", *names, "hosts"):
        table.add_column(printable(heading))
    for row in findings.differing[:_MOST_ROWS]:
        ratios = {figure.host: ratio(figure.ratio) for figure in row.figures if figure.ratio is not None}
        texts = (row.measure, row.cell, labels[row.arm], *(ratios.get(name, NONE) for name in names))
        table.add_row(*(Text(printable(text)) for text in (*texts, test_text(row.test))))
    console.print(table)
    if len(findings.differing) > _MOST_ROWS:
        console.print(Text(f"… and {len(findings.differing) - _MOST_ROWS} more (see the HTML report)", style="dim"))
