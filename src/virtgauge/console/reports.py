"""``virtgauge report``, ``compare`` and ``serve``: what was measured, in a file, in the terminal or in a browser."""

from __future__ import annotations

import contextlib
import enum
import gc
import io
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from virtgauge.console.displays import output
from virtgauge.console.exchange import write_export
from virtgauge.console.options import Equivalent, OutFile, ReportedMeasures, RunFolder, whole_file
from virtgauge.errors import ExitCode, UsageError, printable
from virtgauge.exchange import Format

if TYPE_CHECKING:
    from virtgauge.compare.model import Comparison, SeriesComparison
    from virtgauge.ledger.store import Ledger
    from virtgauge.report.model import Report

app = typer.Typer()

REPORT_NAME = "report.html"
ReportFormat = enum.StrEnum("ReportFormat", "TEXT JSON HTML")


@contextlib.contextmanager
def without_pauses() -> Iterator[None]:
    """Keep the collector off what is made within, of which a command needs almost all to its end."""
    enabled = gc.isenabled()
    gc.disable()  # to go through the records of many trials again and again finds nothing
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@without_pauses()
def build_report(ledger: Ledger) -> Report:
    """Everything that a run's ledger says."""
    from virtgauge import report  # draws charts: a second of imports that no other command should wait for

    built = report.build(ledger)
    ledger.confirm()
    return built


def write_report(
    built: Report, folder: Path, kind: ReportFormat, out: Path | None, *, full: bool = False
) -> Path | None:
    """Write a run's report, by default HTML to its folder, text to standard output; ``full``: with the tables, as text.

    Returns the file written; None when it was printed. Raises UsageError: the file cannot be written.
    """
    from virtgauge import report

    if kind is ReportFormat.HTML:
        return deliver(report.render_html(built), out, folder / REPORT_NAME)
    return deliver(lambda console: _print_text(built, folder, console, full), out)


def _print_text(built: Report, folder: Path, console: Console, full: bool) -> None:
    from virtgauge import report

    if full:
        report.render_text(built, console)
    page, plan = folder / REPORT_NAME, folder / "plan.toml"
    place = report.Place(str(folder), str(page), page.exists(), str(plan) if plan.exists() else None, _program())
    report.print_last_screen(built, place, console)


def _program() -> str:
    """What starts this program in the user's shell: its name where that is found, else as it was started itself."""
    if shutil.which("virtgauge"):
        return "virtgauge"
    own = sys.argv[0]
    return shlex.quote(own) if Path(own).name == "virtgauge" else shlex.join([sys.executable, "-m", "virtgauge.cli"])


def deliver(made: str | Callable[[Console], None], out: Path | None, page: Path | None = None) -> Path | None:
    """Print something, or write it, whole or not at all, to the file that the user has named, else ``page``; which."""
    place = out or page
    if place is None:
        print(made.rstrip("\n")) if isinstance(made, str) else made(output())
        return None
    if not isinstance(made, str):
        text = io.StringIO()
        made(Console(file=text, width=120))
        made = text.getvalue()
    with whole_file(place, named=out is not None) as path:
        path.write_text(made, encoding="utf-8")
    return place


@app.command(epilog="Example: virtgauge report runs/quick-20260101-120000 --format json > result.json")
def report(
    folder: RunFolder,
    format: Annotated[
        ReportFormat, typer.Option(help="html writes RUN/report.html; text and json are printed.")
    ] = ReportFormat.TEXT,
    out: OutFile = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Of a fleet's run, this host only.")] = None,
    full: Annotated[bool, typer.Option("--full", help="As text the tables, too, not only the decision.")] = False,
) -> None:
    """Show or write the report of a run; never measures."""
    from virtgauge.ledger.read_only import HostLedger, ReadOnlyLedger

    with ReadOnlyLedger.for_command(folder) if host is None else HostLedger.of(folder, host) as ledger:
        if format is ReportFormat.JSON:
            write_export(ledger, Format.JSON, out)
        else:
            out = write_report(build_report(ledger), folder, format, out, full=full)
    if out is not None:
        print(f"report: {out}")


PAGE_NAME = "compare.html"
_SOON_S = 2.0

FailOn = enum.StrEnum(
    "FailOn", {"NOTHING": "nothing", "WORSE": "worse", "WORSE_THAN_REFERENCE": "worse-than-reference"}
)


@app.command(epilog="Example: virtgauge compare runs/monday runs/tuesday --measure timing.sleep_lateness.p99")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs; the first is the base.")],
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="BASE=OTHER", help="Only this arm, or two of different names. May be repeated."),
    ] = None,
    measure: ReportedMeasures = None,
    series: Annotated[
        bool, typer.Option("--series", help="Find changes over four runs or more, or over a folder of runs.")
    ] = False,
    equivalent: Equivalent = 5.0,
    across_versions: Annotated[
        bool, typer.Option("--across-versions", help="Also runs that other versions of virtgauge measured; mark it.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the permutations of --series.")] = 1,
    format: Annotated[
        ReportFormat, typer.Option(help="html writes compare.html in the last run; text and json are printed.")
    ] = ReportFormat.TEXT,
    out: OutFile = None,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 when a figure is worse; for CI.")] = FailOn.NOTHING,
) -> None:
    """Say what changed between runs: another day, kernel, host or hypervisor; never measures.

    A change is called one where its interval excludes no change, all comparisons together are taken into account, and
    it exceeds what identical arms (A/A) differ by. That nothing changed is a finding of its own.
    """
    from virtgauge.compare.comparison import Wanted, compare_runs, compare_series, render_json
    from virtgauge.compare.document import document
    from virtgauge.compare.runs import run_folders
    from virtgauge.specs.suites import headline_measures, named_measures

    if not series and len(runs) < 2 and not arm:
        raise UsageError(
            f"{runs[0]}: one run, and nothing to compare it with",
            "name two runs or more, or two platforms of this one with --arm A=B",
        )
    measures = named_measures(measure or []) or headline_measures()
    wanted = Wanted(measures, arm or (), equivalent / 100, across_versions, _progress())
    folders = run_folders(runs) if series else runs
    found: Comparison | SeriesComparison
    found = compare_series(folders, wanted, seed) if series else compare_runs(folders, wanted)
    if format is ReportFormat.HTML:
        out = deliver(document(found).html(), out, folders[-1] / PAGE_NAME)
    elif format is ReportFormat.JSON:
        deliver(render_json(found), out)
    else:
        deliver(document(found).print, out)
    if out is not None:
        print(f"comparison: {out}")
    if fail_on is not FailOn.NOTHING and found.is_worse(beside_reference=fail_on is FailOn.WORSE_THAN_REFERENCE):
        raise typer.Exit(ExitCode.FAILED)


def _progress() -> Callable[[str], None]:
    """Tell what is being done, from two seconds on."""
    started = time.monotonic()

    def tell(what: str) -> None:
        if time.monotonic() - started > _SOON_S:
            print(printable(f"virtgauge: {what}"), file=sys.stderr)

    return tell


@app.command(
    epilog="Example: virtgauge serve\n\nExample: virtgauge serve runs /srv/measured --port 8800\n\n"
    "Example: virtgauge serve --address 0.0.0.0 --token-file token"
)
def serve(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders of runs, or runs; runs/ by default."),
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

    shown = folders or [Path("runs")]
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

    for thread in os.listdir("/proc/self/task"):  # of libraries, too: whoever measures on this machine comes first
        os.setpriority(os.PRIO_PROCESS, int(thread), 19)
    serve_until_ended(shown, access, address, port, tell)


def _host(address: str) -> str:
    if address in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{address}]" if ":" in address else address
