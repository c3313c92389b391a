"""This machine: what it is, the part that must match for figures to be merged and the part that explains them; and what
an ordinary user may not do on it: the capability that is lacking, and the remedy.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from virtgauge.host.process import cpu_list, text_of

AS_ROOT = "run virtgauge as root (sudo)"
USER_NAMESPACES = "or let users make user namespaces (sysctl user.max_user_namespaces, and what AppArmor restricts)"
NETWORK = ("CAP_NET_ADMIN", "CAP_SYS_ADMIN")  # Namespaces of networks, and what is in them
_BITS = {"CAP_DAC_OVERRIDE": 1, "CAP_NET_ADMIN": 12, "CAP_IPC_LOCK": 14, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23}
"""Their numbers in ``linux/capability.h``."""
_LATENCY = Path("/dev/cpu_dma_latency")


def lacking(*capabilities: str, status: Path = Path("/proc/self/status")) -> str:
    """Which of these this process lacks, in words behind a refusal: `` (this user lacks CAP_NET_ADMIN)``; else none."""
    effective = int(status.read_text().partition("\nCapEff:")[2].split()[0], 16)
    missing = [name for name in capabilities if not effective >> _BITS[name] & 1]
    return f" (this user lacks {' and '.join(missing)})" if missing else ""


def lack_of_rights(what: str, *capabilities: str) -> str | None:
    """That a part of a plan cannot be measured by this user, and the remedy; None where it can."""
    lacks = lacking(*capabilities)
    return f"{what}{lacks}: {AS_ROOT}" if lacks else None


def missing_rights() -> list[tuple[str, str, str]]:
    """Of what some cells need beyond a platform: what this user cannot have, why, and the remedy."""
    asked = (
        ("networks of guests: the suites bandwidth and forwarding, servers of the suite storage", NETWORK, AS_ROOT),
        ("disk images on loop devices", ("CAP_SYS_ADMIN",), f"{AS_ROOT}; until then embedded databases use folders"),
        ("policies of the suite isolation, governors", ("CAP_DAC_OVERRIDE",), AS_ROOT),
        ('real-time priority: policies = ["fifo"]', ("CAP_SYS_NICE",), AS_ROOT),
    )
    found = [(what, lacks.strip(" ()"), fix) for what, names, fix in asked if (lacks := lacking(*names))]
    if _LATENCY.exists() and not os.access(_LATENCY, os.W_OK):
        found.append(('idle_states = ["shallow"]', f"{_LATENCY} may not be written by this user", AS_ROOT))
    return found


def fingerprint(root: Path = Path("/")) -> dict[str, Any]:
    """The host's fingerprint as JSON-able data, read below a root; what cannot be read is None.

    ``identity``: kernel release and version, CPU model, count and microcode, mitigations; a run is not resumed under
    another one.  ``context``: everything else worth knowing (memory, hypervisor, clock source, frequency scaling, SMT,
    kernel command line, distribution, boot).
    """
    # the first processor, and the lines after the last, where some architectures name the model
    cpu = _fields(root / "proc/cpuinfo", ":")
    memory = _fields(root / "proc/meminfo", ":").get("MemTotal")
    distribution = _fields(root / "etc/os-release", "=").get("PRETTY_NAME")
    system = os.uname()
    sys_cpu = root / "sys/devices/system/cpu"
    online = text_of(sys_cpu / "online")
    clocksource = root / "sys/devices/system/clocksource/clocksource0"
    available = text_of(clocksource / "available_clocksource")
    no_boost = {"0": "1", "1": "0"}.get(text_of(sys_cpu / "intel_pstate/no_turbo") or "")
    # since boot; a hypervisor that does not tell what it takes leaves its steal at 0
    times = (text_of(root / "proc/stat") or "").partition("\n")[0].split()
    return {
        "identity": {
            "kernel_release": system.release,
            "kernel_version": system.version,
            "machine": system.machine,
            "cpu_model": cpu.get("model name") or cpu.get("Model") or cpu.get("cpu model"),
            "cpu_count": os.cpu_count() if online is None else len(cpu_list(online)),
            "microcode": cpu.get("microcode"),
            "mitigations": {one.name: text_of(one) for one in sorted((sys_cpu / "vulnerabilities").glob("*"))} or None,
        },
        "context": {
            "memory_bytes": memory and int(memory.split()[0]) * 1024,
            "hypervisor": {
                "present": "hypervisor" in cpu.get("flags", "").split() if "flags" in cpu else None,
                "type": text_of(root / "sys/hypervisor/type"),
                "product": text_of(root / "sys/class/dmi/id/product_name"),
                "vendor": text_of(root / "sys/class/dmi/id/sys_vendor"),
                "steal_ticks": int(times[8]) if len(times) > 8 else None,
            },
            "clocksource": {
                "current": text_of(clocksource / "current_clocksource"),
                "available": available and available.split(),
            },
            "cpufreq": {
                "driver": text_of(sys_cpu / "cpu0/cpufreq/scaling_driver"),
                "governor": text_of(sys_cpu / "cpu0/cpufreq/scaling_governor"),
                "boost": text_of(sys_cpu / "cpufreq/boost") or no_boost,
            },
            "cpuidle": text_of(sys_cpu / "cpuidle/current_driver"),
            "smt": text_of(sys_cpu / "smt/active"),
            "isolated_cpus": text_of(sys_cpu / "isolated"),
            "cmdline": text_of(root / "proc/cmdline"),
            "distribution": distribution and distribution.strip('"'),
            "python": platform.python_version(),
            "boot_id": text_of(root / "proc/sys/kernel/random/boot_id"),
        },
    }


def _fields(path: Path, separator: str) -> dict[str, str]:
    """The lines of a file by their names; of lines of the same name, the first."""
    fields: dict[str, str] = {}
    for line in (text_of(path) or "").splitlines():
        key, found, value = line.partition(separator)
        if found:
            fields.setdefault(key.strip(), value.strip())
    return fields
