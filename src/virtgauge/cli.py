"""The commands.  Each reads its options, calls one stage of the pipeline, and prints.

A stage is imported by the command that needs it, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from virtgauge import __version__
from virtgauge.console import exchange as exchange_commands
from virtgauge.console import compare as compare_command
from virtgauge.console import measures as measures_command
from virtgauge.console import profiles as profiles_command
from virtgauge.console import serve as serve_command
from virtgauge.console import verdict as verdicts
from virtgauge.console.attach import app as attach_app
from virtgauge.console.bandwidth import app as bandwidth_app
from virtgauge.console.displays import ProgressStyle, create_display
from virtgauge.console.fleet import app as fleet_app
from virtgauge.console.image import app as image_app
from virtgauge.console.policy import app as policy_app
from virtgauge.console.reports import ReportFormat, build_report, write_report
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError
from virtgauge.provision.command import app as provision_app
from virtgauge.shim import command as shim_command

if TYPE_CHECKING:
    from virtgauge.plan.model import Plan

_EPILOG = (
    "Exit codes: 0 done; 1 failed, incomplete, or not a single valid trial; 2 wrong option, plan or path (nothing was "
    "started); 3 not possible on this machine; 4 a requirement is not met; 5 one is undecided; 70 a defect of "
    "virtgauge; 130 interrupted (resume goes on)."
)

app = typer.Typer(
    help="Measure natively and inside guests, pair the results, and decide whether a virtualization platform "
    "meets a workload's requirements.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
plan_app = typer.Typer(help="List, show and check plans.", no_args_is_help=True)
app.add_typer(plan_app, name="plan")
app.add_typer(provision_app, name="provision")
app.add_typer(policy_app, name="policy")
app.add_typer(attach_app, name="attach")
app.add_typer(bandwidth_app, name="bandwidth")
app.add_typer(image_app, name="image")
app.add_typer(fleet_app, name="fleet")
shim_command.mount(app)
measures_command.mount(app)
compare_command.mount(app)
serve_command.mount(app)
profiles_command.mount(app)
verdicts.mount(app)
exchange_commands.mount(app)

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)]
Progress = Annotated[
    ProgressStyle, typer.Option(help="auto: a bar on a terminal, lines elsewhere; json: one object a line.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")]


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
    plan: Annotated[str, typer.Option(help="Preset or file whose platforms are tried.")] = "platforms",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    again: Annotated[bool, typer.Option(help="Boot anew what was found out by booting before (KVM, UML).")] = False,
) -> None:
    """Say of each platform and database whether it can be used here, why, and the command that would fix it."""
    from virtgauge.console.doctor import ReportedDatabase, ReportedPlatform, doctor_json, doctor_text
    from virtgauge.execution.prepare import probe_platforms
    from virtgauge.plan.load import load_plan
    from virtgauge.platforms import qemu_accelerator
    from virtgauge.suites.storage.databases.registry import DATABASES

    if again:
        qemu_accelerator.forget()
    loaded, source = load_plan(plan)
    found = [ReportedPlatform(*entry) for entry in probe_platforms(loaded, source)]
    databases = [ReportedDatabase(database, database.find()) for database in DATABASES.values()]
    print(doctor_json(found, databases)) if json else doctor_text(found, databases, Console())
    if not any(entry.availability.usable for entry in found):
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command(epilog="Example: virtgauge run quick --out runs/today --platform host --platform gvisor")
def run(
    plan: Annotated[str, typer.Argument(help="Preset (see `virtgauge plan list`) or plan file.")] = "quick",
    out: Annotated[Path | None, typer.Option(help="Folder of the run; a new one below runs/ by default.")] = None,
    repetitions: Annotated[int | None, typer.Option(min=1, help="Instead of the plan's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the plan's, or of a drawn one.")] = None,
    platform: Annotated[
        list[str] | None, typer.Option(help="Only these platforms, and the reference. May be repeated.")
    ] = None,
    allow_drop: Annotated[
        bool,
        typer.Option("--allow-drop", help="A table that existing servers of the plan have already may be dropped."),
    ] = False,
    profile: Annotated[
        list[str] | None, typer.Option(help="Requirements to add (see `virtgauge profiles`). May be repeated.")
    ] = None,
    junit: verdicts.JUnit = None,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Execute a plan, and write its report."""
    from virtgauge.execution.session import new_run_folder, start_run
    from virtgauge.plan.load import load_plan

    loaded, source = load_plan(plan)
    loaded = _overridden(loaded, source, repetitions, seed, platform)
    if profile:
        loaded = loaded.model_copy(update={"profile": (*loaded.profile, *profile)})
    if allow_drop:
        loaded = _dropping(loaded, source)
    folder = out or new_run_folder(Path("runs"), loaded.name)
    with closing(create_display(ProgressStyle.NONE if quiet else progress)) as display:
        complete = start_run(loaded, source, folder, display)
    _finish(folder, complete, quiet, junit)


@app.command(epilog="Example: virtgauge resume runs/quick-20260101-120000")
def resume(
    folder: RunFolder,
    accept_changed_host: Annotated[
        bool, typer.Option(help="Go on although kernel, CPU, microcode, mitigations or agent changed; mark it.")
    ] = False,
    junit: verdicts.JUnit = None,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was interrupted; no finished trial is repeated."""
    from virtgauge.execution.session import resume_run

    with closing(create_display(ProgressStyle.NONE if quiet else progress)) as display:
        complete = resume_run(folder, display, accept_changed_host=accept_changed_host)
    _finish(folder, complete, quiet, junit)


@app.command(epilog="Example: virtgauge report runs/quick-20260101-120000 --format json > result.json")
def report(
    folder: RunFolder,
    format: Annotated[
        ReportFormat, typer.Option(help="html writes RUN/report.html; text and json are printed.")
    ] = ReportFormat.TEXT,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
) -> None:
    """Show or write the report of a run; never measures."""
    from virtgauge.ledger.store import Ledger

    with Ledger.open(folder) as ledger:
        built = build_report(ledger)
    written = write_report(built, folder, format, out)
    if written is not None:
        print(f"report: {written}")


@app.command(epilog="Example: virtgauge clean")
def clean() -> None:
    """Remove whatever a killed run left on this machine: processes, mounts, cgroups, namespaces, folders."""
    from virtgauge.host.reclaim import reclaim_dead

    lines = reclaim_dead()
    for line in lines:
        print(line)
    if not lines:
        print("nothing was left behind")


@plan_app.command("list")
def plan_list() -> None:
    """List the presets."""
    from virtgauge.plan.load import parse_plan, preset_names, preset_text

    for name in preset_names():
        print(f"{name:16} {parse_plan(preset_text(name), f'preset {name}').description}")


@plan_app.command("show", epilog="Example: virtgauge plan show quick > my-plan.toml")
def plan_show(
    plan: Annotated[str, typer.Argument(help="Preset or plan file.")],
    resolved: Annotated[bool, typer.Option(help="With every default written out.")] = False,
) -> None:
    """Print a plan; the place to begin one's own."""
    from virtgauge.plan.load import load_plan, preset_names, preset_text

    if resolved:
        print(load_plan(plan)[0].to_toml(), end="")
    else:
        print(preset_text(plan) if plan in preset_names() else Path(plan).read_text(), end="")


@plan_app.command("check", epilog="Example: virtgauge plan check my-plan.toml")
def plan_check(plan: Annotated[str, typer.Argument(help="Preset or plan file.")]) -> None:
    """Check a plan without measuring: fields, values, and the size of its design."""
    from virtgauge.execution.prepare import check_plan
    from virtgauge.plan.load import load_plan

    loaded, source = load_plan(plan)
    design = check_plan(loaded, source)
    trials = design.trials_of_a_repetition(loaded) * loaded.repetitions
    print(
        f"{source}: {len(design.platforms)} platforms{' and the A/A arm' if loaded.aa else ''} × "
        f"{len(design.cells)} cells × {loaded.repetitions} repetitions = {trials} trials"
    )
    for words in design.shortfalls():
        print(f"would be skipped: {words}")


def _overridden(
    plan: Plan, source: str, repetitions: int | None, seed: int | None, platforms: list[str] | None
) -> Plan:
    changes: dict[str, object] = {}
    if repetitions is not None:
        changes["repetitions"] = repetitions
    if seed is not None:
        changes["seed"] = seed
    if platforms:
        names = [section.name for section in plan.platform]
        if unknown := [name for name in platforms if name not in names]:
            raise UsageError(
                f"--platform {unknown[0]}: {source} has no such platform", f"use one of {', '.join(names)}"
            )
        wanted = {*platforms, plan.reference}
        changes["platform"] = tuple(section for section in plan.platform if section.name in wanted)
    return plan.model_copy(update=changes)


def _dropping(plan: Plan, source: str) -> Plan:
    from virtgauge.suites.storage.existing import allowing_drop

    sections, servers = allowing_drop(plan.suite.get("storage", ()))
    if not servers:
        raise UsageError(f"--allow-drop: {source} names no existing server", "leave it out")
    return plan.model_copy(update={"suite": {**plan.suite, "storage": sections}})


def _finish(folder: Path, complete: bool, quiet: bool, junit: Path | None) -> None:
    from virtgauge.ledger.records import TrialStatus
    from virtgauge.ledger.store import Ledger

    with Ledger.open(folder) as ledger:
        built = build_report(ledger)
    written = write_report(built, folder, ReportFormat.HTML, None)
    if not quiet:
        print(f"report: {written}\n")
        write_report(built, folder, ReportFormat.TEXT, None)
    if junit is not None:
        verdicts.write_junit(built, junit)
    if not built.statuses.get(TrialStatus.VALID.value):
        raise VirtgaugeError("not a single trial is valid: this run has no result", f"read why in {written}")
    if not complete:
        raise typer.Exit(ExitCode.FAILED)
    verdicts.end_by(built)


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
