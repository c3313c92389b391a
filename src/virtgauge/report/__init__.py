"""What a run means: the ledger analysed, then shown as a page or in the terminal.

Reads only what measuring wrote, so a report can be made again at any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from virtgauge.report.last_screen import Place, print_last_screen
    from virtgauge.report.model import Report, build
    from virtgauge.report.page import render_html
    from virtgauge.report.terminal import render_text

__all__ = ["Place", "Report", "build", "print_last_screen", "render_html", "render_text"]

_MODULES = {
    "Place": "last_screen",
    "Report": "model",
    "build": "model",
    "print_last_screen": "last_screen",
    "render_html": "page",
    "render_text": "terminal",
}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: whoever wants the verdicts alone need not wait for the drawing of charts."""
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
