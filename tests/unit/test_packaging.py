from __future__ import annotations

import ast
import hashlib
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-build.lock", "requirements-uv.lock")


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


def imported_modules() -> set[str]:
    """Top-level names of what the modules of the package import, at their top or later."""
    found = set()
    for path in (ROOT / "src" / "virtgauge").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"virtgauge"}


@pytest.mark.slow
def test_every_library_that_the_package_imports_is_installed_with_it_or_with_an_extra() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = {requirement_name(requirement) for extra in optional.values() for requirement in extra}
    distributions = packages_distributions()
    # dask comes with distributed; libvirt's module is compiled where there is a libvirt.
    known = {"dask": ["distributed"], "libvirt": ["libvirt-python"]}
    for module in imported_modules():
        names = known.get(module) or distributions.get(module, [module])
        providers = {requirement_name(name) for name in names}
        assert providers & (locked("requirements.lock").keys() | extras), f"{module}: declare one of {providers}"


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


def run(*argv: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """What a command prints, without this checkout's own packages in its way."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(word) for word in argv]
    done = subprocess.run(command, cwd=cwd, env=kept | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def uv() -> str:
    return run(ROOT / "setup" / "environment.sh", "--uv")


@pytest.fixture(scope="module")
def wheel(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel by `uv build`: from a source distribution, so that what the latter lacks would be missed."""
    folder = tmp_path_factory.mktemp("build")
    run(uv, "build", "--no-config", "--python", sys.executable, "--no-build-isolation", "--out-dir", folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        assert not [name for name in archive.getnames() if "/src/virtgauge/native" in name], "it carries no binary"
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(uv: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment that `uv tool install` makes for the wheel, as pipx and uvx do."""
    tools = tmp_path_factory.mktemp("tools")
    command = [
        "tool",
        "install",
        "--no-config",
        "--python",
        sys.executable,
        "--constraints",
        ROOT / "requirements.lock",
    ]
    run(uv, *command, wheel, UV_TOOL_DIR=str(tools), UV_TOOL_BIN_DIR=str(tools / "bin"))
    return tools / "virtgauge"


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
def test_an_installed_wheel_gives_the_command_and_the_agent(wheel: Path, installed: Path) -> None:
    command = installed / "bin" / "virtgauge"
    assert wheel.name.split("-")[1] in run(command, "--version")
    assert "provision" in run(command, "--help")
    assert os.access(agent_of(installed), os.X_OK)


def agent_of(installed: Path) -> Path:
    """The agent that an installation finds; it lies within."""
    found = "from virtgauge.agent.binary import find_agent; print(find_agent().path)"
    agent = Path(run(installed / "bin" / "python", "-c", found, cwd=installed))
    assert agent.is_relative_to(installed)
    return agent


TINY = """
name = "tiny"
reference = "host"
aa = false
repetitions = 1
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "told"
kind = "simulated"
[[suite.timing]]
timers = ["clock_gettime"]
sleeps = ["clock_nanosleep"]
targets_us = [100]
loads = ["idle"]
reads = 1000
sleep_samples = 50
[validity]
foreign_load = 1.0
steal = 1.0
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_installed_wheel_measures_with_its_own_agent_where_there_is_no_cargo(
    installed: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cargo", "rustc"):  # in front of any that is there: a call fails, and leaves a trace
        (tools / name).write_text('#!/bin/sh\necho "$0 $*" >>"$0.called"\nexit 127\n')
        (tools / name).chmod(0o755)
    (tmp_path / "tiny.toml").write_text(TINY)
    alone = {
        "PATH": f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    for arguments in ([], ["--platform", "host"]):
        folder = tmp_path / f"run{len(arguments)}"
        command = [installed / "bin" / "virtgauge", "run", "tiny.toml", "--out", folder, *arguments]
        run(*command, cwd=tmp_path, **alone)
        with Ledger.open(folder) as ledger:
            arms = {"host"} if arguments else {"host", "told"}
            assert {trial.arm for trial in ledger.trials() if trial.status is TrialStatus.VALID} == arms
            (agent,) = {guest.facts["agent_sha256"] for guest in ledger.guests() if guest.arm == "host"}
        assert agent == hashlib.sha256(agent_of(installed).read_bytes()).hexdigest()
    assert not list(tools.glob("*.called"))
