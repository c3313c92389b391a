"""The why-report: each cause is found where it is, not where it is not, with the measured effect of its remedy."""

import dataclasses

import pytest
import synthetic

from virtgauge.report.causes import causes

HEALTHY = {
    "hypervisor": {"present": True, "signature": "KVMKVMKVM"},
    "clocksource": {"current": "tsc", "available": ["tsc", "hpet"]},
    "tsc": {"invariant": True, "read_p50_ns": 10.0},
    "timer_slack_ns": 50_000,
}
HOST = synthetic.arm_record("host", "host", "host", role="reference")


def blocks(value, spread=0.01):
    return {block: value * (1 + spread * (block - 2.5)) for block in range(6)}


def timer(function, load="idle"):
    return "timer_cost", frozenset({"function": function, "load": load}.items())


def sleep(slack="default", policy="other", load="idle"):
    levels = {"function": "usleep", "target_ns": "100000", "slack": slack, "policy": policy, "load": load}
    return "sleep_lateness", frozenset(levels.items())


MEDIANS = {
    timer("rdtsc"): blocks(10.0),
    timer("clock_gettime"): blocks(20.0),
    timer("clock_gettime_syscall"): blocks(200.0),
    sleep(): blocks(75_000.0),
    sleep("minimal"): blocks(25_000.0),
    sleep(load="cpu"): blocks(4e6),
    sleep(policy="fifo", load="cpu"): blocks(8_000.0),
}


def found(topic, facts=HEALTHY, medians=MEDIANS, trials=()):
    return next((cause for cause in causes(facts, medians, trials, 0.95) if cause.topic == topic), None)


def test_the_slacks_measured_effect_stands_with_its_interval():
    cause = found("timer slack")
    assert cause.effect.point == pytest.approx(50_000, rel=0.02)
    assert cause.effect.low < 50_000 < cause.effect.high
    assert "PR_SET_TIMERSLACK" in cause.sentence
    assert "50.0 µs sooner" in cause.sentence


def test_a_slack_that_does_not_help_is_not_recommended():
    cause = found("timer slack", medians=MEDIANS | {sleep("minimal"): blocks(76_000.0)})
    assert "not seen to help" in cause.sentence


def test_without_both_slacks_the_missing_measurement_is_named():
    cause = found("timer slack", medians={sleep(): blocks(75_000.0)})
    assert cause.effect is None
    assert "both slacks" in cause.sentence


def test_a_kernel_without_slack_is_not_told_to_set_it():
    assert "another cause" in found("timer slack", HEALTHY | {"timer_slack_ns": None}).sentence


def test_a_working_vdso_saves_the_difference_to_the_system_call():
    assert found("vDSO").effect.point == pytest.approx(180, rel=0.02)


def test_a_vdso_that_fell_back_is_recognized_by_its_cost():
    cause = found("vDSO", medians=MEDIANS | {timer("clock_gettime"): blocks(190.0)})
    assert "fallen back" in cause.sentence
    assert cause.effect is None


@pytest.mark.parametrize(("cost", "trapped"), [(10.0, False), (149.0, False), (2053.9, True)])
def test_a_trapped_counter_is_recognized_by_its_cost(cost, trapped):
    cause = found("time stamp counter", medians={timer("rdtsc"): blocks(cost, spread=0)})
    assert ("trapped" in cause.observed) is trapped


def test_a_counter_that_is_not_invariant_is_not_recommended():
    facts = HEALTHY | {"tsc": {"invariant": False, "read_p50_ns": 10.0}}
    assert "not invariant" in found("time stamp counter", facts).observed


def test_a_slow_clock_source_is_told_with_the_better_one_the_guest_offers():
    facts = HEALTHY | {"clocksource": {"current": "hpet", "available": ["tsc", "hpet"]}}
    assert "clocksource=tsc" in found("clock source", facts).sentence
    assert "nothing to change" in found("clock source").sentence


def test_a_slow_clock_source_without_a_better_one_asks_the_hypervisor():
    facts = HEALTHY | {"clocksource": {"current": "acpi_pm", "available": ["acpi_pm"]}}
    assert "expose the TSC" in found("clock source", facts).sentence


def test_the_scheduling_class_is_judged_beside_the_load():
    cause = found("scheduling class")
    assert cause.effect.point == pytest.approx(4e6 - 8000, rel=0.02)
    assert "chrt -f 50" in cause.sentence


def test_without_a_fifo_cell_nothing_is_said_of_the_class():
    assert found("scheduling class", medians={sleep(): blocks(1.0)}) is None


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("KVMKVMKVM\0\0\0", "KVM"),
        ("Microsoft Hv", "Hyper-V"),
        ("VBoxVBoxVBox", "VirtualBox"),
        ("Unheard Of", "Unheard"),
    ],
)
def test_hypervisors_are_named_from_their_signature(signature, name):
    facts = HEALTHY | {"hypervisor": {"present": True, "signature": signature}}
    assert name in found("hypervisor", facts).observed


def test_steal_is_the_worst_trial_of_a_block_and_told_when_it_is_worth_it():
    trial = synthetic.trial(HOST, "timer_cost", {"function": "rdtsc", "load": "idle"}, 0)
    quiet = {"steal_ns": 0, "processors": 2}
    taken = {"steal_ns": int(0.05 * 2 * trial.elapsed_ns), "processors": 2}
    trials = [dataclasses.replace(trial, accounting=accounting) for accounting in (quiet, taken)]
    assert "reserve CPU" in found("steal", trials=trials).sentence
    assert "nothing worth naming" in found("steal", trials=trials[:1]).sentence
    assert found("steal") is None


def test_a_guest_that_never_came_up_has_no_causes():
    assert causes({}, MEDIANS, (), 0.95) == ()
