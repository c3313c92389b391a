"""Policies by control groups, v1 and v2 alike: set, then read back, because a kernel may round, clip or ignore.

A guest's group is only there to count until a policy asks for more.  Then the controllers that it needs are entered by
all the guest's processes; their later children follow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from virtgauge.host.cgroup import QUOTA_PERIOD_US, Cgroup, members, write_existing
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.policy import PLAIN_WEIGHT, Applied, DiskLimits, Policy, PolicyError
from virtgauge.host.process import cpu_list, text_of

_PLAIN_SHARES = 1024  # cgroup v1's ``cpu.shares`` of everybody
_ROUNDS = 20
_V1_THROTTLE = "blkio.throttle.{}_device"
_V2_BOUNDS = {"read_bps": "rbps", "write_bps": "wbps", "read_iops": "riops", "write_iops": "wiops"}


@dataclasses.dataclass(frozen=True)
class Throttling:
    """How often the quota stopped a group, since it was made."""

    periods: int  # in which it wanted to run
    throttled: int  # of these, in which it ran out of quota
    throttled_ns: int  # it could not run for, over all CPUs

    def since(self, earlier: Throttling) -> Throttling:
        return Throttling(
            self.periods - earlier.periods, self.throttled - earlier.throttled, self.throttled_ns - earlier.throttled_ns
        )


class CgroupPolicy:
    """Sets what one guest may use, by its control group."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup, self._v1 = cgroup, cgroup.hierarchies.v1
        self._lifts: dict[str, Callable[[], None]] = {}  # What undoes the knobs that were set, by the policy's fields

    def apply(self, policy: Policy, device: str | None = None, within: Collection[int] | None = None) -> Applied:
        """Set what the policy asks for, and read it back; what an earlier one set beyond that is lifted.
        Raises PolicyError: the kernel refuses, or has no such controller.

        A reservation is left to the weights of all guests together (:func:`~virtgauge.host.policy.weight_for_share`):
        control groups have none.  ``device`` is ``major:minor`` of the guest's disk, for its bounds; ``within`` are the
        CPUs that the guest is confined to already, None is all.
        """
        bounds = policy.disk.given()
        if bounds and device is None:
            raise PolicyError(f"disk limits {bounds}: the guest has no disk of its own")
        for field in [field for field in self._lifts if field not in policy.given() or field == "disk"]:
            self._lifts.pop(field)()
        in_force: dict[str, str] = {}
        if policy.cpu_limit is not None:
            in_force |= self._limited(policy.cpu_limit)
        if policy.weight is not None:
            in_force |= self._weighted(policy.weight)
        if policy.cores is not None:
            in_force |= self._confined(policy.cores)
        if bounds and device is not None:
            in_force |= self._throttled(policy.disk, device)
        return Applied(policy, in_force, tuple(self._without_effect(policy, within)))

    def _without_effect(self, policy: Policy, within: Collection[int] | None) -> Iterator[str]:
        machine = os.sched_getaffinity(0)
        usable = set(policy.cores or within or machine)
        if policy.cpu_limit is not None and policy.cpu_limit >= len(usable):
            yield f"cpu_limit: it may run on {len(usable)} CPUs, and has no use for more than {policy.cpu_limit:g}"
        if policy.reservation is not None and policy.weight is None:
            yield "reservation: control groups have none; give a weight"
        if policy.cores is not None and usable == machine:
            yield "cores: they are all that the machine has"
        if policy.disk.write_bps or policy.disk.write_iops:
            if "blkio" in self._v1:
                yield "disk writes: cgroup v1 bounds direct and flushed ones, and not those that are buffered"
            elif (folder := self._cgroup.folder("io")) is not None and not (folder / "memory.max").exists():
                yield "disk writes: without the memory controller, cgroup v2 does not bound those that are buffered"

    def throttling(self) -> Throttling | None:
        """How often the quota has stopped the group; None where it has none."""
        figures = _figures(self._cgroup.folder("cpu"), "cpu.stat")
        if "nr_periods" not in figures:
            return None
        nanoseconds = figures.get("throttled_time") or int(figures.get("throttled_usec", 0)) * 1000
        return Throttling(int(figures["nr_periods"]), int(figures["nr_throttled"]), int(nanoseconds))

    def out_of_memory_kills(self) -> int | None:
        """Processes of the group that the kernel killed for want of memory; None where it does not tell."""
        folder = self._cgroup.folder("memory")
        figures = _figures(folder, "memory.oom_control") | _figures(folder, "memory.events")
        return int(figures["oom_kill"]) if "oom_kill" in figures else None

    def _limited(self, cpus: float) -> dict[str, str]:
        folder = self._entered("cpu")
        knob, none = ("cpu.cfs_quota_us", "-1") if "cpu" in self._v1 else ("cpu.max", f"max {QUOTA_PERIOD_US}")
        self._lifts["cpu_limit"] = lambda: _set(folder / knob, none)
        return _read_back(folder, self._cgroup.quota(cpus))

    def _weighted(self, weight: int) -> dict[str, str]:
        folder = self._entered("cpu")
        knob, plain = ("cpu.shares", _PLAIN_SHARES) if "cpu" in self._v1 else ("cpu.weight", PLAIN_WEIGHT)
        self._lifts["weight"] = lambda: _set(folder / knob, str(plain))
        return _read_back(folder, {knob: str(round(weight * plain / PLAIN_WEIGHT))})

    def _confined(self, cores: tuple[int, ...]) -> dict[str, str]:
        # A group of v1 has no memory nodes until it is told, and lets nobody in before; a new one takes its parent's.
        folder = self._made("cpuset")
        if "cpuset" in self._v1:
            root = self._v1["cpuset"]
            for part in reversed(folder.relative_to(root).parents[:-1]):
                _inherit(root / part)
            _inherit(folder)
        # Neither version lets a group with processes have no CPUs of its own again: it is given its parent's.
        name = "cpuset.cpus" if "cpuset" in self._v1 else "cpuset.cpus.effective"
        self._lifts["cores"] = lambda: _set(folder / "cpuset.cpus", _read(folder.parent, name)[name])
        found = _read_back(folder, {"cpuset.cpus": ",".join(map(str, sorted(cores)))}, cpu_list)
        self._enter(folder)
        return found

    def _throttled(self, disk: DiskLimits, device: str) -> dict[str, str]:
        v1 = "blkio" in self._v1
        folder = self._entered("blkio" if v1 else "io")
        self._lifts["disk"] = lambda: _lift_throttles(folder, device, disk, v1=v1)
        if v1:
            wanted = {_V1_THROTTLE.format(name): f"{device} {bound}" for name, bound in disk.given().items()}
            return _read_back(folder, wanted)
        if disk.write_bps or disk.write_iops:
            with contextlib.suppress(PolicyError):  # without, it is said to have no effect on buffered writes
                self._made("memory")  # pages are written back on behalf of the memory group that made them dirty
        bounds = " ".join(f"{_V2_BOUNDS[name]}={bound}" for name, bound in disk.given().items())
        _set(folder / "io.max", f"{device} {bounds}")
        found = _read(folder, "io.max")
        if not set(bounds.split()) <= set(found["io.max"].split()):
            raise PolicyError(f"io.max was set to {bounds!r}, but is {found['io.max']!r}")
        return found

    def _made(self, controller: str) -> Path:
        folder = self._cgroup.folder(controller)
        if folder is None:
            raise PolicyError(f"no cgroup file system with the controller {controller} is mounted")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._cgroup.hand_down(controller)
        except OSError as error:
            raise PolicyError(
                f"cannot make the cgroup {folder} with the controller {controller}: {error.strerror}"
                f"{lacking('CAP_DAC_OVERRIDE')}; {AS_ROOT}"
            ) from error
        return folder

    def _entered(self, controller: str) -> Path:
        folder = self._made(controller)
        self._enter(folder)
        return folder

    def _enter(self, folder: Path) -> None:
        """Move every process of the guest there; those that end meanwhile need not.

        A runtime's helpers (gVisor's sandbox, its gofer, the processes that run its applications) are the guest, too.
        """
        for _ in range(_ROUNDS):  # what was forked meanwhile may have been left behind
            if not (outside := self._outside(folder)):
                return
            for pid in outside:
                try:
                    (folder / "cgroup.procs").write_text(str(pid))
                except ProcessLookupError:
                    continue
                except OSError as error:
                    raise PolicyError(f"process {pid} cannot enter {folder}: {error.strerror}") from error
        raise PolicyError(f"processes {sorted(self._outside(folder))} stay outside of {folder}")

    def _outside(self, folder: Path) -> set[int]:
        return set(self._cgroup.pids()) - members(folder)


def _figures(folder: Path | None, file: str) -> dict[str, str]:
    text = None if folder is None else text_of(folder / file)
    return dict(line.split() for line in (text or "").splitlines())


def _set(path: Path, value: str) -> None:
    try:
        write_existing(path, value)
    except OSError as error:
        raise PolicyError(f"{path.name} cannot be set to {value!r}: {error.strerror}") from error


def _read(folder: Path, name: str) -> dict[str, str]:
    try:
        return {name: " ".join((folder / name).read_text().split())}
    except OSError as error:
        raise PolicyError(f"{name} cannot be read back: {error.strerror}") from error


def _read_back(folder: Path, wanted: Mapping[str, str], meaning: Callable[[str], object] = str) -> dict[str, str]:
    """Set each knob and read it again.  Raises PolicyError: it cannot be set, or is something else afterwards."""
    found: dict[str, str] = {}
    for name, value in wanted.items():
        _set(folder / name, value)
        found |= _read(folder, name)
        if meaning(found[name]) != meaning(value):
            raise PolicyError(f"{name} was set to {value!r}, but is {found[name]!r}")
    return found


def _lift_throttles(folder: Path, device: str, disk: DiskLimits, *, v1: bool) -> None:
    for name in disk.given():
        if v1:
            _set(folder / _V1_THROTTLE.format(name), f"{device} 0")
        else:
            _set(folder / "io.max", f"{device} {_V2_BOUNDS[name]}=max")


def _inherit(folder: Path) -> None:
    """Give a group of v1's cpuset its parent's CPUs and memory where it has none yet."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not _read(folder, name)[name]:
            _set(folder / name, _read(folder.parent, name)[name])
