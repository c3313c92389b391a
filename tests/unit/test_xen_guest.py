from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from xen_hosts import PLAIN, SHARES, NotedDom0

from virtgauge.host.policy import DiskLimits, Policy, PolicyError, xen_weight
from virtgauge.platforms.xen.dom0 import Share, xen_cap
from virtgauge.platforms.xen.platform import XenGuest

FOUR = (0, 1, 2, 3)


class ClosedChannel:
    closed = True

    async def shutdown(self, _timeout_s: float) -> None:
        return


def guest_of(dom0: NotedDom0, removal: contextlib.ExitStack | None = None, vcpus: int = 2) -> XenGuest:
    channel: Any = ClosedChannel()
    return XenGuest(
        channel=channel,
        ready_ns=1,
        label="Xen",
        config=dataclasses.replace(PLAIN, name="u1", vcpus=vcpus),
        dom0=dom0,
        removal=removal or contextlib.ExitStack(),
    )


@pytest.mark.parametrize("factor", [1.0, 4.0])
async def test_a_guest_is_waited_for_as_its_host_deserves(factor: float) -> None:
    dom0 = NotedDom0()
    dom0.timeout_factor = factor
    assert guest_of(dom0).channel.timeout_factor == factor


async def test_cap_and_weight_are_set_and_read_back() -> None:
    dom0 = NotedDom0()
    applied = await guest_of(dom0).apply(Policy(cpu_limit=0.4, weight=200, available=FOUR))
    assert dom0.told == ["xl sched-credit2 -d u1 -w 512 -c 40", "xl sched-credit2 -d u1"]
    assert applied.in_force == {"credit2 cap": "40 %", "credit2 weight": "512"}
    assert applied.no_effect == ()


async def test_the_next_policy_lifts_what_the_last_one_set() -> None:
    dom0 = NotedDom0()
    guest = guest_of(dom0)
    await guest.apply(Policy(cpu_limit=0.4, weight=200, cores=(1, 3), available=FOUR))
    assert guest.confinement().cpu_limit == 0.4
    dom0.told.clear()
    applied = await guest.apply(Policy())
    assert dom0.told == [
        "xl sched-credit2 -d u1 -w 256 -c 0",
        "xl sched-credit2 -d u1",
        "xl vcpu-pin u1 all all",
    ]
    assert applied.in_force == {}
    assert guest.confinement().cpu_limit is None


async def test_cores_are_pinned_and_told_as_xen_has_them() -> None:
    dom0 = NotedDom0()
    applied = await guest_of(dom0).apply(Policy(cores=(1, 3), available=FOUR))
    assert "xl vcpu-pin u1 all 1,3" in dom0.told
    assert applied.in_force == {"vcpu affinity": "1,3"}


async def test_a_lab_has_no_processors_of_this_machine_to_pin() -> None:
    dom0 = NotedDom0(emulated=True)
    applied = await guest_of(dom0).apply(Policy(cores=(1,), available=FOUR))
    assert not any("vcpu-pin" in command for command in dom0.told)
    assert "emulated Xen host" in applied.no_effect[0]


async def test_a_limit_beyond_the_virtual_processors_is_what_they_come_to_and_said_to_be_of_no_effect() -> None:
    dom0 = NotedDom0()
    applied = await guest_of(dom0, vcpus=2).apply(Policy(cpu_limit=3, available=FOUR))
    assert applied.in_force == {"credit2 cap": "200 %"}
    assert applied.no_effect == ("cpu_limit: the guest has 2 vCPUs, and cannot use more",)


async def test_a_reservation_alone_is_of_no_effect() -> None:
    applied = await guest_of(NotedDom0()).apply(Policy(reservation=0.5, available=FOUR))
    assert applied.no_effect == ("reservation: credit2 has none; give a weight",)


async def test_a_policy_that_is_not_in_force_is_an_error() -> None:
    dom0 = NotedDom0()
    dom0.answers["xl sched-credit2"] = SHARES.format(weight=256, cap=0)
    with pytest.raises(PolicyError, match="asked for weight 256 and cap 40"):
        await guest_of(dom0).apply(Policy(cpu_limit=0.4, available=FOUR))


async def test_a_refusal_of_xen_is_told_in_its_words() -> None:
    dom0 = NotedDom0()
    dom0.refusals["xl sched-credit2"] = "libxl: error: Cpu cap out of range\nfailed.\n"
    with pytest.raises(PolicyError, match=r"`xl sched-credit2 -d` ended with status 1: libxl: error: Cpu cap out"):
        await guest_of(dom0).apply(Policy(cpu_limit=0.4, available=FOUR))


async def test_bounds_for_a_disk_that_there_is_not_are_refused() -> None:
    with pytest.raises(PolicyError, match="no disk of its own"):
        await guest_of(NotedDom0()).apply(Policy(disk=DiskLimits(read_bps=1)))


def test_accounting_is_the_time_of_the_domain_itself() -> None:
    found = guest_of(NotedDom0()).accounting()
    assert (found.cpu_ns, found.of_this_machine) == (3_200_000_000, True)
    assert not guest_of(NotedDom0(emulated=True)).accounting().of_this_machine


def test_a_domain_that_is_gone_has_no_account() -> None:
    dom0 = NotedDom0()
    dom0.answers["xl list"] = "Name  ID   Mem VCPUs\tState\tTime(s)\n"
    assert guest_of(dom0).accounting().cpu_ns is None
    dom0.refusals["xl list"] = "xc: error: no hypervisor"
    assert guest_of(dom0).accounting().cpu_ns is None


async def test_closing_undoes_everything_once() -> None:
    undone: list[str] = []
    removal = contextlib.ExitStack()
    removal.callback(undone.append, "domain")
    guest = guest_of(NotedDom0(), removal)
    await guest.close()
    await guest.close()
    assert undone == ["domain"]


async def test_a_crash_destroys_the_domain() -> None:
    dom0 = NotedDom0()
    await guest_of(dom0).crash()
    assert dom0.told == ["xl destroy u1"]


async def test_an_answer_of_another_scheduler_is_an_error_that_shows_it() -> None:
    dom0 = NotedDom0()
    dom0.answers["xl sched-credit2"] = "something else"
    with pytest.raises(PolicyError, match="no share of u1 in what xl prints: 'something else'"):
        await guest_of(dom0).apply(Policy())
    dom0.answers.clear()
    assert await dom0.share("u1") == Share(256, 0)


@pytest.mark.parametrize(
    ("weight", "nearest", "reserving"),
    [(100, 256, 256), (200, 512, 512), (1, 3, 3), (6, 15, 16), (10_000, 25_600, 25_600)],
)
def test_everybodys_weight_is_everybodys(weight: int, nearest: int, reserving: int) -> None:
    assert (xen_weight(weight), xen_weight(weight, reserves=True)) == (nearest, reserving)


@pytest.mark.parametrize(("limit", "cap"), [(0.4, 40), (2.0, 200), (0.01, 1), (0.005, 1)])
def test_a_limit_is_never_no_cap(limit: float, cap: int) -> None:
    assert xen_cap(limit) == cap
