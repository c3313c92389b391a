from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from xen_hosts import SHARES, NotedDom0

from virtgauge.agent import AgentBinary
from virtgauge.host import domains
from virtgauge.host.domains import is_xen_host
from virtgauge.host.scope import Scope
from virtgauge.platforms import create, guest_kernel
from virtgauge.platforms.base import Disk, GuestSpec, LaunchError, Share
from virtgauge.platforms.xen import platform
from virtgauge.platforms.xen.dom0 import Dom0, XenError
from virtgauge.platforms.xen.platform import XenPlatform
from virtgauge.provision.kernel import GuestKernel

Spec = Callable[..., GuestSpec]


@pytest.fixture
def scope(private_state: Path) -> Iterator[Scope]:
    with Scope() as scope:
        yield scope


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernel, with a driver for Xen's interfaces that is none."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "xen-netfront.ko").write_bytes(b"\x7fELF\0depends=\0")
    image = tmp_path / "vmlinuz"
    image.write_bytes(b"no kernel")
    monkeypatch.setattr(guest_kernel, "find_kernel", lambda part: GuestKernel("6.1", image, modules, "linux 6.1"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def spec(scope: Scope, any_agent: Path) -> Spec:
    def make(**wanted: object) -> GuestSpec:
        fields = {"name": "g1", "scope": scope, "agent": AgentBinary(any_agent, "0" * 64)} | wanted
        return GuestSpec(**fields)  # type: ignore[arg-type]

    return make


@pytest.fixture
def dom0(monkeypatch: pytest.MonkeyPatch, kernel: None) -> NotedDom0:
    host = NotedDom0()

    async def found(*_: object) -> NotedDom0:
        return host

    monkeypatch.setattr(XenPlatform, "_dom0", found)
    return host


async def test_a_machine_without_xen_is_told_what_it_lacks(
    any_agent: Path, kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "is_xen_host", lambda: False)
    found = await XenPlatform().probe()
    assert not found.usable
    assert "no Xen host" in found.reason
    assert found.fix == "apt install xen-system-amd64, and boot Xen"


async def test_without_root_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(platform, "is_xen_host", lambda: True)
    found = await XenPlatform().probe()
    assert (found.usable, found.fix) == (False, "run virtgauge as root (sudo)")


def test_only_the_privileged_domain_is_a_xen_host(tmp_path: Path) -> None:
    capabilities = tmp_path / "capabilities"
    assert not is_xen_host(capabilities)
    capabilities.write_text("\n")
    assert not is_xen_host(capabilities), "an ordinary domain"
    capabilities.write_text("control_d\n")
    assert is_xen_host(capabilities)


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"host": "lab"}, "host"), ({"type": "hvm"}, "type"), ({"memory_mib": 64}, "memory_mib"), ({"cap": 5}, "cap")],
)
def test_settings_that_cannot_be_are_refused_by_name(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        create("xen", settings)


def test_the_label_names_the_type_of_domain() -> None:
    assert create("xen", {"type": "pvh"}).label == "Xen (PVH)"
    assert create("xen", {}).label == "Xen (PV)"


async def test_what_a_domain_is_not_given_is_refused_before_anything_is_started(
    spec: Spec, scope: Scope, dom0: NotedDom0
) -> None:
    wishes: tuple[tuple[dict[str, object], str], ...] = (
        ({"disks": (Disk(Path("/nowhere"), scope.folder / "data"),)}, "data disk"),
        ({"host_root": True}, "host's programs"),
        ({"shares": (Share(Path("/tmp")),)}, "folders of the host"),
    )
    for wanted, words in wishes:
        with pytest.raises(LaunchError, match=words):
            await XenPlatform().launch(spec(**wanted))
    assert dom0.told == []


async def test_a_host_without_xen_launches_nothing(spec: Spec, kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "is_xen_host", lambda: False)
    with pytest.raises(LaunchError, match="no Xen host"):
        await XenPlatform().launch(spec())


async def test_a_refusal_of_xl_is_a_launch_error_and_nothing_is_left(spec: Spec, dom0: NotedDom0) -> None:
    asked = spec()
    dom0.refusals["xl create"] = "xc: error: Out of memory\nlibxl: error: cannot build domain\n"
    with pytest.raises(LaunchError, match="Out of memory") as caught:
        await XenPlatform().launch(asked)
    assert caught.value.stage == "domain"
    assert dom0.told[-1] == f"xl destroy {asked.scope.tag}-g1"
    assert not (asked.scope.folder / "g1").exists()


async def test_a_domain_that_never_answers_is_destroyed_and_its_console_is_shown(spec: Spec, dom0: NotedDom0) -> None:
    asked = spec(ready_timeout_s=0.3)
    with pytest.raises(LaunchError, match="no agent answered within") as caught:
        await XenPlatform().launch(asked)
    assert caught.value.stage == "handshake"
    assert "a kernel that says something" in caught.value.log_tail
    assert dom0.told[-1] == f"xl destroy {asked.scope.tag}-g1"
    assert not (asked.scope.folder / "g1").exists()


async def test_a_cap_that_is_not_in_force_is_a_launch_error(spec: Spec, dom0: NotedDom0) -> None:
    asked = spec(cpu_limit=0.4)
    dom0.answers["xl sched-credit2"] = SHARES.replace("u1", f"{asked.scope.tag}-g1").format(weight=256, cap=0)
    with pytest.raises(LaunchError, match="asked for a cap of 40 %, and has 0 % in force") as caught:
        await XenPlatform().launch(asked)
    assert caught.value.stage == "limit"
    assert dom0.told[-1] == f"xl destroy {asked.scope.tag}-g1"


async def test_a_domain_has_the_size_and_the_limit_that_were_asked_for(spec: Spec, dom0: NotedDom0) -> None:
    asked = spec(ready_timeout_s=0.1, vcpus=2, memory_mib=300, cpu_limit=0.4)
    with pytest.raises(LaunchError):
        await XenPlatform(XenPlatform.Settings(tsc_mode="native")).launch(asked)
    [text] = dom0.stored.values()
    lines = set(text.splitlines())
    assert {"vcpus = 2", "memory = 300", "cap = 40", 'tsc_mode = "native"'} <= lines
    assert "virtgauge.channel=serial:/dev/hvc0" in text
    assert "virtgauge.modules=xen_netfront" in text


@pytest.mark.slow
async def test_a_domain_boots_the_plans_own_kernel_with_its_initrd_words_and_bound(
    spec: Spec, dom0: NotedDom0, tmp_path: Path
) -> None:
    kernel, initrd = tmp_path / "own-kernel", tmp_path / "own-initrd"
    kernel.write_bytes(b"Linux version 6.6.1-rt2 (somebody) ")
    initrd.write_bytes(b"an archive")
    settings = {"kernel": kernel, "initrd": initrd, "kernel_words": ["quiet", "isolcpus=1"], "boot_timeout_s": 1}
    with pytest.raises(LaunchError, match=r"no agent answered within (1|0\.\d+) s"):
        await create("xen", settings).launch(spec(ready_timeout_s=30))
    [text] = dom0.stored.values()
    assert f'kernel = "{kernel}"' in text.splitlines()
    [ramdisk] = (line.split('"')[1] for line in text.splitlines() if line.startswith("ramdisk"))
    assert Path(ramdisk).read_bytes().startswith(b"an archive")
    [told] = (line for line in text.splitlines() if line.startswith("extra"))
    assert told.endswith('virtgauge.channel=serial:/dev/hvc0 quiet isolcpus=1"')


async def test_programs_of_this_host_are_told_apart_by_how_they_end(scope: Scope, tmp_path: Path) -> None:
    host = Dom0(scope, tmp_path)
    assert await host.check(["sh", "-c", "echo well"]) == "well\n"
    with pytest.raises(XenError, match="ended with status 3: so it is"):
        await host.check(["sh", "-c", "echo so it is >&2; exit 3"])
    with pytest.raises(XenError, match="was killed"):
        await host.check(["sh", "-c", "kill -9 $$"])
    with pytest.raises(XenError, match="cannot be started"):
        await host.check(["/nowhere/to/be/found"])
    with pytest.raises(XenError, match=r"did not end within 0\.1 s"):
        await host.check(["sleep", "5"], 0.1)


def test_a_bridge_keeps_the_tag_of_its_scope_by_which_the_reclaim_finds_it(scope: Scope, tmp_path: Path) -> None:
    assert Dom0(scope, tmp_path).bridge_name("vgaxu3k1u5") == "vgaxu3k1b5"


def test_the_reclaim_destroys_the_domains_of_its_tag_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xl = tmp_path / "xl"
    xl.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n'
        '[ "$1" = list ] && printf "Name ID\\nDomain-0 0\\nvg000001-g1 1\\nvg000002-g1 2\\nother 3\\n"\nexit 0\n'
    )
    xl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert domains.destroy_tagged_domains("vg000001") == [], "this is no Xen host"
    monkeypatch.setattr(domains, "is_xen_host", lambda: True)
    assert domains.destroy_tagged_domains("vg000001") == ["destroyed the domain vg000001-g1"]
    assert (tmp_path / "calls").read_text().splitlines() == ["list", "destroy vg000001-g1"]
