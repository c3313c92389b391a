"""``virtgauge provision``: fetch or build what plans need."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from virtgauge.console.terminal import output
from virtgauge.errors import ExitCode, UsageError
from virtgauge.provision.parts import GROUPS, PARTS, Part, named, provide
from virtgauge.provision.progress import SetUpDisplay, State


def mount(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: virtgauge provision --plan quick · virtgauge provision kernel gvisor · "
        "sudo virtgauge provision databases · virtgauge provision --list"
    )(provision)


def provision(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="Parts or groups of parts; --list names them.")
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(metavar="PLAN", help="What this preset or plan file needs. May be repeated.", show_default=False),
    ] = None,
    list_parts: Annotated[bool, typer.Option("--list", help="List the parts, and which are there.")] = False,
) -> None:
    """Fetch or build what measuring needs, side by side. What is there already is checked and kept.

    `virtgauge run` does this for its plan by itself. Debian packages are installed where you are root; elsewhere the
    command that installs them is printed.
    """
    if list_parts:
        _print_parts(output())
        return
    if not parts and not plan:
        raise UsageError("nothing to provide", "name parts, or a plan by --plan; virtgauge provision --list")
    wanted = {part.name: part for part in named(parts or ())}
    for name in plan or ():
        wanted |= {part.name: part for part in _needed_by(name)}
    with SetUpDisplay() as display:
        outcomes = provide(wanted.values(), display)
    if any(outcome.state is State.SKIPPED for outcome in outcomes):
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _needed_by(plan: str) -> list[Part]:
    from virtgauge.execution.prepare import check_plan
    from virtgauge.plan.load import load_plan

    return named(check_plan(*load_plan(plan)).needs())


def _print_parts(console: Console) -> None:
    table = Table("part", "what", "state", box=None, pad_edge=False)
    for part in PARTS.values():
        table.add_row(part.name, part.title, "there" if part.present() else "missing")
    console.print(table)
    for name, members in GROUPS.items():
        console.print(f"{name}: {', '.join(members)}", highlight=False, soft_wrap=True)
