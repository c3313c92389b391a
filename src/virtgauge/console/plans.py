"""``virtgauge plan``: the presets, and plans of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List, show and check plans.", no_args_is_help=True)


@app.command("list")
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
    from virtgauge.plan.load import load_plan, preset_names, preset_text

    if resolved:
        print(load_plan(plan)[0].to_toml(), end="")
    else:
        print(preset_text(plan) if plan in preset_names() else Path(plan).read_text(), end="")


@app.command("check", epilog="Example: virtgauge plan check my-plan.toml")
def check(plan: Annotated[str, typer.Argument(help="Preset or plan file.")]) -> None:
    """Check a plan without measuring: fields, values, and the size of its design."""
    from virtgauge.execution.prepare import check_plan
    from virtgauge.plan.load import load_plan

    loaded, source = load_plan(plan)
    design = check_plan(loaded, source)
    trials = design.trials_of_a_repetition(loaded) * loaded.repetitions
    print(
        f"{source}: {len(design.platforms)} platforms{' and the A/A arm' if loaded.aa else ''} × "
        f"{len(design.cells)} cells × {loaded.repetitions} repetitions = {trials} trials"
        + (f", on each of {len(loaded.fleet.hosts)} hosts" if loaded.fleet is not None else "")
    )
    if design.requirements:
        until = f"; until they are decided, at most {loaded.budget.repetitions} repetitions" if loaded.budget else ""
        print(f"requirements: {len(design.requirements)}{until}")
    for words in design.shortfalls():
        print(f"would be skipped: {words}")
