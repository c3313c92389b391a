"""Before a run: what its plan needs is provided, and the first figures are told while the rest is still to come."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from virtgauge.console.displays import ProgressStyle, create_display
from virtgauge.console.reports import build_report
from virtgauge.execution.progress import Notice, ProgressDisplay
from virtgauge.provision.progress import Outcome, SetUpDisplay, State

if TYPE_CHECKING:
    from virtgauge.execution.prepare import Design
    from virtgauge.plan.model import Plan
    from virtgauge.provision.parts import Part


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


def set_up(plan: Plan, source: str, folder: Path, style: ProgressStyle) -> None:
    """Provide what a plan needs and this machine lacks, the first figures in between.

    Args:
        plan: that is to be run.
        source: where it comes from, for errors.
        folder: of the run; the first figures are a run of their own below it.
        style: how progress is shown; with none, there are no first figures.

    Raises:
        UsageError: the plan is refused; nothing was started.
        OccupiedError: something measures on this machine.
    """
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


def set_up_again(folder: Path, style: ProgressStyle) -> None:
    """Provide what the plan of an interrupted run needs and this machine lacks, or lacks by now.

    Raises:
        UsageError: no run is there, or its plan is refused.
        OccupiedError: something measures on this machine.
    """
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
        with machine_to_ourselves(), _Notices(display, style) as steps:
            provide(parts, steps)


def _tell(before: Plan, design: Design, folder: Path, display: ProgressDisplay, style: ProgressStyle) -> None:
    """Measure the first figures and print them; what cannot be measured now is met again by the run itself."""
    from virtgauge.errors import UnavailableError
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
    for answer in answers(report):
        display.show(Notice(f"first figures: {answer.platform} {answer.suite}: {answer.sentence}", warning=False))
    later = [name for name in design.platforms if name not in {section.name for section in before.platform}]
    text = f"(no A/A pair yet, and straight after installing) to come: {', '.join(later)}, all compared side by side"
    display.show(Notice(text, warning=False))
