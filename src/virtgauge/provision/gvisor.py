"""gVisor's ``runsc``."""

from __future__ import annotations

from pathlib import Path

from virtgauge.provision.go_program import GoProgram
from virtgauge.provision.progress import Outcome, Progress

RUNSC_VERSION = "v0.0.0-20260905035102-160fafc42237"
"""A pseudo-version of gVisor's ``go`` branch, the branch whose modules build with the plain Go tool."""

_RUNSC = GoProgram("gvisor", "runsc", "gvisor.dev/gvisor/runsc", RUNSC_VERSION)


def find_runsc() -> Path | None:
    """The pinned ``runsc`` from the cache, else one on PATH; None when there is neither.  Builds nothing."""
    return _RUNSC.find()


def provision_runsc(progress: Progress) -> Outcome:
    """Build the pinned ``runsc`` into the cache, unless it is there with the hash it was made with."""
    return _RUNSC.provision(progress)
