"""The interface of a platform: a way of running code whose cost is to be measured.

A platform's only hard duty is to start the agent and to hand back its stream.  Everything that a
suite does with a guest goes through :class:`Guest`; nothing outside ``platforms/`` knows how a guest
is made.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import BaseModel

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import Channel
from virtgauge.errors import UnavailableError, printable
from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.load import WatchedMachine
from virtgauge.host.policy import Applied, Policy
from virtgauge.host.process import boot_id
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.namespace import Namespace
from virtgauge.plan import Section

_TCG_SIGNATURE = "TCGTCGTCGTCG"
"""What QEMU's Tiny Code Generator answers to CPUID leaf 0x40000000 (``target/i386/cpu.c``); KVM has its own."""
_TCG_MODEL = "QEMU TCG CPU"  # Of QEMU's processor ``max``, which has this name without hardware virtualization only
_GENERIC_MODEL = "QEMU Virtual CPU"  # Of ``qemu64`` and ``kvm64``'s kin, with and without hardware virtualization
_SIGNATURES = {
    "KVMKVMKVM": "kvm",
    _TCG_SIGNATURE: "qemu",
    "Microsoft Hv": "hyperv",
    "VMwareVMware": "vmware",
    "XenVMMXenVMM": "xen",
    "VBoxVBoxVBox": "vbox",
}
"""What hypervisors answer to CPUID leaf 0x40000000 (``arch/x86/kernel/cpu/hypervisor.c`` and its kin)."""
_HYPER_V = "Virtual Machine"  # What its firmware calls every guest
_PRODUCTS = {"VirtualBox": "vbox", "Standard PC": "qemu", "KVM$": "qemu", "VMware": "vmware", "HVM domU": "xen"}
"""What their firmware calls the machine, as patterns of its beginning; plain ``KVM`` is QEMU as Red Hat builds it.  It
goes before the signature: VirtualBox answers as KVM to guests that are Linux, and KVM as Hyper-V where a guest is given
Hyper-V's interfaces.  KVM's signature alone is of many monitors (those of clouds, Firecracker, Cloud Hypervisor), which
are not the papers' QEMU.  VMware's products are all alike to their guests."""
MOST_DISKS = 2  # Of a guest


@dataclasses.dataclass(frozen=True)
class Emulation:
    """What a guest says of its processor."""

    certain: bool  # it is simulated; otherwise it may be
    words: str  # what says so


def emulation_told(facts: Mapping[str, Any]) -> Emulation | None:
    """What an agent's facts say; None where nothing speaks for emulation, which is no proof that there is none."""
    signature = str((facts.get("hypervisor") or {}).get("signature") or "").strip("\0 ")
    model = str((facts.get("cpu") or {}).get("model") or "").strip()
    if signature == _TCG_SIGNATURE:
        return Emulation(True, f"its hypervisor answers {_TCG_SIGNATURE}: QEMU without hardware virtualization")
    if model.startswith(_TCG_MODEL):
        return Emulation(True, f"its processor is {model!r}: QEMU without hardware virtualization")
    if model.startswith(_GENERIC_MODEL) and not signature:
        return Emulation(
            False, f"its processor is {model!r} and names no hypervisor: it may be QEMU without hardware virtualization"
        )
    return None


def hypervisor_told(facts: Mapping[str, Any]) -> str:
    """Whose virtual machine an agent's facts say that it is on, by the words of libvirt's URIs; empty where none is.

    ``vmware`` is any of that maker's.
    """
    told = facts.get("hypervisor") or {}
    product, signature = str(told.get("product") or ""), str(told.get("signature") or "").strip("\0 ")
    if told.get("type") == "xen":  # a guest that Xen lets see no CPUID of its own, or the domain that controls it
        return "" if told.get("controls") else "xen"
    if not told.get("present"):
        return ""
    named = next((name for pattern, name in _PRODUCTS.items() if re.match(pattern, product)), "")
    if not named and signature == "Microsoft Hv" and product != _HYPER_V:
        return ""  # who else has its interfaces
    return named or _SIGNATURES.get(signature, "")


@dataclasses.dataclass(frozen=True)
class Recognition:
    """What a guest's own facts say of the machine that it is, where nothing else could."""

    hypervisor: str = ""  # whose virtual machine, by the words of libvirt's URIs; empty where none is known
    processor: str = ""  # of the other computer that it runs on; empty where that is this one, or one like it
    physical: bool = False  # nothing says that it is a guest
    doubts: tuple[str, ...] = ()  # what cannot be told, or is not what the plan says

    def words(self) -> str:
        what = f"a virtual machine of {self.hypervisor}" if self.hypervisor else "of no known hypervisor"
        return what + (f" on {self.processor}" if self.processor else "")


@dataclasses.dataclass(frozen=True)
class Availability:
    """Whether a platform can be used on this machine."""

    usable: bool  # a guest of this platform can be launched here, now
    reason: str  # one line: what makes it usable, or what is missing
    # the command (or step) that would make it usable; None when it already is, or when nothing can
    fix: str | None = None
    # versions and facts worth recording with a run (runtime version, accelerator …)
    details: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Share:
    """A folder of the host for a guest; an absolute path, which is the guest's too."""

    path: Path
    writable: bool = False


@dataclasses.dataclass(frozen=True)
class Disk:
    """An ext4 image for a guest (``host/mounts.py`` makes one), which finds it mounted.

    A container and the host see it through a loop device of the host, a virtual machine as a disk of its own.  It
    belongs to one running guest at a time, and stays as that guest left it: another may be given it next.
    """

    image: Path  # the file; on a real disk as a rule (:meth:`Scope.scratch_folder`)
    folder: Path  # where the guest finds it: an absolute path below the scope's folder, made where it is absent


@dataclasses.dataclass(frozen=True)
class GuestSpec:
    """What a guest shall have.
    Raises NetworkError: interfaces without a lab; ValueError: CPUs that this process may not use, a limit that leaves
    nothing, or a disk whose folder the reclaim would not find.
    """

    name: str  # unique within the scope; letters, digits and dashes
    scope: Scope  # everything made for the guest is registered there, and reclaimed through it
    agent: AgentBinary
    vcpus: int | None = None  # processors of the guest; None leaves the platform's own default (the host has all)
    memory_mib: int | None = None  # memory of the guest; None leaves the platform's own default
    ready_timeout_s: float = 60.0  # a guest whose agent has not answered by then is a failed launch
    # its network interfaces, configured when launch returns. Without any it has no network of its own: the host's
    # agent keeps the machine's, every other guest has its loopback.
    nics: tuple[Nic, ...] = ()
    # the namespace in which the other ends of the interfaces appear, up and named after ``Nic.port``. The host's
    # agent, given a lab and no interfaces, runs in the lab itself.
    lab: Namespace | None = None
    # a further interface of the host's agent, whose other end is its own as well: what a tester can do without
    # anything between its ends. The lab's ends of its interfaces then take what it sends by live XDP.
    loop: Nic | None = None
    forwarding: bool = False  # the guest's kernel routes IPv4 between its interfaces
    cpus: tuple[int, ...] | None = None  # the host's CPUs that its processes may run on; None leaves all
    cpu_limit: float | None = None  # quota of CPU time for all its processes together, in whole CPUs; None is no limit
    # folders of the host that the guest finds under the same paths. A guest with a filesystem of its own (a virtual
    # machine) has them with ``host_root`` only; what needs one finds that out.
    shares: tuple[Share, ...] = ()
    # what its agent may do beyond what guests of the platform may, where the kernel asks (``CAP_…``)
    capabilities: tuple[str, ...] = ()
    # disks of its own, two at most, mounted when launch returns; a policy's bounds are of the first
    disks: tuple[Disk, ...] = ()
    # the host's programs are there under the host's paths: its system folders, read-only below a private layer in
    # memory (on the host they are the host's own; in gVisor, with something that it may write to, they have no such
    # layer). The host and containers have them always; a virtual machine on request, and its ``shares`` with them, of
    # which it may keep what it has once read of those that it may not write.
    host_root: bool = False

    @property
    def disk_shares(self) -> tuple[Share, ...]:
        """Its disks, where this host has them mounted for it."""
        return tuple(Share(disk.folder, writable=True) for disk in self.disks)

    def __post_init__(self) -> None:
        if self.nics and self.lab is None:
            raise NetworkError(f"the interfaces of {self.name} lead nowhere", "give the guest a lab")
        if self.forwarding and not self.nics:
            raise NetworkError(f"{self.name} shall forward, but has no interfaces", "give the guest its interfaces")
        if self.cpus is not None:
            allowed = os.sched_getaffinity(0)
            if not self.cpus or not allowed.issuperset(self.cpus):
                raise ValueError(f"{self.name} may use the CPUs {sorted(allowed)}, not {list(self.cpus)}")
        if self.cpu_limit is not None and not self.cpu_limit > 0:
            raise ValueError(f"{self.name} needs more than {self.cpu_limit} CPUs to run at all")
        if len(self.disks) > MOST_DISKS:
            raise ValueError(f"{self.name} has {len(self.disks)} disks; {MOST_DISKS} are the most")
        for disk in self.disks:
            if not disk.folder.is_relative_to(self.scope.folder):
                raise ValueError(f"the disk of {self.name} belongs below {self.scope.folder}, not in {disk.folder}")

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders of the guest, below which alone its agent makes files."""
        return (*(share.path for share in self.shares if share.writable), *(disk.folder for disk in self.disks))


@dataclasses.dataclass(frozen=True)
class Accounting:
    """CPU time charged to a guest, as seen from outside of it."""

    # CPU time of all its processes and, for a VM, of its vCPUs and device threads; None where it cannot be known from
    # here
    cpu_ns: int | None
    method: str  # where the figure comes from (``cgroup cpuacct``, ``cgroup cpu.stat``, ``/proc``)
    # whether the guest works on this machine's CPUs; a simulated guest invents its time, and an attached one has its
    # own. What this machine's CPUs do meanwhile says nothing of such a guest.
    of_this_machine: bool = True


@dataclasses.dataclass(frozen=True)
class Confinement:
    """What a guest may use of the host's CPUs, read back from the kernel; None where not known or not limited."""

    cpus: tuple[int, ...] | None = None  # on which its processes may run
    cpu_limit: float | None = None  # quota of CPU time, in whole CPUs
    # why what the host's kernel does for the guest (routing) is neither confined nor charged to it, in words; None
    # where it is, or where the guest has a kernel of its own
    unbound: str | None = None


class LaunchError(Exception):
    """A guest did not come up: the stage that failed, and the tail of what it printed."""

    def __init__(self, stage: str, message: str, log_tail: str = "") -> None:
        told = f"{stage}: {message}" + (f"\n{log_tail.rstrip()}" if log_tail.strip() else "")
        super().__init__(printable(told, lines=True))
        self.stage = stage
        self.log_tail = log_tail


@contextlib.contextmanager
def stage(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Within a launch: these errors become the :class:`LaunchError` of a stage."""
    try:
        yield
    except errors as error:
        raise LaunchError(name, str(error)) from error


class Guest(abc.ABC):
    """One running instance of a platform."""

    channel: Channel  # connected and past the handshake
    ready_ns: int  # from the call of launch to the agent's welcome
    label: str  # short text for people, for instance ``qemu microvm (tcg, emulated)``
    # how its writes and flushes reach the images of its disks, in words for the record; None without a disk
    disk: str | None = None
    # by the names of a plan's settings, what the platform and the host say is in force; recorded with its facts
    in_force: Mapping[str, str] = MappingProxyType({})

    @abc.abstractmethod
    def accounting(self) -> Accounting:
        """CPU time charged so far; cheap enough to call before and after every trial."""

    def confinement(self) -> Confinement:
        """What limits its CPUs at this moment."""
        return Confinement()

    async def apply(self, policy: Policy) -> Applied:
        """Set what the guest may use from now on, and read it back; what an earlier policy set beyond that is lifted.

        A weight is weighed against the neighbours that were given one as well (``Policy(weight=100)`` is everybody's):
        those that were not are outside of the groups that are weighed.
        Raises PolicyError: the host or the hypervisor refuses, or something else is in force afterwards.
        """
        return Applied(policy, {}, tuple(f"{field}: {self.label} has no such setting" for field in policy.given()))

    def throttling(self) -> Throttling | None:
        """How often its CPU limit has stopped it so far; None where that is not known, or nothing limits it."""
        return None

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Threads of this machine that are its processors, by its numbers of these.

        Empty where its threads are this machine's own, or its processors' cannot be told.
        """
        return ()

    def sandbox_threads(self) -> frozenset[int]:
        """Threads of this machine that a kernel of the guest's own and its programs are, at this moment.

        Empty where its programs' threads are this machine's own, or it works elsewhere.
        """
        return frozenset()

    def out_of_memory_kills(self) -> int | None:
        """Of its processes, those that the host's kernel has killed at the guest's memory limit; None where unknown."""
        return None

    async def crash(self) -> None:
        """Cut the guest's power: processes and kernel end at once, and what that kernel had not written is lost.

        What reached its disk's image stays there.  The guest is to be closed afterwards as any other.
        Raises UnavailableError: a guest without a kernel of its own; killing its processes loses nothing that they had
        handed to the host's.
        """
        raise UnavailableError(f"{self.label} has no kernel of its own that could crash", "use a virtual machine")

    @abc.abstractmethod
    async def close(self) -> None:
        """End the guest and remove everything made for it.  Idempotent; never raises for a guest already dead."""


@dataclasses.dataclass(frozen=True)
class Cabling:
    """A machine that exists already, between two interfaces of this host."""

    # frames leave this host by the first and enter the machine by its first; they come back by the second of each
    here: tuple[str, str]
    there: tuple[str, str]
    bridges: bool  # the machine hands frames over as a bridge does; else it routes them
    set_up: bool = False  # its agent is to set up the routing, as it does in guests that are launched


class Platform(abc.ABC):
    """A way of running code.  Constructed from its section of the plan; holds no running state."""

    kind: ClassVar[str]
    Settings: ClassVar[type[BaseModel]] = Section
    settings: Any  # its section of the plan, of that type
    is_host: ClassVar[bool] = False  # its guests are this machine itself, nothing around them
    is_virtual: bool = False  # its guests have a kernel of their own, which needs memory and processors of its own
    fills_memory: bool = False  # its guests take all of their memory from this machine when they are launched
    most_vcpus: ClassVar[int | None] = None  # that a guest can have; None where it has as many as are asked for
    simulated: ClassVar[bool] = False  # its guests are invented, so that nothing has to be built around them
    # how many times longer than on the host something may take in its guests before it is given up
    timeout_factor: ClassVar[float] = 5.0
    # why its guests can be had only as they are (no interfaces, disks, limits), in words; None where they can be given
    # all of it
    only_plain: ClassVar[str | None] = None
    # the second of two machines that exist already, as a platform of its own; None where there is none
    peer: Platform | None = None
    address: str | None = None  # of a machine that exists already, on the path between it and its peer
    cabling: Cabling | None = None  # how its guest is between two interfaces of this host; None where it is not
    # emulated, but for its guests' user code: a KVM that steps through their kernel's, as :meth:`probe` found
    functional: bool = False

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings or self.Settings()

    @property
    def emulated(self) -> bool:
        """Whether its guests run without hardware virtualization, as :meth:`probe` found: never ranked."""
        return False

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Short text for people, for instance ``gVisor (runsc)``."""

    def needs(self) -> tuple[str, ...]:
        """The parts (``provision/parts.py``) that its guests need beside the agent, where they can be provided."""
        return ()

    @abc.abstractmethod
    async def probe(self) -> Availability:
        """Find out whether the platform is usable; starts nothing that outlives the call."""

    @abc.abstractmethod
    async def launch(self, spec: GuestSpec) -> Guest:
        """Start a guest and its agent.  Raises LaunchError: the guest did not come up; nothing of it is left behind."""

    async def begin(self, scope: Scope, agent: AgentBinary) -> tuple[str, ...]:
        """Prepare what a person has to do something with before guests can be launched; called once by a run.

        What is made belongs to the run's scope; what the person has to do is told in words.
        Raises VirtgaugeError: it cannot be prepared.
        """
        return ()

    def policy_text(self, policy: Policy, vcpus: int) -> tuple[str, ...]:
        """A policy in the words of the hypervisor that somebody else administers, for the machine of so many vCPUs."""
        return ()

    def emulation(self, facts: Mapping[str, Any]) -> Emulation | None:
        """What a guest's own facts say of emulation where :meth:`probe` could not know; None where nothing does."""
        return None

    def recognised(self, facts: Mapping[str, Any]) -> Recognition:
        """What machine a guest's own facts speak for, where nothing else could say; here, whose kernel it runs.

        Containers are not judged: a sandbox can have a kernel of its own, and a controller within one a masked boot id.
        """
        told, here = facts.get("boot_id"), boot_id()
        doubt = ""
        if told and self.is_virtual and told == here:
            doubt = "its guest runs this machine's own kernel, as no virtual machine does: swapped?"
        elif told and self.is_host and told != here:
            doubt = "its agent runs another kernel than this machine's: swapped?"
        return Recognition(doubts=(doubt,) if doubt else ())

    def machine(self) -> WatchedMachine:
        """The machine that its guests work on, as far as its counters judge them."""
        return WatchedMachine()

    def remarks(self) -> tuple[str, ...]:
        """What is worth saying at the end of a run, beside its trials."""
        return ()

    def describe(self) -> dict[str, Any]:
        """The settings that define this platform, for the record.

        ``nic_model`` names its guests' network interfaces, where they have any of their own.
        """
        return {"kind": self.kind, **self.settings.model_dump(mode="json")}
