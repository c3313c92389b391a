"""Which of a plan's settings of QEMU cannot be had here: field, value, reason, remedy, before anything is started."""

from __future__ import annotations

import dataclasses
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from virtgauge.host.lending import PCI, VFIO, driver_of, is_vfio, used_by_host
from virtgauge.host.load import available_mib
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.process import assignable_cpus, isolated_cpus, text_of
from virtgauge.host.realtime_settings import timer_advance
from virtgauge.platforms.base import Availability
from virtgauge.platforms.qemu.tuning import FIELD, PAGE_MIB, Tuning

HALT_POLL = Path("sys/module/kvm/parameters/halt_poll_ns")
_ADVANCE = Path("sys/module/kvm/parameters")
_ADVANCE_NS = "lapic_timer_advance_ns"  # Of older kernels, which let root write it: it counts for later guests
_KVM_ONLY = ("cpu_pm", "halt_poll_ns", "timer_advance", "pit_lost_ticks")
_KVM_FLAGS = ("kvm", "hv-")  # Begin the names of what KVM alone tells a guest
_PCI_BRIDGE = "0x0604"  # Class of the bridges that share a group with what is behind them, and stay the host's
Refusals = Iterator[tuple[str, str, str]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """A guest that is to be started."""

    tuning: Tuning
    accelerator: str
    machine: str
    vcpus: int
    memory_mib: int
    root: Path = Path("/")  # where this machine's files are

    @property
    def microvm(self) -> bool:
        return self.machine.startswith("microvm")


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why one setting is refused."""

    field: str
    value: Any
    why: str
    remedy: str

    def __str__(self) -> str:
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        return f"{FIELD}.{self.field} = {shown}: {self.why}"


def refusals(asked: Asked) -> list[Refusal]:
    """All of them; empty where everything can be tried."""
    each = (_of_kvm, _of_processors, _of_memory, _of_devices)
    given = asked.tuning.given()
    return [Refusal(field, given[field], *said) for of in each for field, *said in of(asked)]


def refusal_of(asked: Asked) -> Availability | None:
    """All of them in one; None where there is none."""
    found = refusals(asked)
    remedies = dict.fromkeys(one.remedy for one in found)
    return Availability(False, "; ".join(map(str, found)), "; ".join(remedies)) if found else None


def _of_kvm(asked: Asked) -> Refusals:
    tuning = asked.tuning
    if asked.accelerator != "kvm":
        for field in (name for name in _KVM_ONLY if getattr(tuning, name) is not None):
            yield field, "only KVM has it, and this guest is emulated", 'leave it out, or give accelerator = "kvm"'
        if tuning.cpu_model == "host":
            yield "cpu_model", "an emulated processor is none of the host's", 'give "max", or leave it out'
        if flag := next((one for one in tuning.cpu_flags if one[1:].startswith(_KVM_FLAGS)), None):
            yield "cpu_flags", f"only KVM has {flag[1:]}, and this guest is emulated", "leave it out"
        return
    if tuning.halt_poll_ns is not None and not os.access(asked.root / HALT_POLL, os.W_OK):
        yield "halt_poll_ns", f"/{HALT_POLL} may not be written", AS_ROOT
    if tuning.timer_advance is not None and (said := timer_advance(asked.root)) is not tuning.timer_advance:
        found = "does not tell" if said is None else f"says {str(said).lower()}"
        remedy = f"load kvm with lapic_timer_advance={'Y' if tuning.timer_advance else 'N'}"
        if (asked.root / _ADVANCE / _ADVANCE_NS).exists():
            remedy = f"echo {-1 if tuning.timer_advance else 0} > /{_ADVANCE / _ADVANCE_NS}"
        yield "timer_advance", f"KVM's module {found} (/{_ADVANCE})", remedy


def _of_processors(asked: Asked) -> Refusals:
    tuning, allowed = asked.tuning, assignable_cpus()
    if any(tuning.topology):
        sockets, cores, threads = (number or 1 for number in tuning.topology)
        if (product := sockets * cores * threads) != asked.vcpus:
            field = next(name for name in ("sockets", "cores", "threads") if getattr(tuning, name))
            said = f"{sockets} × {cores} × {threads} processors are {product}, and the guest has {asked.vcpus}"
            yield field, said, "give as many, or set vcpus"
    for field in ("vcpu_cpus", "emulator_cpus", "iothread_cpus"):
        if not allowed.issuperset(cpus := getattr(tuning, field)):
            yield field, f"this machine lets us use the CPUs {sorted(allowed)}", "name some of these"
        elif field == "vcpu_cpus" and cpus and len(cpus) != asked.vcpus:
            yield field, f"the guest has {asked.vcpus} vCPUs", "name one CPU for each, or set vcpus"
    if tuning.isolated_cpus and (shared := sorted(set(tuning.vcpu_cpus) - isolated_cpus(asked.root))):
        remedy = f"boot the host with isolcpus={','.join(map(str, tuning.vcpu_cpus))}"
        yield "isolated_cpus", f"the host's scheduler balances work over the CPUs {shared}", remedy
    if tuning.real_time:
        if lacks := lacking("CAP_SYS_NICE"):
            yield "vcpu_scheduling", f"the kernel does not let us{lacks}", AS_ROOT
        if set(tuning.vcpu_cpus) >= os.sched_getaffinity(0):  # of which virtgauge itself needs one
            remedy = "leave a CPU of vcpu_cpus to the host"
            yield "vcpu_scheduling", "vCPUs that are busy would stop this machine, and virtgauge with it", remedy


def _of_memory(asked: Asked) -> Refusals:
    tuning, mib = asked.tuning, asked.memory_mib
    if tuning.hugepages is not None:
        size = PAGE_MIB[tuning.hugepages]
        folder, name = asked.root / "sys/kernel/mm/hugepages", f"hugepages-{size * 1024}kB"
        needed, free = -(-mib // size), _number(folder / name / "free_hugepages")
        free = None if free is None else free - (_number(folder / name / "resv_hugepages") or 0)  # promised to somebody
        of_node = asked.root / f"sys/devices/system/node/node{tuning.numa_node}/hugepages"
        if free is not None and of_node.is_dir() and (there := _number(of_node / name / "free_hugepages") or 0) < free:
            folder, free = of_node, there  # the guest has no other node's
        if free is None:
            yield "hugepages", "this kernel has none of that size", "give another size"
        elif mib % size:
            yield "hugepages", f"{mib} MiB are no whole number of pages", f"set memory_mib to a multiple of {size}"
        elif free < needed:
            remedy = f"reserve some: echo {needed} > /{(folder / name).relative_to(asked.root)}/nr_hugepages"
            yield "hugepages", f"{needed} pages are needed, and {free} are free", remedy
    if tuning.numa_node is not None and not (asked.root / f"sys/devices/system/node/node{tuning.numa_node}").is_dir():
        nodes = sorted(one.name[4:] for one in (asked.root / "sys/devices/system/node").glob("node[0-9]*"))
        yield "numa_node", f"this machine has the nodes {', '.join(nodes) or '(none)'}", "name one of these"
    if tuning.memory_locked:
        limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        if limit != resource.RLIM_INFINITY and limit < mib << 20 and (lacks := lacking("CAP_IPC_LOCK")):
            yield "memory_locked", f"a process may lock {limit >> 20} MiB{lacks}", f"{AS_ROOT}, or ulimit -l unlimited"
    if (field := tuning.filled_by) and (free := available_mib(asked.root)) is not None and free < mib:
        yield field, f"the guest has {mib} MiB, and {free} MiB are available", "set memory_mib to less"


def _of_devices(asked: Asked) -> Refusals:
    tuning, root = asked.tuning, asked.root
    if tuning.hpet is not None and asked.microvm:
        yield "hpet", "a microvm has none", 'leave it out, or give machine = "q35"'
    if tuning.disk_iothread and asked.microvm and asked.accelerator != "kvm":
        remedy = 'give machine = "q35", or leave it out'
        yield "disk_iothread", "an emulated microvm's devices have no notifiers, which its thread needs", remedy
    if tuning.vhost:
        device = root / "dev/vhost-net"
        if not device.exists():
            yield "vhost", "there is no /dev/vhost-net", "modprobe vhost_net"
        elif not os.access(device, os.R_OK | os.W_OK):
            yield "vhost", "/dev/vhost-net is not accessible", AS_ROOT
    for path in tuning.vhost_user:
        if not (os.access(path, os.F_OK) and path.is_socket()):
            yield "vhost_user", f"{path} is no socket", "start the switch that serves it"
    if tuning.pci_devices and asked.microvm:
        yield "pci_devices", "a microvm has no PCI bus", 'give machine = "q35"'
    for address in tuning.pci_devices:
        yield from (("pci_devices", *said) for said in _of_pci(root, address, tuning.pci_devices))


def _of_pci(root: Path, address: str, named: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    device = root / PCI / "devices" / address
    if not device.is_dir():
        yield f"there is no {address}", "`lspci -D` lists the addresses"
        return
    group = device / "iommu_group"
    if not group.exists():
        yield f"{address} is behind no IOMMU", "boot with intel_iommu=on or amd_iommu=on, and have firmware enable it"
        return
    if not (root / "dev/vfio/vfio").exists() or not (root / PCI / "drivers" / VFIO).is_dir():
        yield f"there is no /dev/vfio/vfio, or no driver {VFIO}", f"modprobe {VFIO}"
    devices = (group / "devices").iterdir()
    members = [one for one in devices if not (text_of(one / "class") or "").startswith(_PCI_BRIDGE)]
    for one in sorted(members, key=lambda member: member.name):
        driver, by_hand = driver_of(one), f"driverctl set-override {one.name} {VFIO}"
        if one.name not in named:
            if driver not in (None, "pci-stub") and not is_vfio(driver):  # with others a group is no guest's
                yield f"{one.name} is bound to {driver} and in the group of {address}", f"name it, too, or {by_hand}"
        elif one.name == address and not is_vfio(driver):
            if (used := used_by_host(one)) is not None:
                yield f"this machine has {used}, on {address}", f"take it out of use, and {by_hand}"
            elif not os.access(one / "driver_override", os.W_OK):
                yield f"{address} is bound to {driver or 'no driver'}", AS_ROOT


def _number(file: Path) -> int | None:
    text = text_of(file)
    return int(text) if text and text.isdigit() else None
