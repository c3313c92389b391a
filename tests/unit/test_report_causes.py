"""The why-report: each cause is found where it is, not where it is not, with the measured effect of its remedy."""

import numpy as np
import pytest
import synthetic
from shown import tables

from virtgauge import report
from virtgauge.analysis.comparison import compare
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import GuestRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.measure import Better
from virtgauge.results.quantities import DURATION
from virtgauge.specs.blocks import Place, Value
from virtgauge.specs.timing_causes import Arm, causes, steal_shares, summary
from virtgauge.specs.timing_settings import Bought

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


def sleep(slack="default", policy="other", load="idle", target_ns=100_000, **more):
    levels = {"function": "usleep", "target_ns": str(target_ns), "slack": slack, "policy": policy, "load": load} | more
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


IDLE = {
    "driver": "intel_idle",
    "governor": "menu",
    "states": [
        {"name": "POLL", "latency_us": 0, "disabled": False},
        {"name": "C6", "latency_us": 133, "disabled": True},
    ],
}


def found(topic, facts=HEALTHY, medians=MEDIANS, reference=(), **more):
    known = causes(Arm(facts, medians, 0.95, dict(reference), **more))
    return next(cause for cause in known if cause.topic == topic)


def steal_of(tmp_path, *accounts):
    """The steal of a run with a trial for each of these accounts, all of one repetition."""
    ledger = Ledger.create(tmp_path / "run", synthetic.manifest([HOST]))
    for number, accounting in enumerate(accounts):
        told = {"steal_at_most_ns": 0, "waited_ns": 0} | accounting
        levels = {"function": f"clock {number}", "load": "idle"}
        ledger.add_trial(synthetic.trial(HOST, "timer_cost", levels, 0, elapsed_ns=SECOND, accounting=told))
    return steal_shares(report.build(ledger).suite("timing").context)["host"]


SECOND = 1_000_000_000


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


def test_without_a_fifo_cell_the_one_that_is_needed_is_named():
    cause = found("scheduling class", medians={sleep(): blocks(1.0)})
    assert cause.effect is None
    assert 'policies = ["other", "fifo"]' in cause.needs


def test_a_class_that_the_guest_refused_is_told_with_its_reason():
    refusals = {("policy", "fifo"): "unsupported: reads back as other"}
    cause = found("scheduling class", medians={sleep(): blocks(1.0)}, refusals=refusals)
    assert "reads back as other" in cause.sentence
    assert cause.needs is None


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


def test_steal_is_the_worst_trial_of_a_block_and_told_when_it_is_worth_it(tmp_path):
    quiet = {"steal_ns": 0, "processors": 2}
    taken = {"steal_ns": int(0.05 * 2 * SECOND), "steal_processors": 2, "processors": 4}
    assert steal_of(tmp_path, quiet, taken) == (pytest.approx(0.05), None)
    assert "reserve CPU" in found("steal", steal=(0.05, None)).sentence
    assert "a negligible amount" in found("steal", steal=(0.0, None)).sentence
    assert "Neither" in found("steal").sentence


def test_steal_that_was_left_out_counts_and_that_inside_is_told_apart(tmp_path):
    left_out = [{"reason": "steal", "share": 0.5, "elapsed_ns": SECOND}]
    inside = {"steal_ns": 0, "processors": 2, "left_out": left_out, "guest_steal_ns": int(0.1 * SECOND)}
    assert steal_of(tmp_path, inside) == (pytest.approx(0.25), pytest.approx(0.1))
    cause = found("steal", steal=(0.0, 0.1))
    assert cause.observed == (
        "seen from the host: at most 0.0 % of its CPU time in a trial; "
        "seen inside: at most 10.0 % of its CPU time in a trial"
    )
    assert "takes CPU time from this guest" in cause.sentence


def test_a_guest_that_never_came_up_has_no_causes():
    assert causes(Arm({}, MEDIANS, 0.95, {})) == ()


def test_a_trapped_counter_and_a_slow_clock_source_cost_what_the_reference_does_not():
    slow = {timer("rdtsc"): blocks(2000.0), timer("clock_gettime"): blocks(1900.0)}
    slow[timer("clock_gettime_syscall")] = blocks(2000.0)
    facts = HEALTHY | {"clocksource": {"current": "acpi_pm", "available": ["acpi_pm"]}}
    for topic, fast in (("time stamp counter", 10.0), ("clock source", 20.0), ("vDSO", 20.0)):
        cause = found(topic, facts, slow, reference=MEDIANS)
        assert cause.against == f"on the reference it costs {fast:.1f} ns"
        assert cause.effect.low > 0.9 * (1900 - fast)
        assert cause.factor == pytest.approx(1900 / fast, rel=0.1)
    assert "here and on a reference" in found("clock source", facts, slow).needs


def test_idle_states_are_listed_and_holding_them_off_is_measured():
    medians = MEDIANS | {sleep(idle_states="shallow"): blocks(60_000.0)}
    cause = found("C-states", HEALTHY | {"idle": IDLE}, medians)
    assert cause.observed == "intel_idle, menu: POLL 0 µs, C6 133 µs (disabled)"
    assert cause.effect.point == pytest.approx(15_000, rel=0.05)
    assert "idle=poll" in cause.sentence


def test_holding_idle_states_off_without_effect_is_not_recommended():
    medians = MEDIANS | {sleep(idle_states="shallow"): blocks(75_000.0)}
    assert "not seen to help" in found("C-states", HEALTHY | {"idle": IDLE}, medians).sentence


def test_a_guest_that_sees_no_idle_state_is_told_who_decides():
    cause = found("C-states", HEALTHY | {"idle": {"driver": "none", "governor": "menu", "states": []}})
    assert cause.observed == "none visible"
    assert "The host decides: no C-state is visible here." in cause.sentence


def test_a_guest_that_cannot_hold_idle_states_off_gets_the_references_effect():
    reference = MEDIANS | {sleep(idle_states="shallow"): blocks(60_000.0)}
    cause = found(
        "C-states",
        HEALTHY | {"idle": IDLE},
        reference=reference,
        refusals={("idle_states", "shallow"): "no such device"},
    )
    assert "Only the host can hold them off: no such device" in cause.sentence
    assert "On the reference, holding them off lets a sleep wake 15.0 µs sooner." in cause.sentence
    assert cause.needs is None


def test_an_effect_compares_cells_that_differ_in_nothing_else():
    only_other_targets = {sleep(): blocks(75_000.0), sleep("minimal", target_ns=1_000_000): blocks(1.0)}
    assert found("timer slack", medians=only_other_targets).effect is None
    shallow = {sleep(): blocks(75_000.0), sleep("minimal", idle_states="shallow"): blocks(1.0)}
    assert found("timer slack", medians=shallow).effect is None


def test_the_summary_names_what_helps_most():
    said = summary(causes(Arm(HEALTHY, MEDIANS, 0.95, {})))
    assert said.startswith("Scheduling class first: `chrt -f 50 PROGRAM`")  # 500 times; slack 3 times


def test_the_summary_recommends_nothing_that_was_not_shown():
    said = summary(causes(Arm(HEALTHY, {sleep(): blocks(75_000.0)}, 0.95, {})))
    assert said.startswith("No remedy was shown to help here; not measured: vDSO, ")
    assert summary(()) == ""


def test_an_arms_refusals_are_those_of_its_trials(tmp_path):
    ledger = Ledger.create(tmp_path / "run", synthetic.manifest([HOST]))
    facts = HEALTHY | {"idle": IDLE}
    ledger.put_guest(
        GuestRecord(
            arm="host", platform="host", block=0, launched_at="2026-01-01T00:00:00+00:00", ready_ns=1, facts=facts
        )
    )
    rng = np.random.default_rng(1)
    levels = dict(sleep()[1])
    ledger.add_trial(
        synthetic.trial(HOST, "sleep_lateness", levels, 0), {"sleep_lateness": synthetic.sleep_histogram(rng, 1e5)}
    )
    refused = {"status": TrialStatus.UNSUPPORTED, "error": "no such device", "result": {}}
    ledger.add_trial(synthetic.trial(HOST, "sleep_lateness", levels | {"idle_states": "shallow"}, 0, **refused))
    page = report.render_html(report.build(ledger))
    assert "Only the host can hold them off: no such device." in page


def test_a_platforms_tuning_is_told_beside_the_same_platform_with_less_of_it(tmp_path):
    fifo = {"vcpu_cpus": [1], "vcpu_scheduling": "fifo:1"}
    guests = [
        ("plain", "q35", {}, 1.0),
        ("pinned", "q35", {"vcpu_cpus": [1]}, 0.5),
        ("fifo", "q35", fifo, 0.2),
        ("other", "microvm", fifo, 0.2),  # of which there is none without it
    ]
    arms = synthetic.usual_arms()[:2]
    for name, machine, tuning, factor in guests:
        record = synthetic.arm_record(name, "qemu", name, settings={"machine": machine, "tuning": tuning})
        arms.append(synthetic.SyntheticArm(record, sleep_factor=factor))
    design = list(synthetic.cells((), [("usleep", "default"), ("usleep", "minimal")], ["idle"]))
    built = report.build(synthetic.synthetic_ledger(tmp_path / "run", arms, design=design))
    (table,) = tables(built, "timing", "bought")
    found = {row.arm: row for row in table.rows if "vcpu" in row.heads[1]}
    assert {arm: row.heads[1:] for arm, row in found.items()} == {
        "pinned": ("vcpu_cpus = [1]", "usleep 100 µs, idle\nbeside plain"),
        "fifo": ('vcpu_scheduling = "fifo:1"', "usleep 100 µs, idle\nbeside pinned"),
    }
    ratios = {arm: row.cells[3].compared.ratio.point for arm, row in found.items()}
    assert ratios == {"pinned": pytest.approx(0.5, rel=0.1), "fifo": pytest.approx(0.4, rel=0.1)}
    assert all(row.cells[0].text.startswith("helps: ") for row in found.values())
    slacks = [row.arm for row in table.rows if row.heads[1] == "minimal slack"]
    assert sorted(slacks) == sorted(["host", *(name for name, *_ in guests)])


def test_a_setting_is_ranked_by_what_was_shown_and_not_by_a_p99_that_only_seems_lower():
    aa, base = Estimate(1.0, 0.99, 1.01, 0.95, 10, "ratio", ""), dict.fromkeys(range(10), 1.0)
    place = Place("timing", "cycle")

    def bought(p99, most):
        compared = {
            name: compare(dict(enumerate(of)), base, aa, "ns", 0.95) for name, of in (("p99", p99), ("max", most))
        }
        missing = Estimate.missing("ns", "of no interest here")
        figures = {name: Value(name, place, missing, DURATION, one, Better.LOWER) for name, one in compared.items()}
        return Bought("", "", synthetic.arm_record("host", "host", "Host"), place, figures, frozenset())

    shown, seeming = bought([0.8] * 10, [1.0] * 10), bought([0.1, 2.0] * 5, [0.5] * 10)
    assert (shown.verdict, seeming.verdict) == ("helps: p99", "helps: max")
    assert seeming.figures["p99"].compared.ratio.point < 0.8
    assert shown.order < seeming.order
