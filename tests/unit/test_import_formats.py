"""What is read from real outputs of fio 3.33, cyclictest 2.4 and pgbench 15.18, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from virtgauge.errors import UsageError
from virtgauge.exchange.imports.fio import read_fio
from virtgauge.exchange.imports.foreign_trial import histogram_of_values
from virtgauge.exchange.imports.latencies import read_cyclictest
from virtgauge.exchange.imports.pgbench import logs_together, read_pgbench
from virtgauge.ledger.records import statistics_of

DATA = Path(__file__).parents[1] / "data"


def changed(tmp_path, name, change):
    """A real JSON output with something changed."""
    document = json.loads((DATA / name).read_text())
    change(document)
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return path


def test_fio_plus_brings_rates_and_histograms():
    own = json.loads((DATA / "fio-3.33-randread.json").read_text())["jobs"][0]["read"]
    (trial,) = read_fio(DATA / "fio-3.33-randread.json").trials
    assert trial.factors == {
        "job": "randread",
        "rw": "randread",
        "bs": "4k",
        "iodepth": "1",
        "direct": "1",
        "operation": "read",
    }
    assert (trial.result["iops"], trial.result["bits_per_s"]) == (own["iops"], 8 * own["bw_bytes"])
    assert trial.histograms["clat"].n == own["clat_ns"]["N"] == 1024
    assert trial.elapsed_ns == own["runtime"] * 1_000_000
    figures = statistics_of(trial.histograms["clat"])
    for name, percentile in (("p90", "90.000000"), ("p99", "99.000000")):
        assert figures[name] == pytest.approx(own["clat_ns"]["percentile"][percentile], rel=0.017)
    assert figures["max"] == own["clat_ns"]["max"]


def test_plain_fio_brings_the_quantiles_that_its_values_can_say():
    read, write = read_fio(DATA / "fio-3.33-mixed.json").trials
    assert (read.factors["operation"], write.factors["operation"]) == ("read", "write")
    assert read.histograms == {}
    assert {"p50", "p90"} <= read.result["clat"].keys()
    assert "p99" not in read.result["clat"], "half of a thousand operations leave no ten beyond it"


def test_a_job_that_fio_ended_with_an_error_has_no_figure(tmp_path):
    path = changed(tmp_path, "fio-3.33-randread.json", lambda output: output["jobs"][0].update(error=5))
    (trial,) = read_fio(path).trials
    assert (trial.error, trial.result) == ("fio ended the job randread with error 5", {})


def test_warnings_before_the_document_are_passed_over(tmp_path):
    path = tmp_path / "warned.json"
    path.write_text("fio: a warning about { something }\n" + (DATA / "fio-3.33-mixed.json").read_text())
    assert len(read_fio(path).trials) == 2


def test_jobs_that_cannot_be_told_apart_are_refused():
    with pytest.raises(UsageError, match="same name and options") as refusal:
        read_fio(DATA / "fio-3.33-two-jobs.json")
    assert "--group_reporting" in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda output: output.pop("fio version"), "fio version is missing"),
        (lambda output: output.update(jobs=[]), "jobs"),
        (lambda output: output["jobs"][0]["read"].pop("iops"), "jobs.0.read.iops is missing"),
        (lambda output: output["jobs"][0]["read"].update(iops="many"), "jobs.0.read.iops = 'many'"),
        (lambda output: output["jobs"][0]["read"].update(iops=-1), "jobs.0.read.iops = -1"),
        (lambda output: output["jobs"][0]["read"].update(bw_bytes=float("nan")), "jobs.0.read.bw_bytes = nan"),
        (lambda output: output["jobs"][0]["read"]["clat_ns"]["bins"].update(x=1), "clat_ns.bins"),
        (lambda output: output["jobs"][0]["read"]["clat_ns"]["percentile"].update(x=1), "clat_ns.percentile"),
        (lambda output: output["jobs"][0]["read"].update(runtime=2**50), "jobs.0.read.runtime"),
        (lambda output: output["jobs"][0]["read"].update(total_ios=0), "no job of it did any"),
        (lambda output: output.update(timestamp_ms=10**30), "timestamp_ms"),
    ],
)
def test_a_malformed_fio_output_is_refused_with_file_field_and_remedy(tmp_path, change, field):
    with pytest.raises(UsageError, match="nothing was imported") as refusal:
        read_fio(changed(tmp_path, "fio-3.33-randread.json", change))
    assert "fio-3.33-randread.json" in refusal.value.message
    assert field in refusal.value.message
    assert refusal.value.remedy


def test_cyclictest_brings_a_trial_for_each_thread():
    own = json.loads((DATA / "cyclictest-2.4-histogram.json").read_text())["thread"]
    repetition = read_cyclictest(DATA / "cyclictest-2.4-histogram.json")
    assert repetition.tool == "cyclictest 2.40"
    assert [trial.factors for trial in repetition.trials] == [
        {"thread": number, "interval_us": "1000", "priority": "80"} for number in ("0", "1")
    ]
    for trial, thread in zip(repetition.trials, own.values(), strict=True):
        figures = statistics_of(trial.histograms["latency"])
        assert trial.histograms["latency"].n == thread["cycles"]
        assert (figures["min"], figures["max"]) == (thread["min"], thread["max"])
        assert trial.histograms["latency"].unit == "us"


def test_what_lies_beyond_a_histogram_s_end_makes_no_quantile_better():
    """Two of 500 latencies took longer than 400 µs, where the histogram ended, and one of them 828 µs."""
    trial, _ = read_cyclictest(DATA / "cyclictest-2.4-histogram.json").trials
    histogram = trial.histograms["latency"]
    assert (int(histogram.values[-1]), int(histogram.counts[-1])) == (828, 2)
    assert [flag.name for flag in trial.flags] == ["incomplete"]


def test_cyclictest_without_histogram_brings_extremes_and_mean():
    (trial,) = read_cyclictest(DATA / "cyclictest-2.4-plain.json").trials
    assert trial.histograms == {}
    assert trial.result["latency"] == {"min": 48_000, "max": 1_794_000, "mean": pytest.approx(91_230)}
    assert trial.factors["policy"] == "other"


def test_cyclictest_in_nanoseconds_is_not_multiplied(tmp_path):
    path = changed(tmp_path, "cyclictest-2.4-plain.json", lambda output: output.update(resolution_in_ns=1))
    assert read_cyclictest(path).trials[0].result["latency"]["max"] == 1794


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda output: output.update(start_time="yesterday"), "start_time = 'yesterday'"),
        (lambda output: output.update(thread={}), "thread"),
        (lambda output: output["thread"]["0"].pop("max"), "thread.0.max is missing"),
        (lambda output: output["thread"]["0"].update(cycles=0), "no latency of it was counted"),
    ],
)
def test_a_malformed_cyclictest_output_is_refused(tmp_path, change, field):
    with pytest.raises(UsageError, match="nothing was imported") as refusal:
        read_cyclictest(changed(tmp_path, "cyclictest-2.4-plain.json", change))
    assert field in refusal.value.message


def pgbench_logs(*names):
    return [DATA / f"pgbench-15.18{name}" for name in names]


def test_the_logs_of_one_pgbench_s_threads_belong_together():
    paths = pgbench_logs("-rate.25501", ".25495.1", ".25495")
    assert [[path.name for path in group] for group in logs_together(paths)] == [
        ["pgbench-15.18-rate.25501"],
        ["pgbench-15.18.25495.1", "pgbench-15.18.25495"],
    ]


def test_pgbench_brings_throughput_and_a_histogram_over_all_threads():
    (trial,) = read_pgbench(pgbench_logs(".25495", ".25495.1")).trials
    times = [
        int(line.split()[2]) for path in pgbench_logs(".25495", ".25495.1") for line in path.read_text().splitlines()
    ]
    assert trial.factors == {"clients": "2", "log": "transactions"}
    assert trial.histograms["transaction"].n == len(times) == 300
    assert trial.histograms["transaction"].maximum == 1000 * max(times)
    assert trial.result["transactions_per_s"] == pytest.approx(2537, rel=0.05), "pgbench itself said 2537"
    assert trial.result["failed_share"] == 0


def test_transactions_without_a_time_are_counted_and_not_averaged_in(tmp_path):
    path = tmp_path / "log.1"
    path.write_text("0 1 2000 0 1700000000 2000 5\n0 2 skipped 0 1700000000 500000 5\n0 3 failed 0 1700000001 2000\n")
    (trial,) = read_pgbench([path]).trials
    assert trial.result["failed_share"] == pytest.approx(2 / 3)
    assert trial.result["without_time"] == {"skipped": 1, "failed": 1}
    assert trial.histograms["transaction"].n == 1
    assert trial.result["transactions_per_s"] == pytest.approx(1 / 1.002)


def test_an_aggregated_log_has_a_rate_of_its_whole_intervals_and_no_quantile():
    (trial,) = read_pgbench(pgbench_logs("-aggregate.25506")).trials
    assert trial.result["transactions_per_s"] == 1607
    assert trial.result["transaction"]["max"] == 21_287_000
    assert trial.result["transaction"]["mean"] == pytest.approx(1000 * (1371945 + 1997520 + 1996367) / 4157)
    assert trial.histograms == {}


def test_a_cyclictest_output_without_its_command_line_is_read(tmp_path):
    path = changed(tmp_path, "cyclictest-2.4-plain.json", lambda output: output.update({"cmdline": "", "cmdline:": ""}))
    assert {tuple(trial.factors) for trial in read_cyclictest(path).trials} == {("thread",)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("0 1 2000 0 1700000000\n", "line 1"),
        ("0 1 2000 0 1700000000 5\nstarting vacuum...end.\n", "line 2 = 'starting vacuum...end.'"),
        ("0 1 -7 0 1700000000 5\n", "line 1"),
        ("0 1 nan 0 1700000000 5\n", "line 1"),
        ("0 1 failed 0 1700000000 5\n", "no transaction of it succeeded"),
        ("\x00\xff\n", "line 1"),
    ],
)
def test_what_is_no_pgbench_log_is_refused_with_its_line(tmp_path, text, words):
    path = tmp_path / "pgbench_log.1"
    path.write_text(text)
    with pytest.raises(UsageError, match="nothing was imported") as refusal:
        read_pgbench([path])
    assert words in refusal.value.message


def test_logs_of_two_kinds_are_no_repetition():
    with pytest.raises(UsageError, match="mixed"):
        read_pgbench(pgbench_logs(".25495", "-aggregate.25506"))


@pytest.mark.parametrize("read", [read_fio, read_cyclictest])
def test_what_is_no_json_or_no_file_is_refused(tmp_path, read):
    (tmp_path / "text").write_text("{ not json")
    for path, words in (
        (tmp_path / "text", "is not JSON"),
        (tmp_path / "none", "cannot be read"),
        (tmp_path, "cannot"),
    ):
        with pytest.raises(UsageError, match=words):
            read(path)


def test_values_fall_on_hdr_bins():
    values = np.array([0, 1, 2047, 2048, 2049, 10**9], dtype=np.int64)
    histogram = histogram_of_values(values, "ns")
    assert histogram.values.tolist() == [0, 1, 2047, 2048, 10**9 >> 19 << 19]
    assert histogram.counts.tolist() == [1, 1, 1, 2, 1]
    assert (histogram.minimum, histogram.maximum) == (0, 10**9)
