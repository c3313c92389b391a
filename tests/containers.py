"""The container image as an engine runs it: unpacked from its archive, started by runc as a pod is."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Some calls that the default profiles of containerd and CRI-O refuse to who has no capability; of them containerd
# allows clock_adjtime.
REFUSED = [
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "io_uring_setup",
    "kexec_load",
    "keyctl",
    "mount",
    "open_by_handle_at",
    "perf_event_open",
    "pivot_root",
    "setns",
    "settimeofday",
    "swapon",
    "umount2",
    "unshare",
    "userfaultfd",
]
# Of what a privileged container has, what virtgauge has a use for.
ALL = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "KILL",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_NICE",
    "SYS_PTRACE",
]


@dataclasses.dataclass(frozen=True)
class Image:
    """An archive's image, unpacked."""

    config: dict[str, Any]  # the OCI image configuration's `config`
    manifest: dict[str, Any]
    rootfs: Path

    @staticmethod
    def unpacked(archive: Path, folder: Path) -> Image:
        """Every blob is checked against its digest, and every layer against the uncompressed one."""
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)

        def blob(descriptor: Mapping[str, Any]) -> Path:
            algorithm, digest = str(descriptor["digest"]).split(":")
            path = folder / "blobs" / algorithm / digest
            assert path.stat().st_size == descriptor["size"]
            assert told(f"{algorithm}sum", path).split()[0] == digest
            return path

        assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
        (named,) = json.loads((folder / "index.json").read_text())["manifests"]
        manifest = json.loads(blob(named).read_text())
        whole = json.loads(blob(manifest["config"]).read_text())
        (docker,) = json.loads((folder / "manifest.json").read_text())  # as `docker save` writes it beside a layout
        assert docker == {
            "Config": str(blob(manifest["config"]).relative_to(folder)),
            "RepoTags": [named["annotations"]["io.containerd.image.name"]],
            "Layers": [str(blob(layer).relative_to(folder)) for layer in manifest["layers"]],
        }
        rootfs = folder / "rootfs"
        rootfs.mkdir()
        for layer, uncompressed in zip(manifest["layers"], whole["rootfs"]["diff_ids"], strict=True):
            assert f"sha256:{told('sh', '-c', 'zcat <$0 | sha256sum', blob(layer)).split()[0]}" == uncompressed
            with tarfile.open(blob(layer)) as tar:
                assert not [one.name for one in tar if one.ischr() or one.isblk()], "no device is in a layer"
            subprocess.run(["tar", "-xzpf", blob(layer), "--numeric-owner", "-C", rootfs], check=True)
        return Image(whole["config"], manifest, rootfs)

    def run(
        self,
        folder: Path,  # new: the bundle is made in it
        *arguments: str,
        command: Sequence[str] | None = None,  # instead of the image's entry point
        binds: Mapping[str, Path] = {},  # writable in the container, by its paths
        files: Mapping[str, Path] = {},  # and read-only
        environment: Mapping[str, str] = {},
        user: str | None = None,  # instead of the image's
        network: bool | Path = False,  # the machine's own, to reach a stand-in on its loopback; or a namespace
        name: str = "",  # by which runc, with its state below the bundle, can end it
        privileged: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Start it as a kubelet would, and wait; nothing of it stays."""
        entry = [*(command or self.config["Entrypoint"])]
        uid, gid = map(int, (user or self.config["User"]).split(":"))
        told_environment = dict(one.split("=", 1) for one in self.config["Env"]) | dict(environment)
        nothing = ["nosuid", "noexec", "nodev"]
        mounts: list[dict[str, Any]] = [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": nothing},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*nothing, "mode=1777"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*nothing, "ro"]},
            {
                "destination": "/sys/fs/cgroup",
                "type": "cgroup",
                "source": "cgroup",
                "options": [*nothing, "rw" if privileged else "ro"],
            },
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
        ]
        if privileged:  # of root, whose state is there
            mounts.append({"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]})
        for places, mode in ((binds, "rw"), (files, "ro")):
            mounts += [_bound(place, source, mode) for place, source in places.items()]
        namespaces = [{"type": one} for one in ("pid", "ipc", "uts", "mount")]
        if not network:
            namespaces.append({"type": "network"})
        elif network is not True:
            namespaces.append({"type": "network", "path": str(network)})
        capabilities = [f"CAP_{one}" for one in ALL] if privileged else []
        config = {
            "ociVersion": "1.0.2",
            "hostname": "pod-0",
            "process": {
                "user": {"uid": uid, "gid": gid},
                "args": [*entry, *arguments],
                "env": [f"{name}={value}" for name, value in told_environment.items()] + ["HOSTNAME=pod-0"],
                "cwd": self.config["WorkingDir"],
                "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
                "noNewPrivileges": not privileged,
            },
            "root": {"path": str(self.rootfs), "readonly": True},
            "mounts": mounts,
            "linux": {
                "namespaces": namespaces,
                "maskedPaths": [] if privileged else ["/proc/kcore", "/proc/keys", "/sys/firmware"],
                "readonlyPaths": [] if privileged else ["/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        }
        if privileged:
            config["linux"]["resources"] = {"devices": [{"allow": True, "access": "rwm"}]}  # type: ignore[index]
        else:
            config["linux"]["seccomp"] = {  # type: ignore[index]
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": REFUSED, "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
            }
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        name = name or f"virtgauge-test-{uuid.uuid4().hex[:8]}"
        runc = ["runc", "--root", str(folder / "state")]
        try:
            return subprocess.run(
                [*runc, "run", "--bundle", str(folder), name], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
        finally:
            subprocess.run([*runc, "delete", "--force", name], capture_output=True)


def _bound(place: str, source: Path, mode: str) -> dict[str, Any]:
    return {"destination": place, "type": "bind", "source": str(source), "options": ["rbind", mode, "nosuid", "nodev"]}


def told(*command: str | Path) -> str:
    """What a command prints."""
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout
