"""Hosts as a factor: the truth of a synthetic fleet comes out of the report, host by host."""

import dataclasses
import io

import pytest
from rich.console import Console
from synthetic import SyntheticArm, arm_record, cells, synthetic_ledger

from virtgauge import report
from virtgauge.ledger.read_only import HostLedger
from virtgauge.ledger.records import BLOCKS_PER_HOST, ONE_MACHINE, HostRecord
from virtgauge.ledger.store import Ledger
from virtgauge.report.hosts import _test
from virtgauge.specs.blocks import Chart

pytestmark = pytest.mark.slow

REPETITIONS = 8
SCRIPT = "<script>alert(1)</script>"


def host(name, index, arms=("host", "host-aa", "gvisor")):
    identity = {"identity": {"cpu_model": f"CPU of {name}", "kernel_release": "6.1.0"}}
    return HostRecord(name, index, identity, {"machine_id": None, "boot_id": name, "product_uuid": None}, arms)


def write_fleet(folder, names, factors, speeds=(1.0, 1.0), repetitions=REPETITIONS):
    """A fleet whose platform costs these factors on its hosts, each host of its own speed."""
    records = [host(name, index) for index, name in enumerate(names)]
    whole = None
    for record, factor, speed in zip(records, factors, speeds, strict=True):
        arms = [
            SyntheticArm(arm_record("host", "host", "Host", "reference"), speed),
            SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa"), speed),
            SyntheticArm(arm_record("gvisor", "oci", "gVisor"), speed * factor),
        ]
        design = list(cells(timers=("rdtsc",), sleeps=(), loads=("idle",)))
        part = synthetic_ledger(folder / f"part-{record.index}", arms, repetitions, design, seed=record.index)
        with part:
            if whole is None:
                manifest = dataclasses.replace(part.manifest(), hosts=tuple(records))
                whole = Ledger.create(folder / "run", manifest)
                whole.add_event("started", "2 hosts")
            for trial in part.trials():
                block = record.first_block + trial.block
                moved = dataclasses.replace(
                    trial, block=block, guest_id=None, key=trial.key.replace(f"b{trial.block:04d}", f"b{block:04d}")
                )
                whole.add_trial(moved, part.histograms_of(trial.trial_id))
    whole.add_event("completed", "")
    return whole


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    """On north the platform costs half as much again, on south three times as much; south is twice as slow."""
    with write_fleet(tmp_path_factory.mktemp("unlike"), ("north", "south"), (1.5, 3.0), (1.0, 2.0)) as ledger:
        yield ledger


def charts(findings):
    return [one for one in findings.section.blocks if isinstance(one, Chart)]


def row_of(findings, arm):
    (row,) = [row for row in findings.rows if row.arm.name == arm and row.measure.name == "timer_cost.p50"]
    return row


def test_each_host_has_its_own_ratio_to_its_own_reference(unlike):
    findings = report.build(unlike).hosts
    ratios = row_of(findings, "gvisor").ratios
    assert ratios["north"].point == pytest.approx(1.5, rel=0.05)
    assert ratios["south"].point == pytest.approx(3.0, rel=0.05)
    reference = row_of(findings, "host")
    assert reference.estimates["south"].point == pytest.approx(2 * reference.estimates["north"].point, rel=0.05)
    assert reference.ratios == {}


def test_the_figure_of_hosts_draws_every_ratio_and_none_of_the_reference(unlike):
    (chart,) = charts(report.build(unlike).hosts)
    assert [panel.title for panel in chart.panels] == ["timing.timer_cost.p50", "timing.timer_cost.p99"]
    rows = chart.panels[0].rows
    drawn = {(row["category"], row["arm"]): row["x"] for row in rows}
    assert drawn.keys() == {(host, arm) for host in ("north", "south") for arm in ("host-aa", "gvisor")}
    assert drawn["south", "gvisor"] == pytest.approx(3.0, rel=0.05)
    assert all(row["low"] <= row["x"] <= row["high"] for row in rows)


def test_one_host_alone_has_no_figure(unlike):
    findings = report.build(unlike).hosts
    assert charts(dataclasses.replace(findings, hosts=findings.hosts[:1])) == []


def test_hosts_that_differ_are_said_to_and_a_slower_host_alone_is_no_difference(unlike):
    findings = report.build(unlike).hosts
    assert row_of(findings, "gvisor").test.differ is True
    assert row_of(findings, "host-aa").test.differ is False  # although south is twice as slow
    assert {row.arm.name for row in findings.differing} == {"gvisor"}


def test_hosts_that_are_alike_are_not_told_apart(unlike, tmp_path):
    with write_fleet(tmp_path, ("north", "south"), (1.5, 1.5), (1.0, 2.0)) as ledger:
        alike = report.build(ledger)
    assert alike.hosts.tested > 0
    assert alike.hosts.differing == ()
    assert not any("Hosts differ" in caveat for caveat in alike.caveats)
    assert any("Hosts differ" in caveat for caveat in report.build(unlike).caveats)


def test_two_hosts_of_few_repetitions_differ_by_no_less_than_the_exact_p() -> None:
    """χ² has 4.3 % for these ranks, of which 4 in 70 orders are as far apart."""
    groups = [[(value, 1.0) for value in host] for host in ((1.0, 2.0, 3.0, 5.0), (4.0, 6.0, 7.0, 8.0))]
    assert _test(groups, 0.05).p == pytest.approx(4 / 70)


def test_too_few_repetitions_are_said_to_be_too_few(tmp_path):
    with write_fleet(tmp_path, ("north", "south"), (1.0, 9.0), repetitions=2) as ledger:
        test = row_of(report.build(ledger).hosts, "gvisor").test
    assert test.differ is None
    assert "too few repetitions" in test.reason


def test_all_hosts_stand_together_everywhere_else_and_each_can_be_had_alone(unlike):
    assert report.build(unlike).blocks == 2 * REPETITIONS
    with HostLedger.of(unlike.folder, "south") as ledger:
        alone = report.build(ledger)
    assert alone.hosts is None
    assert alone.blocks == REPETITIONS
    assert alone.run.fingerprint["identity"]["cpu_model"] == "CPU of south"
    assert {trial.block // BLOCKS_PER_HOST for trial in alone.trials} == {1}


def test_page_terminal_and_json_show_the_hosts(unlike):
    built = report.build(unlike)
    page = report.render_html(built)
    assert '<section id="hosts">' in page
    assert "CPU of south" in page
    shown = io.StringIO()
    report.render_text(built, Console(file=shown, width=160))
    assert "2 hosts; they differ in" in shown.getvalue()
    assert {host.name for host in built.hosts.hosts} == {"north", "south"}


def test_the_run_of_one_host_has_no_such_section(tmp_path):
    with synthetic_ledger(tmp_path / "run", blocks=2, design=list(cells(timers=("rdtsc",), sleeps=()))) as ledger:
        built = report.build(ledger)
    assert built.hosts is None
    assert '<section id="hosts">' not in report.render_html(built)


def test_a_host_that_is_called_a_script_runs_none_and_steers_no_terminal(tmp_path):
    with write_fleet(tmp_path, (SCRIPT, "south\x1b[2J"), (1.0, 3.0)) as ledger:
        built = report.build(ledger)
    page = report.render_html(built)
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)" in page
    shown = io.StringIO()
    report.render_text(built, Console(file=shown, width=200))
    assert "\x1b" not in shown.getvalue()


def test_a_fleet_tried_on_one_machine_says_so_first(unlike, tmp_path):
    with write_fleet(tmp_path, ("north", "south"), (1.0, 1.0)) as ledger:
        ledger.add_event(ONE_MACHINE, "a try")
        assert any("tried on one machine" in caveat for caveat in report.build(ledger).caveats)
    assert not any("tried on one machine" in caveat for caveat in report.build(unlike).caveats)
