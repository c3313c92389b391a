from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from bare_roots import STORAGE, TINY, make_root, measured, told
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import virtgauge
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
    found = "from virtgauge.agent import find_agent; print(find_agent().path)"
    agent = Path(run(installed / "bin" / "python", "-c", found, cwd=installed))
    assert agent.is_relative_to(installed)
    return agent


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


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian 12, the oldest whose Python and C library suffice, with pipx and nothing that builds, and the wheel."""
    root = make_root(tmp_path_factory.mktemp("bare"), ["python3-venv", "pipx", "ca-certificates"])
    builders = ("cc", "gcc", "cargo", "rustc", "go", "make", "uv")
    assert not [name for name in builders if shutil.which(name, path=f"{root}/usr/bin:{root}/usr/local/bin")]
    for path in (wheel, ROOT / "requirements-uv.lock"):
        shutil.copy(path, root / "root")
    versions = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (root / "root" / "versions.txt").write_text("\n".join(versions))
    (root / "root" / "tiny.toml").write_text(TINY + STORAGE)
    return root


@pytest.mark.lab
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("root")
def test_pipx_installs_the_wheel_in_a_bare_root_where_it_measures_timing_and_storage(wheel: Path, bare: Path) -> None:
    told(bare, "pipx", "install", f"/root/{wheel.name}", PIP_CONSTRAINT="/root/versions.txt")
    told(bare, "/root/.local/bin/virtgauge", "run", "tiny.toml", "--out", "pipx", "--platform", "host")
    assert measured(bare / "root" / "pipx") == {("timing", "host"), ("storage", "host")}


@pytest.mark.lab
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("root")
def test_uvx_runs_the_wheel_in_a_bare_root_without_installing_it(wheel: Path, bare: Path) -> None:
    told(bare, "sh", "-c", "python3 -m venv uv && uv/bin/pip install --require-hashes -r requirements-uv.lock")
    command = ["uv/bin/uvx", "--constraints", "versions.txt", "--from", wheel.name, "virtgauge", "run", "tiny.toml"]
    told(bare, *command, "--out", "uvx", "--platform", "host")
    assert measured(bare / "root" / "uvx") == {("timing", "host"), ("storage", "host")}


@pytest.mark.lab
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("root")
def test_every_native_program_finds_what_it_is_linked_with_in_a_bare_root(wheel: Path, bare: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(bare / "root" / "wheel")
    native = bare / "root" / "wheel" / "virtgauge" / "native"
    programs = [path.name for path in native.iterdir() if path.read_bytes().startswith(b"\x7fELF")]
    assert len(programs) >= 8
    for name in programs:
        linked = told(bare, "sh", "-c", f"ldd -r wheel/virtgauge/native/{name} || :")
        assert re.search(r"libc\.so\.6 =>|statically linked|not a dynamic executable", linked), linked
        assert not re.search(r"not found|undefined symbol", linked), linked


RECORDS = ("CHANGELOG.md", "docs/papers-measured.md", "docs/support.md", "tests/", "native/Cargo.lock")
"""Where a version stays that of which something is told."""


def places_of(version: str, tree: Path) -> set[str]:
    """The files of a copy of the checkout that name a version, or an image's or a package's of it."""
    listed = run("git", "ls-files").splitlines()
    files = [name for name in listed if not name.startswith(RECORDS) and (tree / name).is_file()]
    word = re.compile(rf"(?<![\w.=]){re.escape(version)}(?![\w.]*\d)".encode())
    return {name for name in files if word.search((tree / name).read_bytes())}


def test_the_commands_of_a_release_set_the_version_wherever_it_stands(tmp_path: Path) -> None:
    version = virtgauge.__version__
    for name in run("git", "ls-files", "--", ":!tests").splitlines():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = places_of(version, tmp_path)
    assert {"native/Cargo.toml", "CITATION.cff", "docs/kubernetes.md", "deploy/kubernetes/job.yaml"} <= before
    commands = re.findall(r"^    ((?:old=|sed ).*)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert len(commands) == 2 and "new=0.2.0" in commands[0]
    run("sh", "-ec", "\n".join(commands).replace("new=0.2.0", "new=9.8.7"), cwd=tmp_path)
    assert places_of(version, tmp_path) == set() and places_of("9.8.7", tmp_path) == before
    assert (tmp_path / "native" / "Cargo.toml").read_text().count("9.8.7") == 2


def test_the_version_is_the_crates_and_stands_nowhere_else() -> None:
    native = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["workspace"]
    version = native["package"]["version"]
    assert virtgauge.__version__ == version, "make environment"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"] and "version" not in project
    assert native["dependencies"]["hptime"]["version"] == version
    for member in native["members"]:
        manifest = tomllib.loads((ROOT / "native" / member / "Cargo.toml").read_text())["package"]
        assert manifest["version"] == {"workspace": True}, member
    locked = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    assert {one["version"] for one in locked if "source" not in one} == {version}, "cargo update --workspace"
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert version == (sections[1] if sections[0] == "Unreleased" else sections[0])


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_crates_could_be_published(tmp_path: Path) -> None:
    packages = [word for crate in ("hptime", "hptime-c") for word in ("-p", crate)]
    command = ["cargo", "publish", "--locked", "--dry-run", "--allow-dirty", "--target-dir", tmp_path, *packages]
    run(*command, cwd=ROOT / "native")
    crates = {path.name: path for path in (tmp_path / "package").rglob("*.crate")}
    assert crates.keys() == {f"{name}-{virtgauge.__version__}.crate" for name in ("hptime", "hptime-c")}
    for name, path in crates.items():
        with tarfile.open(path) as archive:
            inside = {one.partition("/")[2] for one in archive.getnames()}
            licence = archive.extractfile(f"{path.stem}/LICENSE")
            assert licence and licence.read() == (ROOT / "LICENSE").read_bytes()
        assert {"README.md", "src/lib.rs", "Cargo.toml"} | ({"include/hptime.h"} if "-c-" in name else set()) <= inside


def bill(epoch: str = "1700000000") -> str:
    """The bill of materials, by a process of its own."""
    program = "import sys, pathlib; sys.path.insert(0, 'setup'); import sbom; "
    program += "print(sbom.text(sys.argv[1], pathlib.Path(sys.argv[2])))"
    libraries = sysconfig.get_path("purelib")
    return run(sys.executable, "-c", program, virtgauge.__version__, libraries, SOURCE_DATE_EPOCH=epoch)


@pytest.mark.slow
def test_the_bill_of_materials_is_cyclonedx_names_what_is_in_the_locks_and_is_the_same_each_time() -> None:
    text = bill()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"library"', '"thing"', 1)) is not None
    told = json.loads(text)
    assert told["metadata"]["component"]["version"] == virtgauge.__version__
    by_purl = {one["bom-ref"]: one for one in told["components"]}
    assert len(by_purl) > 150 and all(one.get("licenses") for one in told["components"])
    libraries = {one["name"]: one["version"] for one in told["components"] if "pypi" in one.get("purl", "")}
    assert locked("requirements.lock").keys() - {"colorama", "win-inet-pton"} <= libraries.keys(), "but Windows' own"
    assert all(version in locked("requirements-dev.lock")[name] for name, version in libraries.items())
    crates = {one["name"]: one for one in tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]}
    for name in ("libc", "rustls"):
        (digest,) = by_purl[f"pkg:cargo/{name}@{crates[name]['version']}"]["hashes"]
        assert digest == {"alg": "SHA-256", "content": crates[name]["checksum"]}
    named = {one["name"]: one.get("version") for one in told["components"]}
    assert not named.keys() & {"proptest", "pytest", "fuzz"}, "what only tests use"
    ours = {ref.rpartition("/")[2].partition("@")[0] for ref in by_purl if ref.startswith("pkg:cargo/")}
    assert "serde" in ours and not ours & {"serde_derive", "syn", "quote", "proc-macro2", "paste"}, "not linked"
    assert {"glibc", "std", "vega", "vega-embed", "d3", "openblas", "libgfortran", "curl", "zlib"} <= named.keys()
    sensorstore = (ROOT / "src" / "virtgauge" / "native" / "sensorstore").read_bytes()
    assert named["sqlite"] and named["sqlite"].encode() in sensorstore
    linked = {one["ref"]: one.get("dependsOn", []) for one in told["dependencies"]}
    assert "crate hptime" in linked["crate hptime-c"] and any("pyarrow" in one for one in linked["virtgauge"])
    assert "static: glibc" in str(linked["crate virtgauge-agent"]) and "glibc" not in str(linked["crate sensorstore"])
    assert bill() == text and bill("1700000001") != text


@pytest.mark.slow
def test_the_crates_that_are_told_of_are_those_that_cargo_links() -> None:
    notices = runpy.run_path(str(ROOT / "setup" / "notices.py"))
    told = {package["name"] for package, _ in notices["linked"](notices["SHIPPED"]).values()}
    programs = [word for name in notices["SHIPPED"] for word in ("-p", name)]
    tree = ["cargo", "tree", "--locked", "-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}", *programs]
    assert told == {line.split()[0] for line in run(*tree, cwd=ROOT / "native").splitlines() if line}


@pytest.mark.slow
def test_the_notices_have_the_licence_of_each_crate_of_each_script_and_of_the_c_library() -> None:
    notices = runpy.run_path(str(ROOT / "setup" / "notices.py"))
    text = notices["build_notices"]().read_text()
    for package, _ in notices["linked"](notices["SHIPPED"]).values():
        assert not package["source"] or f"{package['name']} {package['version']} (" in text
    for words in ("Interactive Data Lab", "Mike Bostock", "glibc 2.", "The Rust Project", "cargo build --release"):
        assert words in text, words
    assert not re.search(r"^By ", text, re.MULTILINE), "every crate has its licence in its package"
    alone = notices["text"](["hptime-c"])
    assert "libc 0.2" in alone and "rustls" not in alone and "Vega" not in alone


def test_a_release_has_the_version_of_its_changelog_and_nothing_that_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "setup"))
    release = importlib.import_module("release")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.3"\n')
    commit = ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "a"]
    for words in (["init", "-q"], ["add", "."], commit):
        (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3\n\n## 1.2.2\n")
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert release.refusal() is None
    (tmp_path / "native" / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.3"\n\n')
    assert "native/Cargo.toml" in release.refusal()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3\n")
    assert "'Unreleased'" in release.refusal() and "'1.2.3'" in release.refusal()


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_two_releases_of_one_commit_are_the_same_bytes_whoever_builds_them_where(uv: str, tmp_path: Path) -> None:
    """By CONTRIBUTING's commands, in two clones; the second has another home, cargo's too, and shares no object."""
    first, second, home = tmp_path / "first", tmp_path / "a second" / "clone", tmp_path / "home"
    run("git", "clone", "-q", ROOT, first)
    commands = re.findall(
        r"^    ((?:old=|sed |cd native && cargo update).*)", (ROOT / "CONTRIBUTING.md").read_text(), re.M
    )
    run("sh", "-ec", "\n".join(commands).replace("new=0.2.0", "new=9.8.7"), cwd=first, CARGO_NET_OFFLINE="true")
    changes = (first / "CHANGELOG.md").read_text()
    (first / "CHANGELOG.md").write_text(re.sub(r"^## .*", "## 9.8.7", changes, count=1, flags=re.MULTILINE))
    run("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qam", "Release 9.8.7", cwd=first)
    run("git", "clone", "-q", first, second)

    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    (home / "cargo").mkdir(parents=True)
    for name in ("registry", "config.toml"):
        if (cargo / name).exists():
            (home / "cargo" / name).symlink_to(cargo / name)
    elsewhere = {
        "HOME": home,
        "CARGO_HOME": home / "cargo",
        "CARGO_TARGET_DIR": home / "target",
        "XDG_CACHE_HOME": home / "cache",
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", Path.home() / ".rustup"),
        "UV_CACHE_DIR": run(uv, "cache", "dir"),
        "PYTHON": Path(sys.base_prefix) / "bin" / "python3",
    }
    run("make", "release", cwd=first)
    run("make", "release", cwd=second, **{name: str(value) for name, value in elsewhere.items()})

    for clone in (first, second):
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=clone / "dist")
    made = first / "dist"
    sums = (made / "SHA256SUMS").read_text()
    assert sums == (second / "dist" / "SHA256SUMS").read_text()
    assert {line.split()[1] for line in sums.splitlines()} == {path.name for path in made.iterdir()} - {"SHA256SUMS"}
    ends = {".whl": 1, ".deb": 1, ".cdx.json": 1, ".schema.json": 1, ".tar.gz": 2}
    assert {end: len(list(made.glob(f"*{end}"))) for end in ends} == ends
    assert "9.8.7" in run("tar", "-xOf", *made.glob("hptime*"), "usr/local/lib/pkgconfig/hptime.pc")
    assert "9.8.7" in (made / "release-notes.md").read_text().splitlines()[0]
    built = [path.read_bytes() for path in (second / "src/virtgauge/native").iterdir()]
    assert not [one for place in (home, tmp_path, cargo / "registry") for one in built if str(place).encode() in one]
