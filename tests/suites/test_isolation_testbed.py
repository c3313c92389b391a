"""Two real guests beside each other: who gets what, counted from outside, and that nothing is left of them.

Other work on the machine changes how much both get together, not how they divide it; so divisions are what is tested.
"""

from __future__ import annotations

import json

import pytest
from sampled import sampled
from suites.isolation_testbeds import flags, pair

from virtgauge.host.cgroup import Hierarchies
from virtgauge.ledger.records import TrialStatus
from virtgauge.suites.isolation.benchmarks import largest_cache_bytes

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300), pytest.mark.usefixtures("private_state")]

EVERYWHERE = pytest.mark.parametrize("name", sampled(["runc"], ["host", "runsc", "microvm"]))


@EVERYWHERE
async def test_two_guests_divide_one_core_as_their_policies_say(name):
    design = {
        "loads": ["none", "integer"],
        "policies": ["none", "limit", "reservation", "limit+reservation"],
        "shares": [25, 75],
        "on": ["tested", "loading"],
        "seconds": 2.0,
    }
    async with pair(name, **design) as lab:
        equal = await lab.measure(load="integer")
        assert equal.status is TrialStatus.VALID, (equal.error, equal.flags)
        cpu = equal.result["cpu"]
        assert cpu["tested"] / cpu["loading"] == pytest.approx(1, abs=0.15)
        assert equal.result["entitled"] == {"tested": 0.5, "loading": 0.5}
        assert equal.result["load"]["rate"] > 0

        limited = await lab.measure(policy="limit", share="25")
        assert limited.status is TrialStatus.VALID, (limited.error, limited.flags)
        assert 0 < limited.result["cpu"]["tested"] < 0.28
        assert limited.result["entitled"]["tested"] == 0.25
        assert limited.result["throttling"]["tested"]["throttled"] > 0
        assert "25000" in " ".join(limited.result["policy_applied"]["tested"]["in_force"].values())
        assert not flags(limited) & {"limit-unbound", "never-throttled", "policy-no-effect"}

        reserved = await lab.measure(load="integer", policy="reservation", share="75")
        cpu = reserved.result["cpu"]
        assert cpu["tested"] / cpu["loading"] == pytest.approx(3, rel=0.15)
        assert reserved.result["entitled"] == {"tested": pytest.approx(0.75), "loading": pytest.approx(0.25)}
        assert any("weight of 300" in note for note in reserved.result["policy_applied"]["tested"]["notes"])

        left = await lab.measure(load="integer", policy="limit+reservation", share="75", on="loading")
        cpu = left.result["cpu"]
        assert cpu["loading"] / cpu["tested"] > 2.5
        assert cpu["loading"] < 0.8
        assert left.result["entitled"]["tested"] == pytest.approx(0.25)

        assert (await lab.measure()).result["throttling"]["tested"] is not None  # the limit of before is lifted:
        assert (await lab.measure()).result["throttling"]["tested"]["throttled"] == 0


@pytest.mark.parametrize("name", sampled(["runc", "microvm"], ["host", "runsc"]))
async def test_a_result_says_everything_in_a_form_that_can_be_kept(name):
    async with pair(name, loads=["fork"]) as lab:
        outcome = await lab.measure(load="fork")
    assert outcome.status is TrialStatus.VALID, (outcome.error, outcome.flags)
    result = json.loads(json.dumps(outcome.result))
    assert (result["unit"], result["value_unit"], result["threads"]) == ("dhrystones", "DMIPS", 1)
    assert result["value"] == pytest.approx(result["rate"] / 1757)
    assert result["rate"] == pytest.approx(result["units"] / result["elapsed_ns"] * 1e9)
    cpu, slice_ns = result["cpu"], result["slice_ns"]
    assert cpu["window_ns"] == result["elapsed_ns"] >= 10**9
    assert len(result["slices"]) == result["elapsed_ns"] // slice_ns  # what is left in the end is no slice
    assert 0 < sum(result["slices"]) * slice_ns / 1e9 <= result["units"] * 1.001
    assert result["load"] | {"rate": 0, "cpus": 0} == {
        **{"name": "fork", "unit": "processes", "intensity_percent": 100, "threads": 1},
        **{"rate": 0, "cpus": 0, "error": None},
    }
    assert result["frequency"]["before_hz"] > 1e8
    assert result["cores"] == result["capacity_cpus"] == 1
    assert 0 <= result["io_wait_share"] <= 1
    assert not outcome.guest_lost


async def test_a_container_sees_what_it_was_not_given_and_a_virtual_machine_does_not():
    design = {"policies": ["limit"], "shares": [30], "seconds": 2.0}
    async with pair("runc", **design) as lab:
        seeing = await lab.measure(policy="limit")
    async with pair("microvm", **design) as lab:
        blind = await lab.measure(policy="limit")
    assert seeing.result["steal"]["stopped_ns"] > 10**9 < blind.result["steal"]["stopped_ns"]
    assert "guest-blind" not in flags(seeing)
    assert seeing.result["cpu"]["guest_seen"] == pytest.approx(seeing.result["cpu"]["tested"], abs=0.1)
    assert "guest-blind" in flags(blind)
    assert blind.result["cpu"]["guest_seen"] > 2 * blind.result["cpu"]["tested"]


@EVERYWHERE
async def test_guests_are_where_the_cell_says(name):
    async with pair(name, cores=["1-apart"], loads=["integer"]) as lab:
        apart = await lab.measure(load="integer")
        where = lab.testbed.spec.where
        in_force = [apart.result["policy_applied"][guest]["in_force"] for guest in ("tested", "loading")]
        assert [one["cpuset.cpus"] for one in in_force] == [str(where.tested[0]), str(where.loading[0])]
        assert lab.testbed.tested.confinement().cpus == where.tested
        assert lab.testbed.loading.confinement().cpus == where.loading
        assert apart.result["entitled"] == {"tested": 1.0, "loading": 1.0}
        assert max(apart.result["cpu"]["tested"], apart.result["cpu"]["loading"]) < 1.1


@EVERYWHERE
async def test_each_guest_has_a_disk_of_its_own_and_a_bound_holds_for_one_alone(name):
    design = {
        "benchmarks": ["disk-sequential-write"],
        "loads": ["disk-sequential-write"],
        "policies": ["disk-limit"],
        "on": ["tested", "loading"],
        "shares": [20],
        "disk_full_mb_per_s": 10.0,
        "disk_file_mib": 2,
        "seconds": 2.0,
    }
    async with pair(name, **design) as lab:
        assert lab.testbed.disks["tested"].image != lab.testbed.disks["loading"].image
        alone = await lab.measure()
        assert alone.status is TrialStatus.VALID, (alone.error, alone.flags)
        assert alone.result["value_unit"] == "MB/s"
        assert alone.histograms["disk"].unit == "ns"
        assert alone.histograms["disk"].n >= alone.result["units"] / 65536  # the warm-up's are among them
        ours = await lab.measure(load="disk-sequential-write", policy="disk-limit", on="tested")
        theirs = await lab.measure(load="disk-sequential-write", policy="disk-limit", on="loading")
        assert ours.status is theirs.status is TrialStatus.VALID, (ours.error, theirs.error)
        if "disk-cached" in flags(alone):  # which says of itself that bounds do not hold
            assert name == "runsc"
            assert "policy-no-effect" in flags(ours)
            return
        assert "policy-no-effect" not in flags(ours) | flags(theirs)
        assert 0 < ours.result["value"] < 1.2 * 2 < theirs.result["value"]
        assert theirs.result["load"]["rate"] < 1.5 * 2e6 < ours.result["load"]["rate"]
        for guest in ("tested", "loading"):
            folder = lab.testbed.disks[guest].folder
            assert not folder.exists() or {path.name for path in folder.iterdir()} <= {"lost+found"}


@EVERYWHERE
async def test_every_family_of_benchmarks_and_loads_is_at_hand(name):
    design = {
        "benchmarks": ["floating", "memory-copy-simd", "latency", "disk-random-write-flush", "wake"],
        "loads": ["cache", "flush"],
        "memory_blocks": ["0.5xLLC"],
        "load_cache_block": "4MiB",
        "intensities": [50],
        "disk_file_mib": 1,
    }
    cache = largest_cache_bytes()
    assert cache is not None
    units = {"floating": "MWIPS", "memory-copy-simd": "MB/s", "latency": "ns", "wake": "wake-ups/s"}
    async with pair(name, **design) as lab:
        for benchmark, load in (*((one, "cache") for one in units), ("disk-random-write-flush", "flush")):
            outcome = await lab.measure(benchmark=benchmark, load=load)
            assert outcome.status is TrialStatus.VALID, (benchmark, outcome.error, outcome.flags)
            assert outcome.result["value_unit"] == units.get(benchmark, "operations/s")
            assert outcome.result["value"] > 0
            assert outcome.result["load"]["intensity_percent"] == 50
            expected = {"wake": {"wake"}, "disk-random-write-flush": {"disk"}}.get(benchmark, set())
            assert set(outcome.histograms) == expected
            if benchmark in ("latency", "memory-copy-simd"):
                assert outcome.result["block_bytes"] == cache // 2


async def test_both_guests_have_a_weight_also_without_a_policy():
    """In cgroup v1 a guest that is in no group of the cpu controller is outside of what is weighed."""
    async with pair("host") as lab:
        result = (await lab.measure()).result
        for guest in ("tested", "loading"):
            in_force = result["policy_applied"][guest]["in_force"]
            assert ("cpu.shares", "1024") in in_force.items() or ("cpu.weight", "100") in in_force.items()
        pids = lab.stage.scope.cgroup("testbed-tested").pids()
        assert pids
        if "cpu" in Hierarchies.detect().v1:
            for pid in pids:
                with open(f"/proc/{pid}/cgroup") as lines:
                    assert any(":cpu" in line and "/virtgauge/" in line for line in lines)
