"""What becomes of a fleet's results: each host's for itself, in the archive and in verdicts."""

import io

import msgpack
import pytest
from fleet_runs import FakeCluster, execute, fleet_plan, in_process, lost
from rich.console import Console
from suites.simulated_runs import report_of
from typer.testing import CliRunner

from virtgauge.analysis.bounds import Outcome
from virtgauge.console import fleet
from virtgauge.console.fleet import app
from virtgauge.errors import ExitCode, VirtgaugeError
from virtgauge.exchange import archive
from virtgauge.exchange.archive import ArchiveWriteError
from virtgauge.exchange.archive_series import find_archive_series
from virtgauge.exchange.entries import read_entries
from virtgauge.exchange.place import open_place
from virtgauge.report.page import render_html
from virtgauge.report.requirements import hosts_text, print_decisions
from virtgauge.specs.suites import find_measure

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch, private_state, any_agent):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def command(cluster, *words):
    """``virtgauge fleet …`` on that cluster."""
    with in_process(cluster):
        return CliRunner().invoke(app, [*map(str, words), "--quiet"])


def test_a_complete_run_goes_straight_into_the_archive_and_each_host_has_series_of_its_own(tmp_path):
    (tmp_path / "plan.toml").write_text(fleet_plan("north", "south").to_toml())
    place_of = tmp_path / "archive"
    cluster = FakeCluster()
    cluster.faults = {"south": [None, *[lost] * 9]}
    begun = command(cluster, "run", tmp_path / "plan.toml", "--out", tmp_path / "run", "--archive", place_of)
    assert begun.exit_code == ExitCode.FAILED
    assert not place_of.exists()  # not while a host's part is missing

    done = command(FakeCluster(), "resume", tmp_path / "run", "--archive", place_of)
    assert done.exit_code == ExitCode.OK, done.output
    assert "archived (16 trials as run" in done.stderr
    place = open_place(str(place_of))
    (entry,) = read_entries(place)
    assert entry.trials == 16
    found = find_archive_series(place, [find_measure("timing", "timer_cost.p50")], 0.05)
    assert set(found.hosts) == {"north", "south"}
    assert len(found.series) == 2 * 2 * 2  # hosts, platforms, cells


def test_an_archive_that_refuses_a_run_costs_neither_report_nor_verdict(tmp_path, monkeypatch):
    def refuse(place, _):
        raise ArchiveWriteError(place, OSError(28, "No space left on device"))

    monkeypatch.setattr(archive, "archive_run", refuse)
    never = {"suite": "timing", "measure": "timer_cost.p50", "unit": "ns", "at_most": 1e-3}
    for name, require, code in (("met", [], ExitCode.FAILED), ("failed", [never], ExitCode.NOT_MET)):
        plan = tmp_path / f"{name}.toml"
        plan.write_text(fleet_plan("north", require=require, repetitions=8).to_toml())
        done = command(FakeCluster(), "run", plan, "--out", tmp_path / name, "--archive", tmp_path / "archive")
        assert done.exit_code == code, done.output
        assert "No space left on device" in done.stderr
        assert (tmp_path / name / "report.html").exists()


def test_a_complete_run_without_a_valid_trial_is_archived_too(tmp_path, monkeypatch):
    def finish(*_):
        raise VirtgaugeError("not a single trial is valid")

    monkeypatch.setattr(fleet, "finish", finish)
    (tmp_path / "plan.toml").write_text(fleet_plan("north").to_toml())
    words = ["run", tmp_path / "plan.toml", "--out", tmp_path / "run", "--archive", tmp_path / "archive"]
    assert isinstance(command(FakeCluster(), *words).exception, VirtgaugeError)
    assert len(read_entries(open_place(str(tmp_path / "archive")))) == 1


def test_an_object_store_that_is_not_there_is_told_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTGAUGE_S3_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (tmp_path / "plan.toml").write_text(fleet_plan("north").to_toml())
    cluster = FakeCluster()
    run = command(cluster, "run", tmp_path / "plan.toml", "--out", tmp_path / "run", "--archive", "s3://bucket/runs")
    assert isinstance(run.exception, ArchiveWriteError)
    assert cluster.measured == [] and not (tmp_path / "run").exists()


def test_a_place_that_can_be_no_archive_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "plan.toml").write_text(fleet_plan("north").to_toml())
    cluster = FakeCluster()
    run = command(cluster, "run", tmp_path / "plan.toml", "--out", tmp_path / "run", "--archive", "ftp://somewhere")
    assert "ftp://somewhere: is no place for an archive" in str(run.exception)
    assert not (tmp_path / "run").exists()


SOAK = {"suite": "timing", "measure": "cycle.max", "at_most": 120, "unit": "us", "during": "30 min"}
CALM, STALLING = "median_ns = 50000.0", "median_ns = 50000.0\nstall_probability = 0.0002\nstall_ns = 25000000.0"


class OneStalls(FakeCluster):
    """One of the hosts has cycles that are 25 ms late, one of 5000 of them."""

    def __init__(self, host):
        super().__init__()
        self.host = host

    async def call(self, worker, request):
        if worker == self.host:
            message = msgpack.unpackb(request)
            if "plan_text" in message["content"]:
                assert CALM in message["content"]["plan_text"]
                message["content"]["plan_text"] = message["content"]["plan_text"].replace(CALM, STALLING)
                request = msgpack.packb(message)
        return await super().call(worker, request)


@pytest.fixture(scope="module")
def soaked(simulated_machine):
    """The report of a soak on three hosts, each of which watches 40 minutes; one of them stalls."""
    design = {"timers": [], "sleeps": [], "cycles": {"periods_us": [10_000], "seconds": 200, "worst": 50}}
    plan = fleet_plan("north", "south", "west", design=design, repetitions=12, require=[SOAK])
    calm = [one.model_copy(update={"truth": {"*": {"median_ns": 5e4, "guest_sigma": 0.0}}}) for one in plan.platform]
    plan = plan.model_copy(update={"platform": tuple(calm)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(simulated_machine / "cache"))
        assert execute(plan, simulated_machine / "run", OneStalls("south")).complete
    return report_of(simulated_machine / "run")


def test_a_soak_is_judged_on_each_host_by_its_own_hours_and_one_bad_host_fails_it(soaked):
    for verdict in soaked.decisions.verdicts:
        assert verdict.outcome is Outcome.FAIL
        assert verdict.decisive.host == "south"
        by_host = {cell.host: cell for cell in verdict.cells}
        assert {host: cell.outcome for host, cell in by_host.items()} == {
            "north": Outcome.PASS,
            "south": Outcome.FAIL,
            "west": Outcome.PASS,
        }
        for host in ("north", "west"):
            assert "nothing beyond the bound in T = 40 min watched" in by_host[host].reason
            assert len(by_host[host].trials) == 12
        assert hosts_text(verdict) == "not met on south; met on north, west"


def test_the_report_says_of_a_soak_on_which_hosts_it_is_met(soaked):
    console = Console(record=True, width=400, file=io.StringIO())
    print_decisions(soaked.decisions, {}, console)
    assert console.export_text().count("not met on south; met on north, west") == 2  # platforms
    assert "not met on south; met on north, west" in render_html(soaked)
