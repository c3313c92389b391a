"""`virtgauge doctor --realtime`: each setting that decides on the worst case is told from its opposite."""

from __future__ import annotations

import dataclasses
import errno
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from shown import tables
from synthetic import SyntheticArm, arm_record, synthetic_ledger, usual_arms
from typer.testing import CliRunner

from virtgauge import cli, report
from virtgauge.errors import ExitCode, UsageError
from virtgauge.host import realtime
from virtgauge.host.machine import AS_ROOT
from virtgauge.host.realtime import CHECKS, examine
from virtgauge.host.realtime_settings import Found, Machine, State, hex_mask, masked
from virtgauge.platforms.qemu.tuning import Tuning
from virtgauge.results.formatting import beside
from virtgauge.specs.timing_insights import USUAL

CPU = "sys/devices/system/cpu"
CLOCK = "sys/devices/system/clocksource/clocksource0"
THP = "sys/kernel/mm/transparent_hugepage"
KVM = "sys/module/kvm/parameters"
FAIR = "sys/kernel/debug/sched/fair_server"
BEFORE_FAIR = {"proc/sys/kernel/osrelease": "6.11.0\n", f"{FAIR}/cpu2/runtime": None}
GROUPS = "sys/fs/cgroup/machine/virtgauge"
NEVER = "always madvise [never]\n"
Files = Mapping[str, str | bytes | None]


def stat(policy: int) -> str:
    """A thread's, of which the name has blanks and brackets and the 41st field is the policy."""
    return f"7 (CPU (0) KVM) S {' '.join(map(str, range(4, 41)))} {policy} {' '.join(map(str, range(42, 53)))}\n"


def idle(cpu: int, *, off: str = "1") -> dict[str, str]:
    states = [("POLL", "0", "0"), ("C1", "2", "0"), ("C6", "133", off)]
    return {f"{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us": "0\n"} | {
        f"{CPU}/cpu{cpu}/cpuidle/state{number}/{name}": f"{value}\n"
        for number, state in enumerate(states)
        for name, value in zip(("name", "latency", "disable"), state, strict=True)
    }


def interrupt(number: int, handler: str, allowed: str, effective: str | None = None) -> dict[str, str]:
    found = {f"proc/irq/{number}/smp_affinity_list": f"{allowed}\n", f"proc/irq/{number}/{handler}/": ""}
    return found if effective is None else found | {f"proc/irq/{number}/effective_affinity_list": f"{effective}\n"}


RIGHT: Files = {
    "proc/cmdline": "quiet isolcpus=managed_irq,domain,2-3 rcu_nocbs=2-3\n",
    "proc/version": "Linux version 6.12.1-rt1 (builder@host) #1 SMP PREEMPT_RT Debian 6.12.1-1\n",
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc\n",
    "proc/meminfo": "MemTotal:       16000000 kB\nHugetlb:         4194304 kB\n",
    "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
    "proc/stat": "cpu  100 0 50 800 0 0 10 0 0 0\ncpu0 100 0 50 800 0 0 10 0 0 0\n",
    "proc/irq/default_smp_affinity": "3\n",
    "proc/irq/0/smp_affinity_list": "0-3\n",  # which nothing handles
    **interrupt(11, "arch_timer", "0-3"),  # each CPU's own: see `machine`
    **interrupt(24, "eth0", "0-3", "0"),
    **interrupt(25, "virtio0-input.0", "0-1", ""),  # that is not started
    **interrupt(27, "nvme0q3", "3", "3"),  # of what isolated CPUs ask for, and nobody can move it: see `machine`
    "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         unlimited            unlimited            bytes     \n",
    "proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000\n",
    "proc/self/stat": stat(0),
    "proc/self/timerslack_ns": "1\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    "proc/self/cgroup": "0::/machine/virtgauge\n",
    f"{GROUPS}/cpu.max": "max 100000\n",
    "proc/sys/kernel/osrelease": "6.12.1-rt1\n",
    "proc/sys/kernel/nmi_watchdog": "0\n",
    "proc/sys/kernel/watchdog": "1\n",
    "proc/sys/kernel/watchdog_cpumask": "0-1\n",
    "proc/sys/kernel/sched_rt_runtime_us": "-1\n",
    "proc/sys/kernel/sched_rt_period_us": "1000000\n",
    "proc/sys/kernel/timer_migration": "0\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/sys/vm/stat_interval": "10\n",
    f"{CPU}/online": "0-3\n",
    f"{CPU}/isolated": "2-3\n",
    f"{CPU}/nohz_full": "2-3\n",
    f"{CPU}/smt/active": "0\n",
    f"{CPU}/cpufreq/policy0/scaling_governor": "performance\n",
    f"{CPU}/cpufreq/policy2/scaling_governor": "performance\n",
    **idle(0, off="0"),  # whom nobody waits for
    **idle(1),
    **idle(2),
    **idle(3),
    "dev/cpu_dma_latency": (2_000_000_000).to_bytes(4, sys.byteorder),
    "dev/cpu/0/msr": bytes(0x34) + (7).to_bytes(8, sys.byteorder),
    "sys/devices/virtual/workqueue/cpumask": "3\n",
    f"{FAIR}/cpu2/runtime": "0\n",
    f"{FAIR}/cpu3/runtime": "0\n",
    f"{THP}/enabled": NEVER,
    f"{THP}/hugepages-64kB/enabled": f"always inherit {NEVER}",
    "sys/kernel/mm/ksm/run": "0\n",
    "sys/kernel/mm/ksm/pages_shared": "0\n",
    f"{CLOCK}/current_clocksource": "tsc\n",
    f"{CLOCK}/available_clocksource": "tsc kvm-clock hpet acpi_pm \n",
    f"{KVM}/halt_poll_ns": "200000\n",
    f"{KVM}/lapic_timer_advance": "Y\n",
    "proc/700/task/700/status": "Name:\tqemu\nCpus_allowed_list:\t0-1\n",
    "proc/700/task/700/comm": "qemu-system-x86\n",
    "proc/700/task/701/comm": "CPU 0/KVM\n",
    "proc/700/task/701/status": "Cpus_allowed:\t4\nCpus_allowed_list:\t2\n",
    "proc/700/task/701/stat": stat(1),
    "proc/700/task/702/comm": "CPU 1/KVM\n",
    "proc/700/task/702/status": "Cpus_allowed:\t8\nCpus_allowed_list:\t3\n",
    "proc/700/task/702/stat": stat(2),
    "proc/700/task/703/comm": "IO iothread0\n",
    "proc/700/task/703/status": "Cpus_allowed_list:\t1\n",
}

WRONG: list[tuple[str, Files, tuple[str, ...]]] = [
    ("isolated CPUs", {f"{CPU}/isolated": "\n"}, ("idle states", "placement of vCPUs")),
    ("tick", {f"{CPU}/nohz_full": "2\n"}, ()),
    ("RCU callbacks", {"proc/cmdline": "quiet\n", f"{CPU}/nohz_full": "3\n"}, ("tick",)),
    ("interrupts", interrupt(24, "eth0", "0-3", "3"), ()),
    ("interrupts", interrupt(26, "nvme0q1", "1-2"), ()),
    ("interrupts", interrupt(27, "nvme0q3", "1-3", "3"), ()),
    ("interrupts", interrupt(25, "virtio0-input.0", "0-3", "2"), ()),
    ("interrupts of new devices", {"proc/irq/default_smp_affinity": "f\n"}, ()),
    ("unbound kernel work", {"sys/devices/virtual/workqueue/cpumask": "7\n"}, ()),
    ("lockup watchdogs", {"proc/sys/kernel/watchdog_cpumask": "0-2\n"}, ()),
    ("NMI watchdog", {"proc/sys/kernel/nmi_watchdog": "1\n"}, ()),
    ("real-time throttling", {f"{FAIR}/cpu3/runtime": "50000000\n"}, ()),
    ("real-time throttling", BEFORE_FAIR | {"proc/sys/kernel/sched_rt_runtime_us": "950000\n"}, ()),
    ("timer migration", {"proc/sys/kernel/timer_migration": "1\n"}, ()),
    ("kernel", {"proc/version": "Linux version 6.12.1 (b@h) #1 SMP PREEMPT_DYNAMIC Debian\n"}, ()),
    ("frequency governor", {f"{CPU}/cpufreq/policy2/scaling_governor": "schedutil\n"}, ()),
    ("idle states", idle(3, off="0"), ()),
    ("SMT", {f"{CPU}/smt/active": "1\n"}, ()),
    ("transparent hugepages, khugepaged", {f"{THP}/enabled": "always [madvise] never\n"}, ()),
    ("transparent hugepages, khugepaged", {f"{THP}/hugepages-64kB/enabled": "[always] inherit madvise never\n"}, ()),
    ("reserved hugepages", {"proc/meminfo": "Hugetlb:               0 kB\n"}, ()),
    ("merging of equal pages (KSM)", {"sys/kernel/mm/ksm/run": "1\n"}, ()),
    ("merging of equal pages (KSM)", {"sys/kernel/mm/ksm/pages_shared": "12\n"}, ()),
    ("NUMA balancing", {"proc/sys/kernel/numa_balancing": "1\n"}, ()),
    ("swap", {"proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 999 0 -2\n"}, ()),
    ("locked memory", {"proc/self/limits": "Max locked memory         8388608   8388608   bytes\n"}, ()),
    ("memory statistics", {"proc/sys/vm/stat_interval": "1\n"}, ()),
    ("timer slack", {"proc/self/timerslack_ns": "50000\n"}, ()),
    ("quota of CPU time", {f"{GROUPS}/cpu.max": "50000 100000\n"}, ()),
    ("quota of CPU time", {"sys/fs/cgroup/machine/cpu.max": "150000 100000\n"}, ()),
    ("clock source", {f"{CLOCK}/current_clocksource": "hpet\n"}, ()),
    ("polling of halted vCPUs", {f"{KVM}/halt_poll_ns": "0\n"}, ()),
    ("early timers of guests", {f"{KVM}/lapic_timer_advance": "N\n"}, ()),
    ("placement of vCPUs", {"proc/700/task/703/status": "Cpus_allowed_list:\t0-2\n"}, ()),
    ("placement of vCPUs", {"proc/700/task/702/status": "Cpus_allowed_list:\t2\n"}, ()),
    ("placement of vCPUs", {"proc/700/task/702/status": "Cpus_allowed_list:\t1\n"}, ()),
    ("placement of vCPUs", {"proc/700/task/702/status": "Cpus_allowed_list:\t2-3\n"}, ()),
    ("class of vCPUs", {"proc/700/task/702/stat": stat(0)}, ()),
]
"""A check, what makes it wrong, and which others that makes wrong, too."""


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """A machine of which all settings are right, but for the given files; None removes one."""

    def made(changes: Files | None = None, **fields: Any) -> Machine:
        for path, content in {**RIGHT, **(changes or {})}.items():
            file = tmp_path / path
            if path.endswith("/"):
                file.mkdir(parents=True, exist_ok=True)
                continue
            file.unlink(missing_ok=True)
            if content is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.encode() if isinstance(content, str) else content)
        for number in (11, 27):
            (tmp_path / f"proc/irq/{number}/smp_affinity_list").chmod(0o444)
        return Machine(tmp_path, **({"pause": lambda seconds: None} | fields))

    return made


def states(machine: Machine) -> dict[str, State]:
    return {check.name: found.state for check, found, _ in examine(machine)}


def found(machine: Machine, name: str) -> Found:
    return next(found for check, found, _ in examine(machine) if check.name == name)


def not_right(machine: Machine) -> set[str]:
    return {name for name, state in states(machine).items() if state in (State.WRONG, State.TRADE_OFF)}


def test_every_check_is_right_on_a_machine_that_is_set_up(machine):
    assert set(states(machine()).values()) == {State.RIGHT}
    assert set(states(machine(guest=True)).values()) == {State.RIGHT}


@pytest.mark.parametrize(("name", "changes", "others"), WRONG)
def test_a_check_that_is_turned_round_is_wrong_and_no_other(machine, name, changes, others):
    assert not_right(machine(changes)) == {name, *others}


def test_each_check_is_tried_both_ways():
    elsewhere = {"system management interrupts", "virtio interrupts", "steal"}
    assert {name for name, _, _ in WRONG} | elsewhere == {check.name for check in CHECKS}


def test_a_management_interrupt_between_two_looks_is_wrong(machine, tmp_path):
    def interrupted(seconds: float) -> None:
        (tmp_path / "dev/cpu/0/msr").write_bytes(bytes(0x34) + (9).to_bytes(8, sys.byteorder))

    told = found(machine(pause=interrupted), "system management interrupts")
    assert told == (State.WRONG, "2 in a second, 9 since the reset")


def test_a_guest_is_asked_what_it_has_and_not_what_its_host_has(machine):
    host, guest = states(machine()), states(machine(guest=True))
    assert guest.keys() - host.keys() == {"virtio interrupts", "steal"}
    assert {"SMT", "system management interrupts", "polling of halted vCPUs", "placement of vCPUs"} <= (
        host.keys() - guest.keys()
    )
    stolen = {"proc/stat": "cpu  100 0 50 800 0 0 10 40 0 0\n"}
    assert not_right(machine(stolen, guest=True)) == {"steal"}
    assert found(machine(stolen, guest=True), "steal").words == "4.00 % of the time since the boot"


def test_virtio_s_interrupts_stand_apart_in_a_guest(machine):
    on_isolated = interrupt(25, "virtio0-input.0", "0-3", "3")
    assert not_right(machine(on_isolated, guest=True)) == {"virtio interrupts"}
    assert found(machine(on_isolated, guest=True), "virtio interrupts").words == "25 (virtio0-input.0) on 3"


def test_a_hypervisor_that_may_be_silent_about_steal_is_not_believed(machine):
    silent = {f"{CLOCK}/available_clocksource": "tsc hpet\n"}
    assert states(machine(silent, guest=True))["steal"] is State.UNKNOWN


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("RCU callbacks", {"proc/cmdline": "quiet\n"}),  # nohz_full offloads them, too
        ("lockup watchdogs", {"proc/sys/kernel/watchdog": "0\n", "proc/sys/kernel/watchdog_cpumask": "0-3\n"}),
        ("real-time throttling", BEFORE_FAIR),
        ("real-time throttling", BEFORE_FAIR | {"proc/sys/kernel/sched_rt_runtime_us": "1000000\n"}),
        ("frequency governor", {f"{CPU}/cpufreq/policy2/scaling_governor": "userspace\n"}),
        ("idle states", {**idle(3, off="0"), f"{CPU}/online": "0-2\n"}),  # of an isolated CPU that is off
        ("kernel", {"proc/version": "Linux version 4.18.0-rt (b@h) #1 SMP PREEMPT RT Thu\n"}),
        ("idle states", {**idle(3, off="0"), "dev/cpu_dma_latency": bytes(4)}),
        ("idle states", {**idle(3, off="0"), f"{CPU}/cpu3/power/pm_qos_resume_latency_us": "n/a\n"}),
        ("idle states", {**idle(3, off="0"), f"{CPU}/cpu3/power/pm_qos_resume_latency_us": "20\n"}),
        ("locked memory", {"proc/self/limits": "", "proc/self/status": "Name:\tx\nCapEff:\t0000000000004000\n"}),
        ("clock source", {f"{CLOCK}/current_clocksource": "kvm-clock\n"}),
        ("early timers of guests", {f"{KVM}/lapic_timer_advance": None, f"{KVM}/lapic_timer_advance_ns": "-1\n"}),
        ("transparent hugepages, khugepaged", {f"{THP}/hugepages-64kB/enabled": "always [inherit] madvise never\n"}),
    ],
)
def test_there_is_more_than_one_way_to_be_right(machine, name, changes):
    assert states(machine(changes))[name] is State.RIGHT


@pytest.mark.parametrize("own", ["1:cpu,cpuacct:/slice\n0::/\n", "4:name=systemd:/x\n1:cpu:/slice\n"])
def test_a_quota_of_version_1_is_found(machine, own):
    mounted = {
        "proc/self/mountinfo": "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        "proc/self/cgroup": own,
        "sys/fs/cgroup/cpu/slice/cpu.cfs_period_us": "100000\n",
    }
    knob = "sys/fs/cgroup/cpu/slice/cpu.cfs_quota_us"
    assert not_right(machine(mounted | {knob: "-1\n"})) == set()
    told = found(machine(mounted | {knob: "25000\n"}), "quota of CPU time")
    assert told == (State.WRONG, "0.25 CPUs in the group /slice")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("isolated CPUs", {f"{CPU}/online": "0\n", f"{CPU}/isolated": "\n"}),
        ("tick", {f"{CPU}/nohz_full": None}),
        *((check.name, {f"{CPU}/isolated": "\n"}) for check in CHECKS if check.isolating and check.only != "guest"),
        ("NUMA balancing", {"proc/sys/kernel/numa_balancing": None}),
        ("system management interrupts", {"proc/cpuinfo": "vendor_id\t: AuthenticAMD\n"}),
        ("timer slack", {"proc/self/stat": stat(1), "proc/self/timerslack_ns": "50000\n"}),
        ("polling of halted vCPUs", {f"{KVM}/halt_poll_ns": None}),
        ("early timers of guests", {f"{KVM}/lapic_timer_advance": None}),
        ("placement of vCPUs", {f"proc/700/task/{thread}/comm": "qemu-system-x86\n" for thread in (701, 702)}),
        ("frequency governor", {f"{CPU}/cpufreq/policy{n}/scaling_governor": None for n in (0, 2)}),
        ("quota of CPU time", {"proc/self/mountinfo": "1 1 0:1 / / rw - ext4 /dev/sda rw\n"}),
    ],
)
def test_what_a_machine_does_not_have_is_not_applicable(machine, name, changes):
    assert states(machine(changes))[name] is State.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("system management interrupts", {"dev/cpu/0/msr": None}, "dev/cpu/0/msr"),
        ("real-time throttling", {f"{FAIR}/cpu2/runtime": None}, f"{FAIR}/cpu2/runtime"),
        ("idle states", {**idle(3, off="0"), "dev/cpu_dma_latency": None}, "dev/cpu_dma_latency"),
        ("tick", {f"{CPU}/nohz_full": "all\n"}, "not understood"),
        ("memory statistics", {"proc/sys/vm/stat_interval": "soon\n"}, "not understood"),
        ("clock source", {f"{CLOCK}/current_clocksource": "sundial\n"}, "sundial"),
        ("quota of CPU time", {"proc/self/cgroup": "0::/../other\n"}, "../other"),
        ("quota of CPU time", {"proc/self/cgroup": "3:pids:/\n"}, "not understood"),
        ("locked memory", {"proc/self/limits": "\n"}, "nothing says Max locked memory"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_the_reason(machine, name, changes, why):
    told = found(machine(changes), name)
    assert told.state is State.UNKNOWN
    assert why in told.words


def test_who_may_not_read_is_told_to_be_root(machine, monkeypatch):
    def refused(machine: Machine) -> Found:
        raise PermissionError(errno.EACCES, "Permission denied", "/proc/secret")

    monkeypatch.setattr(realtime, "CHECKS", (dataclasses.replace(CHECKS[0], read=refused),))
    ((_, told, _),) = examine(machine())
    assert told == (State.UNKNOWN, f"/proc/secret: Permission denied; {AS_ROOT}")


def test_a_kernel_that_can_be_switched_says_how_it_preempts(machine):
    dynamic = {"proc/version": "Linux version 6.12.1 (b@h) #1 SMP PREEMPT_DYNAMIC Debian\n"}
    dynamic["sys/kernel/debug/sched/preempt"] = "none (voluntary) full lazy \n"
    assert found(machine(dynamic), "kernel") == (State.WRONG, "PREEMPT_DYNAMIC, voluntary")


def test_an_old_kernels_word_for_no_mask_is_no_cpu(machine):
    assert found(machine({f"{CPU}/nohz_full": "(null)\n"}), "tick") == (State.TRADE_OFF, "none")


@pytest.mark.parametrize(("mask", "cpus"), [("3", range(2)), ("ff,ffffffff", range(40)), ("1,00000000", (32,))])
def test_masks_have_a_comma_before_each_eight_digits(mask, cpus):
    assert masked(mask) == frozenset(cpus)
    assert hex_mask(cpus) == mask


def test_commands_name_this_machines_cpus(machine):
    fixes = {check.name: fix for check, _, fix in examine(machine())}
    assert fixes["tick"] == "boot with nohz_full=2,3"
    assert fixes["interrupts of new devices"] == "echo 3 > /proc/irq/default_smp_affinity, or boot with irqaffinity=0,1"
    assert fixes["placement of vCPUs"].count("0,1") == 1


def test_every_check_says_what_should_be_the_command_and_who_says_so():
    assert all(check.should and check.fix and check.source for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


# -- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def invoke(machine, monkeypatch):
    """The command, which finds this machine in place of the real one."""

    def on(made: Machine, *arguments: object) -> Any:
        monkeypatch.setattr(realtime, "examine", lambda asked: examine(made))
        return CliRunner().invoke(cli.app, ["doctor", "--realtime", *map(str, arguments)])

    return on


def test_the_exit_code_is_1_where_a_setting_is_wrong(invoke, machine):
    assert invoke(machine()).exit_code == ExitCode.OK
    unknown = invoke(machine({"dev/cpu/0/msr": None}))
    assert unknown.exit_code == ExitCode.OK
    assert "should be: none in a second" in unknown.stdout
    told = invoke(machine({"dev/cpu/0/msr": None, "proc/sys/kernel/timer_migration": "1\n"}))
    assert told.exit_code == ExitCode.FAILED
    assert "→ sysctl -w kernel.timer_migration=0" in told.stdout
    assert "1 wrong, 0 trade-off, 1 unknown" in told.stdout


def test_a_trade_off_is_told_with_its_command_and_is_not_wrong(invoke, machine):
    without = {f"{CPU}/nohz_full": "\n", f"{FAIR}/cpu3/runtime": "50000000\n", f"{KVM}/halt_poll_ns": "0\n"}
    without["proc/swaps"] = "Filename Type Size Used Priority\n/dev/sda2 partition 999 0 -2\n"
    told = invoke(machine(without))
    assert told.exit_code == ExitCode.OK
    assert "0 wrong, 4 trade-off, 0 unknown" in told.stdout
    assert "→ echo 200000 > " in told.stdout


def test_json_has_every_check_with_its_source(invoke, machine):
    told = json.loads(invoke(machine({"proc/self/timerslack_ns": "50000\n"}), "--json").stdout)
    assert [one["state"] for one in told["checks"] if one["name"] == "timer slack"] == ["wrong"]
    host = [check.name for check in CHECKS if check.only != "guest"]
    assert [one["name"] for one in told["checks"]] == host
    assert {*told["checks"][0]} == {"name", "state", "found", "should", "fix", "source", "measured"}


def test_what_measures_a_setting_is_of_a_plan():
    known = {*USUAL, *Tuning.model_fields}
    assert {name for check in CHECKS for name in check.measured_by} <= known


@pytest.mark.slow
def test_a_run_says_of_a_setting_what_its_report_says(invoke, machine, tmp_path):
    guests: list[tuple[str, dict[str, Any], float]] = [
        ("plain", {}, 1.0),
        ("pinned", {"vcpu_cpus": [1]}, 0.5),
        ("fifo", {"vcpu_cpus": [1], "vcpu_scheduling": "fifo:1"}, 0.2),
    ]
    arms = usual_arms()[:2]
    for name, tuning, factor in guests:
        record = arm_record(name, "qemu", "QEMU", settings={"machine": "q35", "tuning": tuning})
        arms.append(SyntheticArm(record, sleep_factor=factor))
    sleep = {"function": "usleep", "target_ns": "100000", "policy": "other", "load": "idle"}
    design = [
        ("sleep_lateness", sleep | {"slack": "default"}),
        ("sleep_lateness", sleep | {"slack": "minimal"}),
        ("sleep_lateness", sleep | {"slack": "default", "idle_states": "shallow"}),
    ]
    with synthetic_ledger(tmp_path / "run", arms, design=design) as ledger:
        built = report.build(ledger)
    told = json.loads(invoke(machine(), "--json", "--runs", tmp_path / "run").stdout)
    measured = {one["name"]: one["measured"] for one in told["checks"] if one["measured"]}
    labels = {"host": "Host", **{name: f"QEMU [{name}]" for name, _, _ in guests}}
    settings = {
        "minimal slack": "timer slack",
        "shallow idle states": "idle states",
        "vcpu_cpus = [1]": "placement of vCPUs",
        'vcpu_scheduling = "fifo:1"': "class of vCPUs",
    }
    assert measured.keys() == {*settings.values()}
    (table,) = tables(built, "timing", "bought")
    assert len(table.rows) == sum(map(len, measured.values()))
    for row in table.rows:
        _, setting, by = row.heads
        begin = f"{setting} ({' '.join(by.split())}, {labels[row.arm]}): p99 "
        (line,) = [one for one in measured[settings[setting]] if one.startswith(begin)]
        effect, *figures = row.cells
        assert line.endswith(f"; {effect.text}")
        for figure in figures:
            assert figure is None or " ".join(beside(figure.compared, figure.quantity).split()) in line
    assert all("; helps: " in line for name in ("timer slack", "class of vCPUs") for line in measured[name])


def test_this_machine_has_an_answer_to_each_check():
    told = CliRunner().invoke(cli.app, ["doctor", "--realtime", "--guest", "--json"])
    checks = json.loads(told.stdout)["checks"]
    assert {one["state"] for one in checks} <= {*State}
    assert all(one["found"] for one in checks)
    assert told.exit_code == int(any(one["state"] == State.WRONG for one in checks))


@pytest.mark.parametrize("arguments", [["--guest"], ["--runs", "run"], ["--realtime", "--plan", "quick"]])
def test_options_that_do_not_go_together_are_refused(arguments):
    told = CliRunner().invoke(cli.app, ["doctor", *arguments])
    assert isinstance(told.exception, UsageError)
