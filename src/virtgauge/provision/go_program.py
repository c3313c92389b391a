"""Programs of Go, built from their module's source into the cache."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path

from virtgauge.host.process import output_of
from virtgauge.provision.cache import ProvisionError, cache_root, damage, provided, staged
from virtgauge.provision.progress import Outcome, Progress
from virtgauge.provision.tools import run_logged, start_log

_LEAST_GO = "1.21"
"""From here on Go fetches the tool chain that a module asks for."""
GO_FOLDER = "/usr/local/go/bin"
"""Go's own installation instructions put it there, and leave PATH to the shell's profile."""


@dataclasses.dataclass(frozen=True)
class GoProgram:
    """What to build.

    Attributes:
        part: what the set-up calls it: ``gvisor``.
        name: of the program, and of its folder in the cache.
        module: import path of its command.
        version: of the module; the Go checksum database, which the Go tool asks by itself, vouches for the sources.
    """

    part: str
    name: str
    module: str
    version: str

    def find(self) -> Path | None:
        """The pinned program from the cache, else one on PATH; None when there is neither.  Builds nothing."""
        folder = self._folder()
        if damage(folder, thorough=False) is None and os.access(folder / self.name, os.X_OK):
            return folder / self.name
        found = shutil.which(self.name)
        return Path(found) if found else None

    def provision(self, progress: Progress) -> Outcome:
        """Build it into the cache, unless it is there with the hash it was made with."""
        there = f"{self.name} {self.version}"

        def look() -> str | None:
            return there if damage(self._folder(), thorough=True) is None else None

        def build() -> str:
            self._build(progress)
            return there

        return provided(self.part, self.name, self.name, progress, look, build)

    def _folder(self) -> Path:
        return cache_root() / self.name / self.version

    def _go(self) -> str:
        found = shutil.which("go") or shutil.which("go", path=GO_FOLDER)
        if found is None:
            raise ProvisionError(
                f"Go is not installed, and {self.name} is built with it", f"install Go {_LEAST_GO} or later from go.dev"
            )
        version = re.search(r"go(\d+)\.(\d+)", output_of([found, "version"]) or "")
        if version and (int(version[1]), int(version[2])) < tuple(map(int, _LEAST_GO.split("."))):
            raise ProvisionError(
                f"{self.name} is built with Go, of which {found} is version {version[0][2:]}",
                f"install Go {_LEAST_GO} or later from go.dev",
            )
        return found

    def _build(self, progress: Progress) -> None:
        go = self._go()
        facts = {
            "module": self.module,
            "version": self.version,
            "go": (output_of([go, "version"]) or "unknown").strip(),
        }
        start_log(self.part)
        with staged(self._folder(), facts) as folder:
            progress.activity(f"building {self.name}, which takes a minute or two")
            environment = {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath", "GOBIN": str(folder)}
            # From a folder of its own: a go.mod or go.work around the present one is none of this build's.
            argv = [go, "install", "-ldflags", "-s -w", f"{self.module}@{self.version}"]
            run_logged(argv, log=self.part, environment=environment, folder=folder)
            (folder / self.name).chmod(0o755)
            if output_of([str(folder / self.name), "--version"]) is None:
                raise ProvisionError(
                    f"the {self.name} that was built does not start here", "see its log below the cache's logs/"
                )


# gVisor's ``runsc``.

RUNSC_VERSION = "v0.0.0-20260905035102-160fafc42237"
"""A pseudo-version of gVisor's ``go`` branch, the branch whose modules build with the plain Go tool."""

RUNSC = GoProgram("gvisor", "runsc", "gvisor.dev/gvisor/runsc", RUNSC_VERSION)

# An object store on folders, versitygw, which the tests of the archive speak S3 with.

OBJECT_STORE = GoProgram("store", "versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
