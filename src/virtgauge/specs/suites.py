"""The declarations of all suites."""

from __future__ import annotations

from virtgauge.results.columns import Cell
from virtgauge.results.formatting import probe_title
from virtgauge.specs.bandwidth import BANDWIDTH
from virtgauge.specs.forwarding import FORWARDING
from virtgauge.specs.imported import IMPORTED
from virtgauge.specs.isolation import ISOLATION
from virtgauge.specs.model import SuiteSpec
from virtgauge.specs.storage import STORAGE
from virtgauge.specs.timing import TIMING

SPECS: tuple[SuiteSpec, ...] = (TIMING, BANDWIDTH, FORWARDING, STORAGE, ISOLATION, IMPORTED)


def cell_name(cell: Cell) -> str:
    """A cell by its probe, and its levels as the report names them: ``Sleep lateness: usleep, CPU load``."""
    title = (
        probe_title(cell.probe) if cell.suite == "timing" else f"{cell.suite.capitalize()} {probe_title(cell.probe)}"
    )
    levels = next(spec for spec in SPECS if spec.name == cell.suite).cell_name(cell, without=("probe",))
    return f"{title}: {levels}" if levels else title
