"""``virtgauge plan``, ``measures`` and ``profiles``: what can be measured and required."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from virtgauge.console.displays import output
from virtgauge.console.options import Full, Minutes, Platforms
from virtgauge.errors import UnavailableError, UsageError, nearest, printable

app = typer.Typer(name="plan", help="List, show and check plans.", no_args_is_help=True)
catalogues = typer.Typer()


@app.command("list", epilog="Example: virtgauge plan list")
def list_() -> None:
    """List the presets."""
    from virtgauge.plan.load import parse_plan, preset_names, preset_text

    for name in preset_names():
        print(f"{name:16} {parse_plan(preset_text(name), f'preset {name}').description}")


@app.command("show", epilog="Example: virtgauge plan show quick > my-plan.toml")
def show(
    plan: Annotated[str, typer.Argument(help="Preset or plan file.")],
    resolved: Annotated[bool, typer.Option(help="With every default written out.")] = False,
    full: Full = False,
) -> None:
    """Print a plan; the place to begin one's own."""
    from virtgauge.plan.load import full_form, load_plan, plan_text

    plan = full_form(plan) if full else plan
    text = load_plan(plan)[0].to_toml() if resolved else plan_text(plan)[0]
    print(printable(text, lines=True), end="")


@app.command("check", epilog="Example: virtgauge plan check paper:storage --minutes 30 --platform uml")
def check(
    plan: Annotated[str, typer.Argument(help="Preset or plan file.")],
    minutes: Minutes = None,
    full: Full = False,
    platform: Platforms = None,
) -> None:
    """Check a plan without measuring: all that is wrong with it, or the size of its design and how long it takes here.

    Platforms are probed, for those that cannot be used take no time.
    """
    import asyncio

    from virtgauge.console.runs import overridden
    from virtgauge.execution.fitting import duration_of, fitted
    from virtgauge.execution.prepare import check_plan, load_checked, probe_arms
    from virtgauge.plan.load import full_form

    loaded, source, design = load_checked(full_form(plan) if full else plan)
    if platform:
        loaded = overridden(loaded, source, None, None, platform)
        design = check_plan(loaded, source)
    trials = design.trials_of_a_repetition(loaded) * loaded.repetitions
    at_most = "at most " if design.depends_on_emulation else ""
    print(
        f"{source}: {len(design.platforms)} platforms{' and the A/A arm' if loaded.aa else ''} × "
        f"{len(design.cells)} cells × {loaded.repetitions} repetitions = {at_most}{trials} trials"
        + (f", on each of {len(loaded.fleet.hosts)} hosts" if loaded.fleet is not None else "")
    )
    try:
        arms = [arm.record for arm in asyncio.run(probe_arms(loaded, design.platforms))]
    except UnavailableError as error:
        print(printable(f"cannot be measured here: {error.message}", lines=True))
    else:
        unusable = [arm.name for arm in arms if not arm.usable and arm.role != "aa"]
        why = f"which cannot be used here: `virtgauge doctor --plan {plan}` says why"
        without = f" (without {', '.join(unusable)}, {why})" if unusable else ""
        print(f"duration on this machine{without}: {duration_of(loaded, design, arms)}")
        if minutes is not None:
            fit = fitted(loaded, source, arms, minutes)
            print(f"in {minutes:g} minutes: {duration_of(fit.plan, check_plan(fit.plan, source), arms)}")
            for words in fit.left_out:
                print(printable(f"  left out: {words}"))
    if design.requirements:
        print(f"requirements: {len(design.requirements)}")
    if loaded.budget is not None:
        print(loaded.budget.told(requirements=bool(design.requirements)))
    for words in design.undecidable():
        print(printable(f"warning: {words}"))
    for words in design.missing_prerequisites():
        print(printable(f"would be skipped: {words}"))


@app.command(
    "from-libvirt",
    epilog="Examples: virtgauge plan from-libvirt web1 > like-web1.toml · "
    "virsh -c qemu+ssh://root@node/system dumpxml web1 | virtgauge plan from-libvirt /dev/stdin",
)
def from_libvirt(
    domain: Annotated[
        str, typer.Argument(metavar="DOMAIN|FILE", help="A domain's name, or the file of its description (.xml).")
    ],
    uri: Annotated[str, typer.Option(help="libvirt's connection.")] = "qemu:///system",
    suites: Annotated[str, typer.Option(metavar="PRESET", help="Whose suites are measured.")] = "quick",
    libvirt: Annotated[bool, typer.Option("--libvirt", help="Have libvirt start the guests: fewer settings.")] = False,
) -> None:
    """Print a plan that measures the like of a running guest, with what was left out of its description and why."""
    from virtgauge.execution.prepare import check_plan
    from virtgauge.plan.load import parse_plan
    from virtgauge.platforms.libvirt.connection import description_of
    from virtgauge.platforms.libvirt.description import Description, read_file
    from virtgauge.platforms.libvirt.translation import translate

    path = Path(domain)
    named = path.suffix == ".xml" or (path.exists() and not path.is_dir())  # a folder may be called as a domain is
    content = read_file(path) if named else description_of(uri, domain)
    kind, own = ("libvirt", uri) if libvirt else ("qemu", None)
    text = translate(Description(content, domain), kind, own).plan(suites)
    check_plan(parse_plan(text, f"the plan from {domain}"), f"the plan from {domain}")
    print(text, end="")


@app.command("reference", epilog="Example: virtgauge plan reference > docs/plan-reference.md")
def reference() -> None:
    """Print every key that a plan may have, with values, default and meaning, as Markdown."""
    from virtgauge.console.plan_reference import plan_reference

    print(plan_reference(), end="")


@catalogues.command(epilog="Example: virtgauge measures storage")
def measures(suite: Annotated[str | None, typer.Argument(help="One suite's only.")] = None) -> None:
    """List the measures of the suites: what a requirement can bound, with units and which way is better."""
    from virtgauge.specs.suites import MEASURES

    if suite is not None and suite not in MEASURES:
        raise UsageError(f"there is no suite {suite!r}{nearest(suite, MEASURES)}", f"use one of {', '.join(MEASURES)}")
    table = Table(box=None, header_style="bold")
    for heading in ("suite", "measure", "units", "better", "meaning"):
        table.add_column(heading, overflow="fold")
    for name in MEASURES if suite is None else [suite]:
        for measure in MEASURES[name].values():
            units = " ".join(unit for unit in measure.quantity.factors if unit)
            table.add_row(name, measure.name, units, measure.better.value, measure.meaning)
    output().print(table)


@catalogues.command(epilog="Example: virtgauge profiles iiot-gateway")
def profiles(
    name: Annotated[str | None, typer.Argument(help="One profile, with its bounds and sources.")] = None,
) -> None:
    """List the profiles: requirements of a kind of use, with the sources of their bounds.

    `virtgauge run NAME` measures what a profile bounds; `virtgauge run PLAN --profile NAME` adds its requirements to a
    plan that measures it.
    """
    from virtgauge.plan.requirements import load_profile, profile_names

    if name is None:
        for known in profile_names():
            print(f"{known:22} {load_profile(known).description}")
        return
    profile = load_profile(name)
    print(profile.description)
    for one in profile.require:
        levels = ", ".join(f"{factor} {' or '.join(wanted)}" for factor, wanted in one.conditions.items())
        against = " of the reference's" if one.compared_with else ""
        print(
            f"\n{one.name}\n  {one.suite}.{one.measure} {one.bound_text}{against}" + (f" ({levels})" if levels else "")
        )
        print(f"  source: {one.source}")
