"""What is read from outputs of oslat, rtla, hwlatdetect and jitterdebugger, and what is refused.

The files have the forms of the sources and invented figures: oslat and hwlatdetect of rt-tests 2.4 and 2.10
(``write_summary_json``, ``rt_write_json``, ``hwlatdetect.py``); rtla: ``timerlat_hist.c`` at e44c437e, and with threads
in user space (``rtla-timerlat-user.txt``, of the end of 2025); ``osnoise_hist.c`` at 025b2179; ``dump_stats`` of
jitterdebugger at 045a274b.
"""

import json
import os
from pathlib import Path

import pytest

from virtgauge.errors import UsageError
from virtgauge.exchange.imports.latencies import read_hwlatdetect, read_jitterdebugger, read_oslat, read_rtla
from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions
from virtgauge.ledger.records import statistics_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

DATA = Path(__file__).parents[1] / "data"


def figures(trial):
    """Statistics of a trial's latencies, in the histogram's unit."""
    return statistics_of(trial.histograms["latency"])


def bins(trial):
    histogram = trial.histograms["latency"]
    return dict(zip(histogram.values.tolist(), histogram.counts.tolist(), strict=True))


def replaced(tmp_path, name, old, new):
    """One of the outputs with something changed."""
    text = (DATA / name).read_text()
    assert old in text
    path = tmp_path / name
    path.write_text(text.replace(old, new))
    return path


def test_oslat_brings_a_trial_for_each_cpu():
    repetition = read_oslat(DATA / "oslat-2.4.json")
    first, _ = repetition.trials
    assert repetition.tool == "oslat 2.40"
    assert first.factors == {"cpu": "1", "priority": "80"}
    assert bins(first) == {1: 900_000, 2: 95_000, 3: 4990, 7: 10}
    assert (figures(first)["p99"], figures(first)["max"], first.flags) == (2, 7, ())
    assert first.result["latency"] == {"min": 1000, "max": 7000, "mean": pytest.approx(1105.04)}
    assert first.elapsed_ns == 11_000_000_000


def test_oslat_s_last_bin_is_taken_as_the_maximum_where_it_holds_longer_gaps():
    _, second = read_oslat(DATA / "oslat-2.4.json").trials
    assert bins(second) == {1: 99_000, 2: 900, 41: 100}
    assert [flag.detail for flag in second.flags] == [
        "100 of 100000 latencies beyond the histogram's end are taken as the maximum"
    ]


def test_oslat_s_bins_below_a_microsecond_are_in_nanoseconds():
    (trial,) = read_oslat(DATA / "oslat-2.10-fine.json").trials
    assert (trial.histograms["latency"].unit, bins(trial)) == ("ns", {100: 500, 200: 400, 12_300: 100})
    assert trial.result["latency"] == {"min": 60, "max": 12_250, "mean": pytest.approx(1360)}
    assert trial.factors == {"cpu": "1", "workload": "memmove"}


def oslat_of(tmp_path, version, edges=0, **own):
    """The output as another version of oslat has it: its edges higher by so much, and figures of both threads."""
    document = json.loads((DATA / "oslat-2.4.json").read_text()) | {"rt_test_version:": version}
    for thread in document["thread"].values():
        thread["histogram"] = {str(int(edge) + edges): count for edge, count in thread["histogram"].items()}
        thread.update(own)
    path = tmp_path / "oslat.json"
    path.write_text(json.dumps(document))
    return read_oslat(path).trials


def test_oslat_s_edges_that_two_versions_tell_one_too_high_are_put_right(tmp_path):
    for told, right in zip(
        oslat_of(tmp_path, "2.60", edges=1), read_oslat(DATA / "oslat-2.4.json").trials, strict=True
    ):
        assert (bins(told), told.flags, told.result) == (bins(right), right.flags, right.result)


@pytest.mark.parametrize(("most", "beyond"), [(6, [False, False]), (8, [True, True])])
def test_oslat_s_maximum_that_is_rounded_down_lies_in_the_last_bin_or_beyond_it(tmp_path, most, beyond):
    """Edges are 7 and 8: 6 is of [6, 7), and a gap of 8 or more is in no bin but the last."""
    trials = oslat_of(tmp_path, "2.70", min=0, max=most)
    assert [bool(trial.flags) for trial in trials] == beyond
    assert {trial.result["latency"]["max"] for trial in trials} == {1000 * most}, "as oslat says it"


def test_timerlat_brings_a_trial_for_each_cpu_and_context():
    path = DATA / "rtla-timerlat.txt"
    repetition = read_rtla(path)
    assert repetition.tool == "rtla timerlat"
    assert [tuple(trial.factors.values()) for trial in repetition.trials] == [
        ("timerlat", cpu, context) for cpu in ("0", "1") for context in ("irq", "thread")
    ]
    interrupt, thread, *_ = repetition.trials
    assert (bins(interrupt), interrupt.flags) == ({0: 900, 1: 90, 3: 10}, ())
    # Five lay beyond the last bin.
    assert bins(thread) == {1: 100, 2: 800, 5: 95, 312: 5}
    assert [flag.name for flag in thread.flags] == ["incomplete"]
    assert thread.result["latency"] == {"min": 1000, "max": 312_000, "mean": 3000}
    assert {trial.elapsed_ns for trial in repetition.trials} == {65 * 10**9}


def test_a_context_of_timerlat_that_nothing_was_seen_in_has_no_trial():
    """Nanoseconds, bins of 500 ns, 26 hours; what stands for all CPUs together below is not read as theirs."""
    interrupt, thread = read_rtla(DATA / "rtla-timerlat-user.txt").trials
    assert (interrupt.histograms["latency"].unit, interrupt.elapsed_ns) == ("ns", 26 * 3600 * 10**9)
    assert bins(thread) == {500: 10, 1500: 5}
    assert figures(interrupt)["p50"] == 210, "of a bin from 0 to 499, in which no value was below 210"
    assert [flag.detail for flag in thread.flags] == ["3 (9.09%) events missed"]


def test_osnoise_has_the_mean_of_its_bins():
    """Versions before Linux 6.2 reckoned it wrongly, others with a fraction."""
    first, _ = read_rtla(DATA / "rtla-osnoise.txt").trials
    assert first.factors == {"tracer": "osnoise", "cpu": "0"}
    assert figures(first)["mean"] == pytest.approx((12_224 * 10 + 8 * 20 + 30) / 55_215)


def test_hwlatdetect_brings_gaps_and_how_many_there_were():
    (trial,) = read_hwlatdetect(DATA / "hwlatdetect-2.4.txt").trials
    assert trial.factors == {
        "duration_s": "3600",
        "threshold_us": "10",
        "window_us": "1000000",
        "width_us": "500000",
    }
    assert bins(trial) == {12: 1, 18: 1, 23: 1}
    assert (trial.result["gaps"], trial.result["latency"]["max"]) == (3, 23_000)
    (later,) = read_hwlatdetect(DATA / "hwlatdetect-2.10.txt").trials
    assert (later.result["gaps"], bins(later)) == (6, {12: 1, 15: 1}), "a sample may be of several gaps"


def test_hwlatdetect_that_found_nothing_has_no_gap_and_no_latency(tmp_path):
    text = (DATA / "hwlatdetect-2.4.txt").read_text().partition("ts: ")[0]
    text = text.replace("Latency: 23us", "Latency: Below threshold").replace("recorded: 3", "recorded: 0")
    path = tmp_path / "nothing.txt"
    path.write_text(text.replace("threshold: 3", "threshold: 0"))
    (trial,) = read_hwlatdetect(path).trials
    assert (trial.result, trial.histograms) == ({"gaps": 0}, {})


def test_jitterdebugger_brings_a_trial_for_each_thread(tmp_path):
    first, second = read_jitterdebugger(DATA / "jitterdebugger-3.json").trials
    assert (first.factors, bins(first)) == ({"thread": "0"}, {2: 600, 3: 390, 9: 10})
    assert bins(second) == {2: 999, 1_200_345: 1}, "one latency was above its longest, a second"
    assert first.result["latency"]["mean"] == pytest.approx(2460)
    fine = replaced(tmp_path, "jitterdebugger-3.json", '"resolution_in_ns": 1000', '"resolution_in_ns": 1')
    assert read_jitterdebugger(fine).trials[0].result["latency"]["max"] == 9


def test_results_of_jitterdebugger_before_they_said_their_unit_are_microseconds(tmp_path):
    document = json.loads((DATA / "jitterdebugger-3.json").read_text())
    del document["sysinfo"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document | {"version": 1}))
    assert read_jitterdebugger(path).trials[0].result["latency"]["max"] == 9000


def test_an_output_without_a_date_is_as_old_as_its_file(tmp_path):
    path = tmp_path / "rtla.txt"
    path.write_text((DATA / "rtla-timerlat.txt").read_text())
    os.utime(path, (1_700_000_065, 1_700_000_065))
    assert read_rtla(path).trials[0].started_at == "2023-11-14T22:13:20.000+00:00"


@pytest.mark.parametrize(
    ("read", "name", "old", "new", "words"),
    [
        (read_oslat, "oslat-2.4.json", '"7": 10', '"-7": 10', "thread.0.histogram.-7"),
        (read_oslat, "oslat-2.4.json", '"cpu": 2', '"cpu": 1', "cannot be told apart"),
        (read_oslat, "oslat-2.4.json", '"max": 41,', "", "thread.1.max is missing"),
        (read_jitterdebugger, "jitterdebugger-3.json", '"resolution_in_ns": 1000', '"resolution_in_ns": 5', "= 5"),
        (read_jitterdebugger, "jitterdebugger-3.json", "2.46", "-nan", "is not JSON"),
        (read_rtla, "rtla-timerlat.txt", "# RTLA", "# rtla", "no header"),
        (read_rtla, "rtla-timerlat.txt", "over:", "under", "has no over:"),
        (read_rtla, "rtla-timerlat.txt", "max:", "most:", "has no over:"),
        (read_rtla, "rtla-timerlat.txt", "   Thr-001", "", "has 4 of 3 columns"),
        (read_rtla, "rtla-timerlat.txt", "      800", "-21474836", "'-21474836': is no count"),
        (read_rtla, "rtla-timerlat.txt", "IRQ-001", "IRQ-000", "cannot be told apart"),
        (read_rtla, "rtla-osnoise.txt", "   CPU-000   CPU-001", "", "no latency of it was counted"),
        (read_hwlatdetect, "hwlatdetect-2.4.txt", "Sample window", "Window", "does not say its window"),
        (read_hwlatdetect, "hwlatdetect-2.4.txt", "recorded: 3", "recorded: 4", "has 3 of its 4 samples"),
    ],
)
def test_what_is_none_of_their_outputs_is_refused_with_file_and_remedy(tmp_path, read, name, old, new, words):
    with pytest.raises(UsageError, match="nothing was imported") as refusal:
        read(replaced(tmp_path, name, old, new))
    assert name in refusal.value.message
    assert words in refusal.value.message
    assert refusal.value.remedy


def test_they_stand_beside_each_other_as_measures(tmp_path):
    """Each tool's figures, in nanoseconds, by the names that can be required."""
    wanted = {
        ("oslat", "oslat-2.4.json"): ("oslat.latency.max", {7000.0, 41_000.0}),
        ("rtla", "rtla-timerlat.txt"): ("rtla.latency.max", {3000.0, 312_000.0, 0.0, 2000.0}),
        ("hwlatdetect", "hwlatdetect-2.4.txt"): ("hwlatdetect.gaps", {3.0}),
        ("jitterdebugger", "jitterdebugger-3.json"): ("jitterdebugger.latency.max", {9000.0, 1_200_345_000.0}),
    }
    for number, (tool, name) in enumerate(wanted):
        found = read_repetitions(tool, [DATA / name])
        import_into(tmp_path / "run", found, ImportedArm("host"), {}, new=number == 0)
    with Ledger.open(tmp_path / "run") as ledger:
        table = ResultTable(ledger)
        for (tool, _), (measure, values) in wanted.items():
            one = find_measure("imported", measure)
            cells = [cell for cell in table.cells("imported") if cell.probe == tool]
            assert {value for cell in cells for value in table.values(one, cell, "host").values()} == values
