"""The notices of what is linked into the native programs, or bundled with them, which its licences ask to be shipped.

Names and texts are those of the crates' own packages, as cargo has fetched them.  Standard library only, as for the
agent.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import runpy
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
NOTICES = ROOT / "src" / "virtgauge" / "native" / "THIRD-PARTY-NOTICES"
PAGES = Path(__file__).with_name("vega-embed.NOTICE")
SHIPPED = ("virtgauge-agent", "bandwidth", "flushlab", "hptime-c", "hptime-preload", "sensorstore", "uml-registers")
"""Crates of the workspace of which programs and libraries are made."""
STATIC = "virtgauge-agent, bandwidth and virtgauge-flushes"
LGPL = Path("/usr/share/common-licenses/LGPL-2.1")
GLIBC = """\
{static} contain the C library of the machine that linked them, {version} (LGPL-2.1-or-later), and the run-time support
of its GCC (GPL-3.0-or-later with the GCC Runtime Library Exception).  To link them with another C library, install its
libc.a and, in virtgauge's source distribution, which has all of their own sources:

    cd native && cargo build --release --locked --bin virtgauge-agent --bin bandwidth --bin virtgauge-flushes
"""
_LINE = "\n" + "-" * 100 + "\n"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))


def build_notices() -> Path:
    """Write them into the source tree, unless they are there already; returns their path.

    Raises:
        subprocess.CalledProcessError: cargo could not tell of the crates.
    """
    read = [NATIVE / "Cargo.lock", PAGES, Path(__file__)]
    inputs = hashlib.sha256(b"".join(path.read_bytes() for path in read) + rustc("-vV").encode()).hexdigest()
    if not _agent["is_current"](NOTICES, inputs):
        static = GLIBC.format(static=STATIC, version=os.confstr("CS_GNU_LIBC_VERSION"))
        NOTICES.parent.mkdir(exist_ok=True)
        NOTICES.write_text(
            text(SHIPPED, static + (LGPL.read_text() if LGPL.is_file() else ""), PAGES.read_text(encoding="utf-8")),
            encoding="utf-8",
        )
        _agent["mark_current"](NOTICES, inputs)
    return NOTICES


def text(programs: Collection[str], *further: str) -> str:
    """The notices of what is linked into some crates of the workspace."""
    by_text: dict[str, list[str]] = {}
    for package, _ in linked(programs).values():
        if package["source"]:
            told = f"{package['name']} {package['version']} ({package['license']})"
            for one in _texts(package) or [f"By {', '.join(package['authors'])}: {package['repository']}"]:
                by_text.setdefault(one, []).append(told)
    parts = [f"{', '.join(sorted(names))}:\n\n{one}" for one, names in by_text.items()]
    return _LINE.join([_INTRODUCTION, *further, _standard_library(), *sorted(parts)]).strip() + "\n"


_INTRODUCTION = "What others wrote is linked into virtgauge's programs and libraries, or bundled with them."


def _texts(package: dict[str, Any]) -> list[str]:
    folder = Path(package["manifest_path"]).parent
    wanted = re.compile(r"(un)?licen[cs]e|copy(ing|right)|notice", re.IGNORECASE)
    files = [path for path in folder.rglob("*") if wanted.match(path.name) and path.suffix in ("", ".md", ".txt")]
    files += [path for path in folder.glob("LICENSE-*") if path.suffix not in ("", ".md", ".txt")]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in sorted(files) if path.is_file()]


def _standard_library() -> str:
    told = f"{rustc('-V').strip()}: its standard library (MIT OR Apache-2.0, with parts under others)"
    copyright = Path(rustc("--print", "sysroot").strip()) / "share" / "doc" / "rust" / "COPYRIGHT-library.html"
    if not copyright.is_file():
        return f"{told}: https://github.com/rust-lang/rust/blob/main/COPYRIGHT"
    page = html.unescape(re.sub(r"(?s)<style.*?</style>|<[^>]+>", "", copyright.read_text(encoding="utf-8")))
    return f"{told}:\n\n" + re.sub(r"\n\s*\n+", "\n\n", page).strip()


def linked(programs: Collection[str]) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """What some crates of the workspace are linked of, by cargo's identifier, with what each depends on; they first.

    What runs in the compiler alone (procedural macros, build scripts) is not linked.
    """
    host = re.findall(r"^host: (\S+)", rustc("-vV"), re.MULTILINE)[0]
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", host]
    told = json.loads(subprocess.run(command, cwd=NATIVE, check=True, stdout=subprocess.PIPE).stdout)
    packages = {one["id"]: one for one in told["packages"]}
    nodes = {node["id"]: node["deps"] for node in told["resolve"]["nodes"]}
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    left = [one for one in told["workspace_members"] if packages[one]["name"] in programs]
    for one in left:
        if one not in found:
            found[one] = packages[one], list(_linked(nodes[one], packages))
            left += found[one][1]
    return found


def _linked(dependencies: list[dict[str, Any]], packages: dict[str, dict[str, Any]]) -> Iterator[str]:
    for one in dependencies:
        normal = any(kind["kind"] is None for kind in one["dep_kinds"])
        if normal and not any("proc-macro" in target["kind"] for target in packages[one["pkg"]]["targets"]):
            yield one["pkg"]


def rustc(*arguments: str) -> str:
    """What the compiler says of itself."""
    return subprocess.run(["rustc", *arguments], cwd=NATIVE, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    _agent["step"]("notices", lambda: [build_notices()])
