"""``virtgauge serve``: runs as they happen, and their reports, in a browser."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from virtgauge.errors import UsageError

_DEFAULT_FOLDER = Path("runs")
_EXAMPLES = (
    "Example: virtgauge serve\n\n"
    "Example: virtgauge serve runs /srv/measured --port 8800\n\n"
    "Example: virtgauge serve --address 0.0.0.0 --token-file token"
)


def mount(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(serve)


def serve(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders of runs, or runs; runs/ by default.", show_default=False),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on. Beyond loopback, a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Holds the token; else VIRTGAUGE_SERVE_TOKEN, else one is drawn where it is needed."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name that the server answers to. May be repeated."),
    ] = None,
) -> None:
    """Show runs as they happen, and their reports, on a page of this machine; reads only."""
    from virtgauge.serve.access import access_for

    shown = folders or [_DEFAULT_FOLDER]
    for folder in folders or ():
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", "name a folder of runs, or a run")
    access, drawn = access_for(address, token_file, allow_host or ())

    def tell(port: int) -> None:
        print(f"virtgauge serves {', '.join(map(str, shown))} (read-only; Ctrl-C ends it):", file=sys.stderr)
        query = "" if access.token is None else f"?token={access.token}" if drawn else "?token=…"
        print(f"http://{_host(address)}:{port}/{query}", flush=True)
        if access.token is not None:
            print(
                "The connection is not encrypted: use it in a network that you trust, or through an ssh tunnel.",
                file=sys.stderr,
            )

    from virtgauge.serve.server import serve as serve_until_ended

    os.nice(19)  # whoever measures on this machine comes first
    serve_until_ended(shown, access, address, port, tell)


def _host(address: str) -> str:
    if address in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{address}]" if ":" in address else address
