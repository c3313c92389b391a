"""``virtgauge run`` and ``resume``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from virtgauge.console import verdict as verdicts
from virtgauge.console.displays import ProgressStyle, create_display
from virtgauge.console.options import JUnit, NewRunFolder, Progress, Quiet, RunFolder, run_folder
from virtgauge.console.reports import ReportFormat, build_report, write_report
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError, nearest

if TYPE_CHECKING:
    from virtgauge.plan.model import Plan


NoProvision = Annotated[
    bool,
    typer.Option(
        "--no-provision",
        envvar="VIRTGAUGE_NO_PROVISION",
        help="Measure with what is there; fetch, install and build nothing.",
    ),
]


def mount(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: virtgauge run quick --out runs/today --platform host --platform gvisor")(run)
    app.command(epilog="Example: virtgauge resume runs/quick-20260101-120000")(resume)


def run(
    plan: Annotated[str, typer.Argument(help="Preset (see `virtgauge plan list`) or plan file.")] = "quick",
    out: NewRunFolder = None,
    repetitions: Annotated[int | None, typer.Option(min=1, help="Instead of the plan's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the plan's, or of a drawn one.")] = None,
    platform: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these platforms, and the reference. May be repeated.")
    ] = None,
    allow_drop: Annotated[
        bool,
        typer.Option("--allow-drop", help="A table that existing servers of the plan have already may be dropped."),
    ] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="PROFILE", help="Requirements to add (see `virtgauge profiles`). May be repeated."),
    ] = None,
    no_provision: NoProvision = False,
    junit: JUnit = None,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Provide what a plan needs, execute it, and write its report."""
    from virtgauge.console.set_up import set_up
    from virtgauge.execution.run import start_run
    from virtgauge.plan.load import load_plan
    from virtgauge.plan.requirements import load_profile

    loaded, source = load_plan(plan)
    loaded = _overridden(loaded, source, repetitions, seed, platform)
    if profile:
        for name in profile:
            load_profile(name)  # a misspelt one is no fault of the plan
        loaded = loaded.model_copy(update={"profile": (*loaded.profile, *profile)})
    if allow_drop:
        loaded = _dropping(loaded, source)
    folder = run_folder(out, loaded.name)
    style = ProgressStyle.NONE if quiet else progress
    if not no_provision:
        set_up(loaded, source, folder, style)
    with closing(create_display(style)) as display:
        complete = start_run(loaded, source, folder, display, required=platform or ())
    finish(folder, complete, quiet, junit)


def resume(
    folder: RunFolder,
    accept_changed_host: Annotated[
        bool,
        typer.Option(
            "--accept-changed-host",
            help="Go on although kernel, CPU, microcode, mitigations or agent changed; mark it.",
        ),
    ] = False,
    no_provision: NoProvision = False,
    junit: JUnit = None,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was interrupted; no finished trial is repeated."""
    from virtgauge.console.set_up import set_up_again
    from virtgauge.execution.run import resume_run

    style = ProgressStyle.NONE if quiet else progress
    if not no_provision:
        set_up_again(folder, style)
    with closing(create_display(style)) as display:
        complete = resume_run(folder, display, accept_changed_host=accept_changed_host)
    finish(folder, complete, quiet, junit)


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
                f"--platform {unknown[0]}: {source} has no such platform{nearest(unknown[0], names)}",
                f"use one of {', '.join(names)}",
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


def finish(folder: Path, complete: bool, quiet: bool, junit: Path | None) -> None:
    """Write a run's report, and end the command by what came of it.

    Raises:
        VirtgaugeError: not a single trial is valid.
        typer.Exit: the run is incomplete, or a requirement is not met or undecided.
    """
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.ledger.records import TrialStatus
    from virtgauge.results.table import ResultTable

    with ReadOnlyLedger.for_command(folder) as ledger:
        built = build_report(ledger)
        if junit is not None:
            verdicts.write_junit(built.decisions, ResultTable(ledger), junit)
    written = write_report(built, folder, ReportFormat.HTML, None)
    if not quiet:
        write_report(built, folder, ReportFormat.TEXT, None)
    if not built.statuses.get(TrialStatus.VALID.value):
        raise VirtgaugeError("not a single trial is valid: this run has no result", f"read why in {written}")
    if not complete:
        raise typer.Exit(ExitCode.FAILED)
    verdicts.end_by(built.decisions)
