"""virtgauge: measure natively and inside guests, pair the results, decide."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from virtgauge.loading import Run

try:
    __version__ = version("virtgauge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"


def load(run: str | Path, host: str | None = None) -> Run:
    """A run, for notebooks and scripts: its trials, estimates, comparisons and verdicts as tables (docs/python.md).

    Args:
        run: its folder, or its name within the folder ``runs`` here; it may be in progress, and is only read.
        host: of a fleet's run, the one host that is looked at; all of them by default.

    Raises:
        UsageError: there is no such run or host, or it cannot be read.
        DamagedError: its ledger is not as it was written.

    Warns where raw values of its trials are missing; no figure here is made of them.
    """
    from virtgauge import loading  # Arrow and statistics: a second that `import virtgauge` need not take

    return loading.load(run, host)
