"""Networks that cannot be are refused before anything is made, with words that name what is wrong."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic import TypeAdapter, ValidationError

from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.qemu.platform import QemuPlatform

MAC = "52:54:00:00:00:01"
NOWHERE = cast(Any, None)


ASKED = {"port": "p0", "mac": MAC, "addresses": ["10.0.0.1/24"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": ""},
        {"port": "sixteen-letters-"},
        {"port": "a/b"},
        {"mac": "52:54:00:00:00"},
        {"mac": "52:54:00:00:00:0g"},
        {"mac": "01:00:5e:00:00:01"},
        {"addresses": ["10.0.0.1"]},
        {"addresses": ["10.0.0.256/24"]},
        {"addresses": ["10.0.0.1/33"]},
        {"routes": [{"to": "default", "via": "10.0.0.0/8"}]},
        {"neighbours": [{"address": "10.0.0.2", "mac": "ff:ff:ff:ff:ff:ff"}]},
        {"mtu": 67},
        {"mtu": 65536},
    ],
)
def test_an_interface_that_another_machine_asks_for_and_that_cannot_be(wrong: dict[str, Any]) -> None:
    checked = TypeAdapter(Nic)
    assert checked.validate_python(ASKED) == Nic("p0", MAC, ("10.0.0.1/24",))
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        checked.validate_python(ASKED | wrong)


def test_interfaces_without_a_lab_and_forwarding_without_interfaces() -> None:
    with pytest.raises(NetworkError, match="lab"):
        GuestSpec("g", NOWHERE, NOWHERE, nics=(Nic("p0", MAC),))
    with pytest.raises(NetworkError, match="no interfaces"):
        GuestSpec("g", NOWHERE, NOWHERE, forwarding=True)


def test_cpus_that_are_not_there_and_a_limit_that_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="may use the CPUs"):
        GuestSpec("g", NOWHERE, NOWHERE, cpus=(100_000,))
    with pytest.raises(ValueError, match="may use the CPUs"):
        GuestSpec("g", NOWHERE, NOWHERE, cpus=())
    for limit in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="CPUs"):
            GuestSpec("g", NOWHERE, NOWHERE, cpu_limit=limit)


def test_a_microvm_has_no_bus_for_an_e1000() -> None:
    with pytest.raises(ValueError, match="q35"):
        QemuPlatform.Settings(machine="microvm", nic_model="e1000")
    assert QemuPlatform.Settings(machine="q35", nic_model="e1000").nic_model == "e1000"


def test_a_namespace_whose_name_is_a_path(private_state: object) -> None:
    with Scope() as scope:
        for name in ("", "a/b", "n" * 80):
            with pytest.raises(NetworkError, match="cannot be named"):
                Namespace(scope, name)
