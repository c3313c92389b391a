"""Java programs from Maven's central repository: an artifact with all it needs at run time, every jar's hash pinned."""

from __future__ import annotations

from pathlib import Path

from virtgauge.provision.cache import ProvisionError, sha256_of
from virtgauge.provision.tools import run_logged

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>virtgauge</groupId>
  <artifactId>provision</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def copy_artifact(group: str, artifact: str, version: str, pinned: Path, folder: Path, *, log: str) -> None:
    """Put an artifact and its dependencies into a folder.

    Args:
        group, artifact, version: Maven's coordinates.
        pinned: a file as sha256sum writes it, of exactly the jars that have to come.
        folder: gets the jars; is empty.
        log: name of the log.

    Raises:
        ProvisionError: Maven is missing or failed, or a jar is missing, unknown or another one than was pinned.
    """
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(group=group, artifact=artifact, version=version))
    options: list[str | Path] = ["--batch-mode", "--no-transfer-progress", "-f", pom, "-DincludeScope=runtime"]
    run_logged(["mvn", *options, f"-DoutputDirectory={folder}", _PLUGIN], log=log)
    pom.unlink()
    check_jars(folder, pinned)


def check_jars(folder: Path, pinned: Path) -> None:
    """Compare the jars of a folder with a list of hashes.

    Raises:
        ProvisionError: they are not exactly those.
    """
    wanted = {name: digest for digest, name in (line.split() for line in pinned.read_text().splitlines())}
    found = {path.name: sha256_of(path) for path in folder.glob("*.jar")}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise ProvisionError(f"{name} of {pinned.stem} did not come")
        if name not in wanted:
            raise ProvisionError(f"{name} came with {pinned.stem}, and is not among the jars that were pinned")
        if found[name] != wanted[name]:
            raise ProvisionError(f"{name} of {pinned.stem} has another hash than the one that was pinned")
