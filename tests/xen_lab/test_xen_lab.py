"""Xen in its nested lab: the real hypervisor and toolstack, in an emulated machine."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from platforms import guest_checks as check
from platforms import network_checks
from platforms.conftest import require, running, traces
from xen_lab.packages import find_lab_parts
from xen_lab.platform import REGISTRATION, XenLabPlatform

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.errors import UnavailableError
from virtgauge.host.policy import Policy
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.timeout(900)]
Spec = Callable[..., GuestSpec]
PV = XenLabPlatform()
PVH = XenLabPlatform(XenLabPlatform.Settings(type="pvh"))


@pytest.fixture(scope="module")
def lab_scope(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scope]:
    """One scope for all tests here: its lab is brought up by the first guest, and gone with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTGAUGE_STATE", str(tmp_path_factory.mktemp("state")))
        with Scope() as scope:
            yield scope
        assert traces(scope.tag) == []


@pytest.fixture(scope="module")
def spec(lab_scope: Scope) -> Spec:
    count = 0

    def make(**changes: object) -> GuestSpec:
        nonlocal count
        count += 1
        return dataclasses.replace(GuestSpec(name=f"g{count}", scope=lab_scope, agent=find_agent()), **changes)

    return make


async def spun_share(guest: Guest, seconds: float) -> float:
    """Of a processor, what Xen counts for a guest that spins, by the guest's own clock."""
    before = guest.accounting().cpu_ns
    load = (await guest.channel.request("load_start", name="cpu", params={"threads": 1}, timeout_s=60)).value["load"]
    await asyncio.sleep(seconds)
    achieved = (await guest.channel.request("load_stop", load=load, timeout_s=120)).value
    after = guest.accounting().cpu_ns
    assert before is not None
    assert after is not None
    return (after - before) / float(achieved["elapsed_ns"])


async def test_a_domain_answers_by_xens_clock_and_gets_its_cap(spec: Spec) -> None:
    _require_its_parts()
    await _bring_up(spec)
    async with running(PV, spec()) as guest:
        facts = await guest.channel.facts(60)
        assert facts["init"] is True
        assert facts["clocksource"]["current"] == "xen"
        files = (await guest.channel.request("read", paths=["/sys/hypervisor/type"], timeout_s=60)).value["files"]
        assert files["/sys/hypervisor/type"] == b"xen\n"
        assert "emulated" in guest.label
        assert not guest.accounting().of_this_machine
        free = await spun_share(guest, 5)
        applied = await guest.apply(Policy(cpu_limit=0.3, weight=200))
        assert applied.in_force == {"credit2 cap": "30 %", "credit2 weight": "512"}
        capped = await spun_share(guest, 5)
    # how much of the emulated processor is left for the guest depends on what else this machine does
    assert free > 1.3 * capped
    assert 0.05 < capped < 0.4


async def test_it_answers_counts_and_is_gone(spec: Spec) -> None:
    await _bring_up(spec)
    facts = await check.check_a_guest_answers_and_is_gone(PV, spec())
    assert isinstance(facts["cpu"], dict)
    assert facts["cpu"]["count"] == 1


async def test_two_domains_share_by_their_weights(spec: Spec) -> None:
    await _bring_up(spec)
    async with running(PV, spec()) as heavy, running(PV, spec()) as light:
        await heavy.apply(Policy(weight=300))
        await light.apply(Policy(weight=100))
        shares = await asyncio.gather(spun_share(heavy, 8), spun_share(light, 8))
    assert shares[0] / shares[1] == pytest.approx(3, rel=0.4)


async def test_interfaces_lead_into_the_lab_and_nowhere_else(spec: Spec) -> None:
    await _bring_up(spec)
    await network_checks.check_a_guest_answers_from_its_lab_only(PV, spec())


async def test_a_domain_routes(spec: Spec) -> None:
    await _bring_up(spec)
    await network_checks.check_a_guest_routes(PV, spec())


async def test_more_interfaces_than_the_lab_has_are_refused_and_given_back(spec: Spec, lab_scope: Scope) -> None:
    from virtgauge.network import Nic
    from virtgauge.network.namespace import Namespace

    await _bring_up(spec)
    nics = tuple(Nic(f"p{number}", network_checks.mac(number + 1)) for number in range(5))
    with Namespace(lab_scope, "many") as lab:
        with pytest.raises(LaunchError, match="are all in use"):
            await PV.launch(spec(nics=nics, lab=lab))
        async with running(PV, spec(nics=nics[:4], lab=lab)):
            assert {nic.port for nic in nics[:4]} <= set(lab.interfaces())
        assert not {nic.port for nic in nics} & set(lab.interfaces())


async def test_a_crash_ends_the_channel(spec: Spec) -> None:
    await _bring_up(spec)
    async with running(PV, spec()) as guest:
        await guest.crash()
        async with asyncio.timeout(60):
            while not guest.channel.closed:
                await asyncio.sleep(0.1)


async def test_a_broken_agent_is_a_launch_error_with_its_console(spec: Spec, tmp_path: Path) -> None:
    await _bring_up(spec)
    path = tmp_path / "no-init"
    path.write_text("this is no program")
    path.chmod(0o755)
    with pytest.raises(LaunchError) as caught:
        await PV.launch(spec(agent=AgentBinary(path, "0" * 64)))
    assert "Kernel panic" in caught.value.log_tail


async def test_what_xen_has_no_memory_for_is_told_in_its_words(spec: Spec) -> None:
    await _bring_up(spec)
    with pytest.raises(LaunchError, match="emory"):
        await PV.launch(spec(memory_mib=100_000))


async def test_a_domain_within_hardware_virtualization_answers(spec: Spec) -> None:
    await _bring_up(spec, PVH)
    async with running(PVH, spec()) as guest:
        facts = await guest.channel.facts(60)
    assert facts["clocksource"]["current"] == "xen"
    assert facts["hypervisor"]["signature"] == "XenVMMXenVMM"


def test_a_killed_controller_is_reclaimed(private_state: Path) -> None:
    check.check_a_killed_controller_is_reclaimed("xen-lab", "{}", register=REGISTRATION)


async def _bring_up(spec: Spec, platform: XenLabPlatform = PV) -> None:
    """The lab holds files open as long as it lives; what a guest leaves open is counted after it is there."""
    await platform._dom0(spec().scope, Path())


def _require_its_parts() -> None:
    try:
        find_lab_parts()
    except UnavailableError as error:
        require(Availability(False, error.message, error.remedy), "xen")
