"""What `make test` meets for real, each at least once: platforms, suites, servers and faults, by which test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from virtgauge.platforms import KINDS
from virtgauge.suites.registry import SUITES
from virtgauge.suites.storage.databases import DATABASES

ANSWERS = "test_it_answers_counts_and_is_gone"
PLATFORMS = {
    "bubblewrap": [f"platforms/test_bubblewrap.py::{ANSWERS}"],
    "host": [f"platforms/test_host.py::{ANSWERS}"],
    "oci": [f"platforms/test_oci.py::{ANSWERS}[runc]", f"platforms/test_oci.py::{ANSWERS}[runsc]"],
    "qemu": [f"platforms/test_qemu.py::{ANSWERS}[microvm]", f"platforms/test_qemu.py::{ANSWERS}[q35]"],
    "uml": [f"platforms/test_uml.py::{ANSWERS}"],
    "attached": [
        "platforms/test_attached_runs.py::test_a_run_by_ssh_from_one_network_to_another",
        "platforms/test_attached_runs.py::test_a_run_by_calls_from_one_network_to_another",
        "platforms/test_attached_pairs.py"
        "::test_an_estimate_of_the_path_between_two_machines_is_what_its_router_lets_pass",
        "platforms/test_attached_pairs.py"
        "::test_a_limit_that_was_set_by_hand_is_seen_from_inside_and_one_that_was_not_counts_for_nothing[set]",
        "platforms/test_attached_forwarding.py"
        "::test_a_machine_forwards_between_two_lent_ports_and_what_it_drops_is_seen[router]",
        "platforms/test_image_boots.py::test_a_disk_boots_with_the_devices_of_esxi",
    ],
    "libvirt": [f"platforms/test_libvirt.py::{ANSWERS}[qemu]", f"platforms/test_libvirt.py::{ANSWERS}[lxc]"],
    "simulated": ["faults/test_interruption.py::test_resuming_a_complete_run_measures_nothing"],
}
LABS = {"xen": [f"xen_lab/test_xen_lab.py::{ANSWERS}"]}
"""Met in `make test-labs` alone: it takes a hypervisor below this machine's kernel, which is nested there."""
ON_THE_TERMINAL = "platforms/test_rest_vmm.py::test_a_guest_answers_on_the_monitors_terminal_counts_and_is_gone"
STAND_INS = {kind: [f"{ON_THE_TERMINAL}[{kind}]"] for kind in ("firecracker", "cloud-hypervisor")}
"""Met with a program in the monitor's place: no package brings these, and they need KVM."""
SUITES_MET = {
    "timing": ["faults/test_real_runs.py::test_a_run_on_all_platforms_brings_a_million_reads_of_each"],
    "bandwidth": [
        "suites/test_bandwidth_testbed.py"
        "::test_an_estimate_is_what_the_shaper_leaves_by_the_agent_and_by_a_program_under_the_shim"
    ],
    "forwarding": ["suites/test_forwarding_lab.py::test_a_cell_has_a_throughput_and_agreeing_clocks"],
    "storage": [
        "suites/test_storage_testbed.py::test_a_disk_of_7200_turns_a_minute_gives_a_server_120_writes_a_second"
    ],
    "isolation": ["suites/test_isolation_testbed.py::test_two_guests_divide_one_core_as_their_policies_say[runc]"],
}
SERVES = "suites/test_databases.py::test_what_was_acknowledged_outlives_a_kill_where_the_level_says_so"
EMBEDDED = "suites/test_storage_testbed.py::test_an_embedded_database_flushes_once_for_each_write_and_loses_nothing"
WITHOUT_FLUSHES = ("victoriametrics",)
SERVERS = {
    name: [
        f"{EMBEDDED}[{name}-in-order]"
        if product.embedded
        else f"{SERVES}[{name}-{'none' if name in WITHOUT_FLUSHES else 'flushed'}]"
    ]
    for name, product in DATABASES.items()
}
FAULTS = {
    "kill -9 of the controller": [
        "faults/test_real_runs.py::test_after_kill_9_clean_or_the_next_run_leaves_nothing[clean-gvisor]"
    ],
    "Ctrl-C": ["faults/test_real_runs.py::test_ctrl_c_on_real_guests_leaves_nothing_and_resumes[4]"],
    "guest crash": [
        "faults/test_real_runs.py::test_a_guest_killed_in_a_trial_is_a_failed_trial_and_is_repeated[qemu]",
        "platforms/test_uml.py::test_a_kernel_panic_is_a_launch_error_with_the_console",
    ],
    "power cut": ["suites/test_storage_testbed.py::test_a_machine_crash_is_audited_on_the_same_disk[microvm]"],
    "full disk": [
        "faults/test_interruption.py::test_a_full_disk_ends_with_its_name_and_the_run_goes_on_when_there_is_room",
        "faults/test_isolation_faults.py::test_a_full_disk_is_a_failure_in_words_and_the_next_trial_goes_on[runc]",
    ],
    "agent that hangs": ["platforms/test_attached_ssh.py::test_an_agent_that_hangs_is_killed_and_its_folder_removed"],
    "agent that lies": [
        "platforms/test_oci.py::test_a_broken_agent_is_a_launch_error[runc-echo garbage; sleep 60-handshake-frame]"
    ],
    "server that hangs": ["suites/test_storage_testbed.py::test_a_server_that_hangs_in_a_trial_times_out"],
    "lost connection": [
        "platforms/test_attached_dial_in.py"
        "::test_a_call_that_is_lost_in_a_trial_fails_it_and_the_machine_calls_again"
    ],
    "lost worker": [
        "faults/test_fleet_faults.py"
        "::test_workers_and_coordinator_are_killed_and_nothing_is_lost_or_counted_twice"
    ],
}  # fmt: skip


def chosen(expression: str, tests: set[str]) -> set[str]:
    """Those of them that pytest would run with these markers."""
    folder = Path(__file__).parents[1]
    files = sorted({test.partition("::")[0] for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tests & {line.removeprefix("tests/") for line in done.stdout.splitlines()}


def test_every_platform_suite_and_server_has_its_test() -> None:
    assert {*PLATFORMS, *LABS, *STAND_INS} == set(KINDS)
    assert {*SUITES_MET} == set(SUITES)
    assert {*SERVERS} == set(DATABASES)


@pytest.mark.slow  # it starts pytest
def test_those_tests_are_among_those_that_make_test_runs() -> None:
    met = {
        test
        for group in (PLATFORMS, STAND_INS, SUITES_MET, SERVERS, FAULTS)
        for tests in group.values()
        for test in tests
    }
    assert met - chosen("slow and not full and not lab", met) == set()
    labs = {test for tests in LABS.values() for test in tests}
    assert labs - chosen("lab", labs) == set()
