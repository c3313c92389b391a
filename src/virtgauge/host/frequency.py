"""The governor that chooses the processors' frequency: set for a testbed, and put back even after a kill -9."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from virtgauge.errors import UnavailableError
from virtgauge.host.rights import AS_ROOT, lacking

GOVERNORS_FILE = "governors.json"  # In a scope's folder: what was in force before, by the policy's folder
_CPUFREQ = Path("/sys/devices/system/cpu/cpufreq")


def set_governor(name: str, scope_folder: Path, cpufreq: Path = _CPUFREQ) -> Callable[[], object]:
    """Let a governor choose the frequency of all processors; returns what puts back those that were in force.

    Raises:
        UnavailableError: this machine lets nobody choose, has no such governor, or had another one afterwards.
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
    before = {str(policy): (policy / "scaling_governor").read_text().strip() for policy in policies}
    (scope_folder / GOVERNORS_FILE).write_text(json.dumps({"set": name, "before": before}))
    try:
        for policy in policies:
            (policy / "scaling_governor").write_text(name)
            if (found := (policy / "scaling_governor").read_text().strip()) != name:
                raise UnavailableError(f"governors: {policy.name} is under {found!r} after {name!r} was set", None)
    except (OSError, UnavailableError) as error:
        put_back_governors(scope_folder)
        if isinstance(error, UnavailableError):
            raise
        words = f"governors: {name!r} cannot be set: {error.strerror}{lacking('CAP_DAC_OVERRIDE')}"
        raise UnavailableError(words, AS_ROOT) from error
    return lambda: put_back_governors(scope_folder)


def put_back_governors(scope_folder: Path) -> list[str]:
    """Put back what a scope has changed, unless somebody has changed it since; a line for people each."""
    record, lines = scope_folder / GOVERNORS_FILE, list[str]()
    try:
        value = json.loads(record.read_text())
        changes = [(Path(policy), str(governor)) for policy, governor in value["before"].items()]
        ours = str(value["set"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return lines
    kept = False
    for policy, governor in changes:
        file = policy / "scaling_governor"
        try:
            if file.read_text().strip() == ours != governor:
                file.write_text(governor)
                lines.append(f"put back the governor {governor} of {policy.name}")
        except OSError as error:
            kept |= not isinstance(error, FileNotFoundError)  # a processor that went offline has no policy any more
    if not kept:
        record.unlink(missing_ok=True)
    return lines
