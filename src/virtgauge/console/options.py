"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from virtgauge.console.displays import ProgressStyle

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)]
Progress = Annotated[
    ProgressStyle, typer.Option(help="auto: a bar on a terminal, lines elsewhere; json: one object a line.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")]
JUnit = Annotated[
    Path | None, typer.Option("--junit", help="Write the verdicts to this file as JUnit XML.", show_default=False)
]
