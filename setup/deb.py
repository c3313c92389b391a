"""A Debian package of virtgauge, with all that Debian has not in it: setup/deb.py [FOLDER], dist/ by default.

It holds a virtual environment of Debian's own Python with the locked libraries, manual pages, completion for three
shells, and units for systemd that are enabled by nobody.  Only dpkg-deb and what builds a wheel are needed.  Where
SOURCE_DATE_EPOCH is set, the same sources make the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from email.utils import formatdate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "/usr/bin/python3"  # Debian's, whose updates the package gets
HOME = "usr/lib/virtgauge"
EXTRAS = ("attach", "fleet", "query")  # Not libvirt's, which is compiled against the machine's own
UNITS = "usr/lib/systemd/system"
COMPLETION = {
    "bash": "usr/share/bash-completion/completions/virtgauge",
    "zsh": "usr/share/zsh/vendor-completions/_virtgauge",
    "fish": "usr/share/fish/vendor_completions.d/virtgauge.fish",
}
_CONTROL = """\
Package: virtgauge
Version: {version}-1
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kib}
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= {glibc}), libstdc++6
Recommends: iproute2
Section: utils
Priority: optional
Description: {description}
 It measures clocks and sleeps, bandwidth, packet forwarding, storage of sensor
 data and performance isolation natively and inside guests, pairs the results,
 and gives a verdict with its uncertainty.
"""
_COPYRIGHT = f"""\
Copyright: the authors of virtgauge, and those of the libraries in /{HOME}, whose licences are there;
 what is linked into its programs: virtgauge/native/THIRD-PARTY-NOTICES there

License: Apache-2.0
 See /usr/share/common-licenses/Apache-2.0 for virtgauge's own.
"""
_SERVICES = "virtgauge-scheduler.service virtgauge-serve.service virtgauge-worker.service"
# What prerm did before dpkg gave up is undone by abort-*; deb-systemd-invoke starts nothing that is disabled.
_POSTINST = f"""\
#!/bin/sh
set -e
case "$1" in
configure) then=try-restart ;;
abort-remove) then=start ;;
abort-*) then= ;;
*) exit 0 ;;
esac
/{HOME}/bin/python -m compileall -q /{HOME}/lib || true
if [ "$then" ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
    deb-systemd-invoke "$then" {_SERVICES} || true
fi
"""
_PRERM = f"""\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop {_SERVICES} || true; fi
find /{HOME} -name __pycache__ -type d -prune -exec rm -r {{}} +
"""
# Runs are their owner's: a state folder that holds some stays.
_POSTRM = f"""\
#!/bin/sh
set -e
if [ "$1" = purge ]; then
    for service in {_SERVICES}; do
        rm -f "/etc/default/${{service%.service}}" "/etc/systemd/system/multi-user.target.wants/$service"
    done
    if [ -L /var/lib/virtgauge ] && rmdir /var/lib/private/virtgauge 2>/dev/null; then rm /var/lib/virtgauge; fi
fi
[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || true
"""


def build(folder: Path, wheel: Path | None = None, compression: str = "zstd") -> Path:
    """Make the package in a folder, of a wheel that is there or of one that is built; names it."""
    with tempfile.TemporaryDirectory(prefix="virtgauge-deb-") as scratch:
        uv, tree = _told(ROOT / "setup" / "environment.sh", "--uv"), Path(scratch) / "tree"
        wheel = wheel or build_wheel(uv, Path(scratch))
        _install(uv, wheel, tree)
        found = re.fullmatch(r"virtgauge-([^-]+)-.*manylinux_(\d+)_(\d+)_\w+\.whl", wheel.name)
        assert found, wheel.name
        version = found[1]
        _document(tree, version)
        _control(tree, version, f"{found[2]}.{found[3]}")
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f"virtgauge_{version}-1_{_told('dpkg', '--print-architecture')}.deb"
        # xz would take minutes of a processor, and save a sixth.
        _run("dpkg-deb", "--root-owner-group", f"-Z{compression}", "-z9", "--build", tree, made)
    return made


def build_wheel(uv: str, folder: Path, *more: str) -> Path:
    """A wheel of this tree, in a folder."""
    options = ["--no-config", "--python", sys.executable, "--no-build-isolation", "--out-dir", folder]
    _run(uv, "build", "--wheel", *more, *options)
    return next(folder.glob("*.whl"))


def _install(uv: str, wheel: Path, tree: Path) -> None:
    """The environment, as if it were where the package puts it."""
    home = tree / HOME
    _run(uv, "venv", "--no-config", "--relocatable", "--python", PYTHON, home)
    install = [uv, "pip", "install", "--no-config", "--link-mode", "copy", "--python", home / "bin" / "python"]
    lock = tree.parent / "requirements.lock"
    lock.write_text("".join(locked(needed())))
    _run(*install, "--require-hashes", "--requirement", lock)
    _run(*install, "--no-deps", wheel)
    for path in (home / "bin").iterdir():
        if path.name not in ("python", "virtgauge"):
            path.unlink()
    (home / "bin" / "python").unlink()
    (home / "bin" / "python").symlink_to(Path(PYTHON).resolve())
    for name in (".gitignore", "CACHEDIR.TAG", ".lock"):
        (home / name).unlink(missing_ok=True)
    (record,) = home.glob("lib/*/site-packages/virtgauge-*.dist-info/RECORD")
    told = ("direct_url.json", "uv_cache.json")  # which name this machine's folders and times
    for name in told:
        (record.parent / name).unlink(missing_ok=True)
    record.write_text(
        "".join(one for one in record.read_text().splitlines(True) if not any(name in one for name in told))
    )
    (tree / "usr" / "bin").mkdir(parents=True)
    (tree / "usr" / "bin" / "virtgauge").symlink_to("../lib/virtgauge/bin/virtgauge")


def needed() -> dict[str, set[str]]:
    """What virtgauge with its extras and each of its libraries asks for in Debian's Python; by name."""
    options = ["--no-config", "--quiet", "--no-header", "--no-emit-index-url", "--annotation-style", "line"]
    options += ["--python", PYTHON, "--constraint", "requirements-dev.lock"]
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    uv = _told(ROOT / "setup" / "environment.sh", "--uv")
    found: dict[str, set[str]] = {}
    for line in _told(uv, "pip", "compile", *options, *extras, "pyproject.toml").splitlines():
        name, by = re.split(r"==\S+ +# via ", line)
        found.setdefault(name, set())
        for one in by.replace(" (pyproject.toml)", "").split(", "):
            if not one.startswith("-"):
                found.setdefault(one, set()).add(name)
    return found


def locked(names: Collection[str]) -> Iterator[str]:
    """What the lock of the development environment has of them, hashes and all."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", (ROOT / "requirements-dev.lock").read_text(), flags=re.MULTILINE)
    yield from (one for one in blocks if (found := re.match(r"[\w.-]+(?===)", one)) and found[0].lower() in names)


def _document(tree: Path, version: str) -> None:
    """Manual pages and completion by the package's own words, units, licence and changes."""
    python = tree / HOME / "bin" / "python"
    _run(python, "-B", ROOT / "setup" / "man_pages.py", tree / "usr" / "share" / "man" / "man1")
    script = "import sys; from typer._completion_shared import get_completion_script as of; "
    script += 'print(of(prog_name="virtgauge", complete_var="_VIRTGAUGE_COMPLETE", shell=sys.argv[1]))'
    for shell, place in COMPLETION.items():
        _write(tree / place, _told(python, "-B", "-c", script, shell) + "\n")
    for unit in sorted((ROOT / "setup" / "debian").glob("*.service")):
        _write(tree / UNITS / unit.name, unit.read_text())
    documents = tree / "usr" / "share" / "doc" / "virtgauge"
    _write(documents / "copyright", _COPYRIGHT)
    (notices,) = (tree / HOME).rglob("virtgauge/native/THIRD-PARTY-NOTICES")
    texts = {"changelog.gz": (ROOT / "CHANGELOG.md").read_text(), "changelog.Debian.gz": _changelog(version)}
    for name, text in (texts | {"THIRD-PARTY-NOTICES.gz": notices.read_text()}).items():
        (documents / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def _changelog(version: str) -> str:
    """In Debian's form, which dates each version."""
    date = formatdate(int(os.environ["SOURCE_DATE_EPOCH"])) if "SOURCE_DATE_EPOCH" in os.environ else formatdate()
    return f"virtgauge ({version}-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {_maintainer()}  {date}\n"


def _maintainer() -> str:
    return f"{os.environ.get('DEBFULLNAME', 'virtgauge')} <{os.environ.get('DEBEMAIL', 'root@localhost')}>"


def _control(tree: Path, version: str, glibc: str) -> None:
    """What dpkg asks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = "".join(f"{hashlib.md5(one.read_bytes()).hexdigest()}  {one.relative_to(tree)}\n" for one in files)
    major, minor, _ = map(int, python_version().split("."))
    told = _CONTROL.format(
        version=version,
        architecture=_told("dpkg", "--print-architecture"),
        maintainer=_maintainer(),
        kib=sum(path.stat().st_size for path in files) // 1024,
        python=f"{major}.{minor}",
        next_python=f"{major}.{minor + 1}",
        glibc=glibc,
        description=project["description"][:78].rpartition(",")[0],
    )
    scripts = {"postinst": _POSTINST, "prerm": _PRERM, "postrm": _POSTRM}
    for name, text in {"control": told, "md5sums": sums, **scripts}.items():
        _write(tree / "DEBIAN" / name, text)
        (tree / "DEBIAN" / name).chmod(0o755 if name in scripts else 0o644)


def python_version() -> str:
    """Of Debian's Python."""
    return _told(PYTHON, "-c", "import sys; print(*sys.version_info[:3], sep='.')")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _told(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    if not shutil.which("dpkg-deb"):
        sys.exit("dpkg-deb is missing: a package is built on Debian or one of its kind")
    os.umask(0o022)
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
