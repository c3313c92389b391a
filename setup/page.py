"""Bundles the drawing library of the pages (Vega, Vega-Lite, vega-embed), and puts it where the package looks for it.

vl-convert makes the bundle and has 84 MB, so it is no part of what runs: where it is not installed, it is installed
from requirements-build.lock into a folder that is removed at once.  Standard library only, as for the agent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "virtgauge" / "native" / "vega-embed.js"
LOCK = ROOT / "requirements-build.lock"
BUNDLE = """
import sys, vl_convert
script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
sys.stdout.write(script.replace("</script", "<\\\\/script").replace("<!--", "<\\\\!--"))
"""
"""The script sets ``window.vegaEmbed``, and is safe within a ``<script>`` element."""

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))


def build_page() -> Path:
    """Bundle it into the source tree, unless it is there already; returns its path.

    Raises:
        RuntimeError: vl-convert could not be fetched, or failed.
    """
    inputs = hashlib.sha256(LOCK.read_bytes() + BUNDLE.encode()).hexdigest()
    if _agent["is_current"](LIBRARY, inputs):
        return LIBRARY
    if importlib.util.find_spec("vl_convert") is not None:
        script = _bundled({})
    else:
        with tempfile.TemporaryDirectory(prefix="virtgauge-page-") as folder:
            _install(folder)
            script = _bundled({"PYTHONPATH": folder})
    LIBRARY.parent.mkdir(exist_ok=True)
    partial = LIBRARY.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(script)
    partial.replace(LIBRARY)
    _agent["mark_current"](LIBRARY, inputs)
    return LIBRARY


def _install(folder: str) -> None:
    uv = _output([str(ROOT / "setup" / "environment.sh"), "--uv"], {}).decode().strip()
    # --no-cache: nobody needs it a second time.
    command = [uv, "pip", "install", "--no-config", "--no-cache", "--quiet", "--python", sys.executable]
    _output([*command, "--target", folder, "--require-hashes", "--requirement", str(LOCK)], {})


def _bundled(environment: dict[str, str]) -> bytes:
    return _output([sys.executable, "-c", BUNDLE], environment)


def _output(command: list[str], environment: dict[str, str]) -> bytes:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"`{Path(command[0]).name}` ended with status {done.returncode}:\n{done.stderr.decode()}")
    return done.stdout


if __name__ == "__main__":
    _agent["step"]("page", lambda: [build_page()])
