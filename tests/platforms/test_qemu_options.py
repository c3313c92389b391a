"""Every option and property that virtgauge names to QEMU is one that QEMU describes: this machine's, and newer ones.

What it says depends on devices and modules of the host that a test cannot have (KVM, VFIO, a switch of its own); that
the words exist, QEMU tells without them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from platforms.qemu_releases import RELEASES, qemu_of

from virtgauge.host.process import find_program
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.local import Tap
from virtgauge.platforms.qemu import command
from virtgauge.platforms.qemu.command import _OF_REGISTERS, MACHINES, Boot, Drive
from virtgauge.platforms.qemu.tuning import Tuning

HERE = pytest.param("", id="installed")
OTHERS = [pytest.param(name, id=name, marks=pytest.mark.lab) for name in RELEASES]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"cpu_model": "Nehalem", "cpu_flags": ["+avx2", "-x2apic", "+invtsc", "-kvmclock", "+kvm-hint-dedicated"]},
    {"cores": 2, "threads": 2, "hpet": False, "pit": True, "numa_node": 0, "hugepages": "2M", "memory_prealloc": True},
    {"memory_prealloc": True, "memory_locked": True, "cpu_pm": True, "rtc_lost_ticks": "slew"},
    {"pit_lost_ticks": "discard", "pci_devices": ["0000:3b:00.0"], "vhost_user": ["/run/a"], "nic_queues": 2},
    {"vhost": True, "nic_queues": 2, "nic_mergeable": False, "nic_tx": "timer"},
    {"disk_aio": "native", "disk_discard": True, "disk_iothread": True, "disk_queues": 4, "disk_cache": "none"},
]
NOT_OF_A_MICROVM = {"hpet", "pci_devices"}
NOT_OF_E1000 = {"nic_queues", "nic_mergeable", "nic_tx"}


@functools.cache
def printed(binary: str, *words: str) -> str:
    """What QEMU prints for these words; nothing where it refuses them, as of a device that it has not got."""
    done = subprocess.run([binary, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def answered(binary: str, command: str, **arguments: str) -> Any:
    """What its monitor answers."""
    words = [binary, "-machine", "none", "-nodefaults", "-display", "none", "-qmp", "stdio"]
    requests = [{"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write("\n".join(map(json.dumps, requests)))
        process.stdin.flush()
        answers = (one["return"] for one in map(json.loads, process.stdout) if "return" in one)
        found = next(itertools.islice(answers, 1, None))
        process.terminate()  # not sooner: QEMU ends without having sent all of a long answer
    return found


@dataclasses.dataclass(frozen=True)
class Qemu:
    """A QEMU, and what it says of itself."""

    binary: str

    def said(self, *words: str) -> str:
        return printed(self.binary, *words)

    def options(self, name: str, of: str = "") -> set[str]:
        """What an option, or one kind of it (``-netdev tap``), may be given."""
        blocks = re.findall(rf"^-{name}\b[ =]?(.*(?:\n[ \t].*)*)", self.said("-help"), re.MULTILINE)
        text = "\n".join(block for block in blocks if not of or re.match(rf"{of}\b", block))
        if not text:
            return set()
        return {*re.findall(r"[\w.-]+", text), *self.groups.get(name, ())}

    def properties(self, option: str, of: str) -> set[str]:
        """Of a device, object or machine."""
        return {"id", *re.findall(r"^  ([\w.-]+)=", self.said(f"-{option}", f"{of},help"), re.MULTILINE)}

    @functools.cached_property
    def groups(self) -> dict[str, list[str]]:
        """Parameters of options, as the monitor tells them."""
        found = answered(self.binary, "query-command-line-options")
        return {one["option"]: [parameter["name"] for parameter in one["parameters"]] for one in found}

    @functools.cached_property
    def commands(self) -> set[str]:
        """Of the monitor."""
        return {one["name"] for one in answered(self.binary, "query-commands")}

    @functools.cached_property
    def of_a_processor(self) -> set[str]:
        found = answered(self.binary, "device-list-properties", typename="max-x86_64-cpu")
        return {one["name"] for one in found}

    def of_a_netdev(self, kind: str) -> set[str]:
        """What a back end of that kind may be given; its help leaves some out."""
        types = {one["name"]: one for one in answered(self.binary, "query-qmp-schema")}
        every = types[types["netdev_add"]["arg-type"]]
        own = [types[one["type"]] for one in every["variants"] if one["case"] == kind]
        return {one["name"] for part in (every, *own) for one in part["members"]}


@functools.cache
def qemu(release: str) -> Qemu:
    binary = qemu_of(release) if release else find_program("qemu-system-x86_64")
    assert binary is not None, "virtgauge provision packages"
    return Qemu(str(binary))


def command_lines() -> Iterator[list[str]]:
    """Of every machine with every accelerator, interface and setting."""
    root = [RootPart("lower", Path("/usr"), "/usr"), RootPart("write", Path("/x"), "/var/x")]
    for machine, settings in ((machine, one) for machine in MACHINES for one in SETTINGS):
        for accelerator, nic in ((one, nic) for one in ("kvm", "tcg") for nic in MACHINES[machine].nic_devices):
            not_here = (NOT_OF_A_MICROVM if machine.startswith("microvm") else set()) | (
                NOT_OF_E1000 if nic == "e1000" else set()
            )
            given = {key: one for key, one in settings.items() if key not in not_here}
            boot = Boot(
                binary=Path("qemu-system-x86_64"), machine=machine, accelerator=accelerator, vcpus=4, memory_mib=512,
                kernel=Path("/k"), initramfs=Path("/i"), modules=("m",), tsc_khz=2_000_000, nic_model=nic,
                drives=(Drive(Path("/d/a.img"), Path("/s/data"), "none"),), root=root,
                without=tuple(_OF_REGISTERS.values()), tuning=Tuning(**given),
            )  # fmt: skip
            taps = (Tap((11, 12), "52:54:00:00:00:01", 1500),)
            yield boot.arguments(console=Path("/s/c"), agent_descriptor=7, monitor_descriptor=9, taps=taps)


def undescribed(words: list[str], by: Qemu) -> Iterator[str]:
    """What of a command line QEMU does not describe."""
    at = 1
    while at < len(words):
        option = words[at].removeprefix("-")
        known = by.options(option)
        if not known:
            yield f"-{option}"
        value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("-") else None
        at += 1 if value is None else 2
        if value is None or option in ("kernel", "initrd", "append", "display", "serial", "qmp", "m"):
            continue
        first, *rest = value.replace(",,", "").split(",")
        names = [one.partition("=")[0] for one in rest]
        match option:
            case "device" | "object" | "machine":
                known = by.properties(option, first)
                if known == {"id"}:
                    yield f"-{option} {first}"
            case "cpu":
                if not re.search(rf"^x86 +{first}\b|^ +{first}\b", by.said("-cpu", "help"), re.MULTILINE):
                    yield f"-cpu {first}"
                known, names = by.of_a_processor, [one.removeprefix("-") for one in names]
            case "global":
                driver, _, name = first.partition("=")[0].partition(".")
                known, names = by.properties("device", driver), [name]
            case "netdev":
                known = by.of_a_netdev(first)
            case "chardev" | "fsdev":
                known = by.options(option, first)
                if not known:
                    yield f"-{option} {first}"
            case "accel":
                if first not in by.said("-accel", "help").split():
                    yield f"-accel {first}"
            case "drive" | "overcommit" | "rtc":
                names.append(first.partition("=")[0])
        yield from (f"-{option} {first}: {name}" for name in names if name not in known)


@pytest.mark.parametrize("release", [HERE, *OTHERS])
def test_every_word_of_the_command_line_is_described_by_qemu(release: str) -> None:
    by, lines = qemu(release), list(command_lines())
    assert len(lines) == len(SETTINGS) * 2 * (2 + 2 * 2)
    assert not {problem for words in lines for problem in undescribed(words, by)}


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        *(("-nodefaults", "-nodefault"), ("rtc=on", "rtk=on"), ("memory-backend=", "memory-backing=")),
        *(("migratable=no", "migratory=no"), ("arch-capabilities", "arch-capable"), ("Nehalem", "Nehalim")),
        *(("tcg,thread", "tgc,thread"), ("thread=multi", "thred=multi"), ("sockets=", "sackets=")),
        *(("socket,id=agent", "sockt,id=agent"), ("-qmp", "-qpm"), ("romfile=", "ramfile=")),
        *(("virtserialport,", "virtserialpart,"), ("cache=none", "cash=none"), ("fsdev=root", "fsdef=root")),
        *(("local,id=", "lokal,id="), ("security_model=", "security_modl="), ("tap,id=", "tapp,id=")),
        *(
            ("vhost=on", "vhosts=on"),
            ("vhost-user,", "vhost-usr,"),
            ("queues=2", "quees=2"),
            ("prealloc=", "preallocate="),
        ),
        *(("iothread,id", "iothred,id"), ("driftfix=", "driftfixes="), ("kvm-pit.lost", "kvm-pit.last")),
        *(("mem-lock=", "mem-look="), ("host=0000", "hoist=0000")),
    ],
)
def test_a_word_that_qemu_does_not_know_is_seen(word: str, instead: str) -> None:
    lines = [line for line in command_lines() if any(word in one for one in line)]
    assert lines
    (changed,) = [[one.replace(word, instead) for one in line] for line in lines[-1:]]
    assert set(undescribed(changed, qemu("")))


@pytest.mark.parametrize("release", [HERE, *OTHERS])
def test_every_command_to_the_monitor_is_one_of_qemus(release: str) -> None:
    folder = Path(command.__file__).parent
    text = "\n".join(path.read_text() for path in folder.glob("*.py"))
    used = set(re.findall(r'(?:execute|_ask)\(\s*"([\w-]+)"', text))
    assert {"block_set_io_throttle", "query-cpus-fast", "quit"} <= used
    assert used <= qemu(release).commands
