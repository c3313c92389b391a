"""The host's fingerprint, read from a fake root and from this machine."""

from __future__ import annotations

import json
from pathlib import Path

from virtgauge.host.machine import fingerprint


def fake_root(tmp_path: Path) -> Path:
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Test CPU\nmicrocode\t: 0x42\nflags\t\t: fpu hypervisor\n\n"
        "processor\t: 1\nmodel name\t: Other\n",
        "proc/meminfo": "MemTotal:        1024 kB\nMemFree: 1 kB\n",
        "proc/cmdline": "quiet mitigations=off\n",
        "etc/os-release": 'NAME="X"\nPRETTY_NAME="Test Linux 1"\n',
        "sys/devices/system/cpu/online": "0-3,8\n",
        "sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet \n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
        "proc/stat": "cpu  1 2 3 4 5 6 7 0 9 10\ncpu0 1 2 3 4 5 6 7 0 9 10\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_decides_about_merging_is_in_the_identity(tmp_path: Path) -> None:
    identity = fingerprint(fake_root(tmp_path))["identity"]
    assert set(identity) == {
        "kernel_release",
        "kernel_version",
        "machine",
        "cpu_model",
        "cpu_count",
        "microcode",
        "mitigations",
    }
    assert identity["cpu_model"] == "Test CPU"
    assert identity["cpu_count"] == 5
    assert identity["microcode"] == "0x42"
    assert identity["mitigations"] == {"meltdown": "Mitigation: PTI"}


def test_the_context_explains(tmp_path: Path) -> None:
    context = fingerprint(fake_root(tmp_path))["context"]
    assert context["memory_bytes"] == 1024 * 1024
    assert context["hypervisor"]["present"] is True
    assert context["hypervisor"]["steal_ticks"] == 0
    assert context["clocksource"] == {"current": "tsc", "available": ["tsc", "hpet"]}
    assert context["cpufreq"]["boost"] == "0"
    assert context["distribution"] == "Test Linux 1"


def test_what_cannot_be_read_is_none_and_not_zero(tmp_path: Path) -> None:
    found = fingerprint(tmp_path)
    assert found["identity"]["microcode"] is None
    assert found["identity"]["mitigations"] is None
    assert found["context"]["memory_bytes"] is None
    assert found["context"]["hypervisor"]["present"] is None
    assert found["context"]["hypervisor"]["steal_ticks"] is None
    assert found["context"]["smt"] is None


def test_a_changed_microcode_changes_the_identity_and_another_boot_does_not(tmp_path: Path) -> None:
    root = fake_root(tmp_path)
    before = fingerprint(root)["identity"]
    boot = root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("another\n")
    assert fingerprint(root)["identity"] == before
    cpuinfo = root / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace("0x42", "0x43"))
    assert fingerprint(root)["identity"] != before


def test_this_machine_has_a_stable_fingerprint_that_json_can_hold() -> None:
    found = fingerprint()
    assert json.loads(json.dumps(found)) == found
    assert fingerprint()["identity"] == found["identity"]
    assert found["identity"]["cpu_count"] >= 1
