"""The same policy for hypervisors that are administered by commands of their own: the exact words to type.

Sources: Microsoft, Set-VMProcessor and Set-VMHardDiskDrive; VMware, Set-VMResourceConfiguration (PowerCLI); Oracle,
VBoxManage modifyvm, bandwidthctl and storageattach (7.0); Xen, xl(1): sched-credit2, sched-rtds, vcpu-pin, vcpu-set.
"""

from __future__ import annotations

import dataclasses
import enum
import shlex
from collections.abc import Iterator

from virtgauge.host.policy import PLAIN_WEIGHT, Policy

_RTDS_PERIOD_US = 10_000
_HYPER_V_IOPS_BYTES = 8192
"""Hyper-V counts a disk's operations in units of 8 KiB; ESXi in whole operations."""


class Hypervisor(enum.StrEnum):
    """Whose commands."""

    HYPER_V = "hyper-v"
    ESXI = "esxi"
    VIRTUALBOX = "virtualbox"
    XEN = "xen"


@dataclasses.dataclass(frozen=True)
class Target:
    """The guest that the commands are for.

    Attributes:
        name: as the hypervisor knows it.
        vcpus: it has; limits of Hyper-V and VirtualBox are of these.
        core_mhz: of one of the host's cores; ESXi counts CPU time in MHz.
        medium: its disk as VirtualBox knows it.
    """

    name: str
    vcpus: int = 1
    core_mhz: int = 1000
    medium: str = "DISK.vdi"


@dataclasses.dataclass(frozen=True)
class Commands:
    """What to type, and what of the policy it does not bring.

    Attributes:
        lines: in order, for the hypervisor's own shell.
        read_back: prints what is in force afterwards.
        missing: parts of the policy that the hypervisor has no setting for, each with the reason.
    """

    lines: tuple[str, ...]
    read_back: tuple[str, ...]
    missing: tuple[str, ...]


def commands(policy: Policy, hypervisor: Hypervisor, target: Target) -> Commands:
    """The policy in a hypervisor's own words."""
    found = _WRITERS[hypervisor](policy, target)
    return dataclasses.replace(found, missing=(*_beyond(policy, target), *found.missing))


def _beyond(policy: Policy, target: Target) -> Iterator[str]:
    for field, cpus in (("cpu_limit", policy.cpu_limit), ("reservation", policy.reservation)):
        if cpus is not None and cpus > target.vcpus:
            yield f"{field}: {target.name} has {target.vcpus} vCPUs, and no use for {cpus:g} CPUs"


def _hyper_v(policy: Policy, target: Target) -> Commands:
    name, missing = _powershell(target.name), []
    words = []
    # Percentages of all the guest's processors together.
    if policy.cpu_limit is not None:
        words.append(f"-Maximum {_percent(policy.cpu_limit, target.vcpus)}")
    if policy.reservation is not None:
        words.append(f"-Reserve {_percent(policy.reservation, target.vcpus)}")
    if policy.weight is not None:
        words.append(f"-RelativeWeight {min(policy.weight, 10_000)}")
    lines = [f"Set-VMProcessor -VMName {name} {' '.join(words)}"] if words else []
    if policy.cores is not None:
        lines.append(f"Set-VMProcessor -VMName {name} -Count {len(policy.cores)}")
        missing.append("cores: Hyper-V gives a number of them, and not which; the guest must be off")
    bps, iops = policy.disk.bps, policy.disk.iops
    bound = min((value for value in (iops, bps and bps // _HYPER_V_IOPS_BYTES) if value), default=None)
    if bound is not None:
        lines.append(f"Get-VMHardDiskDrive -VMName {name} | Set-VMHardDiskDrive -MaximumIOPS {bound}")
        missing.append("disk: Hyper-V bounds reads and writes together, in operations of 8 KiB")
    return Commands(
        tuple(lines),
        (
            f"Get-VMProcessor -VMName {name} | Format-List Count,Maximum,Reserve,RelativeWeight",
            f"Get-VMHardDiskDrive -VMName {name} | Format-List Path,MaximumIOPS",
        ),
        tuple(missing),
    )


def _esxi(policy: Policy, target: Target) -> Commands:
    words, missing = [], []
    if policy.cpu_limit is not None:
        words.append(f"-CpuLimitMhz {round(policy.cpu_limit * target.core_mhz)}")
    if policy.reservation is not None:
        words.append(f"-CpuReservationMhz {round(policy.reservation * target.core_mhz)}")
    if policy.weight is not None:
        # Plain shares are 1000 for each virtual processor.
        words.append(f"-CpuSharesLevel Custom -NumCpuShares {policy.weight * 1000 * target.vcpus // PLAIN_WEIGHT}")
    if policy.cores is not None:
        words.append(f"-CpuAffinityList {','.join(map(str, policy.cores))}")
    configured = f"Get-VM -Name {_powershell(target.name)} | Get-VMResourceConfiguration"
    lines = [f"{configured} | Set-VMResourceConfiguration {' '.join(words)}"] if words else []
    if policy.disk.iops:
        disk = f"(Get-HardDisk -VM {_powershell(target.name)})[0]"
        lines.append(
            f"{configured} | Set-VMResourceConfiguration -Disk {disk} -DiskLimitIOPerSecond {policy.disk.iops}"
        )
        missing.append("disk: ESXi bounds reads and writes together")
    if policy.disk.bps:
        missing.append("disk: ESXi bounds operations, and not bytes")
    of_disks = f"{configured} | Select-Object -ExpandProperty DiskResourceConfiguration"
    return Commands(tuple(lines), (f"{configured} | Format-List", of_disks), tuple(missing))


def _virtualbox(policy: Policy, target: Target) -> Commands:
    name, lines, missing = shlex.quote(target.name), [], []
    if policy.cpu_limit is not None:
        lines.append(f"VBoxManage modifyvm {name} --cpu-execution-cap={_percent(policy.cpu_limit, target.vcpus)}")
        missing.append(
            "cpu_limit: while the guest runs, it is `controlvm NAME cpuexecutioncap PERCENT`; before VirtualBox 7, "
            "modifyvm calls it --cpuexecutioncap"
        )
    if policy.reservation is not None:
        missing.append("reservation: VirtualBox has none")
    if policy.weight is not None:
        missing.append("weight: VirtualBox has none")
    if policy.cores is not None:
        lines.append(f"VBoxManage modifyvm {name} --cpus={len(policy.cores)}")
        missing.append("cores: VirtualBox gives a number of them, and not which")
    if policy.disk.bps:
        # Without a unit, VirtualBox takes megabytes; its smallest is the kilobyte of 1024.
        group = f"--type=disk --limit={max(1, policy.disk.bps // 1024)}K"
        lines.append(f"VBoxManage bandwidthctl {name} add virtgauge {group}")
        place = f"--storagectl=SATA --port=0 --device=0 --type=hdd --medium={shlex.quote(target.medium)}"
        lines.append(f"VBoxManage storageattach {name} {place} --bandwidthgroup=virtgauge")
        missing.append("disk: VirtualBox bounds reads and writes together")
    if policy.disk.iops:
        missing.append("disk: VirtualBox bounds bytes, and not operations")
    read_back = (
        f"VBoxManage showvminfo {name} --machinereadable",
        f"VBoxManage bandwidthctl {name} list --machinereadable",
    )
    return Commands(tuple(lines), read_back, tuple(missing))


def _xen(policy: Policy, target: Target) -> Commands:
    name, lines, missing = shlex.quote(target.name), [], []
    words = []
    if policy.weight is not None:
        words.append(f"-w {min(policy.weight * 256 // PLAIN_WEIGHT or 1, 65535)}")  # credit2's plain weight is 256
    if policy.cpu_limit is not None:
        words.append(f"-c {round(policy.cpu_limit * 100)}")  # of one physical CPU, whatever the number of virtual ones
    if words:
        lines.append(f"xl sched-credit2 -d {name} {' '.join(words)}")
    if policy.reservation is not None:
        budget = round(policy.reservation / target.vcpus * _RTDS_PERIOD_US)
        lines.append(f"xl sched-rtds -d {name} -v all -p {_RTDS_PERIOD_US} -b {budget} -e 1")
        missing.append(
            "reservation: holds only in a pool with the RTDS scheduler, where cap and weight of credit2 do not"
        )
    if policy.cores is not None:
        lines += [
            f"xl vcpu-set {name} {len(policy.cores)}",
            f"xl vcpu-pin {name} all {','.join(map(str, policy.cores))}",
        ]
    if policy.disk.given():
        missing.append("disk: Xen has no bounds; set dom0's control groups for the guest's backend")
    read_back = [f"xl sched-credit2 -d {name}", f"xl vcpu-list {name}"]
    if policy.reservation is not None:
        read_back.insert(1, f"xl sched-rtds -d {name} -v all")
    return Commands(tuple(lines), tuple(read_back), tuple(missing))


_WRITERS = {
    Hypervisor.HYPER_V: _hyper_v,
    Hypervisor.ESXI: _esxi,
    Hypervisor.VIRTUALBOX: _virtualbox,
    Hypervisor.XEN: _xen,
}


def _percent(cpus: float, vcpus: int) -> int:
    return min(max(round(cpus / vcpus * 100), 1), 100)


def _powershell(text: str) -> str:
    """A literal of PowerShell: nothing in it is evaluated."""
    return "'" + text.replace("'", "''") + "'"
