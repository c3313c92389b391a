"""Policies: refusals, control groups of either version, and the same statement in hypervisors' words."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from virtgauge.cli import app
from virtgauge.errors import UsageError
from virtgauge.host.cgroup import Cgroup, Hierarchies
from virtgauge.host.cgroup_policy import CgroupPolicy, Throttling
from virtgauge.host.policy import DiskLimits, Hypervisor, Policy, PolicyError, Target, commands, weight_for_share
from virtgauge.host.scope import Scope


def test_what_cannot_be_is_refused_by_field_value_and_remedy() -> None:
    cpus = len(os.sched_getaffinity(0))
    refused = [
        ({"cpu_limit": cpus + 0.5}, "cpu_limit"),
        ({"cpu_limit": 0.001}, "cpu_limit"),
        ({"reservation": 1.0, "cpu_limit": 0.5}, "reservation"),
        ({"weight": 0}, "weight"),
        ({"weight": 10_001}, "weight"),
        ({"cores": (4096,)}, "cores"),
        ({"cores": ()}, "cores"),
        ({"disk": DiskLimits(write_iops=0)}, "write_iops"),
    ]
    for fields, named in refused:
        with pytest.raises(UsageError) as refusal:
            Policy(**fields)
        assert refusal.value.message.startswith(named) and refusal.value.remedy


def test_a_reservation_by_weights() -> None:
    assert weight_for_share(0.5) == 100
    assert weight_for_share(0.75) == 300
    assert weight_for_share(0.05) == 6  # 5 would be 4.8 %
    assert weight_for_share(0.7) == 234
    assert weight_for_share(1.0) == 10_000
    for percent in range(1, 100):
        assert weight_for_share(percent / 100) / (weight_for_share(percent / 100) + 100) >= percent / 100 - 1e-9
    assert [weight_for_share(share) for share in (0.6, 0.9, 0.95)] == [150, 900, 1900]  # in spite of rounding


def _tree(tmp_path: Path, version: int) -> Hierarchies:
    """A plain folder in place of a cgroup file system, with the knobs of one group."""
    knobs = {
        1: ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "blkio.throttle.write_bps_device", "cpu.stat"),
        2: ("cpu.max", "cpu.weight", "cpuset.cpus", "io.max", "cpu.stat", "memory.events", "memory.max"),
    }
    folder = tmp_path / "virtgauge" / "vg000000" / "guest"
    folder.mkdir(parents=True)
    for name in (*knobs[version], "cgroup.procs"):
        (folder / name).write_text("")
    for parent in (tmp_path, tmp_path / "virtgauge", tmp_path / "virtgauge" / "vg000000"):
        (parent / "cgroup.subtree_control").write_text("")
    if version == 2:
        return Hierarchies(v1={}, v2=tmp_path)
    return Hierarchies(v1=dict.fromkeys(("cpu", "cpuacct", "blkio"), tmp_path), v2=None)


def test_v2_takes_the_statement_as_it_stands(tmp_path: Path) -> None:
    tree = _tree(tmp_path, 2)
    driver = CgroupPolicy(Cgroup("virtgauge/vg000000/guest", tree))
    disk = DiskLimits(read_bps=1_000_000, write_iops=50)
    applied = driver.apply(Policy(cpu_limit=0.5, weight=300, cores=(0,), disk=disk), device="7:0")
    assert applied.in_force == {
        "cpu.max": "50000 100000",
        "cpu.weight": "300",
        "cpuset.cpus": "0",
        "io.max": "7:0 rbps=1000000 wiops=50",
    }
    assert applied.no_effect == ()
    assert (tmp_path / "virtgauge" / "cgroup.subtree_control").read_text() == "+memory"  # the last that was needed


def test_v1_converts_weights_and_says_what_its_throttles_let_through(tmp_path: Path) -> None:
    tree = _tree(tmp_path, 1)
    driver = CgroupPolicy(Cgroup("virtgauge/vg000000/guest", tree))
    applied = driver.apply(Policy(weight=300, disk=DiskLimits(write_bps=1000)), device="7:0")
    assert applied.in_force == {"cpu.shares": "3072", "blkio.throttle.write_bps_device": "7:0 1000"}
    assert "buffered" in applied.no_effect[0]


def test_a_reservation_alone_is_a_knob_that_does_nothing_here(tmp_path: Path) -> None:
    tree = _tree(tmp_path, 2)
    applied = CgroupPolicy(Cgroup("virtgauge/vg000000/guest", tree)).apply(Policy(reservation=0.5))
    assert applied.in_force == {} and applied.no_effect == ("reservation: control groups have none; give a weight",)


def test_throttling_and_kills_are_read_in_both_versions_words(tmp_path: Path) -> None:
    tree = _tree(tmp_path, 2)
    folder = tmp_path / "virtgauge" / "vg000000" / "guest"
    driver = CgroupPolicy(Cgroup("virtgauge/vg000000/guest", tree))
    assert driver.throttling() is None and driver.out_of_memory_kills() is None
    (folder / "cpu.stat").write_text("usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n")
    (folder / "memory.events").write_text("low 0\noom_kill 2\n")
    assert driver.throttling() == Throttling(10, 4, 7000)
    assert driver.out_of_memory_kills() == 2
    (folder / "cpu.stat").write_text("nr_periods 12\nnr_throttled 5\nthrottled_time 9000\n")
    now = driver.throttling()
    assert now is not None and now.since(Throttling(10, 4, 7000)) == Throttling(2, 1, 2000)


@pytest.mark.slow
def test_a_busy_process_is_held_to_its_limit_by_this_machine() -> None:
    with Scope() as scope:
        group = scope.cgroup("busy")
        with group.entrance() as join:
            process = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=join)
        try:
            assert group.reason is None, group.reason
            driver = CgroupPolicy(group)
            applied = driver.apply(Policy(cpu_limit=0.2, weight=300, cores=(min(os.sched_getaffinity(0)),)))
            assert applied.in_force
            before_ns, before, began_ns = group.cpu_ns(), driver.throttling(), time.monotonic_ns()
            time.sleep(2)
            after_ns, after, ended_ns = group.cpu_ns(), driver.throttling(), time.monotonic_ns()
        finally:
            process.kill()
            process.wait()
    assert before_ns is not None and after_ns is not None
    assert (after_ns - before_ns) / (ended_ns - began_ns) < 0.25
    assert before is not None and after is not None and after.since(before).throttled >= 1


def test_a_knob_that_is_not_there_is_named(tmp_path: Path) -> None:
    tree = Hierarchies(v1={}, v2=None)
    with pytest.raises(PolicyError, match="cpu"):
        CgroupPolicy(Cgroup("virtgauge/vg000000/guest", tree)).apply(Policy(weight=100))
    tree = _tree(tmp_path, 2)
    with pytest.raises(PolicyError, match="no disk of its own"):
        CgroupPolicy(Cgroup("virtgauge/vg000000/guest", tree)).apply(Policy(disk=DiskLimits(read_bps=1)))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("policy", [Policy(cpu_limit=0.5), Policy(weight=300), Policy(disk=DiskLimits(write_bps=1000))])
def test_a_knob_that_takes_another_value_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, version: int
) -> None:
    driver = CgroupPolicy(Cgroup("virtgauge/vg000000/guest", _tree(tmp_path, version)))
    monkeypatch.setattr("virtgauge.host.cgroup_policy.write_existing", lambda path, _: path.write_text("7:0 1"))
    with pytest.raises(PolicyError, match=r"was set to .* but is '7:0 1'"):
        driver.apply(policy, device="7:0")


def test_every_hypervisor_is_told_the_same_in_its_own_words() -> None:
    policy = Policy(cpu_limit=0.5, reservation=0.5, weight=200, cores=(0,), disk=DiskLimits(read_iops=100))
    target = Target("it's a guest", vcpus=1, core_mhz=2000)
    said = {hypervisor: commands(policy, hypervisor, target) for hypervisor in Hypervisor}
    assert said[Hypervisor.HYPER_V].lines[0] == (
        "Set-VMProcessor -VMName 'it''s a guest' -Maximum 50 -Reserve 50 -RelativeWeight 200"
    )
    assert (
        "-CpuLimitMhz 1000 -CpuReservationMhz 1000 -CpuSharesLevel Custom -NumCpuShares 2000"
        in (said[Hypervisor.ESXI].lines[0])
    )
    assert said[Hypervisor.VIRTUALBOX].lines[0].endswith("--cpu-execution-cap=50")
    assert any("reservation" in part for part in said[Hypervisor.VIRTUALBOX].missing)
    assert said[Hypervisor.XEN].lines[0].endswith("-w 512 -c 50")
    assert commands(Policy(weight=6), Hypervisor.XEN, target).lines[0].endswith("-w 15")
    reserving = Policy(weight=6, reservation=0.05)
    assert commands(reserving, Hypervisor.XEN, target).lines[0].endswith("-w 16")  # no smaller a part
    assert "-p 10000 -b 5000" in said[Hypervisor.XEN].lines[1]
    for hypervisor, words in said.items():
        assert words.read_back, hypervisor


def test_nothing_asked_for_is_nothing_typed() -> None:
    assert not Policy().given()
    assert not any(commands(Policy(), hypervisor, Target("guest")).lines for hypervisor in Hypervisor)


def test_units_that_a_hypervisor_would_take_for_others_are_named() -> None:
    policy = Policy(cpu_limit=3.0, disk=DiskLimits(write_bps=4_096_000), available=(0, 1, 2, 3))
    said = commands(policy, Hypervisor.VIRTUALBOX, Target("guest", vcpus=2, medium="a disk.vdi"))
    assert "--limit=4000K" in said.lines[1]
    assert "--type=hdd --medium='a disk.vdi' --bandwidthgroup=virtgauge" in said.lines[2]
    assert any(part.startswith("cpu_limit: guest has 2 vCPUs") for part in said.missing)
    assert "MaximumIOPS 500" in commands(policy, Hypervisor.HYPER_V, Target("guest")).lines[1]


def test_the_command_prints_what_can_be_pasted_and_refuses_what_cannot_be() -> None:
    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["policy", "commands", "--hypervisor", "xen", "--name", "G", *words])

    said = run("--cpu-limit", "0.5", "--cores", "1,0", "--read-iops", "10").output.splitlines()
    assert said[:3] == ["xl sched-credit2 -d G -c 50", "xl vcpu-set G 2", "xl vcpu-pin G all 0,1"]
    assert said[3].startswith("# disk: Xen has no bounds")
    assert "xl vcpu-list G" in said[4:]
    for words, named in ((("--cores", "a"), "--cores"), ((), "nothing"), (("--weight", "0"), "weight is 0")):
        refusal = run(*words).exception
        assert isinstance(refusal, UsageError)
        assert named in refusal.message
        assert refusal.remedy


@pytest.mark.parametrize("asked", [("--cpu-limit", "0.5"), ("--reservation", "1")])
def test_megahertz_of_esxi_are_asked_for_where_they_are_needed(asked: tuple[str, str]) -> None:
    def told(*options: str) -> Result:
        named = ["policy", "commands", "--name", "G", *options]
        return CliRunner().invoke(app, named)

    refused = told("--hypervisor", "esxi", *asked)
    assert isinstance(refused.exception, UsageError)
    assert "add --core-mhz" in str(refused.exception)
    assert refused.stdout == ""
    given = told("--hypervisor", "esxi", *asked, "--core-mhz", "2600")
    assert f"Mhz {round(float(asked[1]) * 2600)}" in given.stdout
    assert told("--hypervisor", "esxi", "--weight", "200").exit_code == 0
    assert told("--hypervisor", "hyper-v", *asked).exit_code == 0
