"""A virtual machine whose hypervisor withholds the promise of an invariant counter: there the kernel answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from platforms.conftest import require, running

from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.qemu import command
from virtgauge.platforms.qemu.platform import QemuGuest, QemuPlatform

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMMON = {"max_ns": 20 * 10**9, "reservoir": 1, "seed": 1}


async def test_a_guest_without_the_invariant_flag_gets_the_kernels_clock_says_why_and_tells_the_right_time(
    private_state: object, spec: Callable[..., GuestSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = QemuPlatform()
    require(await platform.probe(), "qemu")
    for accelerator, (*words, model) in list(command._ACCELERATORS.items()):
        monkeypatch.setitem(command._ACCELERATORS, accelerator, (*words, f"{model},-invtsc"))
    async with running(platform, spec()) as guest:
        assert isinstance(guest, QemuGuest)

        async def probe(name: str, **params: object) -> dict[str, object]:
            answer = await guest.channel.request("probe", name=name, params=COMMON | params, timeout_s=60)
            return dict(answer.value)

        facts = (await guest.channel.request("facts")).value
        read = await probe("timer_cost", function="hptime", samples=100_000)
        kernels = await probe("timer_cost", function="clock_gettime", samples=100_000)
        slept = await probe(
            "sleep_lateness",
            function="hptime",
            target_ns=20_000_000,
            samples=50,
            slack_ns=1,
            policy="other",
            idle_states="default",
        )
    assert facts["tsc"]["invariant"] is False
    for refused in (read, slept):
        assert refused["hptime_fallback_reason"] == "the processor does not promise an invariant time stamp counter"
    assert kernels["hptime_fallback_reason"] is None
    assert read["backward"] == 0
    # The sleep ends by hptime's clock, and how late is told by the kernel's: they agree to what two readings cost.
    lateness = slept["distribution"]
    assert isinstance(lateness, dict)
    assert lateness["n"] == 50
    assert -1_000_000 < lateness["min"] < 10**9  # ps
