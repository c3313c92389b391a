from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from provision_machine import Machine

from virtgauge.provision.packages import provision_packages
from virtgauge.provision.progress import State, silence


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_what_is_there_is_not_installed_again(machine: Machine) -> None:
    machine.add_program("runc", "#!/bin/sh\n")
    machine.add_program("qemu-system-x86_64", "#!/bin/sh\n")
    (outcome,) = provision_packages(silence, ["runc", "qemu"])
    assert (outcome.state, outcome.detail) == (State.OK, "runc, QEMU")
    assert machine.calls == []


def test_programs_of_the_administrators_folders_count_although_no_users_path_names_them(machine: Machine) -> None:
    machine.as_root(False)
    machine.add_program("runc", "#!/bin/sh\n")
    (machine.folder / "sbin").mkdir()
    (machine.programs / "runc").rename(machine.folder / "sbin" / "runc")
    (outcome,) = provision_packages(silence, ["runc"])
    assert outcome.state is State.OK


def test_without_root_one_line_names_what_is_missing_and_the_command(machine: Machine) -> None:
    machine.as_root(False)
    machine.add_program("runc", "#!/bin/sh\n")
    (outcome,) = provision_packages(silence, ["runc", "qemu", "chromium"])
    assert outcome.line() == (
        "packages   skipped: not root, and missing: QEMU, Chromium "
        "(sudo apt-get install --no-install-recommends qemu-system-x86 chromium)"
    )
    assert machine.calls == []


def test_all_packages_come_by_one_call_without_recommended_ones(machine: Machine) -> None:
    machine.add_package("chromium", "chromium")
    machine.add_package("runc", "runc")
    outcomes = provision_packages(silence, ["runc", "chromium"])
    assert [(outcome.state, outcome.detail) for outcome in outcomes] == [(State.MADE, "runc"), (State.MADE, "Chromium")]
    (call,) = machine.calls
    assert call.endswith("install -y --no-install-recommends runc chromium")
    assert provision_packages(silence, ["chromium"])[0].state is State.OK


def test_unknown_packages_refresh_the_lists_once_for_all(machine: Machine) -> None:
    machine.add_package("qemu-system-x86", "qemu-system-x86_64", listed=False)
    machine.add_package("runc", "runc", listed=False)
    outcomes = provision_packages(silence, ["qemu", "runc"])
    assert [outcome.state for outcome in outcomes] == [State.MADE, State.MADE]
    assert [call for call in machine.calls if call.endswith("update")] == ["apt-get update"]


def test_a_package_that_does_not_exist_keeps_no_other_away(machine: Machine) -> None:
    machine.add_package("runc", "runc")
    outcomes = provision_packages(silence, ["qemu", "runc"])
    assert [(outcome.state, outcome.detail.partition(":")[0]) for outcome in outcomes] == [
        (State.SKIPPED, "QEMU"),
        (State.MADE, "runc"),
    ]
    assert "Unable to locate package qemu-system-x86" in outcomes[0].detail


def test_a_package_that_brings_no_program_is_not_called_a_success(machine: Machine) -> None:
    machine.add_package("chromium")
    (outcome,) = provision_packages(silence, ["chromium"])
    assert outcome.state is State.SKIPPED
    assert "still not found" in outcome.detail


def test_a_package_that_brings_a_service_does_not_start_it(machine: Machine) -> None:
    machine.add_program("systemctl", '#!/bin/sh\necho "systemctl $*" >>"$MACHINE/calls"\n')
    machine.add_package("openvswitch-switch", "ovs-vswitchd")
    (outcome,) = provision_packages(silence, ["openvswitch"])
    assert (outcome.state, outcome.detail) == (State.MADE, "Open vSwitch")
    install, disable = machine.calls
    found = re.search(r"DPkg::Path=([^: ]+):", install)
    assert found, install
    for starter in ("invoke-rc.d", "deb-systemd-invoke"):
        assert subprocess.run([Path(found[1]) / starter, "start", "openvswitch-switch"], check=False).returncode == 0
    assert disable == "systemctl disable openvswitch-switch.service"


def test_a_compiler_without_the_static_c_library_is_no_linker(machine: Machine) -> None:
    machine.add_program("cc", "#!/bin/sh\necho libc.a\n")
    machine.as_root(False)
    (outcome,) = provision_packages(silence, ["linker"])
    assert "a C linker" in outcome.detail
    machine.add_program("cc", "#!/bin/sh\necho /usr/lib/libc.a\n")
    assert provision_packages(silence, ["linker"])[0].state is State.OK


def test_a_machine_without_apt_says_what_to_bring(machine: Machine) -> None:
    (machine.programs / "apt-get").unlink()
    (outcome,) = provision_packages(silence, ["qemu", "runc"])
    assert outcome.state is State.SKIPPED
    assert "no apt-get; missing: QEMU, runc" in outcome.detail
