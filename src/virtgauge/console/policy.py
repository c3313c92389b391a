"""``virtgauge policy``: what a guest may use, in the words of hypervisors that virtgauge does not drive itself."""

from __future__ import annotations

from typing import Annotated

import typer

from virtgauge.errors import UsageError
from virtgauge.host.policy import DiskLimits, Hypervisor, Policy, Target, commands

app = typer.Typer(
    name="policy",
    help="What a guest may use of its host: limit, reservation, weight, cores, disk.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_EXAMPLES = (
    "Example: virtgauge policy commands --hypervisor xen --name G --cpu-limit 0.5 --weight 200\n\n"
    "Example: virtgauge policy commands --hypervisor esxi --name G --reservation 1 --vcpus 2 --core-mhz 2600"
)


@app.callback()
def _room() -> None:
    """What a guest may use of its host: limit, reservation, weight, cores, disk."""


@app.command("commands", epilog=_EXAMPLES)
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
        int | None,
        typer.Option(min=1, help="Clock of one of the host's cores; for limits and reservations of ESXi."),
    ] = None,
    medium: Annotated[str, typer.Option(metavar="DISK", help="The guest's disk, as VirtualBox knows it.")] = "DISK.vdi",
    host_cpus: Annotated[
        int, typer.Option(min=1, help="CPUs of the hypervisor's host; limits beyond them are refused.")
    ] = 256,
) -> None:
    """Print the commands that set it, what they do not bring, and how to read back what is in force.

    All that is not a command is a comment of the hypervisor's shell: the whole can be pasted there.
    """
    policy = Policy(
        cpu_limit=cpu_limit,
        reservation=reservation,
        weight=weight,
        cores=None if cores is None else _listed(cores),
        disk=DiskLimits(read_bps, write_bps, read_iops, write_iops),
        available=tuple(range(host_cpus)),
    )
    if policy.empty:
        raise UsageError("nothing is asked for", "give at least one of --cpu-limit, --reservation, --weight, --cores …")
    words = commands(policy, hypervisor, Target(name, vcpus, core_mhz, medium))
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
