"""Guests with network interfaces, on every platform that is made of processes on this host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from platforms.conftest import require, running
from platforms.network_checks import check_a_guest_answers_from_its_lab_only, check_a_guest_routes, mac
from sampled import on, sampled

from virtgauge.host.scope import Scope
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import OpenVSwitch
from virtgauge.platforms import create
from virtgauge.platforms.base import GuestSpec, LaunchError, Platform

pytestmark = pytest.mark.slow

PLATFORMS = {
    "host": ("host", {}),
    "runc": ("oci", {"runtime": "runc"}),
    "runsc": ("oci", {"runtime": "runsc"}),
    "microvm": ("qemu", {"machine": "microvm", "accelerator": "tcg"}),
    "uml": ("uml", {}),
    "e1000": ("qemu", {"machine": "q35", "accelerator": "tcg", "nic_model": "e1000"}),
}

Spec = Callable[..., GuestSpec]


EVERYWHERE = on("host runc runsc microvm uml", "e1000")


@pytest.fixture
async def platform(request: pytest.FixtureRequest) -> Platform:
    kind, settings = PLATFORMS[request.param]
    platform = create(kind, settings)
    require(await platform.probe(), request.param)
    return platform


@EVERYWHERE
async def test_a_guest_answers_from_its_lab_and_is_seen_nowhere_else(platform: Platform, spec: Spec) -> None:
    await check_a_guest_answers_from_its_lab_only(platform, spec())


@EVERYWHERE
async def test_a_forwarding_guest_routes_between_its_interfaces(platform: Platform, spec: Spec) -> None:
    await check_a_guest_routes(platform, spec())


async def test_it_routes_between_bridges_of_open_vswitch_too(scope: Scope, spec: Spec) -> None:
    """Every frame is counted by the rule that it passed, and what has none is dropped and counted."""
    await check_a_guest_routes(create("oci", {"runtime": "runc"}), spec(), lambda lab: OpenVSwitch(scope, lab))


@on("host runc runsc", "microvm uml e1000")
async def test_what_confines_a_guest_is_read_back(platform: Platform, scope: Scope, spec: Spec) -> None:
    async with running(platform, spec(cpus=(0,), cpu_limit=0.75)) as guest:
        assert guest.confinement().cpus == (0,)
        assert guest.confinement().cpu_limit == 0.75


@pytest.mark.parametrize("kind", sampled(["qemu"], ["host", "oci"]))
async def test_a_port_whose_name_is_taken_is_a_launch_error(kind: str, scope: Scope, spec: Spec) -> None:
    settings: dict[str, Any] = {"accelerator": "tcg"} if kind == "qemu" else {}
    with Namespace(scope, "lab") as lab:
        first = spec(nics=(Nic("p0", mac(1)),), lab=lab)
        async with running(create("host", {}), first):
            before = lab.interfaces()
            asked = spec(nics=(Nic("p0", mac(2)),), lab=lab)
            with pytest.raises(LaunchError, match="p0") as caught:
                await create(kind, settings).launch(asked)
            assert caught.value.stage == "network"
            assert lab.interfaces() == before, "the port of the other guest stays"
            assert not (scope.folder / asked.name).exists()
