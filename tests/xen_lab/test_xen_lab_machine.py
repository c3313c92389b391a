from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from xen_lab.machine import CARDS, CONSOLES, LabMachine

PLAIN = LabMachine(
    binary=Path("/usr/bin/qemu-system-x86_64"),
    guests="pv",
    hypervisor=Path("/cache/xen/xen"),
    kernel=Path("/cache/kernel/vmlinuz"),
    initramfs=Path("/cache/a, b.cpio"),
    modules=("virtio_pci", "xenfs"),
    xen=Path("/cache/xen"),
    kernels=Path("/cache/vmlinux"),
    archives=Path("/cache/initramfs"),
)


def arguments(machine: LabMachine = PLAIN) -> list[str]:
    taps = [(20 + number, f"52:54:00:7e:00:0{number}") for number in range(CARDS)]
    return machine.arguments(console=Path("/run/console.log"), agent_descriptor=9, taps=taps)


def value_of(option: str, words: list[str]) -> str:
    return words[words.index(option) + 1]


def test_xen_is_the_kernel_and_dom0_its_module() -> None:
    words = arguments()
    assert value_of("-kernel", words) == "/cache/xen/xen"
    assert "sched=credit2" in value_of("-append", words)
    initrd = value_of("-initrd", words)
    # QEMU separates modules by commas and takes a doubled one for a comma
    kernel, archive = initrd.replace(",,", "\0").split(",")
    assert kernel.replace("\0", ",") == f"/cache/kernel/vmlinuz {PLAIN.dom0_command_line()}"
    assert archive.replace("\0", ",") == "/cache/a, b.cpio"


def test_the_processor_has_what_the_guests_need() -> None:
    assert "+rdtscp" in value_of("-cpu", arguments())
    assert "+svm" in value_of("-cpu", arguments(dataclasses.replace(PLAIN, guests="pvh")))


def test_every_guest_has_a_console_and_every_card_its_tap() -> None:
    words = arguments()
    ports = [word for word in words if word.startswith("virtserialport,")]
    assert len(ports) == 1 + CONSOLES
    cards = [word for word in words if word.startswith("virtio-net-pci,")]
    assert [card.rpartition("mac=")[2] for card in cards] == [f"52:54:00:7e:00:0{number}" for number in range(CARDS)]


def test_nothing_of_the_host_can_be_written() -> None:
    exports = [word for word in arguments() if word.startswith("local,")]
    assert len(exports) >= 3
    assert all("readonly=on" in export for export in exports)


def test_a_command_line_that_dom0_would_cut_is_refused() -> None:
    modules = tuple(f"some_module_{number}" for number in range(100))
    with pytest.raises(ValueError, match="longer than 1023"):
        arguments(dataclasses.replace(PLAIN, modules=modules))
