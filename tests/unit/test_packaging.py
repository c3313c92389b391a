from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-uv.lock")


def locked(name: str) -> dict[str, set[str]]:
    """Versions by package; several where Python versions differ."""
    versions: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE):
        versions.setdefault(package, set()).add(version)
    return versions


def requirement_name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_address_and_hashes_every_package(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    packages = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert packages
    assert all("--hash=sha256:" in package for package in packages)


def test_the_locks_hold_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = {requirement_name(requirement) for requirement in project["project"]["dependencies"]}
    development = {requirement_name(requirement) for requirement in project["dependency-groups"]["dev"]}
    assert runtime <= locked("requirements.lock").keys()
    assert runtime | development <= locked("requirements-dev.lock").keys()


def test_what_is_developed_with_is_what_users_get() -> None:
    development = locked("requirements-dev.lock")
    assert all(development[package] == versions for package, versions in locked("requirements.lock").items())


def test_a_dynamic_executable_is_told_from_a_static_one(tmp_path: Path) -> None:
    is_static = runpy.run_path(str(ROOT / "setup" / "agent.py"))["is_static"]
    assert not is_static(Path("/bin/sh"))
    assert is_static(ROOT / "src" / "virtgauge" / "native" / "virtgauge-agent")
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(Exception, match="not a 64-bit little-endian ELF"):
        is_static(script)


def test_the_wheels_tag_names_the_latest_c_library_that_a_binary_asks_for() -> None:
    platform_tag = runpy.run_path(str(ROOT / "hatch_build.py"))["platform_tag"]
    machine = os.uname().machine
    assert platform_tag([b"\x7fELF static", b"\0GLIBC_2.2.5\0GLIBC_2.4\0"]) == f"manylinux_2_17_{machine}"
    assert platform_tag([b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0", b""]) == f"manylinux_2_34_{machine}"
    binaries = [ROOT / "src" / "virtgauge" / "native" / name for name in ("virtgauge-agent", "libhptime_preload.so")]
    assert platform_tag([path.read_bytes() for path in binaries]) == tag_by_linker(binaries, machine)


def tag_by_linker(binaries: Sequence[Path], machine: str) -> str:
    """The tag by what binutils say of the dynamic symbols."""
    told = [subprocess.run(["objdump", "-T", path], capture_output=True, text=True).stdout for path in binaries]
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", "".join(told))]
    return "manylinux_{}_{}_{}".format(*max([(2, 17), *versions]), machine)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel made from a source distribution, so that what the latter lacks would be missed."""
    folder = tmp_path_factory.mktemp("build")

    def build(kind: str, source: Path) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
        subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
        (product,) = folder.glob("*.tar.gz" if kind == "sdist" else "*.whl")
        return product

    with tarfile.open(build("sdist", ROOT)) as archive:
        archive.extractall(folder, filter="data")
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    assert not (source / "src" / "virtgauge" / "native").exists(), "a source distribution carries no binary"
    return build("wheel", source)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_fits_every_python_of_its_machine_type_and_holds_the_data_files(wheel: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"virtgauge-[\d.]+-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl", wheel.name)
    names = set(zipfile.ZipFile(wheel).namelist())
    binaries = []
    for name in runpy.run_path(str(ROOT / "hatch_build.py"))["IN_WHEEL"]:
        binaries.append(tmp_path / Path(name).name)
        binaries[-1].write_bytes(zipfile.ZipFile(wheel).read(name))
    assert wheel.stem.endswith(tag_by_linker(binaries, os.uname().machine))
    packaged = {".csv", ".html", ".css", ".j2", ".toml"}
    tree = ROOT / "src"
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True)
    data = {Path(line).relative_to("src") for line in tracked.stdout.splitlines() if Path(line).suffix in packaged}
    assert data, f"{tree} has data files"
    assert {str(path) for path in data} <= names
    assert not [name for name in names if name.startswith(("tests/", "native/", "setup/"))]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_installed_wheel_gives_the_command_and_the_agent(wheel: Path, tmp_path: Path) -> None:
    def run(*argv: str | Path) -> str:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run([str(word) for word in argv], cwd=tmp_path, env=kept, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    uv = run(ROOT / "setup" / "environment.sh", "--uv")
    python = tmp_path / "venv" / "bin" / "python"
    run(uv, "venv", "--no-config", "--python", sys.executable, tmp_path / "venv")
    run(uv, "pip", "sync", "--no-config", "--python", python, "--require-hashes", ROOT / "requirements.lock")
    run(uv, "pip", "install", "--no-config", "--python", python, "--no-deps", wheel)

    version = wheel.name.split("-")[1]
    assert version in run(tmp_path / "venv" / "bin" / "virtgauge", "--version")
    agent = Path(run(python, "-c", "from virtgauge.agent.binary import find_agent; print(find_agent().path)"))
    assert agent.is_relative_to(tmp_path / "venv")
    assert os.access(agent, os.X_OK)
    assert "provision" in run(tmp_path / "venv" / "bin" / "virtgauge", "--help")
