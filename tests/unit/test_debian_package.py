"""The Debian package: what is in it, what it asks for, and that it runs from where it is unpacked."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import bare_roots
import pytest
import typer

from virtgauge import __version__
from virtgauge.cli import app
from virtgauge.fleet.cluster import TlsFiles

ROOT = Path(__file__).parents[2]
UNITS = {f"virtgauge-{name}.service" for name in ("scheduler", "serve", "worker")}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "setup" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(*command: str | Path, **environment: str) -> str:
    done = subprocess.run([*map(str, command)], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_command_that_users_see_has_a_manual_page() -> None:
    pages = dict(script("man_pages").pages())
    commands = typer.main.get_command(app).commands
    assert {f"virtgauge-{name}" for name, one in commands.items() if not one.hidden} <= pages.keys()
    assert {"virtgauge", "virtgauge-fleet-worker", "virtgauge-archive-report"} <= pages.keys()
    for name, page in pages.items():
        lines = page.splitlines()
        assert lines[0].startswith('.TH "') and f"virtgauge {__version__}" in lines[0].replace("\\", "")
        assert {".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"} <= set(lines), name
        assert re.search(r"^\S+ \\- \S", lines[lines.index(".SH NAME") + 1]), name
        assert not [one for one in lines if one.startswith("'")], name
        assert not re.search(r"(?<!\\)-", page.partition("\n")[2].replace("\\-", "")), name
        assert "\\e" not in page and not re.search(r"\[/|\[(bold|dim|italic)", page), name
    assert re.search(r"a section \[fleet\]\..* \[required\]", pages["virtgauge-fleet-run"])
    assert "\\-\\-minutes" in pages["virtgauge-run"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deb")
    (made,) = told(sys.executable, ROOT / "setup" / "deb.py", folder).split()
    assert Path(made).parent == folder
    return Path(made)


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    told("dpkg-deb", "--raw-extract", package, folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_package_says_what_it_needs_and_of_what_version_it_is(package: Path, unpacked: Path) -> None:
    fields = dict(line.split(": ", 1) for line in told("dpkg-deb", "--field", package).splitlines() if ": " in line)
    assert (
        fields["Version"] == f"{__version__}-1"
        and package.name == f"virtgauge_{__version__}-1_{fields['Architecture']}.deb"
    )
    assert re.fullmatch(
        r"python3 \(>= 3\.\d+\), python3 \(<< 3\.\d+\), libc6 \(>= 2\.\d+\), libstdc\+\+6", fields["Depends"]
    )
    sums = (unpacked / "DEBIAN" / "md5sums").read_text().splitlines()
    assert all((unpacked / line.partition("  ")[2]).is_file() for line in sums) and len(sums) > 1000
    assert {path.name for path in (unpacked / "DEBIAN").iterdir()} == {
        "control",
        "md5sums",
        "postinst",
        "postrm",
        "prerm",
    }
    notices = gzip.decompress((unpacked / "usr/share/doc/virtgauge/THIRD-PARTY-NOTICES.gz").read_bytes())
    assert notices == next(unpacked.rglob("native/THIRD-PARTY-NOTICES")).read_bytes() and b"rustls" in notices
    changes = gzip.decompress((unpacked / "usr/share/doc/virtgauge/changelog.Debian.gz").read_bytes()).decode()
    assert changes.startswith(f"virtgauge ({__version__}-1) ")
    owners = told("dpkg-deb", "--contents", package).splitlines()
    assert {line.split()[1] for line in owners} == {"root/root"}
    assert not [line for line in owners if line[8] == "w" and line[0] != "l"], "nobody else may write"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_unpacked_runs_and_names_no_folder_of_the_machine_that_built_it(unpacked: Path, tmp_path: Path) -> None:
    command = unpacked / "usr" / "bin" / "virtgauge"
    assert command.resolve() == unpacked / "usr/lib/virtgauge/bin/virtgauge"
    alone = {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    assert __version__ in told(command, "--version", **alone)
    assert "sleep_lateness.p99" in told(command, "measures", **alone)
    built = [str(ROOT).encode(), str(unpacked.parent).encode(), b"virtgauge-deb-"]
    texts = [one for one in unpacked.rglob("*") if one.suffix in ("", ".py", ".cfg", ".json") and one.is_file()]
    named = [one for one in texts for content in [one.read_bytes()] if any(part in content for part in built)]
    assert not named
    assert not list(unpacked.rglob("*.pyc"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_manual_pages_completion_and_units_are_where_they_are_looked_for(unpacked: Path) -> None:
    page = gzip.decompress((unpacked / "usr/share/man/man1/virtgauge-run.1.gz").read_bytes()).decode()
    assert page.startswith('.TH "VIRTGAUGE\\-RUN" 1')
    for place in script("deb").COMPLETION.values():
        assert "_VIRTGAUGE_COMPLETE" in (unpacked / place).read_text()
    told("bash", "-n", unpacked / script("deb").COMPLETION["bash"])
    units = unpacked / "usr/lib/systemd/system"
    assert {path.name for path in units.iterdir()} == set(script("deb")._SERVICES.split()) == UNITS
    for unit in units.iterdir():
        (words,) = re.findall(r"^ExecStart=/usr/bin/virtgauge (serve|fleet \w+)", unit.read_text(), re.MULTILINE)
        (manual,) = re.findall(r"^Documentation=man:(\S+)\(1\)", unit.read_text(), re.MULTILINE)
        assert manual == f"virtgauge-{words.replace(' ', '-')}"
        assert (unpacked / f"usr/share/man/man1/{manual}.1.gz").is_file()


@pytest.mark.parametrize(
    ("call", "calls"),
    [
        ("postinst configure", ["daemon-reload", "try-restart"]),
        ("postinst abort-remove", ["daemon-reload", "start"]),
        ("postinst abort-upgrade 2", []),
        ("postinst triggered", None),
        ("prerm upgrade 2", []),
        ("prerm remove", ["stop"]),
    ],
)
def test_what_prerm_does_is_undone_where_dpkg_gives_up(call: str, calls: list[str] | None, tmp_path: Path) -> None:
    deb = script("deb")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    for tool in ("systemctl", "deb-systemd-invoke"):
        (tmp_path / "bin" / tool).write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n')
        (tmp_path / "bin" / tool).chmod(0o755)
    name, *words = call.split()
    text = {"postinst": deb._POSTINST, "prerm": deb._PRERM}[name]
    text = text.replace(f"/{deb.HOME}", str(tmp_path)).replace("/run/systemd/system", str(tmp_path))
    if name == "prerm":
        told(sys.executable, "-m", "compileall", "-q", tmp_path / "lib", PYTHONPYCACHEPREFIX="")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    told("sh", "-c", text, "sh", *words, PATH=path, PYTHONPYCACHEPREFIX="")
    log = tmp_path / "calls"
    assert re.findall(r"^(?:--system )?(\S+)", log.read_text() if log.exists() else "", re.MULTILINE) == (calls or [])
    assert (tmp_path / "lib" / "__pycache__").exists() is (name == "postinst" and calls is not None)


@pytest.fixture(scope="module")
def bare(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian 12 with systemd and man, without Python, in which apt has installed the package."""
    root = bare_roots.make_root(tmp_path_factory.mktemp("bare"), ["systemd", "man-db", "ca-certificates"])
    shutil.copy(package, root / "root")
    assert not (root / "usr/bin/python3").exists()
    bare_roots.told(root, "sh", "-c", f"apt-get update && apt-get install -y ./{package.name}")
    return root


@pytest.mark.lab
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("root")
def test_what_apt_installs_in_a_bare_root_tells_and_measures_and_its_units_are_sound(bare: Path) -> None:
    assert __version__ in bare_roots.told(bare, "virtgauge", "--version")
    assert bare_roots.told(bare, "man", "-w", "virtgauge-run").strip() == "/usr/share/man/man1/virtgauge-run.1.gz"
    assert "minutes" in bare_roots.told(bare, "man", "virtgauge-run")
    assert "host" in bare_roots.told(bare, "virtgauge", "doctor")
    (bare / "root" / "tiny.toml").write_text(bare_roots.TINY + bare_roots.STORAGE)
    bare_roots.told(bare, "virtgauge", "run", "tiny.toml", "--out", "run", "--platform", "host")
    assert bare_roots.measured(bare / "root" / "run") == {("timing", "host"), ("storage", "host")}
    units = [f"/usr/lib/systemd/system/{one}" for one in UNITS]
    assert bare_roots.told(bare, "systemd-analyze", "verify", *units) == ""


_ASK = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8800/', timeout=5).read().decode())"
_WORKERS = """
import sys
from distributed import Client
from virtgauge.fleet.cluster import TlsFiles
client = Client(sys.argv[1], security=TlsFiles(*sys.argv[2:]).security())
print("workers:", [one["name"] for one in client.scheduler_info()["workers"].values()])
"""
PYTHON = "/usr/lib/virtgauge/bin/python"


def within(seconds: float, met: Callable[[], bool]) -> bool:
    """Whether something comes about in time."""
    until = time.monotonic() + seconds
    while not (done := met()) and time.monotonic() < until:
        time.sleep(0.5)
    return done


def pid_of(run: Callable[..., subprocess.CompletedProcess[str]], name: str) -> str:
    return run("systemctl", "show", "-P", "MainPID", f"virtgauge-{name}").stdout.strip()


@pytest.mark.lab
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("root")
def test_systemd_runs_the_units_and_a_purge_leaves_nothing(bare: Path) -> None:
    (bare / "root" / "tiny.toml").write_text(bare_roots.TINY)
    bare_roots.told(bare, "virtgauge", "run", "tiny.toml", "--out", "shown", "--platform", "host")
    files = ("ca", "scheduler", "scheduler-key")
    ends = [f"/etc/virtgauge/{name}.pem" for name in files]
    temporary = TlsFiles.temporary()
    (bare / "etc/virtgauge").mkdir(mode=0o700)
    for path, text in zip(ends, (temporary.ca, temporary.certificate, temporary.key), strict=True):
        (bare / path[1:]).write_text(text)
    with bare_roots.booted(bare) as run:

        def state(*properties: str) -> list[str]:
            told = run("systemctl", "show", "virtgauge-worker").stdout.splitlines()
            return [dict(line.split("=", 1) for line in told)[one] for one in properties]

        assert run("systemctl", "is-system-running", "--wait").stdout.strip() == "running"
        assert run("systemctl", "is-enabled", *UNITS).stdout.split() == ["disabled"] * 3

        assert run("systemctl", "enable", "--now", "virtgauge-serve").returncode == 0
        answered = within(30, lambda: "<html" in run(PYTHON, "-c", _ASK).stdout)
        assert answered, run("journalctl", "-u", "virtgauge-serve").stdout
        assert run("cp", "-r", "/root/shown", "/var/lib/virtgauge/").returncode == 0
        shown = within(30, lambda: "tiny" in run(PYTHON, "-c", _ASK).stdout)
        assert shown, run("journalctl", "-u", "virtgauge-serve").stdout

        run("systemctl", "start", "virtgauge-worker")
        assert state("ActiveState", "ConditionResult") == ["inactive", "no"]
        (bare / "etc/default/virtgauge-worker").write_text("# OPTIONS is not here\n")
        run("systemctl", "start", "virtgauge-worker")
        assert within(30, lambda: state("ActiveState", "ExecMainStatus", "NRestarts") == ["failed", "2", "0"])

        (bare / "etc/default/virtgauge-scheduler").write_text("OPTIONS=--listen 127.0.0.1\n")
        assert run("systemctl", "enable", "--now", "virtgauge-scheduler").returncode == 0
        address = "tls://127.0.0.1:8786"
        options = f"--scheduler {address} --name here --ca {ends[0]} --certificate {ends[1]} --key {ends[2]}"
        (bare / "etc/default/virtgauge-worker").write_text(f"OPTIONS={options}\n")
        assert run("systemctl", "enable", "--now", "virtgauge-worker").returncode == 0
        joined = within(60, lambda: "workers: ['here']" in run(PYTHON, "-c", _WORKERS, address, *ends).stdout)
        assert joined, run("journalctl", "-u", "virtgauge-worker", "-u", "virtgauge-scheduler").stdout
        assert run("stat", "-c", "%U", f"/proc/{pid_of(run, 'scheduler')}").stdout.strip() not in ("root", "")

        for call in ("prerm remove", "postinst abort-remove"):
            name, word = call.split()
            assert run(f"/var/lib/dpkg/info/virtgauge.{name}", word).returncode == 0
            active = run("systemctl", "is-active", *UNITS).stdout.split()
            assert active == ["active" if name == "postinst" else "inactive"] * 3, call

        assert run("/var/lib/dpkg/info/virtgauge.postrm", "purge").returncode == 0
        assert run("ls", "/var/lib/virtgauge/shown").returncode == 0, "runs are their owner's"
        run("rm", "-r", "/var/lib/virtgauge/shown")
        purged = run("apt-get", "purge", "-y", "virtgauge")
        assert purged.returncode == 0, purged.stdout
        assert run("find", "/sys/fs/cgroup", "-name", "virtgauge-*").stdout == "", "control groups of its services"
    shutil.rmtree(bare / "etc/virtgauge")  # the operator's own
    places = [bare / name for name in ("etc", "usr", "var/lib")]  # var has logs and man's cache, too
    assert [one for place in places for one in place.rglob("*virtgauge*")] == []
