"""What a machine that exists already cannot be given, in words."""

from __future__ import annotations

from virtgauge.platforms.base import GuestSpec

ONLY_AS_IT_IS = (
    "an attached machine is measured as it is: it has no interfaces in a laboratory of this host, no disk, shares or "
    "limits from here, and no second guest beside it"
)


def refusal(spec: GuestSpec) -> str | None:
    """Why a guest as specified cannot be had of a machine that exists already; None where it can."""
    asked = {
        "network interfaces": spec.nics,
        "a laboratory's network": spec.lab,
        "forwarding": spec.forwarding,
        "a number of processors": spec.vcpus,
        "an amount of memory": spec.memory_mib,
        "CPUs of this host": spec.cpus,
        "a CPU limit": spec.cpu_limit,
        "folders of this host": spec.shares or spec.host_root,
        "a disk of its own": spec.disk,
        "capabilities": spec.capabilities,
    }
    wanted = [what for what, value in asked.items() if value]
    return f"{', '.join(wanted)}: {ONLY_AS_IT_IS}" if wanted else None
