"""``virtgauge profiles``: the named sets of requirements."""

from __future__ import annotations

from typing import Annotated

import typer


def mount(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: virtgauge profiles iiot-gateway")(profiles)


def profiles(
    name: Annotated[
        str | None, typer.Argument(help="One profile, with its bounds and sources.", show_default=False)
    ] = None,
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
