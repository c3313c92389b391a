"""An OCI bundle whose root filesystem is the host's own system folders, read-only below a private overlay.

See the OCI runtime specification 1.0.2, ``config.md`` and ``config-linux.md``.
"""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from virtgauge.host.cgroup import LEAST_QUOTA_US, QUOTA_PERIOD_US
from virtgauge.platforms.base import Share
from virtgauge.platforms.boot_files import system_parts

AGENT_PATH = "/virtgauge-agent"  # Where the container finds the agent

FRESH_FOLDERS = ("tmp", "run", "root", "home", "var", "mnt", "srv")
_OVERLAYS = ".overlay"

# What container engines give by default; a container that has more is not the platform people use.
CAPABILITIES = (
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
    *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
    "CAP_SYS_CHROOT",
)

_MASKED = (
    *("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
)
_READ_ONLY = ("/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class Overlay(enum.Enum):
    """Who puts the private, writable layer above the host's folders."""

    MOUNTS = "mounts"  # overlay mounts in the specification: the container shares the host's kernel
    RUNTIME = "runtime"  # the runtime itself (runsc --overlay2=all:memory)
    RUNTIME_ROOT = "runtime-root"  # the same above the root alone (--overlay2=root:memory): the folders are read-only
    NONE = "none"  # nobody: the folders are read-only


def write_bundle(
    folder: Path,
    *,
    agent: Path,  # static binary, bound to :data:`AGENT_PATH`; the container's only process
    environment: Mapping[str, str],
    cgroup_path: str,  # absolute below the cgroup mounts (``/virtgauge/<tag>/<guest>``)
    overlay: Overlay,
    cpu_limit: float | None,  # of its CPU time, in whole processors; None is no limit, as with the next two
    memory_mib: int | None,
    cpus: Sequence[int] | None = None,  # the host's processors that it may run on
    network_namespace: Path | None = None,  # that the container shall be in; None makes it a new one
    shares: Sequence[Share] = (),
    capabilities: Sequence[str] = (),  # of the agent, beyond those that container engines give by default
    rootless: bool = False,  # its root is this user outside, and no control group is made for it
    host_root: Path = Path("/"),  # whose system folders the container sees
) -> None:
    """Make ``config.json`` and ``rootfs`` in a folder, which must be empty.  Raises OSError: it cannot be written."""
    root = folder / "rootfs"
    root.mkdir()
    mounts = [*_BASE_MOUNTS]
    binds, overlaid = [], []
    for part in system_parts(host_root):
        place = root / part.path.name
        if part.kind == "link":
            place.symlink_to(part.source)
            continue
        place.mkdir()
        if overlay is Overlay.MOUNTS and part.kind == "lower":
            overlaid.append(place.name)
        else:
            binds.append(_bind(Path(part.source), str(part.path), writable=overlay is Overlay.RUNTIME))
    for name in (*FRESH_FOLDERS, "proc", "sys", "dev"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    (root / AGENT_PATH.lstrip("/")).touch()
    mounts += _overlay_mounts(root, host_root, overlaid) + binds
    mounts += [
        _mount("tmpfs", f"/{name}", ("nosuid", "nodev", f"mode={'1777' if name == 'tmp' else '755'}"))
        for name in FRESH_FOLDERS
    ]
    mounts.append(_bind(agent, AGENT_PATH, writable=False))
    mounts += [_bind(share.path, str(share.path), writable=share.writable) for share in shares]
    # A server that opens files by handle does so by the first mount of their filesystem, which the root may be.
    writable = overlay in (Overlay.RUNTIME, Overlay.RUNTIME_ROOT) or any(share.writable for share in shares)
    path = environment.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # No rlimits: setting one above the caller's needs CAP_SYS_RESOURCE, which a controller need not have.
    config = {
        "ociVersion": "1.0.2",
        "hostname": "virtgauge",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [AGENT_PATH],
            "env": [f"{name}={value}" for name, value in {**environment, "PATH": path, "HOME": "/root"}.items()],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), (*CAPABILITIES, *capabilities)),
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": not writable},
        "mounts": mounts,
        "linux": {
            "namespaces": _namespaces(network_namespace, rootless),
            "resources": _resources(cpu_limit, memory_mib, cpus),
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
            **(_mappings() if rootless else {"cgroupsPath": cgroup_path}),
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def _namespaces(network: Path | None, rootless: bool) -> list[dict[str, str]]:
    kinds = ("pid", "network", "ipc", "uts", "mount", *(("user",) if rootless else ()))
    given = {} if network is None else {"network": {"path": str(network)}}
    return [{"type": kind, **given.get(kind, {})} for kind in kinds]


def _mappings() -> dict[str, Any]:
    """Its root is this user outside."""
    users = {"uidMappings": os.geteuid(), "gidMappings": os.getegid()}
    return {name: [{"containerID": 0, "hostID": number, "size": 1}] for name, number in users.items()}


def _resources(cpu_limit: float | None, memory_mib: int | None, cpus: Sequence[int] | None) -> dict[str, Any]:
    resources: dict[str, Any] = {"devices": [{"allow": False, "access": "rwm"}]}
    cpu: dict[str, Any] = {}
    if cpu_limit is not None:
        cpu |= {"period": QUOTA_PERIOD_US, "quota": max(LEAST_QUOTA_US, round(cpu_limit * QUOTA_PERIOD_US))}
    if cpus is not None:
        cpu["cpus"] = ",".join(map(str, cpus))
    if cpu:
        resources["cpu"] = cpu
    if memory_mib is not None:
        resources["memory"] = {"limit": memory_mib << 20}
    return resources


def _mount(kind: str, destination: str, options: Sequence[str], source: str | None = None) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


_NOTHING = ("nosuid", "noexec", "nodev")
_BASE_MOUNTS = (
    _mount("proc", "/proc", _NOTHING),
    _mount("tmpfs", "/dev", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    _mount("devpts", "/dev/pts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    _mount("tmpfs", "/dev/shm", (*_NOTHING, "mode=1777", "size=65536k"), "shm"),
    _mount("mqueue", "/dev/mqueue", _NOTHING),
    _mount("sysfs", "/sys", (*_NOTHING, "ro")),
)


def _overlay_mounts(root: Path, host_root: Path, names: list[str]) -> list[dict[str, Any]]:
    """Overlays whose upper layers are in memory.

    An overlay's upper layer may not be on an overlay, which the bundle's own folder is wherever virtgauge
    runs in a container itself; so it goes to a tmpfs of the container.  Its folders cannot be made by the
    specification, but ``tmpcopyup`` copies those prepared in the bundle.
    """
    if not names:
        return []
    mounts = [_mount("tmpfs", f"/{_OVERLAYS}", ("nosuid", "nodev", "mode=700", "tmpcopyup"))]
    for name in names:
        upper, work = (root / _OVERLAYS / name / layer for layer in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir()
        layers = {"lowerdir": host_root / name, "upperdir": upper, "workdir": work}
        options = (f"{option}={_escaped(path)}" for option, path in layers.items())
        mounts.append(_mount("overlay", f"/{name}", ("nodev", *options)))
    return mounts


def _escaped(path: Path) -> str:
    """A path inside an overlay option, where colons separate layers and commas separate options."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _bind(source: Path, destination: str, *, writable: bool) -> dict[str, Any]:
    options = ("bind" if source.is_file() else "rbind", "nodev", *(() if writable else ("ro",)))
    return _mount("bind", destination, options, str(source))
