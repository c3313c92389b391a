"""``virtgauge image``: build a guest that boots on any hypervisor, and look into one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from virtgauge.errors import UsageError
from virtgauge.image.channel import DEFAULT_PATIENCE_S, SERIAL_DEVICE, DialChannel, ImageChannel, SerialChannel
from virtgauge.image.formats import Format, format_of

app = typer.Typer(
    name="image",
    help="Build the smallest guest that boots on any hypervisor, and look into one. See docs/image.md.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_BUILD_EXAMPLES = (
    "Examples: virtgauge image build --out virtgauge.iso, "
    "virtgauge image build --format ova --out guest.ova, "
    "virtgauge image build --out guest.vhdx --dial 192.0.2.1:7443 --identity identity.pem "
    "--address 192.0.2.10/24"
)


@app.callback()
def _room() -> None:
    """Build the smallest guest that boots on any hypervisor, and look into one."""


@app.command(epilog=_BUILD_EXAMPLES)
def build(
    out: Annotated[Path, typer.Option(help="The file; replaced when the new one is whole.", show_default=False)],
    format: Annotated[Format | None, typer.Option(help="What it shall be; by the end of its name otherwise.")] = None,
    serial: Annotated[
        str, typer.Option(metavar="DEVICE", help="The guest's serial line on which its agent waits.")
    ] = SERIAL_DEVICE,
    dial: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Let its agent call this controller instead, over TLS.")
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="With --dial: the identity.pem of `virtgauge attach prepare`.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS/PREFIX", help="With --dial: the guest's own IPv4 address.")
    ] = None,
    gateway: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="With --dial: the way to another network.")
    ] = None,
    nic: Annotated[
        str | None, typer.Option(metavar="MAC", help="With --dial: the interface; the first one by default.")
    ] = None,
    patience: Annotated[
        int,
        typer.Option(metavar="SECONDS", help="With --dial: power off when nobody has answered so long after a guest."),
    ] = DEFAULT_PATIENCE_S,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Build an image: kernel, agent and every hypervisor's drivers, bootable by BIOS and UEFI.

    The same kernel, agent, boot loader and options give the same bytes.
    """
    from virtgauge.image.build import build as build_image
    from virtgauge.image.build import find_ingredients
    from virtgauge.provision.progress import SetUpDisplay

    chosen = format or format_of(out)
    channel: ImageChannel = SerialChannel(serial)
    if dial is not None:
        channel = _dialling(dial, identity, address, gateway, nic, patience)
    elif stray := [name for name, value in (("identity", identity), ("address", address)) if value is not None]:
        raise UsageError(f"--{stray[0]} means nothing without --dial", "give --dial ADDRESS:PORT, or leave it out")
    ingredients = find_ingredients(channel, chosen)
    with SetUpDisplay(Console(stderr=True, quiet=quiet)) as display, display.step("image") as progress:
        built = build_image(ingredients, chosen, out, progress)
    if as_json:
        told = {"path": str(built.path), "format": built.format, "bytes": built.size, "contents": built.contents.record}
        print(json.dumps(told))
        return
    record = built.contents.record
    print(f"{built.path}: {built.format}, {built.size / 1e6:.1f} MB, image {built.contents.digest[:16]}")
    print(f"kernel {record['kernel']}, agent {record['agent_sha256'][:16]}, {len(record['modules'])} drivers and such")


def _dialling(
    controller: str, identity: Path | None, address: str | None, gateway: str | None, nic: str | None, patience: int
) -> DialChannel:
    if identity is None or address is None:
        missing = "--identity FILE" if identity is None else "--address ADDRESS/PREFIX"
        raise UsageError(f"--dial needs {missing}", "see docs/image.md, The way to its agent")
    try:
        content = identity.read_bytes()
    except OSError as error:
        raise UsageError(f"--identity: {identity}: {error.strerror}", "make one: virtgauge attach prepare") from error
    return DialChannel(controller, content, address, gateway, nic, patience)


@app.command(epilog="Example: virtgauge image check virtgauge.iso")
def check(
    image: Annotated[Path, typer.Argument(help="An image.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what an image holds, whether it is whole, and whether its agent is the one of this installation."""
    from virtgauge.image.inspection import inspect

    if not image.is_file():
        raise UsageError(f"there is no file {image}", "name an image that `virtgauge image build` made")
    found = inspect(image)
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        for line in found.lines():
            print(line)
    if found.problems:
        raise typer.Exit(1)
