"""The governor that chooses the processors' frequency: set for a testbed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from virtgauge.errors import UnavailableError
from virtgauge.host.kernel_value import hold_value

_CPUFREQ = Path("/sys/devices/system/cpu/cpufreq")


def set_governor(name: str, scope_folder: Path, cpufreq: Path = _CPUFREQ) -> Callable[[], object]:
    """Let a governor choose the frequency of all processors; returns what puts back those that were in force.
    Raises UnavailableError: this machine lets nobody choose, has no such governor, or had another one afterwards.
    """
    policies = sorted(cpufreq.glob("policy*"))
    if not policies:
        raise UnavailableError(
            "governors: this machine has no cpufreq: firmware or a hypervisor chooses the frequency",
            'leave governors out, or measure with "as-is" alone',
        )
    known = (policies[0] / "scaling_available_governors").read_text().split()
    if name not in known:
        raise UnavailableError(f"governors: this machine has no {name!r}", f"use one of {', '.join(known)}")
    with contextlib.ExitStack() as undo:
        for policy in policies:
            undo.callback(hold_value(policy / "scaling_governor", name, scope_folder))
        return undo.pop_all().close
