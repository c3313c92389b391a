"""gVisor's ``runsc`` at a pinned version, built by the Go tool chain from the module proxy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from virtgauge.provision.cache import ProvisionError, cache_root, damage, exclusive, staged
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.tools import output_of, run_logged, start_log

RUNSC_VERSION = "v0.0.0-20260905035102-160fafc42237"
"""A pseudo-version of gVisor's ``go`` branch, the branch whose modules build with the plain Go tool."""

GO_FOLDER = "/usr/local/go/bin"
"""Go's own installation instructions put it there, and leave PATH to the shell's profile."""

_MODULE = "gvisor.dev/gvisor/runsc"


def find_runsc() -> Path | None:
    """The pinned ``runsc`` from the cache, else one on PATH; None when there is neither.  Builds nothing."""
    folder = _folder()
    if damage(folder, thorough=False) is None and os.access(folder / "runsc", os.X_OK):
        return folder / "runsc"
    found = shutil.which("runsc")
    return Path(found) if found else None


def provision_runsc(progress: Progress) -> Outcome:
    """Build the pinned ``runsc`` into the cache, unless it is there with the hash it was made with.

    The Go checksum database, which the Go tool asks by itself, vouches for the sources.
    """
    try:
        with exclusive("runsc", progress):
            progress.activity("checking runsc in the cache")
            if damage(_folder(), thorough=True) is None:
                return Outcome("gvisor", State.OK, f"runsc {RUNSC_VERSION}")
            _build(progress)
    except ProvisionError as error:
        return Outcome("gvisor", State.SKIPPED, error.message, error.remedy)
    return Outcome("gvisor", State.MADE, f"runsc {RUNSC_VERSION}")


def _folder() -> Path:
    return cache_root() / "runsc" / RUNSC_VERSION


def _go() -> str:
    found = shutil.which("go") or shutil.which("go", path=GO_FOLDER)
    if found is None:
        raise ProvisionError("Go is not installed, and gVisor is built with it", "install Go from go.dev or golang-go")
    return found


def _build(progress: Progress) -> None:
    go = _go()
    facts = {"module": _MODULE, "version": RUNSC_VERSION, "go": (output_of([go, "version"]) or "unknown").strip()}
    start_log("gvisor")
    with staged(_folder(), facts) as folder:
        progress.activity("building runsc, which takes a minute or two")
        environment = {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath", "GOBIN": str(folder)}
        # From a folder of its own: a go.mod or go.work around the present one is none of this build's.
        argv = [go, "install", "-ldflags", "-s -w", f"{_MODULE}@{RUNSC_VERSION}"]
        run_logged(argv, log="gvisor", environment=environment, folder=folder)
        (folder / "runsc").chmod(0o755)
        if output_of([str(folder / "runsc"), "--version"]) is None:
            raise ProvisionError("the runsc that was built does not start here", "see its log below the cache's logs/")
