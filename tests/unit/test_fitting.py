"""A plan's duration before it is run, and a plan that is made to fit into a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import arm_record

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.execution import fitting
from virtgauge.execution.fitting import Fitted, duration_of, fitted
from virtgauge.execution.prepare import check_plan
from virtgauge.execution.remaining import RemainingTime, RememberedCosts
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.load import load_plan, parse_plan
from virtgauge.plan.model import Plan

SOURCE = "my.toml"
TEXT = """
repetitions = 20
seed = 1
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "runc"
kind = "oci"
runtime = "runc"
[[platform]]
name = "qemu"
kind = "qemu"
machine = "microvm"
[[suite.timing]]
loads = ["idle"]
timers = []
sleeps = ["usleep"]
slacks = ["default"]
targets_us = [100, 1000, 2000, 5000, 10000]
sleep_samples = 1000
max_seconds = 10
[[suite.timing]]
loads = ["cpu"]
timers = []
sleeps = ["usleep"]
slacks = ["default"]
targets_us = [1000]
sleep_samples = 1000
max_seconds = 10
"""
ARMS = [
    arm_record("host", "host", "Host", "reference"),
    arm_record("host-aa", "host", "Host (A/A)", "aa"),
    arm_record("runc", "oci", "runc", settings={"runtime": "runc"}),
    arm_record("qemu", "qemu", "QEMU (tcg)", emulated=True),
]


@pytest.fixture(autouse=True)
def no_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "durations.json"
    monkeypatch.setattr(fitting, "costs_file", lambda: path)
    return path


def plan(extra: str = "") -> Plan:
    return parse_plan(extra + TEXT if not extra.startswith("[") else TEXT + extra, SOURCE)


def seconds(of: Plan, arms: list[ArmRecord] = ARMS) -> float:
    kept = {section.name for section in of.platform}
    return duration_of(
        of, check_plan(of, SOURCE), [arm for arm in arms if arm.name in kept or arm.role == "aa"]
    ).expected


def fit(share: float, extra: str = "") -> Fitted:
    """Into this share of what the whole takes."""
    whole = plan(extra)
    found = fitted(whole, SOURCE, ARMS, share * seconds(whole) / 60)
    assert seconds(found.plan) <= share * seconds(whole)
    return found


def test_a_plan_that_fits_stays_as_it_is() -> None:
    assert fit(1.01) == Fitted(plan(), ())


def test_repetitions_that_no_interval_needs_go_first() -> None:
    found = fit(0.51)
    assert found.left_out == ("10 of 20 repetitions",)
    assert found.plan.repetitions == 10
    assert found.plan.suite == plan().suite


@pytest.mark.parametrize(
    ("confidence", "budget", "least"),
    [
        ("", "", 6),
        ("confidence = 0.99", "", 8),
        ("", "[budget]\nrepetitions = 64\nclaims = true", 8),
        ("confidence = 0.99", "[budget]\nrepetitions = 64\nclaims = true", 11),
    ],
)
def test_as_many_repetitions_stay_as_the_requirements_need(confidence: str, budget: str, least: int) -> None:
    """Judged as they are: by a sign test, or at any time where repetitions are added, with their own confidence."""
    measure = 'suite = "timing"\nmeasure = "sleep_lateness.p50"\nunit = "us"\nat_most = 100'
    whole = plan(f"[[require]]\n{measure}\n{confidence}\n{budget}\n")
    in_time, too_few = (
        fitted(whole, SOURCE, ARMS, 1.001 * seconds(whole.model_copy(update={"repetitions": number})) / 60)
        for number in (least, least - 1)
    )
    assert in_time.left_out == (f"{20 - least} of 20 repetitions",)
    assert too_few.plan.repetitions >= least
    assert "platform qemu: emulated, which decides nothing" in too_few.left_out


def test_then_platforms_that_decide_nothing_and_what_time_is_left_goes_to_repetitions() -> None:
    found = fit(0.25)
    assert [section.name for section in found.plan.platform] == ["host", "runc"]
    assert "platform qemu: emulated, which decides nothing" in found.left_out
    assert found.plan.repetitions > 6


def test_then_levels_between_the_ends_one_at_a_time() -> None:
    whole = [100, 1000, 2000, 5000, 10000]
    for share in (0.14, 0.12, 0.1):
        found = fit(share)
        kept = found.plan.suite["timing"][0]["targets_us"]
        gone = [one for one in whole if one not in kept]
        assert kept[0] == 100
        assert kept[-1] == 10000
        assert found.plan.repetitions >= 6
        assert f"suite.timing[0].targets_us = {', '.join(map(str, gone))}" in found.left_out


def test_a_line_keeps_three_points_while_another_factor_has_four() -> None:
    """A conclusion that is drawn along a factor needs three levels of it; here dropping the longer saves more."""
    text = """
repetitions = 6
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
loads = ["idle"]
timers = []
sleeps = ["usleep"]
targets_us = [1000, 100000, 200000]
[[suite.timing]]
loads = ["cpu"]
timers = []
sleeps = ["usleep"]
targets_us = [100, 1000, 2000, 10000]
"""
    whole = parse_plan(text, SOURCE)
    first, second = whole.suite["timing"]
    shorter = whole.model_copy(update={"suite": {"timing": (first, second | {"targets_us": [100, 2000, 10000]})}})
    found = fitted(whole, SOURCE, ARMS[:2], 1.0001 * seconds(shorter, ARMS[:2]) / 60)
    assert found.left_out == ("suite.timing[1].targets_us = 1000",)


def test_what_there_is_room_for_in_the_end_is_put_back() -> None:
    """A level is left out at first, and then a design that makes room for it."""
    text = TEXT.replace("max_seconds = 10\n[[suite", "max_seconds = 1\n[[suite")
    whole = parse_plan(text, SOURCE)
    without_last = whole.model_copy(
        update={"repetitions": 6, "platform": whole.platform[:2], "suite": {"timing": whole.suite["timing"][:1]}}
    )
    found = fitted(whole, SOURCE, ARMS, 1.001 * seconds(without_last) / 60)
    assert found.plan.suite["timing"][0]["targets_us"] == [100, 1000, 2000, 5000, 10000]
    assert [one.partition(" (")[0] for one in found.left_out][-1] == "suite.timing[1]"


def test_what_decides_is_put_back_before_what_does_not() -> None:
    """Once the design has gone there is room for the emulated platform or for the level of those that decide."""
    whole = parse_plan(
        TEXT.replace("repetitions = 20", "repetitions = 6")
        .replace("targets_us = [1000]", "targets_us = [100000]")
        .replace("[100, 1000, 2000, 5000, 10000]", "[100, 1000, 10000]")
        .rpartition("max_seconds")[0]
        + "max_seconds = 100",
        SOURCE,
    )
    first = whole.suite["timing"][0]

    def without_design(platforms: int, targets_us: list[int]) -> float:
        suite = {"timing": (first | {"targets_us": targets_us},)}
        return seconds(whole.model_copy(update={"platform": whole.platform[:platforms], "suite": suite}))

    decides, emulated = without_design(2, [100, 1000, 10000]), without_design(3, [100, 10000])
    found = fitted(whole, SOURCE, ARMS, 1.001 * max(decides, emulated) / 60)
    assert [one.partition(" (")[0] for one in found.left_out] == [
        "platform qemu: emulated, which decides nothing",
        "suite.timing[1]",
    ]


def test_then_designs_from_the_last() -> None:
    least = min(share for share in (0.07, 0.065, 0.06, 0.055, 0.05, 0.045) if _fits(share))
    found = fit(least)
    assert len(found.plan.suite["timing"]) == 1
    assert any(words.startswith("suite.timing[1]") for words in found.left_out)


def _fits(share: float) -> bool:
    try:
        fit(share)
    except UsageError:
        return False
    return True


def test_what_cannot_fit_is_refused_with_the_least_that_would_do() -> None:
    with pytest.raises(UsageError) as caught:
        fitted(plan(), SOURCE, ARMS, 0.01)
    assert "--minutes 0.01" in str(caught.value)
    assert caught.value.remedy
    needed = float(caught.value.remedy.split()[1])
    assert fitted(plan(), SOURCE, ARMS, needed).plan.repetitions >= 6


def test_conclusions_keep_the_repetitions_that_their_looks_need_and_get_no_more_than_the_time() -> None:
    budget = "[budget]\nrepetitions = 40\nclaims = true\n"
    found, whole = fit(0.4, budget), plan(budget)
    assert found.plan.budget is not None
    assert whole.budget is not None
    asked = whole.budget.claims_confidence(whole.confidence, whole.repetitions)
    assert 1 - 2 ** (1 - found.plan.repetitions) >= asked
    assert found.plan.budget.minutes == pytest.approx(0.4 * seconds(whole) / 60)


def test_designs_go_from_the_suite_whose_last_one_takes_longest() -> None:
    text = (
        TEXT.replace("targets_us = [100, 1000, 2000, 5000, 10000]", "targets_us = [100, 10000]")
        + """
[[suite.isolation]]
benchmarks = ["integer"]
policies = ["none"]
[[suite.isolation]]
benchmarks = ["floating"]
policies = ["none"]
seconds = 60
"""
    )
    whole = parse_plan(text, SOURCE)
    found = fitted(whole, SOURCE, ARMS, 0.05 * seconds(whole) / 60)
    assert [words for words in found.left_out if words.startswith("suite.")] == [
        "suite.isolation[1] (benchmarks floating; policies none)"
    ]


def test_what_a_requirement_needs_stays() -> None:
    requirement = """[[require]]
suite = "timing"
measure = "sleep_lateness.p50"
at_most = 1
unit = "ms"
conditions = { target_ns = "1000000" }
"""
    found = fit(0.15, requirement)
    assert 1000 in [*found.plan.suite["timing"][0]["targets_us"], *found.plan.suite["timing"][-1]["targets_us"]]
    assert check_plan(found.plan, SOURCE).requirements


def test_platforms_that_cannot_be_used_take_no_time() -> None:
    absent = [*ARMS[:3], arm_record("qemu", "qemu", "QEMU", emulated=True, usable=False)]
    assert seconds(plan(), absent) < 0.7 * seconds(plan())


def test_a_plan_is_told_by_what_others_of_its_kind_took(no_costs: Path) -> None:
    """What was measured once tells of other levels of the suite on the kind of platform, within a factor of 1.5."""
    slow, bench_s = {"host": 2.0, "host-aa": 2.0, "runc": 3.0, "qemu": 9.0}, 4.0
    earlier = plan()
    met = {arm.name: arm for arm in ARMS}
    clock = duration_of(earlier, check_plan(earlier, SOURCE), ARMS)
    assert "a guess by the plan's settings: of 100% of the trials" in str(clock)
    run(earlier, RemainingTime(met, RememberedCosts(no_costs)), slow, bench_s)
    other = parse_plan(TEXT.replace("sleep_samples = 1000", "sleep_samples = 300").replace("5000", "7000"), SOURCE)
    told = duration_of(other, check_plan(other, SOURCE), ARMS)
    took = run(other, RemainingTime(met, RememberedCosts(None)), slow, bench_s)
    assert max(told.expected / took, took / told.expected) < 1.5
    assert "by what others of their kind took on this machine before" in str(told)
    assert "as its parts took on this machine before" in str(duration_of(earlier, check_plan(earlier, SOURCE), ARMS))


def test_a_plan_that_could_measure_nothing_fits_no_time() -> None:
    """Its design is for no emulated processor, and the only other platform is one."""
    text = TEXT.replace('loads = ["idle"]', 'loads = ["idle"]\nplatforms = ["qemu"]').replace(
        'loads = ["cpu"]', 'loads = ["cpu"]\nplatforms = ["qemu"]'
    )
    with pytest.raises(UsageError):
        fitted(parse_plan(text, SOURCE), SOURCE, ARMS, 0.2)


def test_a_time_too_short_for_what_is_required_is_the_times_fault() -> None:
    requirement = """[[require]]
suite = "timing"
measure = "sleep_lateness.p50"
at_most = 1
unit = "ms"
conditions = { target_ns = ["1000000", "2000000"] }
"""
    with pytest.raises(UsageError, match=r"--minutes 0\.5: the least of"):
        fitted(plan(requirement), SOURCE, ARMS, 0.5)


def test_a_run_of_invented_machines_takes_no_time() -> None:
    text = """
[[platform]]
name = "host"
kind = "simulated"
[[suite.timing]]
loads = ["idle"]
"""
    invented = parse_plan(text, SOURCE)
    arms = [arm_record("host", "simulated", "Simulated", "reference")]
    clock = duration_of(invented, check_plan(invented, SOURCE), arms)
    assert clock.expected < 5
    assert "invented machines" in str(clock)


def test_a_run_that_failed_says_little_of_how_long_the_next_takes(no_costs: Path) -> None:
    """Its trials ended at once, and were tried three times each."""
    met, cells = {arm.name: arm for arm in ARMS}, check_plan(plan(), SOURCE).cells
    before = duration_of(plan(), check_plan(plan(), SOURCE), ARMS).expected
    clock = RemainingTime(met, RememberedCosts(no_costs))
    for arm in met:
        clock.expect(arm, "plain", cells)
        clock.launched(arm, "plain", 0.5)
        for cell, attempt in ((cell, attempt) for cell in cells for attempt in (1, 2, 3)):
            clock.trial(arm, cell, 0.01, over=attempt == 3, failed=True)
        clock.closed(arm, "plain", 0.5)
        clock.over(arm, "plain")
    clock.keep()
    after = duration_of(plan(), check_plan(plan(), SOURCE), ARMS).expected
    assert 0.8 < after / before < 1.35


def run(of: Plan, clock: RemainingTime, slow: dict[str, float], bench_s: float) -> float:
    """What a run takes whose trials take so many times what its plan declares."""
    took = 0.0
    cells = check_plan(of, SOURCE).cells
    for _ in range(of.repetitions):
        for arm, times in slow.items():
            clock.expect(arm, "plain", cells)
            clock.launched(arm, "plain", bench_s)
            for cell in cells:
                clock.trial(arm, cell, times * cell.expected_s, over=True)
                took += times * cell.expected_s
            clock.closed(arm, "plain", bench_s)
            clock.over(arm, "plain")
            took += bench_s
    clock.keep()
    return took


@pytest.mark.parametrize("kvm", [False, True])
@pytest.mark.parametrize("name", ["timing-2019", "bandwidth-2019", "storage-2012", "isolation-2014"])
def test_the_papers_designs_take_an_afternoon(name: str, kvm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hours on two cores for the repetitions that each has anyhow, of a machine without governors."""
    monkeypatch.setattr("virtgauge.suites.isolation.settings.allowed_cpus", lambda: (0, 1))
    monkeypatch.setattr("virtgauge.suites.isolation.suite.missing_governor", lambda name: UnavailableError(name, ""))
    monkeypatch.setattr("virtgauge.suites.bandwidth.suite.lack_of_rights", lambda *_: None)
    monkeypatch.setattr("virtgauge.suites.storage.suite.lack_of_rights", lambda *_: None)
    design, source = load_plan(name)
    arms = [
        arm_record(one.name, one.kind, one.name, settings=dict(one.settings), emulated=one.kind == "qemu" and not kvm)
        for one in design.platform
        if one.kind not in ("xen", "libvirt")
    ]
    assert duration_of(design, check_plan(design, source), [*arms, ARMS[1]]).expected <= 2 * 3600


@pytest.mark.parametrize(("preset", "emulated"), [("realtime-advice", True), ("storage-practice", False)])
def test_a_preset_of_half_an_hour_takes_no_longer_on_all_its_platforms(preset: str, emulated: bool) -> None:
    """``emulated``: with emulated guests, too."""
    of, source = load_plan(preset)
    guests = [
        arm_record(one.name, one.kind, one.name, emulated=emulated and one.kind == "qemu") for one in of.platform[1:]
    ]
    assert duration_of(of, check_plan(of, source), [*ARMS[:2], *guests]).expected <= 30 * 60
