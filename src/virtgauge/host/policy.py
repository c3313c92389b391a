"""What a guest may use: stated once, and as commands for hypervisors that virtgauge does not configure.

Sources: Microsoft, Set-VMProcessor and Set-VMHardDiskDrive; VMware, Set-VMResourceConfiguration (PowerCLI); Oracle,
VBoxManage modifyvm, bandwidthctl and storageattach (7.0); Xen, xl(1): sched-credit2, sched-rtds, vcpu-pin, vcpu-set.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import shlex
from collections.abc import Mapping

from virtgauge.errors import UsageError

LEAST_WEIGHT, PLAIN_WEIGHT, LARGEST_WEIGHT = 1, 100, 10_000
"""Of Linux's cgroup v2; what other platforms call shares is converted, and what came of it is read back."""
LEAST_CPU_LIMIT = 0.01  # In whole CPUs: the kernel accepts no quota below 1 ms in its period of 100 ms


@dataclasses.dataclass(frozen=True)
class DiskLimits:
    """Upper bounds for a guest's disk; None is no bound."""

    read_bps: int | None = None  # bytes a second
    write_bps: int | None = None  # bytes a second
    read_iops: int | None = None  # operations a second
    write_iops: int | None = None  # operations a second

    @property
    def bps(self) -> int | None:
        """Bytes a second, for a hypervisor that has one bound for both directions."""
        return self.read_bps or self.write_bps

    @property
    def iops(self) -> int | None:
        """Operations a second, likewise."""
        return self.read_iops or self.write_iops

    def given(self) -> dict[str, int]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Policy:
    """What one guest may use; None is no bound, and what everybody gets.
    Raises UsageError: a value that cannot be; the message names field, value and remedy.
    """

    cpu_limit: float | None = None  # CPU time of all its processes and vCPUs, in whole CPUs (0.5 is half of one)
    reservation: float | None = None  # CPU time that it gets against any neighbour, in whole CPUs
    weight: int | None = None  # its part of what is shared, 1 … 10 000; 100 is the default
    cores: tuple[int, ...] | None = None  # the host's CPUs that it may run on
    disk: DiskLimits = DiskLimits()
    available: dataclasses.InitVar[tuple[int, ...] | None] = None  # the CPUs of its machine; None is this one

    def __post_init__(self, available: tuple[int, ...] | None) -> None:
        present = sorted(os.sched_getaffinity(0) if available is None else available)
        if self.cores is not None and (not self.cores or not set(present).issuperset(self.cores)):
            raise UsageError(f"cores is {list(self.cores)}; this machine has the cores {present}", "name some of these")
        capacity = len(present)
        for field, value in (("cpu_limit", self.cpu_limit), ("reservation", self.reservation)):
            if value is not None and not LEAST_CPU_LIMIT <= value <= capacity:
                raise UsageError(
                    f"{field} is {value:g} CPUs; this machine has {capacity}, and less than {LEAST_CPU_LIMIT:g} "
                    "of one is not accepted by its kernel",
                    f"give a value from {LEAST_CPU_LIMIT:g} to {capacity}",
                )
        if self.cpu_limit is not None and self.reservation is not None and self.reservation > self.cpu_limit:
            raise UsageError(
                f"reservation is {self.reservation:g} CPUs, but cpu_limit allows {self.cpu_limit:g}",
                "reserve no more than the limit",
            )
        if self.weight is not None and not LEAST_WEIGHT <= self.weight <= LARGEST_WEIGHT:
            raise UsageError(f"weight is {self.weight}", f"give a whole number from {LEAST_WEIGHT} to {LARGEST_WEIGHT}")
        for field, bound in self.disk.given().items():
            if bound < 1:
                raise UsageError(f"{field} is {bound}", "give a bound of at least 1, or leave it out")

    def given(self) -> tuple[str, ...]:
        fields = dataclasses.fields(self)
        return tuple(field.name for field in fields if getattr(self, field.name) != field.default)


@dataclasses.dataclass(frozen=True)
class Applied:
    """What became of a policy."""

    declared: Policy
    in_force: Mapping[str, str]  # by the knob's name, what the platform says is in force, read back after it was set
    no_effect: tuple[str, ...] = ()  # knobs that were asked for and change nothing here, each with its reason
    # what a knob means on this platform where that is not plain: what is limited together, what of it each virtual
    # processor gets
    notes: tuple[str, ...] = ()


class PolicyError(Exception):
    """A policy that cannot be applied: the knob, what was asked for, and what the platform said."""


def weight_for_share(share: float, *, nearest: bool = False) -> int:
    """The least weight that yields a share of the processors (above 0; 1 is all) beside a plain neighbour, or more.

    Where none does, the largest.  The ``nearest`` one may yield a little less.
    """
    wanted = LARGEST_WEIGHT if share >= 1 else share / (1 - share) * PLAIN_WEIGHT
    whole = round(wanted) if nearest else math.ceil(round(wanted, 6))
    return min(max(whole, LEAST_WEIGHT), LARGEST_WEIGHT)


def xen_weight(weight: int, *, reserves: bool = False) -> int:
    """A weight of virtgauge (100 is everybody's) as Xen's (256 is): the nearest, or no less where it ``reserves``."""
    exact = weight * XEN_WEIGHT / PLAIN_WEIGHT
    return min(max(math.ceil(exact) if reserves else round(exact), _LEAST_XEN_WEIGHT), _LARGEST_XEN_WEIGHT)


XEN_WEIGHT = 256  # Of everybody under credit2, where a weight of virtgauge is 100
_LEAST_XEN_WEIGHT, _LARGEST_XEN_WEIGHT = 1, 65_535
_RTDS_PERIOD_US = 10_000
_HYPER_V_IOPS_BYTES = 8192  # Hyper-V counts a disk's operations in units of 8 KiB; ESXi in whole operations


class Hypervisor(enum.StrEnum):
    """Whose commands."""

    HYPER_V = "hyper-v"
    ESXI = "esxi"
    VIRTUALBOX = "virtualbox"
    XEN = "xen"


@dataclasses.dataclass(frozen=True)
class Target:
    """The guest that the commands are for."""

    name: str  # as the hypervisor knows it
    vcpus: int = 1  # it has; limits of Hyper-V and VirtualBox are of these
    core_mhz: int | None = None  # of one of the host's cores; ESXi counts CPU time in MHz. None where it is not known.
    medium: str = "DISK.vdi"  # its disk as VirtualBox knows it


@dataclasses.dataclass
class Commands:
    """What to type, and what of the policy it does not bring."""

    lines: list[str] = dataclasses.field(default_factory=list)  # in order, for the hypervisor's own shell
    read_back: list[str] = dataclasses.field(default_factory=list)  # prints what is in force afterwards
    # parts of the policy that the hypervisor has no setting for, each with the reason
    missing: list[str] = dataclasses.field(default_factory=list)


def commands(policy: Policy, hypervisor: Hypervisor, target: Target) -> Commands:
    """The policy in a hypervisor's own words.
    Raises UsageError: the hypervisor counts in megahertz, and those of a core are not given.
    """
    found = Commands()
    for field, cpus in (("cpu_limit", policy.cpu_limit), ("reservation", policy.reservation)):
        if cpus is not None and cpus > target.vcpus:
            found.missing.append(f"{field}: {target.name} has {target.vcpus} vCPUs, and no use for {cpus:g} CPUs")
    _WRITERS[hypervisor](policy, target, found)
    return found


def _options(options: Mapping[str, object]) -> str:
    """The options that have a value, as one line."""
    return " ".join(f"{name} {value}" for name, value in options.items() if value is not None)


def _hyper_v(policy: Policy, target: Target, to: Commands) -> None:
    name = _powershell(target.name)
    # Percentages of all the guest's processors together.
    shares = {
        "-Maximum": _percent(policy.cpu_limit, target.vcpus),
        "-Reserve": _percent(policy.reservation, target.vcpus),
        "-RelativeWeight": policy.weight,
    }
    if options := _options(shares):
        to.lines.append(f"Set-VMProcessor -VMName {name} {options}")
    if policy.cores is not None:
        to.lines.append(f"Set-VMProcessor -VMName {name} -Count {len(policy.cores)}")
        to.missing.append("cores: Hyper-V gives a number of them, and not which; the guest must be off")
    bps, iops = policy.disk.bps, policy.disk.iops
    bound = min((value for value in (iops, bps and bps // _HYPER_V_IOPS_BYTES) if value), default=None)
    if bound is not None:
        to.lines.append(f"Get-VMHardDiskDrive -VMName {name} | Set-VMHardDiskDrive -MaximumIOPS {bound}")
        to.missing.append("disk: Hyper-V bounds reads and writes together, in operations of 8 KiB")
    to.read_back.append(f"Get-VMProcessor -VMName {name} | Format-List Count,Maximum,Reserve,RelativeWeight")
    to.read_back.append(f"Get-VMHardDiskDrive -VMName {name} | Format-List Path,MaximumIOPS")


def _esxi(policy: Policy, target: Target, to: Commands) -> None:
    settings = {
        "-CpuLimitMhz": _mhz(policy.cpu_limit, target),
        "-CpuReservationMhz": _mhz(policy.reservation, target),
        # Plain shares are 1000 for each virtual processor.
        "-CpuSharesLevel Custom -NumCpuShares": policy.weight and policy.weight * 1000 * target.vcpus // PLAIN_WEIGHT,
        "-CpuAffinityList": policy.cores and _numbers(policy.cores),
    }
    configured = f"Get-VM -Name {_powershell(target.name)} | Get-VMResourceConfiguration"
    if options := _options(settings):
        to.lines.append(f"{configured} | Set-VMResourceConfiguration {options}")
    if policy.disk.iops:
        disk = f"-Disk (Get-HardDisk -VM {_powershell(target.name)})[0] -DiskLimitIOPerSecond {policy.disk.iops}"
        to.lines.append(f"{configured} | Set-VMResourceConfiguration {disk}")
        to.missing.append("disk: ESXi bounds reads and writes together")
    if policy.disk.bps:
        to.missing.append("disk: ESXi bounds operations, and not bytes")
    to.read_back.append(f"{configured} | Format-List")
    to.read_back.append(f"{configured} | Select-Object -ExpandProperty DiskResourceConfiguration")


def _virtualbox(policy: Policy, target: Target, to: Commands) -> None:
    name = shlex.quote(target.name)
    if policy.cpu_limit is not None:
        to.lines.append(f"VBoxManage modifyvm {name} --cpu-execution-cap={_percent(policy.cpu_limit, target.vcpus)}")
        to.missing.append(
            "cpu_limit: while the guest runs, it is `controlvm NAME cpuexecutioncap PERCENT`; before VirtualBox 7, "
            "modifyvm calls it --cpuexecutioncap"
        )
    if policy.reservation is not None:
        to.missing.append("reservation: VirtualBox has none")
    if policy.weight is not None:
        to.missing.append("weight: VirtualBox has none")
    if policy.cores is not None:
        to.lines.append(f"VBoxManage modifyvm {name} --cpus={len(policy.cores)}")
        to.missing.append("cores: VirtualBox gives a number of them, and not which")
    if policy.disk.bps:
        # Without a unit, VirtualBox takes megabytes; its smallest is the kilobyte of 1024.
        group = f"--type=disk --limit={max(1, policy.disk.bps // 1024)}K"
        to.lines.append(f"VBoxManage bandwidthctl {name} add virtgauge {group}")
        place = f"--storagectl=SATA --port=0 --device=0 --type=hdd --medium={shlex.quote(target.medium)}"
        to.lines.append(f"VBoxManage storageattach {name} {place} --bandwidthgroup=virtgauge")
        to.missing.append("disk: VirtualBox bounds reads and writes together")
    if policy.disk.iops:
        to.missing.append("disk: VirtualBox bounds bytes, and not operations")
    to.read_back.append(f"VBoxManage showvminfo {name} --machinereadable")
    to.read_back.append(f"VBoxManage bandwidthctl {name} list --machinereadable")


def _xen(policy: Policy, target: Target, to: Commands) -> None:
    name = shlex.quote(target.name)
    credits = {
        "-w": policy.weight and xen_weight(policy.weight, reserves=policy.reservation is not None),
        # of one physical CPU, whatever the number of virtual ones
        "-c": policy.cpu_limit and round(policy.cpu_limit * 100),
    }
    if options := _options(credits):
        to.lines.append(f"xl sched-credit2 -d {name} {options}")
    to.read_back.append(f"xl sched-credit2 -d {name}")
    if policy.reservation is not None:
        budget = round(policy.reservation / target.vcpus * _RTDS_PERIOD_US)
        to.lines.append(f"xl sched-rtds -d {name} -v all -p {_RTDS_PERIOD_US} -b {budget} -e 1")
        to.missing.append(
            "reservation: holds only in a pool with the RTDS scheduler, where cap and weight of credit2 do not"
        )
        to.read_back.append(f"xl sched-rtds -d {name} -v all")
    if policy.cores is not None:
        to.lines.append(f"xl vcpu-set {name} {len(policy.cores)}")
        to.lines.append(f"xl vcpu-pin {name} all {_numbers(policy.cores)}")
    if policy.disk.given():
        to.missing.append("disk: Xen has no bounds; set dom0's control groups for the guest's backend")
    to.read_back.append(f"xl vcpu-list {name}")


_WRITERS = {
    Hypervisor.HYPER_V: _hyper_v,
    Hypervisor.ESXI: _esxi,
    Hypervisor.VIRTUALBOX: _virtualbox,
    Hypervisor.XEN: _xen,
}


def _mhz(cpus: float | None, target: Target) -> int | None:
    if cpus is None:
        return None
    if target.core_mhz is None:
        raise UsageError(
            "ESXi counts CPU time in MHz, and the clock of the host's cores is not given",
            "add --core-mhz N; PowerCLI tells it: (Get-VMHost HOST).ExtensionData.Hardware.CpuInfo.Hz / 1e6",
        )
    return round(cpus * target.core_mhz)


def _percent(cpus: float | None, vcpus: int) -> int | None:
    return None if cpus is None else min(max(round(cpus / vcpus * 100), 1), 100)


def _numbers(cores: tuple[int, ...]) -> str:
    return ",".join(map(str, cores))


def _powershell(text: str) -> str:
    """A literal of PowerShell: nothing in it is evaluated."""
    return "'" + text.replace("'", "''") + "'"
