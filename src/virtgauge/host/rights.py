"""What an ordinary user may not do on this machine: the capability that is lacking, and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

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
