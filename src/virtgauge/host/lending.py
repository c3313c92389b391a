"""What of this machine guests have for a time, and what is put back as it was even after a kill -9: values of the
kernel, PCI devices, interfaces.

What is changed is written down in the scope's folder before it is.  Sources: Documentation/driver-api/vfio.rst and
Documentation/ABI/testing/sysfs-bus-pci of Linux.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import functools
import ipaddress
import json
import os
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from virtgauge.errors import UnavailableError
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.process import LIBC, checked, in_thread
from virtgauge.host.tag import is_own_file

_CPUFREQ = Path("/sys/devices/system/cpu/cpufreq")
_VALUE_RECORD = "kernel-value{}.json"  # In a scope's folder, by the value's path: what was in force, and what is to be
_held: dict[Path, list[str]] = {}  # By record: the value, once for each guest that needs it
_locks: dict[Path, int] = {}  # By record: the kernel's file, open and locked against other runs while there are holders


def _undone(records: Iterable[Path], undo: Callable[[Any], str | None]) -> list[str]:
    """Undo what records of ours tell of changes to this machine, and remove them; what was done, a line for each.

    ``undo`` is given what a record holds, and returns such a line, or none where there was nothing to do.  Where it
    raises OSError the record stays: another user may have the right to.
    """
    lines = []
    for record in filter(is_own_file, records):
        try:
            lines.append(undo(json.loads(record.read_text())))
        except OSError:
            continue
        except (ValueError, KeyError, TypeError):
            pass  # half-written: nothing was changed yet
        record.unlink(missing_ok=True)
    return [line for line in lines if line]


def hold_value(file: Path, value: str, scope_folder: Path) -> Callable[[], object]:
    """Have a file of the kernel's say a value for one more guest of a scope; returns what ends that.
    Raises UnavailableError: it cannot be set, had another value afterwards, another guest of the scope needs another,
    or another run holds it, which would put back a value that is not in force any more.
    """
    record = scope_folder / _VALUE_RECORD.format(str(file).replace("/", "-"))
    holders = _held.setdefault(record, [])
    if holders and holders[0] != value:
        said = f"{file} = {value}: another guest of this run needs {holders[0]}"
        raise UnavailableError(said, "the kernel has one value for all of them; measure these guests one after another")

    def release() -> None:
        _undone([record], _write_before)
        if (lock := _locks.pop(record, None)) is not None:
            os.close(lock)

    try:
        if not holders:
            _lock(file, record)
            before = file.read_text().strip()
            record.write_text(json.dumps({"file": str(file), "set": value, "before": before}))
            file.write_text(value)
            if (found := file.read_text().strip()) != value:
                file.write_text(before)
                raise UnavailableError(f"{file} is {found} after {value} was set", None)
    except (OSError, UnavailableError) as error:
        release()
        if isinstance(error, UnavailableError):
            raise
        words = f"{file} cannot be set to {value}: {error.strerror}{lacking('CAP_DAC_OVERRIDE')}"
        raise UnavailableError(words, AS_ROOT) from error
    holders.append(value)

    def end() -> None:
        holders.pop()
        if not holders:
            release()

    return end


def _lock(file: Path, record: Path) -> None:
    """Hold a value against other runs until its record is undone.  Raises UnavailableError: another run holds it."""
    _locks[record] = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(_locks[record], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnavailableError(f"{file}: another run needs its value", "wait until it has ended, or end it") from None


def put_back(scope_folder: Path) -> list[str]:
    """Put values back that a scope has set, and give back devices that it has bound, unless somebody has changed them
    since; a line for people each.
    """
    kinds = ((_VALUE_RECORD, _write_before), (_DEVICE_RECORD, _bind_before))
    return [line for name, undo in kinds for line in _undone(sorted(scope_folder.glob(name.format("*"))), undo)]


def _write_before(told: Any) -> str | None:
    file, ours, before = Path(told["file"]), str(told["set"]), str(told["before"])
    with contextlib.suppress(FileNotFoundError):  # it is gone: a module, a processor
        if file.read_text().strip() == ours != before:
            file.write_text(before)
            return f"put back {file} = {before}"
    return None


def missing_governor(name: str, cpufreq: Path = _CPUFREQ) -> UnavailableError | None:
    """Why a governor cannot be set on this machine by anybody; None where it can."""
    offered = sorted(cpufreq.glob("policy*/scaling_available_governors"))
    if not offered:
        return UnavailableError(
            "governors: this machine has no cpufreq: firmware or a hypervisor chooses the frequency",
            'leave governors out, or measure with "as-is" alone',
        )
    known = offered[0].read_text().split()
    if name in known:
        return None
    return UnavailableError(f"governors: this machine has no {name!r}", f"use one of {', '.join(known)}")


def set_governor(name: str, scope_folder: Path, cpufreq: Path = _CPUFREQ) -> Callable[[], object]:
    """Let a governor choose the frequency of all processors; returns what puts back those that were in force.
    Raises UnavailableError: this machine lets nobody choose, has no such governor, or had another one afterwards.
    """
    if (error := missing_governor(name, cpufreq)) is not None:
        raise error
    with contextlib.ExitStack() as undo:
        for policy in sorted(cpufreq.glob("policy*")):
            undo.callback(hold_value(policy / "scaling_governor", name, scope_folder))
        return undo.pop_all().close


PCI = Path("sys/bus/pci")
VFIO = "vfio-pci"
_DEVICE_RECORD = "vfio-{}.json"  # In a scope's folder: what a device was bound to
_IFF_UP = 1


def driver_of(device: Path) -> str | None:
    """What a device is bound to; None for nothing."""
    return (device / "driver").resolve().name if (device / "driver").exists() else None


def is_vfio(driver: str | None) -> bool:
    """Whether it is vfio-pci, or one of its variants for a device of their own (``mlx5_vfio_pci``)."""
    return driver is not None and driver.replace("_", "-").endswith(VFIO)


def used_by_host(device: Path) -> str | None:
    """What this machine would lose with a device: a disk, or an interface that is up; None where neither is known."""
    for folder, below, _ in os.walk(device):
        if {"block", "nvme"} & set(below):
            return "a disk"
        for name in below if folder.endswith("/net") else ():
            if int(Path(folder, name, "flags").read_text(), 16) & _IFF_UP:
                return f"the interface {name}, which is up"
    return None


def hold_device(address: str, scope_folder: Path, root: Path = Path("/")) -> Callable[[], object]:
    """Bind a device to vfio-pci; returns what gives it back.  One that has such a driver keeps it.
    Raises UnavailableError: it cannot be bound; it is as it was.
    """
    device, record = root / PCI / "devices" / address, scope_folder / _DEVICE_RECORD.format(address)
    if is_vfio(before := driver_of(device)):
        return lambda: None
    error: object = "it is not"
    try:
        override = (device / "driver_override").read_text().strip()
        told = {"device": str(device), "driver": before, "override": "" if override == "(null)" else override}
        record.write_text(json.dumps(told))
        _rebind(device, VFIO)
    except OSError as failed:
        error = failed.strerror
    if driver_of(device) != VFIO:
        _undone([record], _bind_before)
        raise UnavailableError(f"{address} cannot be bound to {VFIO}: {error}", f"modprobe {VFIO}, and {AS_ROOT}")
    return functools.partial(_undone, [record], _bind_before)


def _bind_before(told: Any) -> str | None:
    device, before = Path(told["device"]), told["driver"]
    if driver_of(device) not in (VFIO, None):
        return None
    _rebind(device, told["override"], probe=before is not None)
    if before is not None and driver_of(device) != before:  # it had been bound by hand
        _write(device.parent.parent / "drivers" / before / "bind", device.name)
    return f"gave the PCI device {device.name} back to {before or 'no driver'}"


def _rebind(device: Path, override: str, *, probe: bool = True) -> None:
    """Have the kernel look for a driver anew, of that name only where one is given."""
    _write(device / "driver_override", f"{override}\n")
    if driver_of(device) is not None:
        _write(device / "driver" / "unbind", device.name)
    if probe:
        _write(device.parent.parent / "drivers_probe", device.name)


def _write(file: Path, text: str) -> None:
    file.write_text(text)


_SIOCETHTOOL = 0x8946
_GET_FEATURES, _SET_FEATURES = 0x3A, 0x3B  # ``linux/ethtool.h``
_FEATURE_WORDS = 8  # 32 features each; the kernel has two, and says how many it fills
CLONE_NEWNET = 0x40000000

HOME = "-home"  # After a scope's tag: the name of the namespace that what it was lent belongs to

_Result = TypeVar("_Result")


def ask_ethtool(interface: str, request: array.array[int]) -> None:
    """Hand a request to an interface of the calling thread's namespace; the answer is in its place.
    Raises OSError: there is no such interface, or it cannot.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), request.buffer_info()[0]))


def features_of(interface: str) -> list[tuple[int, int]]:
    """What of an interface's features can be changed, and what of it is wanted, 32 bits each.  Raises OSError: none."""
    request = array.array("I", [_GET_FEATURES, _FEATURE_WORDS, *([0] * 4 * _FEATURE_WORDS)])
    ask_ethtool(interface, request)
    words = [request[2 + 4 * number : 6 + 4 * number] for number in range(min(request[1], _FEATURE_WORDS))]
    return [(available, wanted) for available, wanted, _, _ in words]


_BESIDE_IT = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap")


def uses_of(link: Any) -> list[str]:
    """What the machine uses an interface for, in words, by its link in the calling thread's namespace."""
    from pyroute2 import IPRoute

    name = link.get("ifname")
    with IPRoute() as route:
        # an address that an interface gives itself is no use of it
        found = [one for one in route.get_addr(index=link["index"]) if one["family"] == 2 or one["scope"] == 0]
        addresses = [str(one.get("address")) for one in found]
        above = [one for one in route.get_links() if one.get("link") == link["index"]]
    uses = [f"it has an address ({address})" for address in addresses]
    if (ours := os.environ.get("SSH_CONNECTION", "").split()[2:3]) and ours[0] in addresses:
        uses.append("your ssh login comes by it")
    routes = [network for through, network in read_routes(_ROUTES.read_text()) if through == name]
    if any(not network.prefixlen for network in routes):
        uses.append("it carries the default route")
    elif routes and not addresses:
        uses.append(f"it carries the route to {routes[0]}")
    if link.get("master"):
        uses.append("it is part of a bridge or a bond")
    if on_it := [one.get("ifname") for one in above if one.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") in _BESIDE_IT]:
        uses.append(f"{', '.join(on_it)} is made of it")
    return uses


_ROUTES = Path("/proc/thread-self/net/route")


def read_routes(text: str) -> list[tuple[str, ipaddress.IPv4Network]]:
    """Interface and destination of every route in ``/proc/net/route``."""
    found = []
    for fields in (line.split() for line in text.splitlines()[1:]):
        to, mask = (int.from_bytes(bytes.fromhex(fields[column]), "little") for column in (1, 7))
        found.append((fields[0], ipaddress.IPv4Network((to, mask.bit_count()))))
    return found


@dataclasses.dataclass(frozen=True)
class Loan:
    """An interface, where it is and where it belongs, and how it was."""

    name: str
    lab: str  # the file that keeps alive the namespace that it is lent to
    home: str  # the same of the namespace that it belongs to
    up: bool
    features: tuple[tuple[int, int], ...]  # as :func:`features_of` has them

    def record(self, scope_folder: Path) -> Path:
        """Write down what is to be done, before anything is; :func:`give_back` reads it."""
        record = scope_folder / f"lent-{self.name}.json"
        record.write_text(json.dumps(dataclasses.asdict(self)))
        return record

    def _come_back(self) -> bool:
        from pyroute2 import IPRoute

        with Path(self.home).open() as home, IPRoute() as route:
            found = route.link_lookup(ifname=self.name)
            for index in found:
                route.link("set", index=index, net_ns_fd=home.fileno())
            return bool(found)

    def _become_as_it_was(self, came: bool) -> None:
        """What came back by itself may have got a use since, and stays as it is then."""
        from pyroute2 import IPRoute

        with IPRoute() as route:
            for link in [one for one in route.get_links() if one.get("ifname") == self.name]:
                if came or not uses_of(link):
                    words = [word for available, wanted in self.features for word in (available, wanted & available)]
                    with contextlib.suppress(OSError):
                        ask_ethtool(self.name, array.array("I", [_SET_FEATURES, len(self.features), *words]))
                    route.link("set", index=link["index"], state="up" if self.up else "down")

    def give_back(self) -> list[str]:
        """A line for people.  A hardware interface whose laboratory is gone has come back by itself.
        Raises OSError, NetlinkError: it could not be given back.
        """
        if not Path(self.lab).exists() and not Path(self.home).exists():
            return []  # the machine was started anew
        came = False
        with contextlib.suppress(FileNotFoundError):
            came = _inside(self.lab, self._come_back)
        _inside(self.home, lambda: self._become_as_it_was(came))
        return [f"gave the interface {self.name} back"] if came else []


def give_back(record: Path) -> list[str]:
    """Give back an interface by its record, which stays where that fails; what was done, a line for people each."""
    from pyroute2 import NetlinkError

    if not is_own_file(record):
        return []
    lines: list[str] = []
    try:
        with contextlib.suppress(json.JSONDecodeError):  # half-written: nothing was lent yet
            lines = Loan(**json.loads(record.read_text())).give_back()
        record.unlink()
    except (NetlinkError, OSError, TypeError, ValueError) as error:
        return [f"could not give the interface {record.stem.removeprefix('lent-')} back: {error}"]
    return lines


def give_all_back(scope_folder: Path) -> list[str]:
    """Give back all that a scope was lent; lines for people, also of what could not be given back."""
    return [line for record in _records(scope_folder) for line in give_back(record)]


def is_lent_something(scope_folder: Path) -> bool:
    """Whether something could not be given back yet: it would be lost with the namespaces that its record names."""
    return bool(_records(scope_folder))


def _records(scope_folder: Path) -> list[Path]:
    # another user's folder or record is none: he may have made it a link to one of ours
    return [one for one in sorted(scope_folder.glob("lent-*.json")) if is_own_file(scope_folder) and is_own_file(one)]


def _inside(namespace: str, work: Callable[[], _Result]) -> _Result:
    """Do work in a thread that enters a namespace and ends with it."""

    def enter() -> _Result:
        with Path(namespace).open() as opened:
            checked(LIBC.setns(opened.fileno(), CLONE_NEWNET))
        return work()

    return in_thread(enter)
