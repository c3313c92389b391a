"""Imported trials: recorded once, all of an import or nothing, and reported, exported and compared like others."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from exported_runs import exported
from shown import value
from suites.simulated_runs import execute, plan_of, report_of, simulated
from typer.testing import CliRunner

from virtgauge import cli, report
from virtgauge.errors import UsageError
from virtgauge.exchange import Format
from virtgauge.exchange.imports.foreign_trial import histogram_of_bins
from virtgauge.exchange.imports.latencies import LATENCIES
from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions
from virtgauge.ledger import files
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES, find_measure

DATA = Path(__file__).parents[1] / "data"
RANDREAD, MIXED = DATA / "fio-3.33-randread.json", DATA / "fio-3.33-mixed.json"
IOPS = find_measure("imported", "fio.iops")


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(cli.app, [str(a) for a in arguments])


def fio_file(path, iops, name="randread"):
    """A real output with another rate."""
    document = json.loads(RANDREAD.read_text())
    document["jobs"][0]["read"]["iops"] = iops
    document["jobs"][0]["jobname"] = name
    path.write_text(json.dumps(document))
    return path


def trials_of(folder):
    with Ledger.open(folder) as ledger:
        return ledger.trials()


@pytest.fixture
def run(tmp_path):
    """Six repetitions of two platforms and the A/A arm, the second platform at half the rate."""
    folder = tmp_path / "run"
    for arm, rate in (("host", 1000), ("host-aa", 1000.5), ("guest", 500)):
        paths = [fio_file(tmp_path / f"{arm}-{number}.json", rate + number) for number in range(6)]
        import_into(folder, read_repetitions("fio", paths), ImportedArm(arm), {}, new=arm == "host")
    return folder


def test_repetitions_are_the_files_in_their_order(run):
    found = [(trial.arm, trial.block, trial.result["iops"]) for trial in trials_of(run)]
    assert found[:6] == [("host", number, 1000 + number) for number in range(6)]
    with Ledger.open(run) as ledger:
        assert {arm.name: arm.role for arm in ledger.manifest().arms} == {
            "host": "reference",
            "host-aa": "aa",
            "guest": "test",
        }


def test_a_report_sets_imported_figures_beside_the_reference(run):
    built = report_of(run)
    assert value(built, "imported", "fio.iops", "host").estimate.point == 1002.5
    comparison = value(built, "imported", "fio.iops", "guest").compared
    assert comparison.ratio.point == pytest.approx(0.501, abs=0.001)
    assert comparison.distinguishable
    assert value(built, "imported", "fio.iops", "host-aa").compared.distinguishable is False
    assert built.finished
    (said,) = [one.text for one in built.suite("imported").headlines if one.arm == "guest"]
    assert "fio.iops 502 op/s" in said
    assert "0.50× host" in said


def test_the_page_and_the_json_form_hold_them(run):
    built = report_of(run)
    page = report.render_html(built)
    assert "Imported results" in page
    assert "host-0.json" in page
    assert [suite.suite for suite in built.suites] == ["imported"]


def test_they_are_exported_like_others(run, tmp_path):
    with exported(run, Format.CSV, tmp_path / "t.csv", ("imported.fio.iops",)).open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert [float(row["value"]) for row in rows if row["arm"] == "guest"] == [500 + number for number in range(6)]
    assert exported(run, Format.HDR, tmp_path / "h").read_text().count("Tag=guest/imported/fio/clat") == 6


def test_a_file_is_imported_once(run, tmp_path):
    known = trials_of(run)
    again = fio_file(tmp_path / "renamed.json", 1003)
    with pytest.raises(UsageError, match="imported before, as repetition 3 of host"):
        import_into(run, read_repetitions("fio", [again]), ImportedArm("guest"), {"disk": "other"})
    assert trials_of(run) == known


def test_a_file_counts_once_within_an_import(tmp_path):
    again = tmp_path / "again.json"
    again.write_bytes(MIXED.read_bytes())
    with pytest.raises(UsageError, match=r"again\.json is the same file as fio-3\.33-mixed\.json"):
        read_repetitions("fio", [MIXED, again])


def test_a_block_that_is_taken_is_refused_and_another_condition_is_another_cell(run, tmp_path):
    path = fio_file(tmp_path / "more.json", 777)
    known = trials_of(run)
    with pytest.raises(UsageError, match="--block 2: host has a trial of it already"):
        import_into(run, read_repetitions("fio", [path]), ImportedArm("host"), {}, block=2)
    assert trials_of(run) == known
    assert import_into(run, read_repetitions("fio", [path]), ImportedArm("host"), {"disk": "nvme"}, block=2) == 1
    assert trials_of(run)[-1].factors["disk"] == "nvme"


def test_raw_values_of_a_trial_that_never_ended_are_not_taken_for_an_imported_ones(run, tmp_path):
    with Ledger.open(run) as ledger:
        left = ledger.samples_path(len(ledger.trials()) + 1)
    files.write_raw_values(left, {"reservoir": np.arange(3)})  # and then it was killed
    import_into(run, read_repetitions("fio", [fio_file(tmp_path / "more.json", 777)]), ImportedArm("host"), {})
    with Ledger.open(run) as ledger:
        assert ledger.samples_of(ledger.trials()[-1].trial_id) == {}


def test_what_no_ledger_can_hold_is_refused_before_there_is_a_run(tmp_path):
    document = json.loads(RANDREAD.read_text())
    (tmp_path / "odd.json").write_text(json.dumps(document))
    repetitions = read_repetitions("fio", [tmp_path / "odd.json"])
    for trial in repetitions[0].trials:
        odd = histogram_of_bins({2**61: 1}, "ns", 2**61, 2**61, 2.0**61)
        trial.histograms.update(dict.fromkeys(trial.histograms, odd))
    refusal = r"odd\.json: what it says of fio cannot be recorded: a value is 2305843009213693952 'ns'; nothing was"
    with pytest.raises(UsageError, match=refusal):
        import_into(tmp_path / "run", repetitions, ImportedArm("host"), {}, new=True)
    assert not (tmp_path / "run").exists()
    document["jobs"][0]["read"]["total_ios"] = 2**63
    (tmp_path / "odd.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"odd\.json: jobs\.0\.read\.total_ios = 9223372036854775808"):
        read_repetitions("fio", [tmp_path / "odd.json"])


def test_an_import_is_recorded_whole_or_not_at_all(run, tmp_path, monkeypatch):
    paths = [fio_file(tmp_path / f"late-{number}.json", 1 + number) for number in range(3)]
    added, add_trial = [], Ledger.add_trial

    def failing(ledger, *arguments):
        added.append(arguments)
        if len(added) == 3:
            raise OSError("no space left on device")
        return add_trial(ledger, *arguments)

    known = trials_of(run)
    monkeypatch.setattr(Ledger, "add_trial", failing)
    with pytest.raises(Exception, match="no space left"):
        import_into(run, read_repetitions("fio", paths), ImportedArm("new-arm"), {})
    assert trials_of(run) == known
    with Ledger.open(run) as ledger:
        assert "new-arm" not in [arm.name for arm in ledger.manifest().arms]
    added.clear()
    with pytest.raises(Exception, match="no space left"):
        import_into(tmp_path / "new", read_repetitions("fio", paths), ImportedArm("new-arm"), {}, new=True)
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"samples", "controller.lock"}


@pytest.mark.parametrize("text", ["rw=randread", "Disk=x", "disk=", "disk", "a=1 a=2", "disk=\x1b[31m"])
def test_a_condition_that_cannot_be_one_is_refused_before_there_is_a_run(invoke, tmp_path, text):
    options = [word for one in text.split() for word in ("--condition", one)]
    result = invoke("import", "fio", RANDREAD, "--new", tmp_path / "r", "--arm", "host", *options)
    assert isinstance(result.exception, UsageError)
    assert "--condition" in str(result.exception)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("name", ["", "a b", "<script>", "x" * 41, "guest-aa"])
def test_an_arm_is_named_like_a_platform_of_a_plan(tmp_path, name):
    with pytest.raises(UsageError, match="--arm"):
        import_into(tmp_path / "r", read_repetitions("fio", [RANDREAD]), ImportedArm(name), {}, new=True)
    assert not (tmp_path / "r").exists()


def test_a_malformed_file_leaves_nothing_behind(invoke, tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    result = invoke("import", "fio", RANDREAD, tmp_path / "bad.json", "--new", tmp_path / "r", "--arm", "host")
    assert "bad.json: fio version is missing" in str(result.exception)
    assert not (tmp_path / "r").exists()


def test_one_of_into_and_new_is_needed(invoke, tmp_path):
    for options in ([], ["--into", tmp_path / "a", "--new", tmp_path / "b"]):
        result = invoke("import", "fio", RANDREAD, "--arm", "host", *options)
        assert "either --into RUN or --new FOLDER" in str(result.exception)
    invoke("import", "fio", RANDREAD, "--new", tmp_path / "r", "--arm", "host")
    result = invoke("import", "fio", MIXED, "--new", tmp_path / "r", "--arm", "host")
    assert "already holds a run" in str(result.exception)


def test_a_measured_run_takes_imports_on_its_own_platforms_only(tmp_path, private_state, any_agent):
    execute(plan_of(simulated("one"), simulated("two", seed=2)), tmp_path / "run")
    repetitions = read_repetitions("fio", [MIXED])
    with pytest.raises(UsageError, match="has no such platform") as refusal:
        import_into(tmp_path / "run", repetitions, ImportedArm("three"), {})
    assert "use one of one, two" in str(refusal.value)
    assert import_into(tmp_path / "run", repetitions, ImportedArm("two"), {}) == 2
    built = report_of(tmp_path / "run")
    assert [suite.suite for suite in built.suites] == ["timing", "imported"]
    assert {trial.platform for trial in trials_of(tmp_path / "run")} == {"simulated"}
    result = CliRunner().invoke(
        cli.app, ["import", "fio", str(RANDREAD), "--into", str(tmp_path / "run"), "--arm", "two", "--label", "Two"]
    )
    assert "has it already" in str(result.exception)


def test_a_failed_job_is_a_failed_trial_and_no_figure(tmp_path):
    document = json.loads(RANDREAD.read_text())
    document["jobs"][0]["error"] = 28
    (tmp_path / "f.json").write_text(json.dumps(document))
    import_into(tmp_path / "r", read_repetitions("fio", [tmp_path / "f.json"]), ImportedArm("host"), {}, new=True)
    (trial,) = trials_of(tmp_path / "r")
    assert trial.status is TrialStatus.FAILED
    with Ledger.open(tmp_path / "r") as ledger:
        table = ResultTable(ledger)
        (cell,) = table.cells()
        assert table.values(IOPS, cell, "host") == {}
    assert "error 28" in report_of(tmp_path / "r").suite("imported").headlines[0].text


def test_names_of_foreign_files_run_no_script(tmp_path):
    hostile = "<img src=x onerror=alert(1)>"
    path = fio_file(tmp_path / f"{hostile.replace('/', '')}.json", 5.0, name=f"{hostile}\x1b[31m")
    repetitions = read_repetitions("fio", [path])
    import_into(tmp_path / "r", repetitions, ImportedArm("host", label=hostile), {"disk": hostile}, new=True)
    page = report.render_html(report_of(tmp_path / "r"))
    assert hostile not in page
    assert "&lt;img src=x" in page


REQUIRED = """
[[require]]
name = "enough operations"
suite = "imported"
measure = "fio.iops"
at_least = 0.9
unit = "kop/s"
"""


def test_they_can_be_required(invoke, tmp_path):
    (tmp_path / "required.toml").write_text(REQUIRED)
    for arm, rate in (("host", 1000), ("guest", 500)):
        paths = [fio_file(tmp_path / f"{arm}-{number}.json", rate + number) for number in range(6)]
        options = ["--new", tmp_path / "r", "--require", tmp_path / "required.toml"]
        options = options if arm == "host" else ["--into", tmp_path / "r"]
        assert invoke("import", "fio", *paths, *options, "--arm", arm).exit_code == 0
    verdict = invoke("verdict", tmp_path / "r", "--json")
    assert verdict.exit_code == 4
    outcomes = {one["arm"]: one["outcome"] for one in json.loads(verdict.stdout)["verdicts"]}
    assert outcomes == {"host": "pass", "guest": "fail"}
    junit = exported(tmp_path / "r", Format.JUNIT, tmp_path / "r.xml").read_text()
    assert 'name="enough operations"' in junit
    assert junit.count("<failure") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("imported", "timing"), "suite = 'timing'"),
        (("fio.iops", "fio.speed"), "no such measure"),
        (("kop/s", "ms"), "unit = 'ms'"),
        (("at_least = 0.9", ""), "needs a bound"),
        (('unit = "kop/s"', 'unit = "kop/s"\nplatforms = ["x"]'), "leave it out"),
        (("[[require]]", "[[required]]"), "unknown field"),
        (("[[require]]", "[[require"), "--require"),
    ],
)
def test_requirements_that_no_import_could_meet_are_refused_before_there_is_a_run(invoke, tmp_path, change, words):
    (tmp_path / "required.toml").write_text(REQUIRED.replace(*change))
    options = ["--new", tmp_path / "r", "--require", tmp_path / "required.toml"]
    result = invoke("import", "fio", RANDREAD, *options, "--arm", "host")
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert not (tmp_path / "r").exists()


def test_every_imported_measure_is_of_one_tool():
    tools = {"fio", "pgbench", "trex", *LATENCIES}
    assert {measure.name.split(".")[0] for measure in MEASURES["imported"].values()} == tools
    assert all({measure.name.split(".")[0]} == measure.probes for measure in MEASURES["imported"].values())
