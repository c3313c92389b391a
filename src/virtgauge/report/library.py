"""The drawing library that every page carries: Vega, Vega-Lite and vega-embed, as vl-convert bundles them.

Bundling takes over a second and gives the same each time, so the bundle is kept in the user's cache, by vl-convert's
version.  A cache that cannot be read or written costs that second and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from importlib.metadata import version
from pathlib import Path

import vl_convert

_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_DIGEST = 64
"""Length of the digest before the script in a kept file: what does not match it is not used."""


@functools.cache
def drawing_library() -> str:
    """The script, safe within a ``<script>`` element; it sets ``window.vegaEmbed``."""
    kept = _cache_folder() / f"vega-embed-{version('vl-convert-python')}.js"
    script = _read(kept)
    if script is None:
        script = str(vl_convert.javascript_bundle(_SNIPPET))
        script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
        _keep(kept, script)
    return script


def _cache_folder() -> Path:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else Path.home() / ".cache") / "virtgauge" / "report"


def _read(path: Path) -> str | None:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    script = text[_DIGEST:]
    return script if text[:_DIGEST] == _digest(script) else None


def _keep(path: Path, script: str) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes((_digest(script) + script).encode())
        partial.replace(path)


def _digest(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()
