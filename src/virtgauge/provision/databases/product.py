"""What all databases in the cache have in common: a folder each, kept while it is whole and of the wanted version."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from virtgauge.provision.cache import ProvisionError, cache_root, damage, exclusive, read_manifest, staged
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.tools import start_log

LOG = "databases"
"""Name of the log of all of them; each begins it anew."""

Fetch = Callable[[Path, dict[str, str], Progress], None]
"""Fills an empty folder, and the facts of its manifest; ``version`` among them.  Raises ProvisionError."""


@dataclasses.dataclass(frozen=True)
class Product:
    """A database that is kept in the cache.

    Attributes:
        name: of its folder and of its line in a set-up.
        title: for people.
        version: the wanted one; None takes what the distribution has.
        fetch: how to get it.
    """

    name: str
    title: str
    version: str | None
    fetch: Fetch

    @property
    def folder(self) -> Path:
        """Where it is, once it was fetched."""
        # With a parent of its own, as the lock is: what `staged` finds beside it is a dead set-up's.
        return cache_root() / "databases" / self.name / "current"

    def find(self) -> tuple[Path, str] | None:
        """Its folder and version, if its files are there; None when they are not.  Downloads nothing."""
        return self._kept(thorough=False)

    def provision(self, progress: Progress) -> Outcome:
        """Put it into the cache: keep the one there if every hash fits, else fetch it."""
        try:
            with exclusive(f"database-{self.name}", progress):
                progress.activity(f"checking {self.title} in the cache")
                kept = self._kept(thorough=True)
                if kept:
                    return Outcome(self.name, State.OK, f"{self.title} {kept[1]}")
                start_log(LOG)
                progress.activity(f"fetching {self.title}")
                facts = {"product": self.title} | ({"version": self.version} if self.version else {})
                with staged(self.folder, facts) as folder:
                    self.fetch(folder, facts, progress)
        except ProvisionError as error:
            return Outcome(self.name, State.SKIPPED, f"{self.title}: {error.message}", error.remedy)
        return Outcome(self.name, State.MADE, f"{self.title} {facts['version']}")

    def _kept(self, *, thorough: bool) -> tuple[Path, str] | None:
        manifest = read_manifest(self.folder)
        if manifest is None or damage(self.folder, thorough=thorough) is not None:
            return None
        version = manifest.facts.get("version", "")
        return (self.folder, version) if self.version in (None, version) else None
