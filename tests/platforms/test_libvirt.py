"""Guests of a real libvirtd: QEMU's, booted for real by whatever works here, and containers of LXC."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platforms import guest_checks as check
from platforms.conftest import burnt_share, require, running, traces, undisturbed
from platforms.disk_checks import check_an_image_is_the_root, disk, root_image
from platforms.libvirt_daemon import private_libvirtd
from platforms.network_checks import check_a_guest_answers_from_its_lab_only, check_a_guest_routes
from typer.testing import CliRunner

from virtgauge.agent.channel import ChannelClosedError
from virtgauge.cli import app
from virtgauge.errors import UnavailableError
from virtgauge.host.policy import DiskLimits, Policy, PolicyError
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms import create
from virtgauge.platforms.base import Availability, GuestSpec, LaunchError, Platform
from virtgauge.platforms.libvirt.connection import library, open_connection
from virtgauge.platforms.libvirt.platform import LibvirtPlatform, LibvirtSettings

PLAN = """
name = "libvirt"
repetitions = 1
attempts = 1
aa = false

[[platform]]
name = "host"
kind = "host"

[[platform]]
name = "guest"
kind = "libvirt"
uri = "{uri}"
accelerator = "tcg"

[validity]
foreign_load = 1.0
steal = 1.0
clock_ppm = 1_000_000.0

[suite.timing]
loads = ["idle"]
timers = ["rdtscp", "clock_gettime"]
reads = 20_000
sleeps = ["clock_nanosleep"]
slacks = ["default"]
targets_us = [1000]
sleep_samples = 50
max_seconds = 1.0
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Spec = Callable[..., GuestSpec]
CORE = max(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder in which the daemon sees what is mounted later, as it does everywhere where the root is shared."""
    folder = Path(tempfile.mkdtemp(prefix="lvm"))
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "--make-shared", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def daemon(shared: Path) -> Iterator[Path]:
    missing = [name for name in ("libvirtd", "unshare") if not shutil.which(name, path="/usr/sbin:/usr/bin:/bin")]
    try:
        library()
    except UnavailableError as error:
        missing.append(error.message)
    require(Availability(not missing, f"missing: {missing}", "virtgauge provision packages --for libvirt"), "libvirt")
    with private_libvirtd() as socket:
        yield socket


@pytest.fixture
def private_state(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short path, as the usual one has: a Unix socket's may have 107 bytes."""
    monkeypatch.setenv("VIRTGAUGE_STATE", str(shared / "s"))
    yield shared / "s"
    shutil.rmtree(shared / "s", ignore_errors=True)


def uri(daemon: Path, scheme: str) -> str:
    return f"{scheme}+unix:///{'system' if scheme == 'qemu' else ''}?socket={daemon}"


@pytest.fixture
async def qemu(daemon: Path, private_state: Path) -> Platform:
    platform = create("libvirt", {"uri": uri(daemon, "qemu"), "accelerator": "tcg"})
    require(await platform.probe(), "libvirt")
    return platform


@pytest.fixture(params=["qemu", "lxc"])
async def platform(request: pytest.FixtureRequest, daemon: Path, private_state: Path) -> Platform:
    settings = {"uri": uri(daemon, request.param)} | ({"accelerator": "tcg"} if request.param == "qemu" else {})
    platform = create("libvirt", settings)
    require(await platform.probe(), "libvirt")
    return platform


DOMAIN = """<domain type='qemu'><name>web1</name><memory unit='MiB'>256</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='0'/></cputune>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>
<source file='/no/such.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


def test_a_plan_is_made_of_a_domain_by_its_name(daemon: Path) -> None:
    address = uri(daemon, "qemu")
    with contextlib.closing(open_connection(address)) as connection:
        domain = connection.defineXML(DOMAIN)
        try:
            done = CliRunner().invoke(app, ["plan", "from-libvirt", "web1", "--uri", address])
        finally:
            domain.undefine()
    assert done.exit_code == 0, done.output
    section = tomllib.loads(done.stdout)["platform"][1]
    tuning = section.pop("tuning")
    assert section.items() >= {"machine": "q35", "accelerator": "tcg", "vcpus": 2, "memory_mib": 256}.items()
    assert tuning.items() >= {"vcpu_cpus": [1, 0], "disk_cache": "none", "disk_aio": "native"}.items()
    assert "# A guest like the domain web1." in done.stdout
    gone = CliRunner().invoke(app, ["plan", "from-libvirt", "web1", "--uri", address])
    assert "cannot read the domain web1" in str(gone.exception)
    assert gone.stdout == ""


def domains(daemon: Path, scheme: str) -> list[str]:
    """What libvirt itself lists."""
    connection = open_connection(uri(daemon, scheme))
    try:
        return [domain.name() for domain in connection.listAllDomains(0)]
    finally:
        connection.close()


def end(daemon: Path, scheme: str, name: str) -> None:
    """End a domain as somebody else would."""
    connection = open_connection(uri(daemon, scheme))
    try:
        connection.lookupByName(name).destroy()
    finally:
        connection.close()


def left(tag: str) -> list[str]:
    """Control groups and interfaces that libvirt made for a run."""
    found = [root for root, _, _ in os.walk("/sys/fs/cgroup") if "/machine" in root and tag in root]
    return found + [name for name in os.listdir("/sys/class/net") if name.startswith(tag)]


@pytest.mark.full
async def test_it_boots_the_plans_kernel_with_its_words(daemon: Path, private_state: Path, spec: Spec) -> None:
    settings = {"uri": uri(daemon, "qemu"), "accelerator": "tcg", "kernel": "rt", "kernel_words": ["nosmt"]}
    platform = create("libvirt", settings | {"boot_timeout_s": 120})
    found = await platform.probe()
    require(found, "kernel-rt")
    async with running(platform, spec(vcpus=1)) as guest:
        facts = await guest.channel.facts()
    assert "PREEMPT_RT" in facts["kernel"]["version"]
    assert facts["cmdline"].split()[-1] == "nosmt"
    assert found.details["kernel_release"] == facts["kernel"]["release"]


async def test_a_disk_image_is_the_root_that_the_agent_answers_from(
    daemon: Path, private_state: Path, spec: Spec, tmp_path: Path
) -> None:
    image = root_image(tmp_path, spec().agent.path, "qcow2")
    own = create("libvirt", {"uri": uri(daemon, "qemu"), "accelerator": "tcg", "disk_image": str(image)})
    require(await own.probe(), "libvirt")
    await check_an_image_is_the_root(own, spec(), image)


async def test_it_answers_counts_and_is_gone(platform: Platform, daemon: Path, spec: Spec) -> None:
    asked = spec(vcpus=1)
    facts = await check.check_a_guest_answers_and_is_gone(platform, asked)
    assert facts["agent_sha256"] == asked.agent.sha256
    assert left(asked.scope.tag) == []
    assert domains(daemon, "qemu") == domains(daemon, "lxc") == []
    if "QEMU" in platform.label:
        assert facts["init"] is True
        assert platform.label == "libvirt QEMU q35 (tcg, emulated)"
        assert isinstance(facts["hypervisor"], dict)
        assert facts["hypervisor"]["signature"] == "TCGTCGTCGTCG"


async def test_kvm_is_used_only_where_a_guest_boots_with_it(daemon: Path, private_state: Path) -> None:
    platform = create("libvirt", {"uri": uri(daemon, "qemu"), "accelerator": "kvm"})
    found = await platform.probe()
    assert not platform.emulated
    assert found.reason.startswith("kvm: ")
    assert found.usable or found.fix


@pytest.mark.lab
async def test_a_forwarding_guest_routes_between_its_interfaces(platform: Platform, spec: Spec) -> None:
    asked = spec()
    await check_a_guest_routes(platform, asked)
    assert left(asked.scope.tag) == []


@pytest.mark.lab
async def test_a_guest_answers_from_its_lab_and_is_seen_nowhere_else(platform: Platform, spec: Spec) -> None:
    await check_a_guest_answers_from_its_lab_only(platform, spec())


@pytest.mark.lab
async def test_limits_of_the_processor_are_libvirts_and_hold(platform: Platform, spec: Spec) -> None:
    qemu = "QEMU" in platform.label
    async with running(platform, spec(vcpus=1)) as guest:
        applied = await guest.apply(Policy(cpu_limit=0.3, weight=200))
        quota = "global_quota" if qemu else "vcpu_quota"
        assert applied.in_force[quota] == "30000"
        assert applied.in_force["cpu_shares"] in ("2048", "200")
        assert quota in applied.notes[0]
        assert guest.confinement().cpu_limit == 0.3
        await undisturbed(lambda: burnt_share(guest, 3.0, threads=2), lambda found: 0 < found[0] < 0.36)
        assert (await guest.apply(Policy())).in_force == {}
        assert guest.confinement().cpu_limit is None
        if qemu:
            applied = await guest.apply(Policy(cores=(CORE,)))
            assert applied.in_force == {"vcpupin": str(CORE), "emulatorpin": str(CORE)}
            assert guest.confinement().cpus == (CORE,)
            assert (await guest.apply(Policy())).in_force == {}
            assert guest.confinement().cpus == tuple(sorted(os.sched_getaffinity(0)))
        with pytest.raises(PolicyError, match="no disk of its own"):
            await guest.apply(Policy(disk=DiskLimits(read_bps=1_000_000)))


@pytest.mark.lab
async def test_what_a_guest_is_confined_to_at_its_launch_is_read_back(qemu: Platform, scope: Scope, spec: Spec) -> None:
    data = disk(scope, 32)
    async with running(qemu, spec(cpus=(CORE,), cpu_limit=0.75, disks=(data,))) as guest:
        assert guest.confinement().cpus == (CORE,)
        assert guest.confinement().cpu_limit == 0.75
        applied = await guest.apply(Policy(disk=DiskLimits(write_bps=2_000_000, read_iops=500)))
        assert applied.in_force == {"blkdeviotune write_bytes_sec": "2000000", "blkdeviotune read_iops_sec": "500"}
        params: dict[str, Any] = {
            **{"kernel": "disk", "threads": 1, "warmup_ns": 10**9, "duration_ns": 3 * 10**9, "slice_ns": 10**8},
            **{"seed": 1, "order": "sequential", "operation": "write", "folder": str(data.folder)},
            **{"block_bytes": 65536, "file_bytes": 4 << 20},
        }
        reply = await guest.channel.request("probe", name="kernel", params=params, load=None, timeout_s=120)
        assert reply.value["direct"]
        assert 0 < reply.value["units"] / reply.value["elapsed_ns"] * 1e9 < 1.2 * 2_000_000
        await guest.crash()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(guest.channel.facts(), 10)


@pytest.mark.lab
async def test_a_guest_that_is_killed_ends_the_channel(platform: Platform, daemon: Path, spec: Spec) -> None:
    asked = spec()
    async with running(platform, asked) as guest:
        pids = [int(trace.split()[1].rstrip(":")) for trace in traces(asked.scope.tag) if trace.startswith("process")]
        assert pids or "LXC" in platform.label
        if "LXC" in platform.label:
            with pytest.raises(UnavailableError, match="no kernel of its own"):
                await guest.crash()
            end(daemon, "lxc", f"{asked.scope.tag}-{asked.name}")
        for pid in pids:
            if "QEMU" in platform.label and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(guest.channel.facts(), 10)
    assert left(asked.scope.tag) == []


@pytest.mark.lab
async def test_cancelling_leaves_nothing(platform: Platform, daemon: Path, spec: Spec) -> None:
    await check.check_cancelling_leaves_nothing(platform, spec, 0.3)
    assert domains(daemon, "qemu") == domains(daemon, "lxc") == []


async def test_a_killed_controller_is_reclaimed(platform: LibvirtPlatform, daemon: Path) -> None:
    settings = platform.settings.model_dump(exclude_defaults=True)
    tag = check.check_a_killed_controller_is_reclaimed("libvirt", json.dumps(settings))
    assert domains(daemon, "qemu") == domains(daemon, "lxc") == []
    assert left(tag) == []


@pytest.mark.lab
async def test_a_guest_that_hangs_at_boot_is_a_bounded_launch_error(qemu: Platform, daemon: Path, spec: Spec) -> None:
    asked = spec(ready_timeout_s=1.0)
    with pytest.raises(LaunchError, match=r"no agent answered within|no answer within"):
        await qemu.launch(asked)
    assert domains(daemon, "qemu") == []
    assert traces(f"{asked.scope.tag}/{asked.name}") == left(asked.scope.tag) == []


async def test_what_libvirt_refuses_is_a_launch_error_with_its_words(qemu: Platform, spec: Spec) -> None:
    asked = spec(vcpus=255, memory_mib=1 << 30)
    with pytest.raises(LaunchError) as caught:
        await qemu.launch(asked)
    assert caught.value.stage == "start"
    assert asked.scope.tag in str(caught.value)
    assert left(asked.scope.tag) == []


async def test_a_port_whose_name_is_taken_is_a_launch_error(qemu: Platform, scope: Scope, spec: Spec) -> None:
    nic = Nic("gp0", "52:54:00:00:00:01", ("10.11.0.1/24",))
    with Namespace(scope, "lab") as lab:
        lab.netlink(lambda route: route.link("add", ifname="gp0", kind="bridge"))
        asked = spec(nics=(nic,), lab=lab)
        with pytest.raises(LaunchError, match="gp0"):
            await qemu.launch(asked)
        assert "gp0" in lab.interfaces()
    assert left(scope.tag) == []


async def test_a_path_too_long_for_a_socket_says_what_to_set(
    daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = LibvirtPlatform(LibvirtSettings(uri=uri(daemon, "lxc")))
    monkeypatch.setenv("VIRTGAUGE_STATE", str(tmp_path / ("s" * 100)))
    with Scope() as scope:
        from virtgauge.agent import find_agent

        with pytest.raises(LaunchError, match="set VIRTGAUGE_STATE to a folder with a shorter path"):
            await platform.launch(GuestSpec(name="g", scope=scope, agent=find_agent()))


@pytest.mark.lab
def test_the_timing_suite_runs_on_it_by_the_command(daemon: Path, private_state: Path, tmp_path: Path) -> None:
    plan, run = tmp_path / "plan.toml", tmp_path / "run"
    plan.write_text(PLAN.format(uri=uri(daemon, "qemu")))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from virtgauge.cli import main; main()",
            "run",
            plan,
            "--out",
            run,
            "--progress",
            "none",
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Ledger.open(run) as ledger:
        host, guest = ledger.manifest().arms
        trials = [trial for trial in ledger.trials() if trial.arm == "guest"]
        assert {trial.probe for trial in trials} == {"timer_cost", "sleep_lateness"}
        assert {trial.status for trial in trials} <= {TrialStatus.VALID, TrialStatus.INVALID}
        assert all(trial.result for trial in trials)
        assert len(trials) == 3
    assert (host.emulated, guest.emulated) == (False, True)
    assert guest.label == "libvirt QEMU q35 (tcg, emulated)"
    assert "emulated" in (run / "report.html").read_text()
    assert domains(daemon, "qemu") == []
