"""``python -m virtgauge.shim -- PROGRAM``: the command without the rest."""

from __future__ import annotations

import sys

import typer

from virtgauge.errors import VirtgaugeError
from virtgauge.shim.command import mount

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
mount(app)

if __name__ == "__main__":
    try:
        app()
    except VirtgaugeError as error:
        print(f"virtgauge: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
