"""``virtgauge attach``, ``image`` and ``policy``: guests that virtgauge does not start itself."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from virtgauge.console.options import AsJson, NoProgress, makeable_folder
from virtgauge.errors import UsageError, VirtgaugeError, printable
from virtgauge.host.policy import DiskLimits, Hypervisor, Policy, Target, commands
from virtgauge.image.contents import DEFAULT_PATIENCE_S, SERIAL_DEVICE, DialChannel, ImageChannel, SerialChannel
from virtgauge.image.formats import Format, format_of

attach = typer.Typer(
    name="attach",
    help="Machines that exist already: prepare one that cannot be reached by ssh and calls this machine instead.",
    no_args_is_help=True,
)
attach.callback()(lambda: None)  # a group, although it has one command


@attach.command(
    epilog="Example: virtgauge attach prepare --listen 192.0.2.1:7443\n\n"
    "Example: virtgauge attach prepare --listen 0.0.0.0:7443 --advertise 203.0.113.7:17443 --hours 72 --out esxi-guest"
)
def prepare(
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS:PORT", help="Address and port of this machine: 192.0.2.1:7443."),
    ],
    advertise: Annotated[
        str | None, typer.Option(help="What the machine dials, where that is another address (a NAT, or 0.0.0.0).")
    ] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 31, help="How long the certificates are valid.")] = 24,
    out: Annotated[Path, typer.Option(callback=makeable_folder, help="A new folder for the files.")] = Path(
        "virtgauge-attach"
    ),
) -> None:
    """Make certificates for runs to come, and one file that starts the agent on the machine.

    A run makes its own certificates and says what to start where; this is for a machine that must have its part
    before: an image, a machine that somebody else looks after. Whoever has the file can take the machine's place: keep
    it secret.
    """
    from virtgauge.agent import find_agent
    from virtgauge.platforms.attached.credentials import Credentials
    from virtgauge.platforms.attached.dial_in import IDENTITY_NAME, write_kit
    from virtgauge.platforms.attached.platform import Endpoint

    ends = {}
    for option, text in (("--listen", listen), ("--advertise", advertise or listen)):
        try:
            ends[option] = Endpoint.parse(text)
        except ValueError as error:
            raise UsageError(f"{option} {text}: {error}", f"virtgauge attach prepare {option} 192.0.2.1:7443") from None
    dialled = ends["--advertise"]
    if dialled.everywhere:
        raise UsageError(f"{dialled} cannot be dialled", "give --advertise: what the machine dials")
    agent = find_agent()
    credentials = Credentials.make(datetime.timedelta(hours=hours))
    try:
        out.mkdir(mode=0o700, parents=True)
        credentials.save(out / "credentials.json")
        kit = write_kit(out, agent, credentials, dialled)
    except FileExistsError:
        raise UsageError(f"{out} is there already", "name another folder by --out, or remove it") from None
    except OSError as error:
        raise VirtgaugeError(f"{out} cannot be written: {error.strerror}", "name another folder by --out") from error
    expires = datetime.datetime.fromtimestamp(credentials.expires, datetime.UTC)
    print(
        f"""{kit}: copy it to the machine and run `sh {kit.name}` there; it calls {dialled} until a run answers
{out / IDENTITY_NAME}: for a machine that has this agent already:
    virtgauge-agent --dial {dialled} --identity {IDENTITY_NAME}
{out / "credentials.json"}: stays here; in the plan:

[[platform]]
name = "machine"
kind = "attached"
via = "dial-in"
listen = "{ends["--listen"]}"
{f'advertise = "{dialled}"' + chr(10) if advertise else ""}credentials = "{(out / "credentials.json").resolve()}"

All three are secret, and of no use after {expires:%Y-%m-%d %H:%M} UTC."""
    )


image = typer.Typer(
    name="image",
    help="Build the smallest guest that boots on any hypervisor, and look into one. See docs/image.md.",
    no_args_is_help=True,
)


@image.command(
    epilog="Examples: virtgauge image build --out virtgauge.iso, virtgauge image build --format ova --out guest.ova, "
    "virtgauge image build --out guest.vhdx --dial 192.0.2.1:7443 --identity identity.pem --address 192.0.2.10/24"
)
def build(
    out: Annotated[Path, typer.Option(help="The file; replaced when the new one is whole.")],
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
    as_json: AsJson = False,
    quiet: NoProgress = False,
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


@image.command(epilog="Example: virtgauge image check virtgauge.iso")
def check(image: Annotated[Path, typer.Argument(help="An image.")], as_json: AsJson = False) -> None:
    """Say what an image holds, whether it is whole, and whether its agent is the one of this installation."""
    from virtgauge.image.inspection import inspect

    if not image.is_file():
        raise UsageError(f"there is no file {image}", "name an image that `virtgauge image build` made")
    found = inspect(image)
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        for line in found.lines():
            print(printable(line))
    if found.problems:
        raise typer.Exit(1)


policy = typer.Typer(
    name="policy",
    help="What a guest may use of its host: limit, reservation, weight, cores, disk.",
    no_args_is_help=True,
)
policy.callback()(lambda: None)  # a group, although it has one command


@policy.command(
    "commands",
    epilog="Example: virtgauge policy commands --hypervisor xen --name G --cpu-limit 0.5 --weight 200\n\n"
    "Example: virtgauge policy commands --hypervisor esxi --name G --reservation 1 --vcpus 2 --core-mhz 2600",
)
def policy_commands(
    hypervisor: Annotated[Hypervisor, typer.Option(help="Whose commands.")],
    name: Annotated[str, typer.Option(metavar="GUEST", help="The guest, as the hypervisor knows it.")],
    cpu_limit: Annotated[
        float | None, typer.Option(help="CPU time at most, in whole CPUs (0.5 is half of one).")
    ] = None,
    reservation: Annotated[float | None, typer.Option(help="CPU time against any neighbour, in whole CPUs.")] = None,
    weight: Annotated[int | None, typer.Option(help="Part of what is shared, 1 to 10000; 100 is the default.")] = None,
    cores: Annotated[str | None, typer.Option(metavar="CPUS", help="The host's CPUs that it may run on: 0,1.")] = None,
    read_bps: Annotated[int | None, typer.Option(help="Bytes a second read from its disk.")] = None,
    write_bps: Annotated[int | None, typer.Option(help="Bytes a second written to it.")] = None,
    read_iops: Annotated[int | None, typer.Option(help="Reads a second.")] = None,
    write_iops: Annotated[int | None, typer.Option(help="Writes a second.")] = None,
    vcpus: Annotated[int, typer.Option(min=1, help="The guest's virtual CPUs.")] = 1,
    core_mhz: Annotated[
        int | None, typer.Option(min=1, help="Clock of one of the host's cores; for limits and reservations of ESXi.")
    ] = None,
    medium: Annotated[str, typer.Option(metavar="DISK", help="The guest's disk, as VirtualBox knows it.")] = "DISK.vdi",
    host_cpus: Annotated[
        int, typer.Option(min=1, help="CPUs of the hypervisor's host; limits beyond them are refused.")
    ] = 256,
) -> None:
    """Print the commands that set it, what they do not bring, and how to read back what is in force.

    All that is not a command is a comment of the hypervisor's shell: the whole can be pasted there.
    """
    wanted = Policy(
        cpu_limit=cpu_limit,
        reservation=reservation,
        weight=weight,
        cores=None if cores is None else _listed(cores),
        disk=DiskLimits(read_bps, write_bps, read_iops, write_iops),
        available=tuple(range(host_cpus)),
    )
    if not wanted.given():
        raise UsageError("nothing is asked for", "give at least one of --cpu-limit, --reservation, --weight, --cores …")
    words = commands(wanted, hypervisor, Target(name, vcpus, core_mhz, medium))
    for line in words.lines:
        print(line)
    for part in words.missing:
        print(f"# {part}")
    print("# read back what is in force:")
    for line in words.read_back:
        print(line)


def _listed(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"--cores is {text!r}", "give numbers with commas between them: 0,1") from None
