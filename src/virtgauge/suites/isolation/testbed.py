"""Two guests of one platform under one host: the tested one and its neighbour, which loads it."""

from __future__ import annotations

import dataclasses
from typing import Any

from virtgauge.errors import UnavailableError
from virtgauge.host.lending import set_governor
from virtgauge.platforms.base import Disk, Guest
from virtgauge.specs.isolation_formatting import LOADING, TESTED
from virtgauge.suites.isolation.benchmarks import block_bytes, largest_cache_bytes
from virtgauge.suites.isolation.policies import Placement, placement
from virtgauge.suites.isolation.settings import IsolationSettings
from virtgauge.suites.testbed import Stage, Testbed

AS_IS = "as-is"  # The governor that is in force, whichever that is

_OWN_MIB = 256  # Of a guest's kernel, agent and kernels without a block
_READY_S = 180.0  # Two virtual machines that boot on one CPU of a host need a while, emulated ones most of all
_BLOCKS = 2  # As much memory as the largest block of every thread, so often
_DISK_OVERHEAD = 1.15
_DISK_OVERHEAD_MIB = 24  # What ext4 keeps for itself


@dataclasses.dataclass(frozen=True)
class TestbedSpec:
    """Two guests that are alike."""

    cores: str
    where: Placement  # the CPUs of both
    memory_mib: int
    disk_mib: int | None  # of each guest's disk; None where nothing uses one
    governor: str = AS_IS  # that chooses the host's frequency
    as_is: bool = False  # two machines that exist already, with what they have

    @property
    def name(self) -> str:
        cpus = "_".join(map(str, (*self.where.tested, "-", *self.where.loading)))
        if self.as_is:
            return f"isolation-as-is-{self.cores}-{cpus}"
        under = "" if self.governor == AS_IS else f"-{self.governor}"
        return f"isolation-{self.cores}-{cpus}-{self.memory_mib}-{self.disk_mib or 0}{under}"


def testbed_of(settings: IsolationSettings, cores: str, governor: str = AS_IS) -> TestbedSpec:
    """The testbed of a design's cells on such cores."""
    where = placement(cores, settings.host_cpus)
    threads, cache = where.capacity, largest_cache_bytes()
    largest = max((block_bytes(name, cache) for name in settings.blocks()), default=0)
    memory_mib = _OWN_MIB + -(-threads * _BLOCKS * largest // 2**20)
    disk_mib = None
    if settings.uses_disk:
        disk_mib = round(threads * settings.disk_file_mib * _DISK_OVERHEAD) + _DISK_OVERHEAD_MIB
    mib = settings.memory_mib or memory_mib, settings.disk_mib or disk_mib
    return TestbedSpec(cores, where, *mib, governor, as_is=settings.policy_set_by_hand)


class IsolationTestbed(Testbed):
    """See the module."""

    tested: Guest
    loading: Guest

    def __init__(self, stage: Stage, spec: TestbedSpec) -> None:
        super().__init__(stage)
        self.spec = spec
        self.disks: dict[str, Disk] = {}  # of each guest, by its name; empty where nothing uses one
        self.refused: UnavailableError | None = None  # why the governor is not in force: nothing is measured under it

    async def set_up(self) -> None:
        """Make the disks and launch both guests at the same time. Raises LaunchError."""
        spec, stage = self.spec, self.stage
        if spec.as_is and not stage.platform.simulated:
            self.tested = await stage.launch(TESTED, ready_timeout_s=_READY_S)
            self.loading = await stage.launch_second(LOADING, ready_timeout_s=_READY_S)
            return
        if spec.disk_mib is not None and not stage.platform.simulated:
            self.disks = {name: stage.make_disk(f"{name}-disk", spec.disk_mib) for name in (TESTED, LOADING)}
            stage.charge_kernel_threads()
        if spec.governor != AS_IS and not stage.platform.simulated:
            try:
                stage.at_end(set_governor(spec.governor, stage.scope.folder))
            except UnavailableError as error:
                self.refused = error

        # A container's processors are a quota, which its CPUs bound already.
        vcpus = spec.where.capacity if stage.platform.is_virtual else None
        wanted: dict[str, Any] = {"vcpus": vcpus, "memory_mib": spec.memory_mib, "ready_timeout_s": _READY_S}
        both = (
            stage.launch(name, cpus=cpus, disks=(self.disks[name],) if name in self.disks else (), **wanted)
            for name, cpus in ((TESTED, spec.where.tested), (LOADING, spec.where.loading))
        )
        self.tested, self.loading = await stage.together(*both)
