"""Networks that cannot be are refused before anything is made, with words that name what is wrong."""

from __future__ import annotations

from typing import Any, cast

import pytest

from virtgauge.host.scope import Scope
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Neighbour, NetworkError, Nic, Route
from virtgauge.network.switch import Rule
from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.qemu.platform import QemuPlatform

MAC = "52:54:00:00:00:01"
NOWHERE = cast(Any, None)


@pytest.mark.parametrize("port", ["", "sixteen-letters-", "a/b", "a b", "..", "lo", "all", "p:0"])
def test_a_name_that_linux_would_not_take(port: str) -> None:
    with pytest.raises(NetworkError, match="15 letters"):
        Nic(port, MAC)


def test_a_name_of_the_greatest_length_is_taken() -> None:
    assert Nic("fifteen-letters", MAC).port == "fifteen-letters"


@pytest.mark.parametrize(
    "mac", ["", "52:54:00:00:00", "52-54-00-00-00-01", "52:54:00:00:00:0g", "52:54:00:00:00:01:02"]
)
def test_a_malformed_hardware_address(mac: str) -> None:
    with pytest.raises(NetworkError, match="no hardware address"):
        Nic("p0", mac)


@pytest.mark.parametrize("mac", ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"])
def test_a_hardware_address_that_no_station_has(mac: str) -> None:
    with pytest.raises(NetworkError, match="one station"):
        Neighbour("10.0.0.1", mac)


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.256/24", "10.0.0.1/33", "fe80::1/64", "x/8"])
def test_an_address_that_is_no_ipv4_one_with_its_prefix(address: str) -> None:
    with pytest.raises(NetworkError, match=r"10\.0\.0\.1/24"):
        Nic("p0", MAC, (address,))


@pytest.mark.parametrize(("to", "via"), [("10.0.0.1/8", None), ("everywhere", None), ("default", "10.0.0.0/8")])
def test_a_route_that_leads_nowhere(to: str, via: str | None) -> None:
    with pytest.raises(NetworkError, match="route"):
        Route(to, via)


@pytest.mark.parametrize("mtu", [0, 67, 65536])
def test_an_mtu_that_no_link_has(mtu: int) -> None:
    with pytest.raises(NetworkError, match="68 to 65521"):
        Nic("p0", MAC, mtu=mtu)


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (Nic("p0", "52:54:00:00:00:02"), "port p0"),
        (Nic("p1", MAC.upper()), "hardware address"),
        (Nic("p1", "52:54:00:00:00:02", ("10.0.0.1/16",)), r"address 10\.0\.0\.1"),
    ],
)
def test_two_interfaces_that_cannot_stand_side_by_side(second: Nic, what: str) -> None:
    nics = (Nic("p0", MAC, ("10.0.0.1/24",)), second)
    with pytest.raises(NetworkError, match=what):
        GuestSpec("g", NOWHERE, NOWHERE, nics=nics, lab=cast(Any, object()))


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


def test_a_rule_for_a_group() -> None:
    with pytest.raises(NetworkError, match="one station"):
        Rule("p0", "ff:ff:ff:ff:ff:ff", "p1")
    assert Rule("p0", MAC.upper(), "p1").dst_mac == MAC.lower()
