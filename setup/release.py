"""What a release consists of, all of one commit: setup/release.py [FOLDER], dist/ by default.

Wheel, source distribution, Debian package, hptime for C, what all of them are made of (CycloneDX), the JSON Schema of
a run's export, the changelog's words, and the checksums of these.  Runs in the development environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import deb
import notices
import sbom
from jsonschema import Draft202012Validator

from virtgauge.exchange import tidy

ROOT = Path(__file__).resolve().parent.parent


def refusal() -> str | None:
    """Why this tree is not to be released, and what to do, if it is not."""
    top = re.findall(r"^## (.+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if top != version():
        return (
            f"CHANGELOG.md: its top section is {top!r}, and native/Cargo.toml has the version {version()!r}: "
            "set the version, or name the section after it"
        )
    if changed := _told("git", "status", "--porcelain"):
        return f"changes are not committed: {changed.split()[1]}, say; commit them, or `git stash`"
    return None


def version() -> str:
    """That of the crates, which is everything's."""
    return str(tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["workspace"]["package"]["version"])


def build(folder: Path) -> None:
    """Make all of it in a folder."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", _told("git", "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="virtgauge-release-") as scratch:
        made = Path(scratch)
        deb.build(made, deb.build_wheel(_told("setup/environment.sh", "--uv"), made, "--sdist"))
        (made / ".gitignore").unlink(missing_ok=True)
        _archive_hptime(made / f"hptime-{version()}-linux-{platform.machine()}.tar.gz")
        (made / f"virtgauge-{version()}.cdx.json").write_text(_bill(next(made.glob("*.deb"))))
        (made / f"virtgauge-run-{tidy.SCHEMA_VERSION}.schema.json").write_text(_schema())
        (made / "release-notes.md").write_text(_told("make", "--no-print-directory", "release-notes") + "\n")
        files = sorted(made.iterdir())
        sums = "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
        folder.mkdir(parents=True, exist_ok=True)
        for one in files:
            (folder / one.name).write_bytes(one.read_bytes())
    (folder / "SHA256SUMS").write_text(sums)


def _schema() -> str:
    """That of a run's export. Raises jsonschema.SchemaError: it is none."""
    schema = tidy.schema()
    Draft202012Validator.check_schema(schema)
    return json.dumps(schema, indent=1) + "\n"


def _bill(package: Path) -> str:
    """That of what is in the Debian package."""
    with tempfile.TemporaryDirectory(prefix="virtgauge-bill-") as tree:
        subprocess.run(["dpkg-deb", "--extract", package, tree], check=True)
        (libraries,) = Path(tree, deb.HOME).glob("lib/*/site-packages")
        return sbom.text(version(), libraries)


def _archive_hptime(archive: Path) -> None:
    """Header, libraries and hptime.pc, to be unpacked in /."""
    with tempfile.TemporaryDirectory(prefix="virtgauge-hptime-") as tree:
        script = ["env", f"DESTDIR={tree}", "PREFIX=/usr/local", ROOT / "setup" / "install-hptime.sh"]
        subprocess.run(script, check=True, stdout=sys.stderr)
        documents = Path(tree) / "usr" / "local" / "share" / "doc" / "hptime"
        documents.mkdir(parents=True)
        (documents / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
        (documents / "THIRD-PARTY-NOTICES").write_text(notices.text(["hptime-c"]), encoding="utf-8")
        same = [
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            f"--mtime=@{os.environ['SOURCE_DATE_EPOCH']}",
        ]
        subprocess.run(["tar", "-C", tree, *same, "-I", "gzip -n", "-cf", archive, "usr"], check=True)


def _told(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    if reason := refusal():
        sys.exit(reason)
    os.umask(0o022)
    to = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    build(to)
    print((to / "SHA256SUMS").read_text(), end="")
