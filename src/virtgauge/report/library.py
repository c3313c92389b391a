"""The drawing library that every page carries: Vega, Vega-Lite and vega-embed in one script.

It is made by ``setup/page.py`` when the package or a checkout is built.
"""

from __future__ import annotations

import functools
from pathlib import Path

import virtgauge
from virtgauge.errors import UnavailableError

LIBRARY = Path(virtgauge.__file__).parent / "native" / "vega-embed.js"


@functools.cache
def drawing_library() -> str:
    """The script, safe within a ``<script>`` element; it sets ``window.vegaEmbed``.

    Raises:
        UnavailableError: it was not built.
    """
    try:
        return LIBRARY.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UnavailableError(
            f"the drawing library of the pages is missing: {LIBRARY}",
            "`virtgauge provision page` in a source tree; else install the package again",
        ) from None
