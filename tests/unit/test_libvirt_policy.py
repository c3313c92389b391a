"""Placing a domain's threads by libvirt, on a machine whose CPUs have numbers with gaps."""

from __future__ import annotations

import os
from typing import Any

import pytest

from virtgauge.host.policy import Policy, PolicyError
from virtgauge.platforms.libvirt.guest import DomainPolicy


class Domain:
    """Of one processor, which is where it is told to be."""

    def __init__(self) -> None:
        self.places = [(True,) * 6] * 2
        self.obeys = True

    def pinVcpuFlags(self, vcpu: int, chosen: tuple[bool, ...], flags: int) -> None:
        self._pin(0, chosen)

    def pinEmulator(self, chosen: tuple[bool, ...], flags: int) -> None:
        self._pin(1, chosen)

    def _pin(self, which: int, chosen: tuple[bool, ...]) -> None:
        if self.obeys:
            self.places[which] = chosen

    def vcpuPinInfo(self) -> list[tuple[bool, ...]]:
        return self.places[:1]

    def emulatorPinInfo(self) -> tuple[bool, ...]:
        return self.places[1]

    def schedulerParametersFlags(self, flags: int) -> dict[str, int]:
        return {}


class Handle:
    def __init__(self) -> None:
        self.libvirt_domain = Domain()


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # that are online
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5})
    return Handle()


def test_a_cpu_is_named_by_its_number_and_not_by_how_many_there_are(handle: Any) -> None:
    policy = DomainPolicy(handle, "qemu", "QEMU", 1, None)
    assert policy.apply(Policy(cores=(5,))).in_force == {"vcpupin": "5", "emulatorpin": "5"}
    policy.apply(Policy())
    assert policy.pins() == (0, 5)


def test_a_place_that_cannot_be_lifted_is_told(handle: Any) -> None:
    policy = DomainPolicy(handle, "qemu", "QEMU", 1, None)
    policy.apply(Policy(cores=(5,)))
    handle.libvirt_domain.obeys = False
    with pytest.raises(PolicyError, match=r"set to \[0, 5\], but are \(5,\)"):
        policy.apply(Policy())
