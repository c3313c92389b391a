"""``virtgauge run``, ``resume`` and ``verdict``: a run from what it needs to its verdicts."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from virtgauge.console.displays import ProgressStyle, create_display, output
from virtgauge.console.options import (
    AsJson,
    Full,
    JUnit,
    Minutes,
    NewRunFolder,
    Platforms,
    Progress,
    Quiet,
    RunFolder,
    makeable_folder,
    run_folder,
    whole_file,
)
from virtgauge.console.reports import ReportFormat, build_report, without_pauses, write_report
from virtgauge.errors import ExitCode, UnavailableError, UsageError, VirtgaugeError, nearest, printable
from virtgauge.execution.progress import Notice, ProgressDisplay
from virtgauge.provision.progress import Outcome, SetUpDisplay, State

if TYPE_CHECKING:
    from virtgauge.decisions.decisions import Decisions
    from virtgauge.execution.prepare import Design
    from virtgauge.plan.model import Plan
    from virtgauge.provision.parts import Part
    from virtgauge.results.table import ResultTable

app = typer.Typer()

NoProvision = Annotated[
    bool,
    typer.Option(
        "--no-provision",
        envvar="VIRTGAUGE_NO_PROVISION",
        help="Measure with what is there; fetch, install and build nothing.",
    ),
]


@app.command(epilog="Example: virtgauge run quick --out runs/today --platform host --platform gvisor")
def run(
    plan: Annotated[
        str | None, typer.Argument(help="Preset (see `virtgauge plan list`) or plan file; quick without one.")
    ] = None,
    out: NewRunFolder = None,
    repetitions: Annotated[int | None, typer.Option(min=1, help="Instead of the plan's.")] = None,
    minutes: Minutes = None,
    full: Full = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the plan's, or of a drawn one.")] = None,
    platform: Platforms = None,
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
    from virtgauge.execution.run import start_run
    from virtgauge.plan.load import full_form, load_plan
    from virtgauge.plan.requirements import load_profile

    named, style = plan or "quick", ProgressStyle.NONE if quiet else progress
    loaded, source = load_plan(full_form(named) if full else named)
    if plan is None:
        with closing(create_display(style)) as display:
            others = "`virtgauge plan list` has others, `virtgauge run NAME` measures one"
            display.show(Notice(f"no plan was named: quick. {loaded.description}. {others}", warning=False))
    if profile:
        for name in profile:
            load_profile(name)  # a misspelt one is no fault of the plan
        loaded = loaded.model_copy(update={"profile": (*loaded.profile, *profile)})
    loaded = overridden(loaded, source, repetitions, seed, platform)
    if allow_drop:
        from virtgauge.suites.storage.existing import allowing_drop

        sections, servers = allowing_drop(loaded.suite.get("storage", ()))
        if not servers:
            raise UsageError(f"--allow-drop: {source} names no existing server", "leave it out")
        loaded = loaded.model_copy(update={"suite": {**loaded.suite, "storage": sections}})
    folder = run_folder(out, loaded.name)
    if not no_provision:
        _set_up(loaded, source, folder, style)
    with closing(create_display(style)) as display:
        complete = start_run(loaded, source, folder, display, required=platform or (), minutes=minutes)
    finish(folder, complete, quiet, junit)


@app.command(epilog="Example: virtgauge resume runs/quick-20260101-120000")
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
    from virtgauge.execution.run import resume_run

    style = ProgressStyle.NONE if quiet else progress
    if not no_provision:
        _set_up_again(folder, style)
    with closing(create_display(style)) as display:
        complete = resume_run(folder, display, accept_changed_host=accept_changed_host)
    finish(folder, complete, quiet, junit)


def overridden(plan: Plan, source: str, repetitions: int | None, seed: int | None, platforms: list[str] | None) -> Plan:
    """A plan with what options say instead. Raises UsageError: it has no such platform, or measures nothing there."""
    if platforms:
        names = [section.name for section in plan.platform]
        if unknown := [name for name in platforms if name not in names]:
            raise UsageError(
                f"--platform {unknown[0]}: {source} has no such platform{nearest(unknown[0], names)}",
                f"use one of {', '.join(names)}",
            )
        plan = plan.narrowed_to(platforms)
        if not plan.suite:
            raise UsageError(
                f"--platform {' --platform '.join(platforms)}: {source} measures nothing there", "name others as well"
            )
    changes: dict[str, object] = {}
    if repetitions is not None:
        changes["repetitions"] = repetitions
        if plan.budget is not None and plan.budget.repetitions < repetitions:  # else it could not be resumed
            changes["budget"] = plan.budget.model_copy(update={"repetitions": repetitions})
    if seed is not None:
        changes["seed"] = seed
    return plan.model_copy(update=changes)


def finish(folder: Path, complete: bool, quiet: bool, junit: Path | None) -> None:
    """Write a run's report, and end the command by what came of it.
    Raises VirtgaugeError: not a single trial is valid; typer.Exit: the run is incomplete, or a requirement is not met
    or undecided.
    """
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.results.table import ResultTable

    with ReadOnlyLedger.for_command(folder) as ledger:
        built = build_report(ledger)
        if junit is not None:
            _write_junit(built.decisions, ResultTable(ledger), junit)
    written = write_report(built, folder, ReportFormat.HTML, None)
    if not quiet:
        write_report(built, folder, ReportFormat.TEXT, None)
    if not built.valid:
        raise VirtgaugeError("not a single trial is valid: this run has no result", f"read why in {written}")
    if not complete:
        raise typer.Exit(ExitCode.FAILED)
    _end_by(built.decisions)


class _Notices(SetUpDisplay):
    """Tells of steps as a run's own display does."""

    def __init__(self, display: ProgressDisplay, style: ProgressStyle) -> None:
        super().__init__(Console(stderr=True, quiet=style.resolved() is not ProgressStyle.BAR))
        self._display = display

    def show(self, outcomes: Iterable[Outcome]) -> None:
        """Tell of what was not there already."""
        for outcome in outcomes:
            if outcome.state is not State.OK:
                self._display.show(Notice(outcome.line(), warning=outcome.state is State.SKIPPED))


def _set_up(plan: Plan, source: str, folder: Path, style: ProgressStyle) -> None:
    """Provide what a plan needs and this machine lacks, the first figures in between."""
    from virtgauge.execution.prepare import FIRST_FIGURES, check_plan, first_figures
    from virtgauge.provision.parts import named

    design = check_plan(plan, source)
    parts = named(design.needs())
    missing = [part.name for part in parts if not part.early and not part.present()]
    before = first_figures(plan, design, missing)
    with closing(create_display(style)) as display:
        if before is not None and style is not ProgressStyle.NONE:
            _provide([part for part in parts if part.early], display, style)
            parts = [part for part in parts if not part.early]
            _tell(before, design, folder / FIRST_FIGURES, display, style)
        _provide(parts, display, style)


def _set_up_again(folder: Path, style: ProgressStyle) -> None:
    """Provide what the plan of an interrupted run needs and this machine lacks, or lacks by now."""
    from virtgauge.execution.prepare import check_plan
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.plan.load import parse_plan
    from virtgauge.provision.parts import named

    with ReadOnlyLedger.for_command(folder) as ledger:
        plan_text = ledger.manifest().plan_text
    source = f"{folder}/plan.toml"
    missing = [part for part in named(check_plan(parse_plan(plan_text, source), source).needs()) if not part.present()]
    with closing(create_display(style)) as display:
        _provide(missing, display, style)


def _provide(parts: list[Part], display: ProgressDisplay, style: ProgressStyle) -> None:
    from virtgauge.execution.run import machine_to_ourselves
    from virtgauge.provision.parts import provide

    if parts:
        with machine_to_ourselves(display), _Notices(display, style) as steps:
            provide(parts, steps)


def _tell(before: Plan, design: Design, folder: Path, display: ProgressDisplay, style: ProgressStyle) -> None:
    """Measure the first figures and print them; what cannot be measured now is met again by the run itself."""
    from virtgauge.execution.run import start_run
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.report.answers import answers

    with closing(create_display(style)) as own:
        try:
            start_run(before, "first figures", folder, own)
        except UnavailableError as error:
            display.show(Notice(f"no first figures: {error.message}"))
            return
    with ReadOnlyLedger.for_command(folder) as ledger:
        report = build_report(ledger)
    gc.unfreeze()  # The command goes on for hours
    for answer in answers(report):
        display.show(Notice(f"first figures: {answer.platform} {answer.suite}: {answer.sentence}", warning=False))
    later = [name for name in design.platforms if name not in {section.name for section in before.platform}]
    coming = ", ".join([*later, "all compared side by side"])
    text = f"(no A/A pair yet, and straight after installing) to come: {coming}"
    display.show(Notice(text, warning=False))


@app.command(epilog="Example: virtgauge verdict runs/gateway-20260101-120000 --junit verdicts.xml")
@without_pauses()
def verdict(folder: RunFolder, junit: JUnit = None, as_json: AsJson = False) -> None:
    """Say whether each platform meets each requirement of a run; the exit code says it too.

    0: all are met; 4: one is not; 5: none failed, and one is undecided.
    """
    from virtgauge.decisions.decisions import decisions_of
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.results.table import ResultTable
    from virtgauge.specs.suites import row_labels

    with ReadOnlyLedger.for_command(folder) as ledger:
        table = ResultTable(ledger)
        decisions = decisions_of(table)
        if junit is not None and decisions.requirements:
            _write_junit(decisions, table, junit)
    if not decisions.requirements:
        raise UsageError(
            f"the run in {folder} requires nothing",
            "add [[require]] or a profile to its plan: `virtgauge profiles` lists them",
        )
    if as_json:
        print(json.dumps(decisions, default=vars))
    else:
        from virtgauge.report.requirements import print_decisions  # which takes what draws pages with it

        print_decisions(decisions, row_labels(table.arms), output())
    _end_by(decisions)


@app.command(epilog="Example: virtgauge repair runs/gateway-20260101-120000 --out runs/gateway-sound")
def repair(
    folder: RunFolder,
    out: Annotated[Path, typer.Option("--out", callback=makeable_folder, help="Folder of the new run.")],
) -> None:
    """Keep the sound trials of a damaged run in a new one, and say what is left out; the damaged one stays as it is."""
    from virtgauge.ledger.repair import repair as repaired

    done = repaired(folder, out)
    for fault in done.left_out:
        print(printable(f"left out: {fault}"))
    for number in done.samples_lost:
        print(f"left out: the raw values of trial {number}")
    print(f"repaired: {done.kept} trials kept in {out}")


def _write_junit(decisions: Decisions, table: ResultTable, path: Path) -> None:
    from virtgauge.exchange.xml import junit, verdict_cases

    text = junit(verdict_cases(decisions, table), table.manifest.plan_name, table.manifest.created_at)
    table.ledger.confirm()
    with whole_file(path, "--junit") as place:
        place.write_text(text, encoding="utf-8")


def _end_by(decisions: Decisions) -> None:
    from virtgauge.analysis.bounds import Outcome

    if decisions.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        raise typer.Exit(ExitCode.NOT_MET if decisions.outcome is Outcome.FAIL else ExitCode.UNDECIDED)
