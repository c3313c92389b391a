"""The storage suite through the whole pipeline: what the simulated database was told to be is what the ledger says."""

from __future__ import annotations

import json
import math

import pytest
from suites.storage_runs import histogram_of, storage_trials

from virtgauge.ledger.records import TrialStatus
from virtgauge.platforms.simulated.storage import StorageTruth
from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.laboratories import SimulatedTestbed

pytestmark = pytest.mark.usefixtures("private_state", "any_agent")

PLAIN = {"single-write": 1, "single-read": 1, "multi-write": 1000, "multi-read": 1000}
TIMES = {"single-write": 150.0, "single-read": 80.0, "multi-write": 4000.0, "multi-read": 2500.0}


def flags(trial):
    return {flag.name for flag in trial.flags}


def quantile_ms(histogram, share):
    return histogram.quantile(share) / 1e6


def test_each_operation_has_the_rate_that_the_database_was_told(tmp_path):
    truth = StorageTruth(service_us=TIMES)
    trials = storage_trials(tmp_path / "run", design={"clients": [1, 2, 16]}, service_us=TIMES)
    assert len(trials) == 12
    for trial in trials:
        assert trial.status is TrialStatus.VALID, trial.flags
        name, clients = trial.factors["operation"], int(trial.factors["clients"])
        mean_us = truth.mean_us(name.partition("-")[2], PLAIN[name], "flushed")
        wanted = min(clients, truth.parallel) * 1e6 / mean_us
        assert trial.result["operations_per_s"] == pytest.approx(wanted, rel=0.002)
        assert trial.result["rows_per_s"] == pytest.approx(wanted * PLAIN[name], rel=0.002)
        assert trial.factors["values"] == str(PLAIN[name])
        assert trial.result["client_cpu_ns_per_operation"] == pytest.approx(5000, rel=0.001)
        assert trial.result["client_limit_per_s"] == pytest.approx(min(clients, 4) * 1e5, rel=0.01)
        service = histogram_of(tmp_path / "run", trial, "service")
        assert service.n == trial.result["operations"]
        assert service.mean == pytest.approx(mean_us * 1e3, rel=5 / math.sqrt(service.n))


def test_queries_have_the_rate_that_the_database_was_told_and_the_limit_of_single_reads(tmp_path):
    times = {"last-value": 250.0, "window": 900.0}
    trials = storage_trials(tmp_path / "run", design={"operations": ["last-value", "window"]}, service_us=times)
    for trial in trials:
        assert trial.status is TrialStatus.VALID, trial.flags
        name = trial.factors["operation"]
        assert trial.result["operations_per_s"] == pytest.approx(1e6 / times[name], rel=0.002)
        assert trial.factors["values"] == {"last-value": "1", "window": "1000"}[name]
        assert trial.result["client_limit_per_s"] == pytest.approx(1e5, rel=0.01)
    (trial,) = storage_trials(tmp_path / "wrong", design={"operations": ["window"]}, wrong_share=0.01)
    assert trial.status is TrialStatus.INVALID and "wrong-answer" in flags(trial)


def test_levels_of_durability_cost_what_their_flushes_cost_and_are_counted(tmp_path):
    told = {"flush_us": {"flushed": 8333.0}, "flushes_per_write": {"flushed": 1.0, "periodic": 0.002}}
    design = {"operations": ["single-write"], "durability": ["os", "periodic", "flushed"]}
    trials = storage_trials(tmp_path / "run", design=design, **told)
    by_level = {trial.factors["durability"]: trial for trial in trials}
    assert all(trial.status is TrialStatus.VALID for trial in trials), [trial.flags for trial in trials]
    assert by_level["flushed"].result["operations_per_s"] == pytest.approx(1e6 / 8433, rel=0.01)
    assert by_level["os"].result["operations_per_s"] == pytest.approx(1e4, rel=0.01)
    assert by_level["flushed"].result["flushes_per_operation"] == pytest.approx(1.0, abs=0.01)
    assert by_level["periodic"].result["flushes_per_operation"] == pytest.approx(0.002, rel=0.1)
    assert by_level["os"].result["flushes"] == 0


@pytest.mark.parametrize(
    ("level", "counted"),
    [("flushed", 0.2), ("flushed", 0.0), ("periodic", 1.0), ("os", 1.0)],
)
def test_counted_flushes_that_contradict_the_level_make_a_trial_invalid(tmp_path, level, counted):
    told = {"flushes_per_write": {level: counted}, "flush_us": {}}
    design = {"operations": ["single-write"], "durability": [level]}
    (trial,) = storage_trials(tmp_path / "run", design=design, **told)
    assert trial.status is TrialStatus.INVALID
    assert "flushes" in flags(trial)


def test_a_group_of_clients_may_share_a_flush(tmp_path):
    design = {"operations": ["single-write"], "clients": [4]}
    (trial,) = storage_trials(tmp_path / "run", design=design)
    assert trial.status is TrialStatus.VALID
    assert trial.result["flushes_per_operation"] == pytest.approx(0.25, abs=0.01)


def test_wrong_answers_never_count(tmp_path):
    (trial,) = storage_trials(tmp_path / "run", design={"operations": ["single-read"]}, wrong_share=0.001)
    assert trial.status is TrialStatus.INVALID
    assert "wrong-answer" in flags(trial)
    assert trial.result["wrong"] > 0


def test_failed_operations_never_count(tmp_path):
    (trial,) = storage_trials(tmp_path / "run", design={"operations": ["single-read"]}, failing_share=0.01)
    assert trial.status is TrialStatus.INVALID
    assert "errors" in flags(trial)


@pytest.mark.parametrize("kind", ["lost", "timeout", "full"])
def test_a_database_that_is_lost_stuck_or_full_is_a_failed_trial_in_words_and_the_run_goes_on(tmp_path, kind):
    design = {"operations": ["single-write", "single-read"]}
    trials = storage_trials(tmp_path / "run", attempts=2, design=design, failing_share=0.01, failure_kind=kind)
    assert len(trials) == 4  # both attempts at both cells
    assert {trial.status for trial in trials} == {TrialStatus.FAILED}
    assert all(kind in trial.error and "operations failed" in trial.error for trial in trials)
    assert len({trial.guest_id for trial in trials}) == 4  # each failure had a fresh testbed after it


@pytest.mark.parametrize("kind", ["refused", "denied", "schema", "exists"])
def test_a_database_that_cannot_be_prepared_is_a_failed_trial_in_words(tmp_path, kind):
    (trial,) = storage_trials(tmp_path / "run", design={"operations": ["single-write"]}, refuses=kind)
    assert trial.status is TrialStatus.FAILED
    assert kind in trial.error


def test_a_client_near_its_own_limit_is_marked_and_its_figure_kept(tmp_path):
    design = {"operations": ["single-read"]}
    (trial,) = storage_trials(tmp_path / "run", design=design, service_us={"single-read": 15.0}, null_us=10.0)
    assert trial.status is TrialStatus.VALID
    assert "client-limited" in flags(trial)
    (trial,) = storage_trials(tmp_path / "far", design=design, service_us={"single-read": 30.0}, null_us=10.0)
    assert "client-limited" not in flags(trial)


@pytest.mark.parametrize(("service_us", "calibrations"), [(30.0, 1), (15.0, 3)])
def test_a_client_is_calibrated_once_in_a_run_and_again_on_every_testbed_that_comes_near_it(
    tmp_path, monkeypatch, service_us, calibrations
):
    asked = []
    null_client = SimulatedTestbed.null_client

    async def counted(testbed, target, data):
        asked.append(data)
        return await null_client(testbed, target, data)

    monkeypatch.setattr(SimulatedTestbed, "null_client", counted)
    truth = {"service_us": {"single-read": service_us}, "null_us": 10.0}
    trials = storage_trials(tmp_path / "run", repetitions=3, design={"operations": ["single-read"]}, **truth)
    assert len(asked) == calibrations
    assert len({trial.guest_id for trial in trials}) == 3
    assert all(trial.result["client_limit_per_s"] == pytest.approx(100_000, rel=0.01) for trial in trials)


def test_a_disk_that_changed_makes_what_waits_for_it_invalid_and_nothing_else(tmp_path):
    design = {"operations": ["single-write", "single-read"]}
    trials = storage_trials(tmp_path / "run", design=design, disk_drift=3.0)
    by_operation = {trial.factors["operation"]: trial for trial in trials}
    assert all("disk-changed" in flags(trial) for trial in trials)
    assert by_operation["single-write"].status is TrialStatus.INVALID
    assert by_operation["single-read"].status is TrialStatus.VALID


def test_a_disk_that_is_only_restless_makes_no_trial_invalid(tmp_path):
    design = {"operations": ["single-write"], "clients": [1, 2, 4, 8]}
    trials = storage_trials(tmp_path / "run", repetitions=5, design=design, disk_sigma=1.5)
    assert len(trials) == 20
    assert not any("disk-changed" in flags(trial) for trial in trials)
    ratios = [trial.result["disk_after_per_s"] / trial.result["disk_before_per_s"] for trial in trials]
    assert max(*ratios, *(1 / ratio for ratio in ratios)) > 2, "the rates themselves differ by factors"


def test_the_mean_of_a_flush_is_what_it_took_in_the_trial(tmp_path):
    (trial,) = storage_trials(tmp_path / "run", design={"operations": ["single-write"]}, flush_us={"flushed": 700.0})
    assert trial.result["mean_flush_ns"] == pytest.approx(700_000, rel=0.01)


def test_stored_bytes_are_what_the_files_grew_by_over_the_readings_that_are_there(tmp_path):
    """In the files of tables, where they are once the log has been moved there: it is told beside."""
    design = {"operations": ["single-write", "multi-write", "multi-read"], "preload": 1000, "sensors": 4}
    truth = {"bytes_per_reading": 40_000.0, "empty_bytes": 1e6, "log_bytes": 500.0}
    for trial in storage_trials(tmp_path / "run", design=design, **truth):
        result = trial.result
        assert result["stored_readings"] == (result["rows"] if "write" in trial.factors["operation"] else 4000)
        assert result["stored_bytes_empty"] == 1e6
        assert result["bytes_per_reading"] == pytest.approx(40_000)
        assert result["stored_log_bytes"] == 0


@pytest.mark.parametrize(("name", "unit"), [("sqlite", 4096), ("postgresql", 512 * 1024), ("mariadb", 4 << 20)])
def test_stored_bytes_are_unknown_where_the_files_grew_by_few_of_a_databases_steps(tmp_path, name, unit):
    for number, readings in enumerate((20 * unit / 32 - 100, 20 * unit / 32 + 100)):
        design = {"databases": [name], "operations": ["single-read"], "preload": round(readings), "sensors": 1}
        (trial,) = storage_trials(tmp_path / str(number), design=design, bytes_per_reading=32.0)
        result = trial.result
        assert result["bytes_per_reading"] == (pytest.approx(32) if number else None)
        assert (f"less than 20 times the {unit:,}" in result.get("stored_unknown", "")) == (number == 0)


@pytest.mark.parametrize(
    ("version", "writers", "pages"),
    [("15.18 (Debian)", 1, 64), ("15.18", 4, 64), ("15", 8, 140), ("9.6", 64, 512), ("16.2", 64, 64), ("17", 0, 64)],
)
def test_postgresql_extends_its_files_by_more_before_version_16_where_clients_wait(version, writers, pages):
    assert database("postgresql").grows_by(f"PostgreSQL {version}", writers) == pages * 8192


def test_stored_bytes_are_unknown_where_many_clients_may_have_extended_the_files(tmp_path):
    design = {"databases": ["postgresql"], "operations": ["multi-write"], "clients": [1, 16]}
    trials = storage_trials(tmp_path / "both", design=design)
    rows = {trial.factors["clients"]: trial.result["stored_readings"] for trial in trials}
    for clients, known in (("1", True), ("16", False)):
        own = design | {"clients": [int(clients)]}
        each = 20 * 2_000_000 / rows[clients]  # more than 20 times 64 pages, and less than 20 times 300
        (trial,) = storage_trials(tmp_path / clients, design=own, bytes_per_reading=each)
        assert (trial.result["bytes_per_reading"] is not None) == known, trial.result
        assert known or "20 times the 2,457,600 by which PostgreSQL extends them" in trial.result["stored_unknown"]


def test_stored_bytes_are_unknown_where_earlier_tables_left_much_of_them(tmp_path):
    design = {"operations": ["single-write", "multi-write", "multi-read", "single-read"], "preload": 1000}
    trials = storage_trials(tmp_path / "run", design=design, bytes_per_reading=40_000.0, keeps_dropped=True)
    assert len({trial.guest_id for trial in trials}) == 1
    known = [trial.result["bytes_per_reading"] for trial in trials]
    assert any(known) and None in known
    assert all(40_000 <= one <= 40_000 / 0.9 for one in known if one is not None)
    assert all(("before this table" in trial.result.get("stored_unknown", "")) == (one is None)
               for trial, one in zip(trials, known, strict=True))  # fmt: skip


def test_stored_bytes_are_known_where_readings_are_flushed_late_or_never_by_themselves(tmp_path):
    for number, (name, level) in enumerate([("mongodb", "none"), ("victoriametrics", "periodic")]):
        design = {"databases": [name], "durability": [level], "operations": ["multi-write"], "period_ms": 11_000}
        (trial,) = storage_trials(tmp_path / str(number), design=design, bytes_per_reading=40.0, log_bytes=9.0)
        assert trial.result["bytes_per_reading"] == pytest.approx(40)


def test_the_share_of_rows_that_is_late_across_statements_is_told_where_some_are_late(tmp_path):
    design = {"operations": ["multi-write", "multi-read"], "late_share": [0, 0.05]}
    for trial in storage_trials(tmp_path / "run", design=design):
        late = "late" in trial.factors and "write" in trial.factors["operation"]
        assert trial.result["late_across"] == (pytest.approx(0.05, rel=0.01) if late else None)
        assert trial.factors.get("late") in (None, "0.05:2000:600")


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_an_open_loops_response_time_counts_from_when_an_operation_was_due(tmp_path, share):
    rate = share * 1e4
    design = {"operations": ["single-read"], "loops": [f"open:{rate:g}"]}
    (trial,) = storage_trials(tmp_path / "run", design=design, service_us={"single-read": 100.0})
    assert trial.result["operations_per_s"] == pytest.approx(rate, rel=0.001)
    response = histogram_of(tmp_path / "run", trial, "response")
    assert response.mean == pytest.approx(1e5 / (1 - share), rel=0.1)
    assert histogram_of(tmp_path / "run", trial, "service").mean == pytest.approx(1e5, rel=0.1)


def test_the_knee_is_found_where_the_queue_has_it(tmp_path):
    told = {"service_us": {"single-write": 400.0, "single-read": 100.0}, "flush_us": {"flushed": 600.0}}
    design = {"operations": ["knee"], "knee_of": ["single-write", "single-read"], "objective_ms": 10}
    design |= {"knee_steps": 12, "seconds": 30.0}
    trials = storage_trials(tmp_path / "run", design=design, **told)
    by_operation = {trial.factors["of"]: trial for trial in trials}
    for name in ("single-write", "single-read"):
        trial = by_operation[name]
        assert trial.status is TrialStatus.VALID, trial.flags
        mean_us = StorageTruth(**told).mean_us(name.partition("-")[2], 1, "flushed")
        wanted = (1 - math.log(100) * mean_us / 10e3) * 1e6 / mean_us  # of an open loop with exponential times
        assert trial.result["knee_per_s"] == pytest.approx(wanted, rel=0.06)
        assert trial.result["objective_ms"] == 10
        steps = trial.result["steps"]
        assert len(steps) == 12
        assert [step["rate_per_s"] for step in steps] == sorted(step["rate_per_s"] for step in steps)
        assert all(step["met"] == (step["rate_per_s"] <= trial.result["knee_per_s"]) for step in steps)
        response = histogram_of(tmp_path / "run", trial, "response")
        assert quantile_ms(response, 0.99) == pytest.approx(10, rel=0.25)


def test_where_no_rate_meets_the_objective_there_is_no_knee_and_it_is_said(tmp_path):
    design = {"operations": ["knee"], "objective_ms": 0.2}
    (trial,) = storage_trials(tmp_path / "run", design=design)
    assert trial.result["knee_per_s"] is None
    assert "no-knee" in flags(trial)


def test_the_mixed_load_has_a_histogram_for_each_of_its_two_loads(tmp_path):
    mixed = {"writes_per_s": 500, "burst_every_ms": 200, "burst_reads": 20, "readers": 2}
    told = {"service_us": {"single-write": 100.0, "multi-read": 2000.0}, "flush_us": {}}
    design = {"operations": ["mixed"], "mixed": mixed, "clients": [3]}
    (trial,) = storage_trials(tmp_path / "run", design=design, **told)
    assert trial.status is TrialStatus.VALID, trial.flags
    assert trial.result["operations"] == 2 * (500 + 100)
    write, read = (histogram_of(tmp_path / "run", trial, f"response/{name}") for name in ("write", "read"))
    assert (write.n, read.n) == (1000, 200)
    assert write.mean == pytest.approx(1e5 / (1 - 0.05), rel=0.1)
    assert read.mean == pytest.approx(2e6 / (1 - 0.2), rel=0.25)


def test_a_crash_tells_how_many_acknowledged_rows_each_level_lost(tmp_path):
    design = {"operations": ["crash"], "durability": ["periodic", "flushed"], "clients": [4], "crash_after_s": 0.05}
    trials = storage_trials(tmp_path / "run", design=design, lost_share={"periodic": 0.25}, crash_rows=1000)
    by_level = {trial.factors["durability"]: trial for trial in trials}
    assert all(trial.status is TrialStatus.VALID for trial in trials), [trial.error for trial in trials]
    assert all(trial.result["acknowledged_rows"] == 4000 for trial in trials)
    assert by_level["periodic"].result["missing_rows"] == 1000
    assert by_level["flushed"].result["missing_rows"] == 0
    assert all(not flags(trial) for trial in trials)


def test_a_level_that_should_survive_a_kill_and_does_not_is_told(tmp_path):
    design = {"operations": ["crash"], "crash_after_s": 0.05}
    (trial,) = storage_trials(tmp_path / "run", design=design, lost_share={"flushed": 0.5})
    assert trial.status is TrialStatus.VALID
    assert "durability" in flags(trial)


@pytest.mark.slow
def test_repetitions_are_independent_testbeds_and_their_interval_covers_the_truth(tmp_path):
    design = {"operations": ["single-read"], "seconds": 0.5, "calibration_s": 0}
    covered = 0
    runs = 12
    for run in range(runs):
        told = {"service_us": {"single-read": 100.0}, "testbed_sigma": 0.1}
        trials = storage_trials(tmp_path / f"run{run}", repetitions=6, design={**design, "seed": run}, **told)
        rates = [trial.result["operations_per_s"] for trial in trials]
        assert len({trial.guest_id for trial in trials}) == 6
        covered += min(rates) <= 1e4 <= max(rates)
        if run == 0:
            assert len(set(rates)) == 6
        assert all(trial.result["client_limit_per_s"] is None for trial in trials)
    # [smallest, largest] of six covers the median in 1 − 2/2^6 of all runs
    assert covered >= 0.75 * runs


def test_cells_of_a_level_that_a_database_does_not_have_are_unsupported_with_the_reason(tmp_path):
    design = {"databases": ["postgresql", "mongodb"], "durability": ["os"], "operations": ["single-write"]}
    trials = storage_trials(tmp_path / "run", attempts=3, design=design)
    by_database = {trial.factors["database"]: trial for trial in trials}
    assert by_database["postgresql"].status is TrialStatus.VALID
    assert by_database["mongodb"].status is TrialStatus.UNSUPPORTED
    assert "os" in by_database["mongodb"].error


def test_no_password_is_in_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEST", "hunter2hunter2")
    server = {"database": "postgresql", "uri": "postgresql://me@127.0.0.1:1/db", "password_env": "SECRET_OF_THE_TEST"}
    design = {"databases": [], "server": [server], "operations": ["single-write"]}
    (trial,) = storage_trials(tmp_path / "run", design=design)
    assert trial.status is TrialStatus.UNSUPPORTED  # only ever measured from the host
    assert "from the host" in trial.error
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert b"hunter2hunter2" not in file.read_bytes(), file
    assert "hunter2hunter2" not in json.dumps(trial.result)
