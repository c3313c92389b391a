"""The real tools, as the set-up calls them, refuse what is not what was meant, whatever the machine allows."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import re
import runpy
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from provision_machine import Machine

from virtgauge.provision.databases import INFLUXDB
from virtgauge.provision.progress import State, silence
from virtgauge.provision.registries import GO_FOLDER, OBJECT_STORE, RUNSC, GoProgram

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
GO = shutil.which("go") or shutil.which("go", path=GO_FOLDER)


def flip(path: Path, offset: int) -> None:
    """Change one bit; the size stays."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


# apt


class Archive:
    """A machine with the distribution's apt, whose one source is a folder without a signature."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        tools = {name: shutil.which(name) for name in ("apt-get", "apt-cache")}
        machine = Machine(folder, patch)
        for name, tool in tools.items():
            assert tool, f"{name} is a part of every Debian"
            (machine.programs / name).unlink()
            (machine.programs / name).symlink_to(tool)
        machine.build_package("influxdb", {"usr/bin/influxd": b"#!/bin/sh\n"})
        (self.package,) = machine.archive.glob("*.deb")
        control = subprocess.run(["dpkg-deb", "-f", self.package], capture_output=True, check=True).stdout
        entry = f"Filename: {self.package.name}\nSize: {self.package.stat().st_size}\nSHA256: {sha256(self.package)}\n"
        packages = machine.archive / "Packages"
        needed = "Package: libc6\nVersion: 1\nArchitecture: amd64\nFilename: none\nSize: 0\n"
        packages.write_bytes(control + f"Depends: libc6\n{entry}\n{needed}".encode())
        release = f"Suite: here\nSHA256:\n {sha256(packages)} {packages.stat().st_size} Packages\n"
        (machine.archive / "Release").write_text(release)
        self._machine = machine
        patch.setenv("APT_CONFIG", str(folder / "apt.conf"))

    def allow(self, *settings: str, source: str = "") -> None:
        """Let the machine's apt.conf, or the options of its source, allow something."""
        folder = self._machine.folder
        for name in ("lists/partial", "archives/partial"):
            (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(f"deb {source} copy:{self._machine.archive} ./\n")
        places = {"Dir::Etc::SourceList": "sources.list", "Dir::State::status": "status"}
        places |= {"Dir::State::Lists": "apt/lists", "Dir::Cache": "apt"}
        lines = [f'{name} "{folder / place}";' for name, place in places.items()]
        lines += ['Dir::Etc::SourceParts "/dev/null";', 'Dir::Etc::Parts "/dev/null";', 'APT::Sandbox::User "";']
        lines += ['Acquire::Languages "none";', 'APT::Architecture "amd64";', *settings]
        (folder / "apt.conf").write_text("\n".join(lines))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    return Archive(tmp_path, monkeypatch)


def left() -> list[Path]:
    return list(INFLUXDB.folder.parent.iterdir())


def test_a_package_of_a_trusted_source_is_taken(archive: Archive) -> None:
    archive.allow(source="[trusted=yes]")
    outcome = INFLUXDB.provision(silence)
    assert outcome.state is State.MADE, outcome


def test_a_package_with_a_changed_byte_is_refused(archive: Archive) -> None:
    archive.allow(source="[trusted=yes]")
    flip(archive.package, -5)
    outcome = INFLUXDB.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "Hash Sum mismatch" in outcome.detail
    assert left() == []


def test_a_source_without_a_signature_is_refused_even_where_apts_configuration_takes_it(archive: Archive) -> None:
    archive.allow('Acquire::AllowInsecureRepositories "true";', 'APT::Get::AllowUnauthenticated "true";')
    outcome = INFLUXDB.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "is not signed" in outcome.detail
    assert left() == []


def test_a_package_of_lists_that_were_taken_without_a_signature_is_refused(archive: Archive) -> None:
    archive.allow('Acquire::AllowInsecureRepositories "true";', 'APT::Get::AllowUnauthenticated "true";')
    subprocess.run(["apt-get", "update"], check=True, capture_output=True)
    subprocess.run(["apt-get", "download", "influxdb"], check=True, capture_output=True, cwd=archive.package.parents[1])
    outcome = INFLUXDB.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "is not signed" in outcome.detail
    assert left() == []


# Go


def h1(files: Mapping[str, bytes]) -> str:
    """The hash of a module, as go.sum has it."""
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items())]
    return f"h1:{base64.b64encode(hashlib.sha256(''.join(lines).encode()).digest()).decode()}"


MODULE, VERSION = "example.org/thing", "v1.0.0"
MODULE_FILE = b"module example.org/thing\n\ngo 1.21\n"
SOURCE = b"package main\n\nfunc main() {}\n"


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoProgram:
    """A program of a module that a proxy in a folder has, for a user who has switched off all that Go checks."""
    if GO is None:
        pytest.skip("Go is not installed")
    pins = tmp_path / "pins" / "thing"
    pins.mkdir(parents=True)
    (pins / "go.mod").write_text(f"module pins\n\ngo 1.21\n\nrequire (\n\t{MODULE} {VERSION}\n)\n")
    sums = {"": h1({f"{MODULE}@{VERSION}/{name}": content for name, content in files_of(SOURCE).items()})}
    sums["/go.mod"] = h1({"go.mod": MODULE_FILE})
    (pins / "go.sum").write_text("".join(f"{MODULE} {VERSION}{what} {digest}\n" for what, digest in sums.items()))
    build_cache = subprocess.run([GO, "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    settings = {"GOPROXY": f"file://{tmp_path}/proxy", "GOMODCACHE": str(tmp_path / "modules"), "GOCACHE": build_cache}
    settings |= {"GOSUMDB": "off", "GONOSUMDB": "*", "GOPRIVATE": "*", "GOINSECURE": "*", "GOFLAGS": "-mod=mod"}
    settings |= {"GONOPROXY": "none", "GOTOOLCHAIN": "local", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return GoProgram("thing", "thing", MODULE, tmp_path / "pins")


def files_of(source: bytes) -> dict[str, bytes]:
    return {"go.mod": MODULE_FILE, "main.go": source}


def offer(folder: Path, source: bytes) -> None:
    versions = folder / "proxy" / MODULE / "@v"
    versions.mkdir(parents=True)
    (versions / "list").write_text(f"{VERSION}\n")
    (versions / f"{VERSION}.info").write_text(json.dumps({"Version": VERSION}))
    (versions / f"{VERSION}.mod").write_bytes(MODULE_FILE)
    with zipfile.ZipFile(versions / f"{VERSION}.zip", "w") as archive:
        for name, content in files_of(source).items():
            archive.writestr(f"{MODULE}@{VERSION}/{name}", content)


def test_a_module_of_go_with_a_changed_byte_is_refused_although_the_user_has_switched_all_checks_off(
    thing: GoProgram, tmp_path: Path
) -> None:
    offer(tmp_path, SOURCE.replace(b"{}", b"{ }"))
    outcome = thing.provision(silence)
    assert outcome.state is State.SKIPPED
    assert f"verifying {MODULE}@{VERSION}: checksum mismatch" in outcome.detail
    assert list((tmp_path / "cache" / "virtgauge" / "thing").iterdir()) == []


def test_a_module_of_go_that_is_not_pinned_is_refused(thing: GoProgram, tmp_path: Path) -> None:
    offer(tmp_path, SOURCE)
    (tmp_path / "pins" / "thing" / "go.sum").write_text("")
    outcome = thing.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "missing go.sum entry" in outcome.detail


@pytest.mark.slow
def test_the_pinned_module_of_go_is_built(thing: GoProgram, tmp_path: Path) -> None:
    offer(tmp_path, SOURCE)
    outcome = thing.provision(silence)
    assert (outcome.state, outcome.detail) == (State.MADE, f"thing {VERSION}")
    built = tmp_path / "cache" / "virtgauge" / "thing" / VERSION
    assert sorted(path.name for path in built.iterdir()) == ["manifest.json", "thing"]


@pytest.mark.parametrize("program", [RUNSC, OBJECT_STORE], ids=lambda program: str(program.name))
def test_every_module_of_a_go_program_is_pinned(program: GoProgram) -> None:
    folder = program.modules / program.name
    required = set(re.findall(r"^\t(\S+) (v\S+)", (folder / "go.mod").read_text(), re.MULTILINE))
    pinned = set(re.findall(r"^(\S+) (\S+) h1:", (folder / "go.sum").read_text(), re.MULTILINE))
    assert required and required <= pinned
    assert program.version in {version for _, version in required}


# cargo


def test_a_crate_with_a_changed_byte_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of the lock is asked for, not only that of the registry."""
    package = '[package]\nname = "{}"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = crate_file({"Cargo.toml": package.format("dep"), "src/lib.rs": ""})
    registry, workspace = tmp_path / "registry", tmp_path / "workspace"
    (registry / "index" / "3" / "d").mkdir(parents=True)
    (workspace / "src").mkdir(parents=True)
    (workspace / ".cargo").mkdir()
    replaced = f'[source.crates-io]\nreplace-with = "here"\n[source.here]\nlocal-registry = "{registry}"\n'
    (workspace / ".cargo" / "config.toml").write_text(replaced)
    (workspace / "Cargo.toml").write_text(package.format("thing") + '[dependencies]\ndep = "1"\n')
    (workspace / "src" / "main.rs").write_text("fn main() {}\n")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = runpy.run_path(str(ROOT / "setup" / "agent.py"))
    script["build"].__globals__["ROOT"] = tmp_path

    def offered(content: bytes, checksum: bytes) -> None:
        digest = hashlib.sha256(checksum).hexdigest()
        entry = {"name": "dep", "vers": "1.0.0", "deps": [], "features": {}, "cksum": digest, "yanked": False}
        (registry / "index" / "3" / "d" / "dep").write_text(json.dumps(entry))
        (registry / "dep-1.0.0.crate").write_bytes(content)

    offered(crate, crate)
    subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=workspace, check=True)
    other = bytearray(crate)
    other[-1] ^= 1
    for checksum in (crate, bytes(other)):  # a registry that has been changed with it says the new one
        offered(bytes(other), checksum)
        with pytest.raises(RuntimeError, match=r"checksum (for|of) `dep v1\.0\.0"):
            script["build"](["build"], tmp_path / "thing", workspace=workspace)
        assert not (tmp_path / "thing").exists()


def crate_file(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"dep-1.0.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def test_every_crate_is_of_the_registry_and_has_a_checksum() -> None:
    packages = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    members = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["workspace"]["members"]
    assert sum("source" not in package for package in packages) == len(members)
    for package in packages:
        if "source" in package:
            assert package["source"] == "registry+https://github.com/rust-lang/crates.io-index", package["name"]
            assert len(package["checksum"]) == 64, package["name"]


PERMISSIVE = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib"}


def permits(expression: str) -> bool:
    """Whether one may choose permissive licences alone; `A OR B AND C` is read more strictly than SPDX does."""
    parts = expression.replace("/", " OR ").split(" AND ")
    return all(any(name.strip("() ") in PERMISSIVE for name in part.split(" OR ")) for part in parts)


@pytest.mark.parametrize(
    ("expression", "permitted"),
    [
        ("MIT/Apache-2.0", True),
        ("GPL-3.0 OR MIT", True),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("AGPL-3.0", False),
    ],
)
def test_which_licences_are_permissive(expression: str, permitted: bool) -> None:
    assert permits(expression) is permitted


def test_every_crate_may_be_used_under_a_permissive_licence() -> None:
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    told = subprocess.run(command, cwd=ROOT / "native", capture_output=True, check=True).stdout
    crates = [package for package in json.loads(told)["packages"] if package["source"]]
    assert len(crates) > 50
    assert [crate["name"] for crate in crates if not permits(crate["license"] or "")] == []


# Python


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_locked_package_has_one_version_and_its_hashes(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", lock.read_text(), flags=re.MULTILINE))
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+", entry), entry[:100]
        assert "--hash=sha256:" in entry, entry[:100]


def test_whatever_builds_virtgauge_is_locked() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements-build.lock").read_text(), re.MULTILINE)
    assert {re.split(r"\W", name)[0] for name in required} <= set(locked)


@pytest.mark.parametrize("script", ["environment.sh", "libvirt.sh"])
def test_the_set_up_installs_only_what_a_lock_has_the_hash_of(script: str) -> None:
    commands = (ROOT / "setup" / script).read_text().replace("\\\n", " ").splitlines()
    installing = [line for line in commands if re.search(r"pip (install|sync)", line)]
    assert installing
    for line in installing:
        assert "--require-hashes" in line or ("--no-deps" in line and "--editable ." in line)
        assert "uv" not in line.split("pip")[0] or "--build-constraints requirements-build.lock" in line


def write_wheel(path: Path, answer: str) -> None:
    """The same bytes whenever it is written: a ZipInfo's date is 1980, and that of a mere name the present."""
    files = {
        "vl_convert.py": f"def javascript_bundle(_): return '{answer}'\n",
        "thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
        "thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "thing-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)


def test_a_wheel_of_the_build_with_a_changed_byte_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = runpy.run_path(str(ROOT / "setup" / "page.py"))
    wheel, lock = tmp_path / "thing-1.0-py3-none-any.whl", tmp_path / "requirements-build.lock"
    write_wheel(wheel, "good")
    lock.write_text(f"thing @ {wheel.as_uri()} --hash=sha256:{sha256(wheel)}\n")
    scratch, library = tmp_path / "scratch", tmp_path / "native" / "vega-embed.js"
    scratch.mkdir()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    page["build_page"].__globals__.update(LOCK=lock, LIBRARY=library)
    write_wheel(wheel, "Good")
    with pytest.raises(RuntimeError, match="Hash mismatch"):
        page["build_page"]()
    assert not library.exists()
    write_wheel(wheel, "good")
    assert page["build_page"]().read_text() == "good"
    assert list(scratch.iterdir()) == []
