"""How QEMU is set up in production: a plan's keys, and the words of QEMU's command line that they become.

Sources: qemu(1), docs/system/cpu-models-x86 and docs/system/devices/vhost-user of QEMU; what becomes of each is read
back (``monitor.py``), what cannot be here is refused (``refusals.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from virtgauge.plan import Section

Cpu = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=256)]
IOTHREAD = "disks"  # Names of objects on QEMU's command line
MEMORY = "memory"
FIELD = "tuning"  # Of a plan's section: what a setting is called begins with it
PAGE_MIB = {"2M": 2, "1G": 1024}
CACHES = {
    "none": (True, True, False),
    "writeback": (True, False, False),
    "writethrough": (False, False, False),
    "directsync": (False, True, False),
    "unsafe": (True, False, True),
}
"""What a mode is made of: whether writes are acknowledged before a flush, go past the host's cache, ignore flushes."""


class Tuning(Section):
    """How QEMU and its threads are set up on the host. What is left out is as virtgauge sets it up by itself. Each is
    read back from QEMU or from the host before a guest is measured; one that is not in force is a failed launch.
    """

    cpu_model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]+$")] | None = None
    """QEMU's processor model (`-cpu help`); `host` with KVM, `max` without it."""
    cpu_flags: tuple[Annotated[str, Field(pattern=r"^[+-][a-z0-9_.-]+$")], ...] = ()
    """Features of the processor, switched on (`+invtsc`) or off (`-kvmclock`); `+kvm-hint-dedicated` tells the guest
    that its processors are its own."""
    sockets: Count | None = None
    """Of the processors' topology; sockets × cores × threads are the vCPUs, what is left out is 1."""
    cores: Count | None = None
    """Of a socket."""
    threads: Count | None = None
    """Of a core."""
    cpu_pm: bool | None = None
    """Whether the guest itself puts the processor to sleep (`-overcommit cpu-pm`); KVM only. QEMU does not tell it."""
    halt_poll_ns: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """How long KVM waits for an idle vCPU before it sleeps. The kernel has one value for all guests of this machine,
    which is set while guests of this platform run and put back after them."""
    timer_advance: bool | None = None
    """Whether KVM starts the guest's timer early; a parameter of its module, which is checked and not changed."""
    vcpu_cpus: tuple[Cpu, ...] = ()
    """The host's CPUs, one for each vCPU in order."""
    emulator_cpus: tuple[Cpu, ...] = ()
    """The host's CPUs for QEMU's other threads."""
    iothread_cpus: tuple[Cpu, ...] = ()
    """The host's CPUs for the thread of the disks; it takes disk_iothread."""
    isolated_cpus: bool | None = None
    """`true`: the CPUs of vcpu_cpus must be isolated from the host's scheduler (isolcpus)."""
    vcpu_scheduling: Annotated[str, Field(pattern=r"^(other|(fifo|rr):[1-9][0-9]?)$")] | None = None
    """Scheduling class and priority of the vCPUs' threads: `other`, `fifo:N` or `rr:N`; a real-time class takes
    vcpu_cpus, and a CPU must be left to the host."""
    hugepages: Literal["2M", "1G"] | None = None
    """Size of the huge pages that the guest's memory is made of; they must have been reserved."""
    memory_prealloc: bool | None = None
    """Whether the guest's memory is there before it boots."""
    memory_locked: bool | None = None
    """Whether QEMU's memory is locked (`-overcommit mem-lock`)."""
    numa_node: Cpu | None = None
    """The host's NUMA node that the guest's memory is bound to."""
    nic_backend: Literal["tap", "macvtap"] | None = None
    """What carries a guest's frames: a tap, or a macvtap on an interface of the laboratory (`passthru`)."""
    vhost: bool | None = None
    """Whether the host's kernel serves the guest's interfaces (vhost-net), and not QEMU."""
    vhost_user: tuple[Path, ...] = ()
    """Sockets of a switch that serves the guest's interfaces, one for each (OVS-DPDK's `dpdkvhostuser`). They then lead
    to that switch, and not to the laboratory."""
    nic_queues: Count | None = None
    """Pairs of queues of each interface."""
    nic_mergeable: bool | None = None
    """Whether a frame may span several of the guest's buffers (`mrg_rxbuf`)."""
    nic_tx: Literal["bh", "timer"] | None = None
    """Whether QEMU sends what a guest has queued as soon as it can, or waits for more."""
    pci_devices: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")], ...] = ()
    """Addresses of the host's PCI devices (`0000:3b:00.0`) that are passed through by VFIO. They are bound to vfio-pci
    while a guest has them, and given back to their driver; no disk, and no interface that is up."""
    disk_cache: Literal["none", "writeback", "writethrough", "directsync", "unsafe"] | None = None
    """QEMU's cache mode of a data disk; by default `none` where the image's filesystem can, else `writeback`."""
    disk_aio: Literal["threads", "native", "io_uring"] | None = None
    """How QEMU hands a disk's reads and writes to the host."""
    disk_iothread: bool | None = None
    """Whether a thread of their own serves the disks."""
    disk_discard: bool | None = None
    """Whether the guest may give back blocks of a disk."""
    disk_queues: Count | None = None
    """Queues of a disk."""
    hpet: bool | None = None
    """Whether the guest has a high precision event timer; not on a microvm."""
    pit: bool | None = None
    """Whether it has an 8254 timer."""
    rtc_lost_ticks: Literal["discard", "slew"] | None = None
    """What becomes of ticks of its real-time clock that it missed."""
    pit_lost_ticks: Literal["discard", "delay"] | None = None
    """The same of KVM's 8254 timer."""
    qemu_options: tuple[str, ...] = ()
    """Further words for QEMU's command line, as they are; recorded, and not read back."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:  # In place of the base's, which tells the first alone
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.disk_aio == "native" and self.disk_cache not in (None, "none", "directsync"):
            yield f'disk_aio = "native" takes disk_cache = "none" or "directsync", not {self.disk_cache!r}'
        if self.iothread_cpus and not self.disk_iothread:
            yield "iothread_cpus: there is no such thread; set disk_iothread = true, or leave it out"
        if self.isolated_cpus and not self.vcpu_cpus:
            yield "isolated_cpus = true: which? name them by vcpu_cpus"
        if len(set(self.vcpu_cpus)) < len(self.vcpu_cpus):
            yield f"vcpu_cpus = {list(self.vcpu_cpus)}: two vCPUs on one CPU; name each once"
        if self.real_time and not self.vcpu_cpus:
            yield f"vcpu_scheduling = {self.vcpu_scheduling!r} could take every CPU of the host; name some by vcpu_cpus"
        if self.real_time and (both := sorted({*self.vcpu_cpus} & {*self.emulator_cpus, *self.iothread_cpus})):
            yield f"CPU {both[0]} is for real-time vCPUs and for QEMU's other threads, which would starve; give others"
        if self.vhost_user and (self.vhost or self.nic_backend):
            yield "vhost_user is served by a switch, and has neither vhost nor nic_backend; leave these out"
        flags = [flag[1:] for flag in self.cpu_flags]
        if twice := next((flag for flag in flags if flags.count(flag) > 1), None):
            yield f"cpu_flags names {twice!r} twice; say it once"

    @property
    def real_time(self) -> bool:
        """Whether vCPUs go before everything else of the host."""
        return self.vcpu_scheduling not in (None, "other")

    @property
    def filled_by(self) -> str | None:
        """The field by which a guest takes all its memory at launch, and not of pages that were reserved."""
        names = () if self.hugepages is not None else ("memory_locked", "memory_prealloc")
        return next((name for name in names if getattr(self, name)), None)

    @property
    def of_nics(self) -> list[str]:
        """Fields about interfaces, as far as they are given."""
        names = {"nic_backend", "vhost", "vhost_user", "nic_queues", "nic_mergeable", "nic_tx"}
        return sorted(names & self.given().keys())

    def given(self) -> dict[str, Any]:
        """What the plan says, by field."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def cpu(self, usual: str) -> str:
        """The processor, where a model with its properties is the usual one."""
        model = usual if self.cpu_model in (None, usual.partition(",")[0]) else self.cpu_model
        return ",".join([str(model), *(f"{flag[1:]}={'on' if flag[0] == '+' else 'off'}" for flag in self.cpu_flags)])

    def machine(self, usual: str) -> str:
        """The machine type with its properties."""
        return usual + _options(
            {"hpet": self.hpet, "pit": self.pit, "memory-backend": MEMORY if self._has_backend else None}
        )

    def processors(self, vcpus: int) -> str:
        """The value of ``-smp``."""
        if not any(self.topology):
            return str(vcpus)
        sockets, cores, threads = (number or 1 for number in self.topology)
        return f"{vcpus},sockets={sockets},cores={cores},threads={threads}"

    @property
    def topology(self) -> tuple[int | None, int | None, int | None]:
        return self.sockets, self.cores, self.threads

    @property
    def _has_backend(self) -> bool:
        backed = self.hugepages is not None or self.memory_prealloc is not None or self.numa_node is not None
        return backed or bool(self.vhost_user)  # whose switch shares the guest's memory

    def words(self, memory_mib: int) -> list[str]:
        """What is nobody else's."""
        made = []
        if self._has_backend:
            shared = bool(self.vhost_user)
            properties = {
                "share": shared,
                "hugetlb": True if self.hugepages else None,
                "hugetlbsize": self.hugepages,
                "prealloc": self.memory_prealloc,
                "host-nodes": self.numa_node,
                "policy": None if self.numa_node is None else "bind",
            }
            kind = "memfd" if self.hugepages or shared else "ram"
            made += ["-object", f"memory-backend-{kind},id={MEMORY},size={memory_mib}M{_options(properties)}"]
        if self.disk_iothread:
            made += ["-object", f"iothread,id={IOTHREAD}"]
        for name, on in (("mem-lock", self.memory_locked), ("cpu-pm", self.cpu_pm)):
            made += [] if on is None else ["-overcommit", f"{name}={_switch(on)}"]
        if self.rtc_lost_ticks is not None:
            made += ["-rtc", f"driftfix={'slew' if self.rtc_lost_ticks == 'slew' else 'none'}"]
        if self.pit_lost_ticks is not None:
            made += ["-global", f"kvm-pit.lost_tick_policy={self.pit_lost_ticks}"]
        for number, address in enumerate(self.pci_devices):
            made += ["-device", f"vfio-pci,id=pci{number},host={address}"]
        for number, path in enumerate(self.vhost_user):
            made += ["-chardev", f"socket,id=switch{number},path={str(path).replace(',', ',,')}"]
        return [*made, *self.qemu_options]

    def drive(self) -> str:
        """What ``-drive`` of a data disk has besides."""
        discard = None if self.disk_discard is None else "unmap" if self.disk_discard else "ignore"
        return _options({"aio": self.disk_aio, "discard": discard})

    def disk_device(self, name: str) -> str:
        """What the device of a data disk has besides; with an id, by which it is read back."""
        thread = IOTHREAD if self.disk_iothread else None
        made = _options({"iothread": thread, "num-queues": self.disk_queues, "discard": self.disk_discard})
        return f",id={name}-device{made}" if made or self.disk_iothread is not None else ""

    def netdev(self, number: int, descriptors: tuple[int, ...]) -> str:
        if self.vhost_user:
            return f"vhost-user,id=net{number},chardev=switch{number},queues={self.nic_queues or 1}"
        inherited = f"fd={descriptors[0]}" if len(descriptors) == 1 else f"fds={':'.join(map(str, descriptors))}"
        return f"tap,id=net{number},{inherited},vhost={_switch(bool(self.vhost))}"

    def nic_device(self, number: int, *, pci: bool) -> str:
        """What an interface's device has besides; with an id, by which it is read back."""
        if not self.of_nics:
            return ""
        queues = self.nic_queues
        properties = {
            "mq": None if queues is None else queues > 1,
            "vectors": 2 * queues + 2 if queues is not None and pci else None,
            "mrg_rxbuf": self.nic_mergeable,
            "tx": self.nic_tx,
        }
        return f",id=nic{number}{_options(properties)}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _options(properties: Mapping[str, str | int | None]) -> str:
    """Those that something is said of, as QEMU's command line has them behind a device or an object."""
    said = {name: _switch(value) if isinstance(value, bool) else value for name, value in properties.items()}
    return "".join(f",{name}={value}" for name, value in said.items() if value is not None)
