"""``virtgauge plan``: the presets, and plans of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List, show and check plans.", no_args_is_help=True)


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
) -> None:
    """Print a plan; the place to begin one's own."""
    from virtgauge.plan.load import load_plan, plan_text

    print(load_plan(plan)[0].to_toml() if resolved else plan_text(plan)[0], end="")


@app.command("check", epilog="Example: virtgauge plan check my-plan.toml")
def check(plan: Annotated[str, typer.Argument(help="Preset or plan file.")]) -> None:
    """Check a plan without measuring: all that is wrong with it, or the size of its design."""
    from virtgauge.console.displays import duration_text
    from virtgauge.execution.prepare import load_checked

    loaded, source, design = load_checked(plan)
    trials = design.trials_of_a_repetition(loaded) * loaded.repetitions
    at_most = "at most " if design.depends_on_emulation else ""
    print(
        f"{source}: {len(design.platforms)} platforms{' and the A/A arm' if loaded.aa else ''} × "
        f"{len(design.cells)} cells × {loaded.repetitions} repetitions = {at_most}{trials} trials"
        + (f", on each of {len(loaded.fleet.hosts)} hosts" if loaded.fleet is not None else "")
    )
    seconds = design.seconds_of_a_repetition(loaded) * loaded.repetitions
    print(f"measuring: about {duration_text(seconds)} by its settings, besides launching guests and repeating trials")
    if design.requirements:
        until = f"; until they are decided, at most {loaded.budget.repetitions} repetitions" if loaded.budget else ""
        print(f"requirements: {len(design.requirements)}{until}")
    for words in design.undecidable():
        print(f"warning: {words}")
    for words in design.missing_prerequisites():
        print(f"would be skipped: {words}")


@app.command("reference", epilog="Example: virtgauge plan reference > docs/plan-reference.md")
def reference() -> None:
    """Print every key that a plan may have, with values, default and meaning, as Markdown."""
    from virtgauge.console.plan_reference import plan_reference

    print(plan_reference(), end="")
