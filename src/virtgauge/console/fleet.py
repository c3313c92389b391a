"""``virtgauge fleet``: one plan on many hosts, merged into one run."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from virtgauge.console.displays import ProgressStyle, create_display, output
from virtgauge.console.options import JUnit, NewRunFolder, Progress, Quiet, RunFolder, place_to_write, run_folder
from virtgauge.console.runs import finish
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError, printable, tell

if TYPE_CHECKING:
    from virtgauge.exchange.place import Place
    from virtgauge.fleet.cluster import TlsFiles

app = typer.Typer(
    name="fleet",
    help="Many hosts: one plan measured on each of them, merged into one run with hosts as a factor.",
    no_args_is_help=True,
)

Archive = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Put the complete run into this archive: a folder, or s3://BUCKET/PREFIX (`virtgauge archive`).",
    ),
]


@app.command(epilog="Example: virtgauge fleet run plan.toml --out runs/fleet")
def run(
    plan: Annotated[str, typer.Argument(help="Plan file with a section [fleet].")],
    out: NewRunFolder = None,
    archive: Archive = None,
    junit: JUnit = None,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Execute a plan on every host of its fleet, and write one report."""
    from virtgauge.fleet.run import start_fleet
    from virtgauge.plan.load import load_plan

    loaded, source = load_plan(plan)
    folder, place = run_folder(out, loaded.name), _place(archive)
    with closing(create_display(ProgressStyle.NONE if quiet else progress)) as display:
        complete = start_fleet(loaded, source, folder, display)
    _finish(folder, complete, quiet, junit, place)


@app.command(epilog="Example: virtgauge fleet resume runs/fleet")
def resume(
    folder: RunFolder,
    archive: Archive = None,
    junit: JUnit = None,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Go on with a fleet's run; no merged trial is repeated."""
    from virtgauge.fleet.run import resume_fleet

    place = _place(archive)
    with closing(create_display(ProgressStyle.NONE if quiet else progress)) as display:
        complete = resume_fleet(folder, display)
    _finish(folder, complete, quiet, junit, place)


def _place(archive: str | None) -> Place | None:
    """Raises UsageError, ArchiveWriteError: there can be no archive."""
    if archive is None:
        return None
    from virtgauge.exchange.archive import require_writable

    place = place_to_write("--archive", archive)
    if place.is_store:
        require_writable(place)
    return place


def _finish(folder: Path, complete: bool, quiet: bool, junit: Path | None, place: Place | None) -> None:
    """Report and verdict, and what is complete into the archive, whatever the verdict; ends by the verdict's code."""
    place = place if complete else None
    try:
        finish(folder, complete, quiet, junit)
    except (typer.Exit, VirtgaugeError):
        _put(folder, place)
        raise
    if code := _put(folder, place):
        raise typer.Exit(code)


def _put(folder: Path, place: Place | None) -> ExitCode:
    """Into the archive; an error is told, and is the code."""
    if place is None:
        return ExitCode.OK
    from virtgauge.exchange.archive import archive_run
    from virtgauge.ledger.read_only import ReadOnlyLedger

    try:
        with ReadOnlyLedger.for_command(folder) as ledger:
            done = archive_run(place, ledger)
    except VirtgaugeError as error:
        return tell(error)
    print(f"{folder}: {done.text}", file=sys.stderr)
    return ExitCode.OK


@app.command(epilog="Example: virtgauge fleet status runs/fleet")
def status(folder: RunFolder) -> None:
    """Say how far each host is, and what has happened to it; also while the run is under way."""
    from virtgauge.fleet.batches import fleet_status
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.ledger.records import moment

    with ReadOnlyLedger.for_command(folder) as ledger:
        hosts, events, course = fleet_status(ledger)
    table = Table(box=None, header_style="bold")
    for heading in ("host", "done", "valid", "not valid", "guests that failed", "last trial"):
        table.add_column(heading, justify="left" if heading in ("host", "last trial") else "right")
    for host in hosts:
        done = f"{host.done}/{host.total}"
        cells = (printable(host.name), done, str(host.valid), str(host.not_valid), str(host.failed_guests))
        table.add_row(*cells, host.last or "–")
    console = output()
    console.print(table)
    for event in events:
        console.print(f"{moment(event.at)} {printable(event.detail)}", markup=False, highlight=False)
    print(f"{folder}: {course}")


Ca = Annotated[Path | None, typer.Option(help="The authority that signed every certificate (PEM).")]
Certificate = Annotated[Path | None, typer.Option(help="This process's certificate (PEM).")]
Key = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]


def _files(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles:
    from virtgauge.fleet.cluster import TlsFiles

    if ca is None or certificate is None or key is None:
        raise UsageError("certificates are missing", "give --ca, --certificate and --key")
    return TlsFiles(str(ca), str(certificate), str(key))


@app.command(
    epilog="Example: virtgauge fleet scheduler --listen 192.0.2.1 --ca ca.pem --certificate cert.pem --key key.pem"
)
def scheduler(
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Of this machine.")],
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8786,
) -> None:
    """Be the meeting point of a fleet that others start: workers and `fleet run` join it; ends by Ctrl-C or SIGTERM.

    It may be killed and started again under a run.
    """
    import asyncio

    from virtgauge.fleet.cluster import serve_scheduler

    files = _files(ca, certificate, key)
    asyncio.run(serve_scheduler(listen, port, files, lambda where: print(f"scheduler at {where}", flush=True)))


@app.command(
    epilog="Example: virtgauge fleet worker --scheduler tls://192.0.2.1:8786 --name a --ca ca.pem --certificate "
    "worker.pem --key worker-key.pem"
)
def worker(
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="Address of the cluster: tls://host:port.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="What the plan calls this host, or its address.")],
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of this machine; by default the one that faces the scheduler."),
    ] = None,
    credentials_on_stdin: Annotated[
        bool,
        typer.Option(
            "--credentials-on-stdin", help="Read them from standard input, and end when it is closed (for fleet run)."
        ),
    ] = False,
) -> None:
    """Offer this host to a fleet: one slot, taken by one session at a time; ends by Ctrl-C or SIGTERM.

    Whoever holds a certificate of the cluster can run programs here as this user.
    """
    from virtgauge.fleet.workers import read_credentials, serve

    if not scheduler.startswith("tls://"):
        raise UsageError(
            f"--scheduler {scheduler}: a worker runs what it is sent, so it speaks TLS only", "give tls://host:port"
        )
    files = read_credentials(sys.stdin.readline()) if credentials_on_stdin else _files(ca, certificate, key)
    lifeline = sys.stdin.fileno() if credentials_on_stdin else None
    raise typer.Exit(serve(scheduler, name, files, listen=listen, lifeline=lifeline))
