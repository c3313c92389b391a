"""The OCI bundle: what a container sees of the host, and what it may use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from virtgauge.platforms.oci.bundle import Overlay, write_bundle
from virtgauge.platforms.oci.platform import OciPlatform, why_not, without_commands


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with a merged /usr, a real /lib64, and no /opt."""
    root = tmp_path / "host"
    for name in ("usr/bin", "etc", "lib64", "var"):
        (root / name).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    return root


def bundle(
    tmp_path: Path, host: Path, overlay: Overlay = Overlay.MOUNTS, rootless: bool = False
) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path / "bundle"
    folder.mkdir()
    agent = tmp_path / "agent"
    agent.touch()
    write_bundle(
        folder,
        agent=agent,
        environment={"VIRTGAUGE_SCOPE": "vg000000", "PATH": "/bin"},
        cgroup_path="/virtgauge/vg000000/g",
        overlay=overlay,
        cpu_limit=None,
        memory_mib=None,
        host_root=host,
        rootless=rootless,
    )
    return folder / "rootfs", json.loads((folder / "config.json").read_text())


def mounts(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["destination"]: mount for mount in config["mounts"]}


def test_links_stay_links_and_missing_folders_are_missing(tmp_path: Path, host: Path) -> None:
    root, config = bundle(tmp_path, host)
    assert (root / "bin").readlink() == Path("usr/bin")
    assert "/bin" not in mounts(config)
    assert "/opt" not in mounts(config)
    assert "/var" in mounts(config)
    assert mounts(config)["/var"]["type"] == "tmpfs", "the host's state is not the guest's"


def test_a_container_gets_overlays_whose_upper_layers_are_in_memory(tmp_path: Path, host: Path) -> None:
    root, config = bundle(tmp_path, host)
    found = mounts(config)
    assert found["/usr"]["type"] == "overlay"
    assert f"lowerdir={host}/usr" in found["/usr"]["options"]
    assert f"upperdir={root}/.overlay/usr/upper" in found["/usr"]["options"]
    assert (root / ".overlay/usr/upper").is_dir()
    assert (root / ".overlay/usr/work").is_dir()
    assert found["/.overlay"]["type"] == "tmpfs"
    assert "tmpcopyup" in found["/.overlay"]["options"]
    order = [mount["destination"] for mount in config["mounts"]]
    assert order.index("/.overlay") < order.index("/usr")
    assert "ro" in found["/lib64"]["options"]
    assert config["root"]["readonly"] is True


def test_a_sandbox_gets_binds_below_its_own_overlay(tmp_path: Path, host: Path) -> None:
    _, config = bundle(tmp_path, host, Overlay.RUNTIME)
    assert mounts(config)["/usr"]["type"] == "bind"
    assert "ro" not in mounts(config)["/usr"]["options"], "a read-only mount would get no private layer"
    assert config["root"]["readonly"] is False
    assert "/.overlay" not in mounts(config)


def test_a_sandbox_that_writes_through_to_the_host_cannot_write_to_the_hosts_folders(
    tmp_path: Path, host: Path
) -> None:
    _, config = bundle(tmp_path, host, Overlay.RUNTIME_ROOT)
    assert "ro" in mounts(config)["/usr"]["options"]
    assert config["root"]["readonly"] is False, "the root has the runtime's private layer"


def test_an_unknown_runtime_cannot_write_to_the_hosts_folders(tmp_path: Path, host: Path) -> None:
    _, config = bundle(tmp_path, host, Overlay.NONE)
    for mount in config["mounts"]:
        if mount["type"] == "bind":
            assert "ro" in mount["options"], mount
    assert config["root"]["readonly"] is True


def test_paths_that_overlay_options_would_split_are_escaped(tmp_path: Path, host: Path) -> None:
    odd = tmp_path / "a:b,c"
    host.rename(odd)
    _, config = bundle(tmp_path, odd)
    escaped = str(odd).replace(":", "\\:").replace(",", "\\,")
    assert f"lowerdir={escaped}/usr" in mounts(config)["/usr"]["options"]


def test_it_is_isolated_tagged_and_counted(tmp_path: Path, host: Path) -> None:
    _, config = bundle(tmp_path, host)
    kinds = {namespace["type"] for namespace in config["linux"]["namespaces"]}
    assert kinds == {"pid", "network", "ipc", "uts", "mount"}
    assert all("path" not in namespace for namespace in config["linux"]["namespaces"])
    assert config["linux"]["cgroupsPath"] == "/virtgauge/vg000000/g"
    assert "VIRTGAUGE_SCOPE=vg000000" in config["process"]["env"]
    granted = set(config["process"]["capabilities"]["effective"])
    assert not granted & {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_NICE", "CAP_SYS_PTRACE"}


def test_an_ordinary_users_is_in_a_user_namespace_of_his_and_in_no_control_group(tmp_path: Path, host: Path) -> None:
    _, config = bundle(tmp_path, host, rootless=True)
    linux = config["linux"]
    assert {"type": "user"} in linux["namespaces"]
    assert linux["uidMappings"] == [{"containerID": 0, "hostID": os.geteuid(), "size": 1}]
    assert linux["gidMappings"] == [{"containerID": 0, "hostID": os.getegid(), "size": 1}]
    assert "cgroupsPath" not in linux


def test_an_ordinary_user_is_told_what_his_container_would_need() -> None:
    reason, fix = why_not("runc create: clone: operation not permitted", rootless=True)
    assert reason.startswith("a rootless container does not start")
    assert reason.endswith("runc create: clone: operation not permitted")
    assert fix is not None
    assert "as root (sudo), or let users make user namespaces" in fix


@pytest.mark.parametrize("said", ["runc create: mount: Operation not permitted", "open /sys/fs: permission denied"])
def test_root_without_capabilities_is_told_what_it_lacks(said: str) -> None:
    reason, fix = why_not(said)
    assert reason == "this machine lets root not make containers (missing capabilities)"
    assert fix is not None and "privileged" in fix
    assert why_not("exec: no such file") == ("a container does not start: exec: no such file", None)


def test_what_crun_says_of_a_hybrid_host_is_told_with_the_remedy() -> None:
    reason, fix = why_not("crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv2")
    assert "v1 beside v2 (hybrid)" in reason
    assert fix is not None and "runc" in fix


@pytest.mark.parametrize(
    ("said", "commands"),
    [
        ("kata-runtime  : 1.13.0\n   commit   : 0123\n   OCI specs: 1.0.1-dev", True),
        ("kata-runtime  : 3.2.0\n   commit   : 0123\n   OCI specs: 1.0.2-dev", False),
        ('Kata Containers containerd shim (Golang): id: "io.containerd.kata.v2", version: 3.2.0, commit: 0', False),
        ("Kata Containers containerd shim (Rust): id: io.containerd.kata.v2, version: 4.1.0, commit: 0", False),
        ("runc version 1.1.5", True),
    ],
)
def test_kata_has_no_commands_of_oci_since_its_second_version(said: str, commands: bool) -> None:
    assert (without_commands(said) is None) is commands


async def test_a_kata_without_commands_is_not_started_and_the_way_to_measure_it_is_told(tmp_path: Path) -> None:
    program = tmp_path / "kata-runtime"
    program.write_text("#!/bin/sh\necho 'kata-runtime  : 3.2.0'\n")
    program.chmod(0o755)
    found = await OciPlatform(OciPlatform.Settings(runtime=str(program))).probe()
    assert not found.usable
    assert "no OCI commands since 2.0" in found.reason
    assert found.fix is not None and "containerd" in found.fix and "attached" in found.fix
    assert found.details["version"] == "kata-runtime  : 3.2.0"
