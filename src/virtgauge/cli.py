"""The commands.  Each reads its options, calls one stage of the pipeline, and prints.

A stage is imported by the command that needs it, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from virtgauge import __version__, shim
from virtgauge.console import archive, bandwidth, exchange, fleet, guests, machine, plans, reports, runs, support
from virtgauge.console.displays import watched_output
from virtgauge.console.help import PlainHelp
from virtgauge.errors import ExitCode, tell

_EPILOG = (
    "Exit codes: 0 done; 1 failed, incomplete, no valid trial, worse (--fail-on), or a wrong setting (doctor "
    "--realtime); 2 wrong option, "
    "plan or path (nothing was started); 3 not possible on this machine; 4 a requirement is not met; 5 one is "
    "undecided; 70 a defect of virtgauge; 130 interrupted (resume goes on); 141 nobody reads the output."
)

app = typer.Typer(
    cls=PlainHelp,
    help="Measure natively and inside guests, pair the results, and decide whether a virtualization platform "
    "meets a workload's requirements.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for commands in (
    *(runs.app, reports.app, plans.app, plans.catalogues, machine.app, shim.app, exchange.app, archive.app),
    *(fleet.app, bandwidth.app, guests.attach, guests.image, guests.policy),
    *(support.app, support.support, archive.archive),
):
    app.add_typer(commands)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"virtgauge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: every deliberate error in the user's words, a defect with its trace and a request."""
    sys.stdout = watched_output()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        sys.exit(tell(error))


if __name__ == "__main__":
    main()
