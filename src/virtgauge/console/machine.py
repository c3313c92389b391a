"""``virtgauge doctor``, ``provision`` and ``clean``: what this machine can measure, has, and was left with."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.console.displays import output
from virtgauge.console.options import AsJson
from virtgauge.errors import ExitCode, UsageError, printable
from virtgauge.host.machine import missing_rights
from virtgauge.provision.parts import GROUPS, PARTS, named, provide
from virtgauge.provision.progress import SetUpDisplay, State

if TYPE_CHECKING:
    from virtgauge.specs.timing_settings import Bought

app = typer.Typer()


@app.command(epilog="Examples: virtgauge doctor --plan timing-2019, virtgauge doctor --realtime --guest")
def doctor(
    plan: Annotated[str, typer.Option(metavar="PLAN", help="Preset or file whose platforms are tried.")] = "platforms",
    as_json: AsJson = False,
    again: Annotated[bool, typer.Option(help="Boot anew what was found out by booting before (KVM, UML).")] = False,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Judge this machine's settings for real-time work instead.")
    ] = False,
    guest: Annotated[bool, typer.Option("--guest", help="With --realtime: what a guest has and can set.")] = False,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="With --realtime: folder of a run that has measured what settings are worth. May be repeated.",
        ),
    ] = None,
) -> None:
    """Say of each platform and database whether it can be used here, why, and the command that would fix it.

    With --realtime: judge each setting that decides on the worst case; exit code 1 if one is wrong.
    """
    if realtime:
        if again or plan != "platforms":
            raise UsageError("--realtime looks at settings, and tries no platforms", "leave --plan and --again out")
        _judge_settings(guest, runs or (), as_json=as_json)
        return
    if guest or runs:
        raise UsageError("--guest and --runs say what --realtime is to look at", "add --realtime")
    from virtgauge.execution.prepare import probe_platforms
    from virtgauge.plan.load import load_plan
    from virtgauge.platforms import boot_probe
    from virtgauge.suites.storage.databases import DATABASES
    from virtgauge.suites.storage.databases.base import Database, Found, Profile

    def told(database: Database) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": database.name}
        place = database.find()
        if not isinstance(place, Found):
            entry |= {"label": database.title, "usable": False, "reason": place.reason, "fix": place.fix}
            return entry | {"levels": {}}
        entry |= {"label": database.label(place), "usable": True, "reason": place.source, "fix": None}
        levels = database.levels().items()
        # The name of each level's settings; None where there is no such level.
        return entry | {"levels": {of.value: one.name if isinstance(one, Profile) else None for of, one in levels}}

    if again:
        boot_probe.forget()
    platforms = [
        {"name": name, "label": platform.label, "emulated": platform.emulated, "functional": platform.functional}
        | dataclasses.asdict(availability)
        for name, platform, availability in probe_platforms(*load_plan(plan))
    ]
    databases = [told(database) for database in DATABASES.values()]
    if as_json:
        rights = [dict(zip(("what", "reason", "fix"), right, strict=True)) for right in missing_rights()]
        found = {"platforms": platforms, "databases": databases, "missing_rights": rights}
        print(json.dumps(found, indent=2))
    else:
        _print_found(platforms, databases, output())
    if not any(one["usable"] for one in platforms):
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _judge_settings(guest: bool, runs: Sequence[Path], *, as_json: bool) -> None:
    """Print what each check of real-time settings came to; ends the command with exit code 1 if one is wrong."""
    from virtgauge.host.realtime import CHECKS, examine
    from virtgauge.host.realtime_settings import Machine
    from virtgauge.host.realtime_settings import State as Came

    bought = [one for folder in runs for one in _bought(folder)]
    measured = {check.name: [one.line for one in bought if one.names & {*check.measured_by}] for check in CHECKS}
    machine = Machine(guest=guest)
    results = list(examine(machine))
    if as_json:
        told = [
            {"name": one.name, "state": found.state, "found": found.words, "should": one.should, "fix": fix}
            | {"source": one.source, "measured": measured[one.name]}
            for one, found, fix in results
        ]
        print(json.dumps({"guest": guest, "isolated": sorted(machine.isolated), "checks": told}, indent=2))
    else:
        shown = Table("setting", "state", "found", box=None, pad_edge=False, header_style="bold")
        shown.columns[2].overflow = "fold"
        colours = {Came.RIGHT: "green", Came.WRONG: "red", Came.TRADE_OFF: "cyan", Came.UNKNOWN: "yellow"}
        for one, (state, words), fix in results:
            lines = [words, *(f"measured: {effect}" for effect in measured[one.name])]
            if state in colours and state is not Came.RIGHT:
                lines.append(f"should be: {one.should} [{one.source}]")
            if state in (Came.WRONG, Came.TRADE_OFF):
                lines.append(f"→ {fix}")
            shown.add_row(one.name, Text(state, colours.get(state, "dim")), Text("\n".join(map(printable, lines))))
        counts = Counter(found.state for _, found, _ in results)
        output().print(shown)
        output().print(f"\n{', '.join(f'{counts[state]} {state}' for state in Came)}", highlight=False)
    if any(found.state is Came.WRONG for _, found, _ in results):
        raise typer.Exit(ExitCode.FAILED)


def _bought(folder: Path) -> list[Bought]:
    """What a run has measured of settings, as its report tells it: what helps first."""
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.results.table import ResultTable
    from virtgauge.specs.suites import contexts_of
    from virtgauge.specs.timing_settings import bought

    with ReadOnlyLedger.for_command(folder) as ledger:
        timing = [one for one in contexts_of(ResultTable(ledger)) if one.spec.name == "timing"]
        return sorted((one for context in timing for one in bought(context)), key=lambda one: one.order)


def _print_found(
    platforms: Sequence[Mapping[str, Any]], databases: Sequence[Mapping[str, Any]], console: Console
) -> None:
    no, yes = Text("no", "red"), Text("yes", "green")
    emulated, functional = Text("emulated", "yellow"), Text("functional", "yellow")
    shown = [
        ("platform", "usable", "why", "to fix it"),
        ("database", "usable", "why", "levels of durability", "to fix it"),
    ]
    tables = [Table(*headings, box=None, pad_edge=False, header_style="bold") for headings in shown]
    for column in (column for table in tables for column in table.columns):
        column.overflow = "fold"
    for one in platforms:
        usable = no if not one["usable"] else functional if one["functional"] else emulated if one["emulated"] else yes
        name = Text(printable(f"{one['name']} ({one['label']})"))
        tables[0].add_row(name, usable, *(Text(printable(one[part] or "")) for part in ("reason", "fix")))
    for one in databases:
        levels = ", ".join(of for of, name in one["levels"].items() if name is not None)
        usable = yes if one["usable"] else no
        label, reason, fix = (Text(printable(one[part] or "")) for part in ("label", "reason", "fix"))
        tables[1].add_row(label, usable, reason, Text(levels), fix)
    console.print(tables[0])
    console.print()
    console.print(tables[1])
    if rights := missing_rights():
        table = Table("what this user cannot have", "why", "to fix it", box=None, pad_edge=False, header_style="bold")
        for right in rights:
            table.add_row(*map(Text, right))
        console.print()
        console.print(table)


@app.command(
    epilog="Examples: virtgauge provision --plan quick · virtgauge provision kernel --flavour rt · "
    "virtgauge provision databases · virtgauge provision --list"
)
def provision(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="Parts or groups of parts; --list names them.")
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(metavar="PLAN", help="What this preset or plan file needs. May be repeated."),
    ] = None,
    flavour: Annotated[
        str | None, typer.Option(metavar="rt", help="Of the kernel: rt is Debian's real-time one.")
    ] = None,
    list_parts: Annotated[bool, typer.Option("--list", help="List the parts, and which are there.")] = False,
) -> None:
    """Fetch or build what measuring needs, side by side. What is there already is checked and kept.

    `virtgauge run` does this for its plan by itself. Debian packages are installed where you are root; elsewhere the
    command that installs them is printed.
    """
    if list_parts:
        table = Table("part", "what", "state", box=None, pad_edge=False)
        for part in PARTS.values():
            table.add_row(part.name, part.title, "there" if part.present() else "missing")
        output().print(table)
        for name, members in GROUPS.items():
            output().print(f"{name}: {', '.join(members)}", highlight=False, soft_wrap=True)
        return
    from virtgauge.execution.prepare import check_plan
    from virtgauge.plan.load import load_plan

    if not parts and not plan and flavour is None:
        raise UsageError("nothing to provide", "name parts, or a plan by --plan; virtgauge provision --list")
    if flavour is not None:
        if flavour != "rt" or "kernel" not in (parts or ()):
            raise UsageError(
                f"--flavour {flavour}: only the part kernel has one, rt", "virtgauge provision kernel --flavour rt"
            )
        parts = ["kernel-rt" if part == "kernel" else part for part in parts or ()]
    wanted = {part.name: part for part in named(parts or ())}
    for name in plan or ():
        wanted |= {part.name: part for part in named(check_plan(*load_plan(name)).needs())}
    with SetUpDisplay() as display:
        outcomes = provide(wanted.values(), display)
    if any(outcome.state is State.SKIPPED for outcome in outcomes):
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command(epilog="Examples: virtgauge clean, virtgauge clean --all --yes, virtgauge clean --fleets")
def clean(
    everyone: Annotated[
        bool, typer.Option("--all", help="Also what runs of other users and of other state folders have left.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: remove it without asking.")] = False,
    fleets: Annotated[
        bool, typer.Option("--fleets", help="Also what was measured here for runs of fleets that were not completed.")
    ] = False,
) -> None:
    """Remove whatever a killed run left on this machine: processes, mounts, cgroups, namespaces, folders.

    Every run removes first what earlier ones of the same user and state folder (VIRTGAUGE_STATE) left. What others left
    is named, and removed by --all, which says first what it would remove, and asks. Living runs are never touched.
    """
    from virtgauge.fleet.work import forget, is_under_way, kept_runs
    from virtgauge.host.reclaim import find_dead_scopes, holdings, reclaim_dead

    dead = find_dead_scopes()
    foreign = [scope for scope in dead if not scope.own]
    for scope in foreign:
        whose = "of an unknown user and state folder" if scope.state is None else f"of {scope.state.words()}"
        action = "would remove" if everyone else "left alone, --all removes it:"
        print(printable(f"{action} {scope.tag} {whose}: {scope.why}"))
        for held in holdings(scope) if everyone else ():
            print(f"  {printable(held)}")
    if everyone and foreign and not yes:
        if not sys.stdin.isatty():
            raise UsageError("nothing was removed: nobody can be asked here", "add --yes")
        if not typer.confirm("Remove all of it?"):
            return
    lines = reclaim_dead(dead if everyone else None)
    for token, kept_bytes in kept_runs():
        size = f"{kept_bytes / 2**20:.1f} MiB of trials of the fleet's run {token}"
        if fleets and is_under_way(token):
            lines.append(f"kept {size}: a worker here is at work on it, or it is another user's")
        elif fleets:
            forget(token)
            lines.append(f"removed {size}")
        else:
            lines.append(f"kept {size}, which may be resumed; --fleets removes them")
    for line in lines:
        print(printable(line))
    if not lines and not foreign:
        print("nothing was left behind")
