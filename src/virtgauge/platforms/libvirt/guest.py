"""A running domain of libvirt, and what it may use."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.host.policy import PLAIN_WEIGHT, XEN_WEIGHT, Applied, Policy, PolicyError
from virtgauge.platforms.attempt import WRITE_BACK_S, LaunchedGuest
from virtgauge.platforms.base import Accounting, Confinement
from virtgauge.platforms.libvirt.connection import DomainHandle, LibvirtError, called, library, waited

_TUNES = {
    "read_bps": "read_bytes_sec",
    "write_bps": "write_bytes_sec",
    "read_iops": "read_iops_sec",
    "write_iops": "write_iops_sec",
}
_EXIT_S = 1.0


@dataclasses.dataclass(frozen=True)
class Scheduler:
    """How a driver is told of processor time."""

    period: str | None  # its knob for the period of the limit; None where the limit is a percentage
    limit: str  # its knob for the limit
    unlimited: int  # what lifts it
    weight: str  # its knob for the weight
    plain_weight: int  # everybody's, where the driver does not tell it
    meaning: str  # what the limit is of, for people


_SCHEDULERS = {
    "qemu": Scheduler(
        "global_period",
        "global_quota",
        -1,
        "cpu_shares",
        1024,  # of cgroup v1; where libvirt's daemon has cgroup v2, its plain weight is 100, as ours
        "of all vCPUs and QEMU's own threads together (global_quota; vcpu_quota would be of each vCPU)",
    ),
    "lxc": Scheduler(
        "vcpu_period", "vcpu_quota", -1, "cpu_shares", 1024, "of the whole container, in spite of the name vcpu_quota"
    ),
    "xen": Scheduler(None, "cap", 0, "weight", XEN_WEIGHT, "of all vCPUs together (cap, in percent of one CPU)"),
}


class DomainPolicy:
    """Sets what one domain may use by libvirt's knobs, and reads it back; every call blocks."""

    def __init__(self, handle: DomainHandle, scheme: str, title: str, vcpus: int, disk: str | None) -> None:
        """Take a running domain; ``disk`` is libvirt's name of its data disk, None without one."""
        self._handle, self._title, self._vcpus, self._disk = handle, title, vcpus, disk
        self._scheduler = _SCHEDULERS.get(scheme)
        self._is_qemu = scheme == "qemu"  # whose threads are placed, and whose disks are bounded
        knob, plain = (self._scheduler.weight, self._scheduler.plain_weight) if self._scheduler else ("", PLAIN_WEIGHT)
        self._plain_weight = int(self._knobs().get(knob) or plain)
        self._plain_pins = self.pins()
        self._lifts: dict[str, Callable[[], object]] = {}

    def apply(self, policy: Policy) -> Applied:
        """Set what the policy asks for, and read it back; what an earlier one set beyond that is lifted.
        Raises PolicyError: libvirt refuses, or something else is in force afterwards.
        """
        if policy.disk.given() and self._disk is None:
            raise PolicyError(f"disk limits {policy.disk.given()}: the guest has no disk of its own")
        try:
            return self._apply(policy)
        except library().libvirtError as error:
            raise PolicyError(f"libvirt does not apply {policy.given()}: {error.get_error_message()}") from error

    @property
    def _domain(self) -> Any:
        return self._handle.libvirt_domain

    def cpu_limit(self) -> float | None:
        """The limit in force, in whole CPUs; None where there is none, or libvirt does not tell."""
        scheduler, found = self._scheduler, self._knobs()
        if scheduler is None or (limit := found.get(scheduler.limit, 0)) <= 0:
            return None
        return float(limit / (found[scheduler.period] if scheduler.period else 100))

    def pins(self) -> tuple[int, ...] | None:
        """The host's CPUs that all its vCPUs and its emulator may run on together; None where libvirt does not tell."""
        if not self._is_qemu:
            return None
        try:
            maps = [*self._domain.vcpuPinInfo(), self._domain.emulatorPinInfo()]
        except library().libvirtError:
            return None
        machine = os.sched_getaffinity(0)
        return tuple(sorted({cpu for one in maps for cpu, allowed in enumerate(one) if allowed} & machine))

    def _apply(self, policy: Policy) -> Applied:
        for field in [field for field in self._lifts if field not in policy.given() or field == "disk"]:
            self._lifts.pop(field)()
        in_force, notes = dict[str, str](), list[str]()
        scheduler = self._scheduler
        if scheduler is not None and policy.cpu_limit is not None:
            self._lifts["cpu_limit"] = functools.partial(self._schedule, {scheduler.limit: scheduler.unlimited})
            if scheduler.period is not None:  # first: the kernel judges a quota by the period that it has
                in_force |= self._schedule({scheduler.period: QUOTA_PERIOD_US})
            whole = 100 if scheduler.period is None else QUOTA_PERIOD_US
            in_force |= self._schedule({scheduler.limit: round(policy.cpu_limit * whole)})
            each = policy.cpu_limit / self._vcpus
            notes.append(f"cpu_limit: {scheduler.meaning}, {each:g} of a CPU for each of {self._vcpus} vCPUs at work")
        if scheduler is not None and policy.weight is not None:
            self._lifts["weight"] = functools.partial(self._schedule, {scheduler.weight: self._plain_weight})
            weight = max(2, round(policy.weight * self._plain_weight / PLAIN_WEIGHT))
            in_force |= self._schedule({scheduler.weight: weight})
        if policy.cores is not None and self._is_qemu:
            self._lifts["cores"] = lambda: self._pin(self._plain_pins or tuple(os.sched_getaffinity(0)))
            in_force |= dict.fromkeys(("vcpupin", "emulatorpin"), ",".join(map(str, self._pin(policy.cores))))
        if policy.disk.given() and self._disk is not None and self._is_qemu:
            in_force |= self._tune(self._disk, policy)
        return Applied(policy, in_force, tuple(self._without_effect(policy)), tuple(notes))

    def _without_effect(self, policy: Policy) -> Iterator[str]:
        scheduled = self._scheduler is not None
        ours = {"cpu_limit": scheduled, "weight": scheduled, "cores": self._is_qemu, "disk": self._is_qemu}
        for field in policy.given():
            if not ours.get(field, True):
                yield f"{field}: libvirt has no knob of {self._title} that is used here"
        machine = os.sched_getaffinity(0)
        usable = min(self._vcpus, len(policy.cores or machine))
        if scheduled and policy.cpu_limit is not None and policy.cpu_limit >= usable:
            yield f"cpu_limit: its vCPUs have no use for more than {usable} CPUs, but for its devices"
        if policy.reservation is not None and policy.weight is None:
            yield "reservation: libvirt has none; give a weight"
        if self._is_qemu and policy.cores is not None and set(policy.cores) == machine:
            yield "cores: they are all that the machine has"

    def _knobs(self) -> dict[str, int]:
        """Of the scheduler, with their values; empty where libvirt does not tell them."""
        if self._scheduler is not None:
            with contextlib.suppress(library().libvirtError):
                return dict(self._domain.schedulerParametersFlags(0))
        return {}

    def _schedule(self, wanted: dict[str, int]) -> dict[str, str]:
        self._domain.setSchedulerParametersFlags(wanted, 0)
        found = self._domain.schedulerParametersFlags(0)
        for name, value in wanted.items():
            # What lifts a limit may read back as another number that says the same.
            if found.get(name) != value and not (value <= 0 and found.get(name, 0) <= 0):
                raise PolicyError(f"{name} was set to {value}, but is {found.get(name)}")
        return {name: str(found[name]) for name in wanted}

    def _pin(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Place all its threads, and read back where they are.  Raises PolicyError: they are elsewhere."""
        chosen = tuple(cpu in cores for cpu in range(max(cores) + 1))  # numbers may have gaps: CPUs that are offline
        for vcpu in range(self._vcpus):
            self._domain.pinVcpuFlags(vcpu, chosen, 0)
        self._domain.pinEmulator(chosen, 0)
        found = self.pins()
        if found != tuple(sorted(cores)):
            raise PolicyError(f"vcpupin and emulatorpin were set to {sorted(cores)}, but are {found}")
        return found

    def _tune(self, disk: str, policy: Policy) -> dict[str, str]:
        nothing = dict.fromkeys(_TUNES.values(), 0)
        self._lifts["disk"] = lambda: self._domain.setBlockIoTune(disk, nothing, 0)
        wanted = nothing | {_TUNES[name]: bound for name, bound in policy.disk.given().items()}
        self._domain.setBlockIoTune(disk, wanted, 0)
        found = self._domain.blockIoTune(disk, 0)
        if any(found.get(name) != bound for name, bound in wanted.items()):
            raise PolicyError(f"the disk was to be bounded to {wanted}, but libvirt says {found}")
        return {f"blkdeviotune {name}": str(bound) for name, bound in wanted.items() if bound}


class LibvirtGuest(LaunchedGuest):
    """A domain whose agent answers."""

    def __init__(
        self,
        *,
        handle: DomainHandle,
        policy: DomainPolicy,
        elsewhere: bool,
        own_kernel: bool = True,
        unbound: str | None = None,
        **launched: Any,
    ) -> None:
        super().__init__(**launched, before_removal=self._wait_for_end)
        self.handle, self.elsewhere = handle, elsewhere
        self._policy = policy
        self._own_kernel, self._unbound = own_kernel, unbound

    def accounting(self) -> Accounting:
        try:
            cpu_ns, method = waited("the CPU time of the guest", self._cpu_ns, 5.0)
        except LibvirtError:
            cpu_ns, method = None, "libvirt"
        return Accounting(cpu_ns, method, of_this_machine=not self.elsewhere)

    def confinement(self) -> Confinement:
        try:
            cpus, limit = waited("the limits of the guest", lambda: (self._policy.pins(), self._policy.cpu_limit()))
        except LibvirtError:
            return Confinement(unbound=self._unbound)
        return Confinement(cpus=cpus, cpu_limit=limit, unbound=self._unbound)

    async def apply(self, policy: Policy) -> Applied:
        return await called("the policy of the guest", lambda: self._policy.apply(policy))

    async def crash(self) -> None:
        """Destroy the domain: what the guest's kernel had handed to its disk is in the image, the rest is lost.
        Raises LibvirtError: libvirt refuses; UnavailableError: as for every guest without a kernel of its own.
        """
        if not self._own_kernel:
            await super().crash()
        await called(f"cannot destroy {self.handle.name}", lambda: self.handle.libvirt_domain.destroy())

    def _cpu_ns(self) -> tuple[int | None, str]:
        """Of the domain's control group, with QEMU's own threads; else of its vCPUs, as the hypervisor says."""
        domain: Any = self.handle.libvirt_domain
        try:
            (total,) = domain.getCPUStats(True, 0)
            return int(total["cpu_time"]), "libvirt virDomainGetCPUStats"
        except (library().libvirtError, KeyError, ValueError):
            return int(domain.info()[4]) or None, "libvirt virDomainGetInfo"

    async def _wait_for_end(self) -> None:
        def look() -> None:
            deadline = time.monotonic() + (_EXIT_S if self.disk is None else WRITE_BACK_S)
            while self.handle.end() is None and time.monotonic() < deadline:
                time.sleep(0.02)

        with contextlib.suppress(LibvirtError):
            await called("the end of the guest", look, WRITE_BACK_S + _EXIT_S)
