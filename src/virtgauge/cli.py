"""The commands.  Each reads its options, calls one stage of the pipeline, and prints.

A stage is imported by the command that needs it, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from virtgauge import __version__
from virtgauge.console import archive as archive_commands
from virtgauge.console import compare as compare_command
from virtgauge.console import exchange as exchange_commands
from virtgauge.console import measures as measures_command
from virtgauge.console import profiles as profiles_command
from virtgauge.console import provision as provision_command
from virtgauge.console import runs as run_commands
from virtgauge.console import serve as serve_command
from virtgauge.console import verdict as verdicts
from virtgauge.console.attach import app as attach_app
from virtgauge.console.bandwidth import app as bandwidth_app
from virtgauge.console.fleet import app as fleet_app
from virtgauge.console.help import PlainHelp
from virtgauge.console.image import app as image_app
from virtgauge.console.options import OutFile, RunFolder
from virtgauge.console.plans import app as plan_app
from virtgauge.console.policy import app as policy_app
from virtgauge.console.reports import ReportFormat, build_report, write_json, write_report
from virtgauge.console.terminal import output
from virtgauge.errors import ExitCode, VirtgaugeError, printable
from virtgauge.shim import command as shim_command

_EPILOG = (
    "Exit codes: 0 done; 1 failed, incomplete, or not a single valid trial; 2 wrong option, plan or path (nothing was "
    "started); 3 not possible on this machine; 4 a requirement is not met; 5 one is undecided; 70 a defect of "
    "virtgauge; 130 interrupted (resume goes on)."
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
app.add_typer(plan_app, name="plan")
app.add_typer(policy_app, name="policy")
app.add_typer(attach_app, name="attach")
app.add_typer(bandwidth_app, name="bandwidth")
app.add_typer(image_app, name="image")
app.add_typer(fleet_app, name="fleet")
run_commands.mount(app)
provision_command.mount(app)
shim_command.mount(app)
measures_command.mount(app)
compare_command.mount(app)
serve_command.mount(app)
profiles_command.mount(app)
verdicts.mount(app)
exchange_commands.mount(app)
archive_commands.mount(app)


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


@app.command(epilog="Example: virtgauge doctor --plan timing-2019")
def doctor(
    plan: Annotated[str, typer.Option(metavar="PLAN", help="Preset or file whose platforms are tried.")] = "platforms",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    again: Annotated[bool, typer.Option(help="Boot anew what was found out by booting before (KVM, UML).")] = False,
) -> None:
    """Say of each platform and database whether it can be used here, why, and the command that would fix it."""
    from virtgauge.console.doctor import ReportedDatabase, ReportedPlatform, doctor_json, doctor_text
    from virtgauge.execution.prepare import probe_platforms
    from virtgauge.plan.load import load_plan
    from virtgauge.platforms import boot_probe
    from virtgauge.suites.storage.databases import DATABASES

    if again:
        boot_probe.forget()
    loaded, source = load_plan(plan)
    found = [ReportedPlatform(*entry) for entry in probe_platforms(loaded, source)]
    databases = [ReportedDatabase(database, database.find()) for database in DATABASES.values()]
    print(doctor_json(found, databases)) if json else doctor_text(found, databases, output())
    if not any(entry.availability.usable for entry in found):
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command(epilog="Example: virtgauge report runs/quick-20260101-120000 --format json > result.json")
def report(
    folder: RunFolder,
    format: Annotated[
        ReportFormat, typer.Option(help="html writes RUN/report.html; text and json are printed.")
    ] = ReportFormat.TEXT,
    out: OutFile = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Of a fleet's run, this host only.", show_default=False)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="As text all figures, not only the decision.")] = False,
) -> None:
    """Show or write the report of a run; never measures."""
    from virtgauge.ledger.host_view import HostLedger
    from virtgauge.ledger.read_only import ReadOnlyLedger

    with ReadOnlyLedger.for_command(folder) if host is None else HostLedger.of(folder, host) as ledger:
        if format is ReportFormat.JSON:
            write_json(ledger, out)
            written = out
        else:
            written = write_report(build_report(ledger), folder, format, out, full=full)
    if written is not None:
        print(f"report: {written}")


@app.command(epilog="Examples: virtgauge clean, virtgauge clean --all, virtgauge clean --fleets")
def clean(
    everyone: Annotated[
        bool, typer.Option("--all", help="Also what runs of other users and of other state folders have left.")
    ] = False,
    fleets: Annotated[
        bool, typer.Option("--fleets", help="Also what was measured here for runs of fleets that were not completed.")
    ] = False,
) -> None:
    """Remove whatever a killed run left on this machine: processes, mounts, cgroups, namespaces, folders.

    Every run removes first what earlier ones of the same user and state folder (VIRTGAUGE_STATE) left. What others left
    is named, and removed by --all, which names it first. Living runs are never touched.
    """
    from virtgauge.fleet.workplace import forget, kept_runs
    from virtgauge.host.reclaim import find_dead_scopes, reclaim_dead

    foreign = [scope for scope in find_dead_scopes() if not scope.own]
    for scope in foreign:
        whose = "of an unknown user and state folder" if scope.state is None else f"of {scope.state.words()}"
        action = "will remove" if everyone else "left alone, --all removes it:"
        print(f"{action} {scope.tag} {printable(whose)}: {scope.why}", flush=True)
    lines = reclaim_dead(everyone=everyone)
    for run in kept_runs():
        size = f"{run.size_bytes / 2**20:.1f} MiB of trials of the fleet's run {run.token}"
        if fleets:
            forget(run.token)
            lines.append(f"removed {size}")
        else:
            lines.append(f"kept {size}, which may be resumed; --fleets removes them")
    for line in lines:
        print(line)
    if not lines and not foreign:
        print("nothing was left behind")


def main() -> None:
    """Entry point: every deliberate error in the user's words, a defect with its trace and a request."""
    try:
        app()
    except VirtgaugeError as error:
        print(f"virtgauge: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception:
        traceback.print_exc()
        print("virtgauge: this is a defect of virtgauge itself; please report it with the lines above", file=sys.stderr)
        sys.exit(ExitCode.DEFECT)


if __name__ == "__main__":
    main()
